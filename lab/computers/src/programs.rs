// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds or builds the programs that boot a lab's computers.

use crate::bochs::Bochs;
use crate::emulator::Emulator;
use crate::error::{LabError, Result};
use crate::go::Go;
use crate::own_emulator::OwnEmulator;
use crate::program::Program;
use crate::recipe::QEMU_AMD;
use crate::tool;
use crate::Lab;

/// Debian's QEMU.
const QEMU: &str = "qemu-system-x86_64";

impl Lab {
    /// The program for an emulator's computers in this lab from now on. Builds it if necessary.
    pub fn program(&self, emulator: Emulator, go: &mut Go) -> Result<Program> {
        match emulator {
            Emulator::Bochs => self.bochs(go).map(Program::Bochs),
            Emulator::Qemu => match tool::which(QEMU) {
                Some(_) => Ok(Program::Qemu),
                None => Err(tool::absent(QEMU)),
            },
            Emulator::QemuAmd => {
                if let Some(own) = self.qemu_amd.get() {
                    return Ok(Program::QemuAmd(own.clone()));
                }
                let made = OwnEmulator::make(&QEMU_AMD, &self.dir, go)?;
                Ok(Program::QemuAmd(self.qemu_amd.get_or_init(|| made).clone()))
            }
        }
    }

    /// The same without building: only existing programs.
    pub(crate) fn program_here(&self, emulator: Emulator) -> Result<Program> {
        match emulator {
            Emulator::Bochs => {
                let found = self.bochs.get().cloned();
                found.map_or_else(|| Bochs::find(&self.dir), Ok).map(Program::Bochs)
            }
            Emulator::Qemu => Ok(Program::Qemu),
            Emulator::QemuAmd => {
                let found = self.qemu_amd.get().cloned();
                let found = found.or_else(|| OwnEmulator::find(&QEMU_AMD, &self.dir));
                found.map(Program::QemuAmd).ok_or(LabError::NoOwnQemu)
            }
        }
    }
}
