// SPDX-License-Identifier: MIT OR Apache-2.0
//! What boots a computer: an emulator that is there.

use crate::bochs::Bochs;
use crate::own_emulator::OwnEmulator;

/// An emulator's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    Bochs(Bochs),
    /// Debian's.
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

    /// Names of the lab's patches that it has.
    pub fn patches(&self) -> String {
        match self {
            Program::Bochs(Bochs::Own(own)) | Program::QemuAmd(own) => own.patches(),
            Program::Bochs(Bochs::Debian) | Program::Qemu => String::new(),
        }
    }

    /// Whose processor it emulates.
    pub fn vendor(&self) -> &'static str {
        match self {
            Program::Bochs(_) => "Intel",
            Program::Qemu | Program::QemuAmd(_) => "AMD",
        }
    }

    /// What tells its boots from another one's.
    pub(crate) fn mark(&self) -> &str {
        match self {
            Program::Bochs(bochs) => bochs.mark(),
            Program::Qemu => "QEMU of Debian",
            Program::QemuAmd(own) => &own.build,
        }
    }
}
