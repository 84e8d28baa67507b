// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines, which run plans.

mod emulated;
pub mod emulator;
mod guests;
mod job;
pub mod kvm;
pub mod lab;
pub mod sim;
mod takes;
pub mod threads;

use crate::exit::{Cannot, Usage};
use std::path::Path;
use std::sync::atomic::Ordering;

use emulator::Timed;
pub use job::{Job, Machine, Refusal, Sink, Wish};
pub use takes::Takes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Choice {
    /// kvm if this host supports it, else emulated.
    Auto,
    /// This host: VT-x with PLE or AMD-V with pause filter, and the module loaded.
    Kvm,
    /// An emulated computer with VT-x and PLE (Bochs), or SVM and a pause filter (--emulator).
    Emulated,
    /// A model of a host of any size; its results are predictions, not measurements.
    Sim,
    /// Threads of this computer as vCPUs: locks under preemption on real cores, without a hypervisor.
    Threads,
}

/// The chosen machine, or why this computer does not support it.
pub fn choose(choice: Choice, wish: &Wish) -> anyhow::Result<Box<dyn Machine>> {
    if matches!(choice, Choice::Kvm | Choice::Sim | Choice::Threads)
        && wish.emulator != Timed::default()
    {
        let why = "--emulator: this machine is not an emulator";
        return Err(Usage(format!("{why}; allowed: --machine emulated")).into());
    }
    let kvm = match choice {
        Choice::Sim => return Ok(Box::new(sim::Simulated)),
        Choice::Threads => return Ok(Box::new(threads::Threads::new(wish)?)),
        Choice::Emulated => return Ok(Box::new(emulated::Emulated::new(wish)?)),
        Choice::Kvm | Choice::Auto => kvm::Kvm::new(Path::new("/"), wish),
    };
    match kvm {
        Ok(kvm) => Ok(Box::new(kvm)),
        Err(e) if wish.stop.load(Ordering::Relaxed) => Err(e),
        Err(e) if choice == Choice::Auto => {
            say!("machine emulated, because kvm cannot be used here: {e:#}");
            Ok(Box::new(emulated::Emulated::new(wish)?))
        }
        Err(e) => Err(Cannot(format!("machine kvm: {e:#}")).into()),
    }
}
