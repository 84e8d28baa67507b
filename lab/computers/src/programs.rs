// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs that boot a lab's computers: found, or built.

use crate::emulator::Emulator;
use crate::error::{LabError, Result};
use crate::own_emulator::OwnEmulator;
use crate::program::Program;
use crate::recipe::{Recipe, BOCHS, QEMU_AMD};
use crate::Lab;
use std::sync::atomic::AtomicBool;
use std::sync::OnceLock;

type Own<'a> = (&'a OnceLock<OwnEmulator>, &'static Recipe, fn(OwnEmulator) -> Program);

impl Lab {
    /// The program that boots an emulator's computers in this lab from now on, built if it has to be.
    pub fn program(
        &self,
        emulator: Emulator,
        stop: &AtomicBool,
        say: &mut dyn FnMut(&str),
    ) -> Result<Program> {
        let (made, recipe, program) = match self.own(emulator) {
            Some(own) => own,
            None => return Ok(Program::Qemu),
        };
        if let Some(own) = made.get() {
            return Ok(program(own.clone()));
        }
        let own = OwnEmulator::make(recipe, &self.dir, stop, say)?;
        Ok(program(made.get_or_init(|| own).clone()))
    }

    /// The same, of those that are there: nothing is built.
    pub(crate) fn program_here(&self, emulator: Emulator) -> Result<Program> {
        let Some((made, recipe, program)) = self.own(emulator) else { return Ok(Program::Qemu) };
        let found = made.get().cloned().or_else(|| OwnEmulator::find(recipe, &self.dir));
        found.map(program).ok_or(LabError::NoOwnEmulator { name: recipe.name, id: recipe.id })
    }

    /// Of an emulator that the lab builds: where it is noted, and what it is built of.
    fn own(&self, emulator: Emulator) -> Option<Own<'_>> {
        match emulator {
            Emulator::Bochs => Some((&self.bochs, &BOCHS, Program::Bochs)),
            Emulator::Qemu => None,
            Emulator::QemuAmd => Some((&self.qemu_amd, &QEMU_AMD, Program::QemuAmd)),
        }
    }
}
