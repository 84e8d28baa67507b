// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that boots a computer: an emulator that exists on this computer.

use crate::bochs::Bochs;
use crate::own_emulator::OwnEmulator;

/// An emulator's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    Bochs(Bochs),
    /// Debian's QEMU.
    Qemu,
    QemuAmd(OwnEmulator),
}

impl Program {
    /// The name in provenances.
    pub fn name(&self) -> String {
        match self {
            Program::Bochs(bochs) => bochs.name(),
            Program::Qemu => "QEMU of Debian".into(),
            Program::QemuAmd(own) => own.name(),
        }
    }

    /// Names of its patches from the lab.
    pub fn patches(&self) -> String {
        match self {
            Program::Bochs(Bochs::Own(own)) | Program::QemuAmd(own) => own.patches(),
            Program::Bochs(Bochs::Debian) | Program::Qemu => String::new(),
        }
    }

    /// The vendor of the processor that it emulates.
    pub fn vendor(&self) -> &'static str {
        match self {
            Program::Bochs(_) => "Intel",
            Program::Qemu | Program::QemuAmd(_) => "AMD",
        }
    }

    /// A text that distinguishes its boots from those of another program.
    pub(crate) fn mark(&self) -> &str {
        match self {
            Program::Bochs(bochs) => bochs.mark(),
            Program::Qemu => "QEMU of Debian",
            Program::QemuAmd(own) => &own.build,
        }
    }
}
