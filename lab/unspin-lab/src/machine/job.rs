// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trait of machines, and their jobs.

use super::emulator::Timed;
use super::takes::Takes;
use crate::exit::Usage;
use anyhow::Context;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use unspin_scenario::plan::Plan;
use unspin_scenario::result::Record;

/// One agent's worth of work.
pub struct Job<'a> {
    pub plan: &'a Plan,
    /// Kernel series of an emulated computer; this host's release on kvm.
    pub kernel: &'a str,
    /// The directory for the job's own files (consoles, images of its boot).
    pub dir: &'a Path,
    /// Threads the job may keep busy.
    pub threads: usize,
    /// Set when the user wants it to end.
    pub stop: &'a AtomicBool,
    /// Says what takes time before the first record.
    pub say: &'a (dyn Fn(&str) + Sync),
}

/// Receives each record; an error (a full disk) ends the job.
pub type Sink<'a> = dyn FnMut(Record) -> anyhow::Result<()> + 'a;

/// Why a machine does not support a request, and what it supports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub message: String,
    pub allowed: String,
}

/// A refusal of an argument of the command line.
impl From<Refusal> for Usage {
    fn from(r: Refusal) -> Usage {
        Usage(format!("{}; allowed: {}", r.message, r.allowed))
    }
}

pub trait Machine: Sync {
    fn name(&self) -> &'static str;
    /// Kernels the plan is run on where the user and the scenario name none.
    fn default_kernels(&self) -> Vec<String>;
    /// Whether kernels can be chosen, and a repeated job gives the same records.
    fn boots(&self) -> bool;
    /// Whether a run takes something from those before it, so that those of a point belong together.
    fn measures(&self) -> bool {
        true
    }
    /// How many computers to share a plan among where the scenario asks for `boots`.
    fn shares(&self, boots: u32) -> u32 {
        if self.boots() {
            boots
        } else {
            1
        }
    }
    /// Whether it has a kernel with this name.
    fn check_kernel(&self, name: &str) -> Result<(), Refusal>;
    /// Whether it can have this many physical CPUs.
    fn check_pcpus(&self, _: u32) -> Result<(), Refusal> {
        Ok(())
    }
    /// Whether its VMs can have this many vCPUs.
    fn check_vcpus(&self, vcpus: u32) -> Result<(), Refusal> {
        if vcpus as usize <= unspin_guest_abi::VCPUS_MAX {
            return Ok(());
        }
        Err(Refusal {
            message: format!("a VM of machine {} cannot have {vcpus} vCPUs", self.name()),
            allowed: format!("1 to {}, or --machine sim", unspin_guest_abi::VCPUS_MAX),
        })
    }
    /// Whether it can make every run of the plan; else the scenario's key that asks for too much, and
    /// why.
    fn check_plan(&self, _: &Plan) -> Result<(), (&'static str, Refusal)> {
        Ok(())
    }
    /// What booting for a plan and running it takes of this computer, where it can be told.
    fn takes(&self, _: &Plan) -> Option<Takes> {
        None
    }
    /// SHA-256, in hex, of this project's code behind a run's figures: module, policies, agent and
    /// guest, or the simulator. Builds what else the runs need first, until `stop` is set.
    fn image(&self, stop: &AtomicBool) -> anyhow::Result<String>;
    /// Runs the job to its End record, or says why not.
    fn run(&self, job: &Job, sink: &mut Sink) -> anyhow::Result<()>;
}

/// The requested machine, and what may be done to get it.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// Physical CPUs of the scenario that wants most.
    pub pcpus: u32,
    /// Whether the module may be built and loaded.
    pub load: bool,
    /// Where emulated computers keep their kernels.
    pub lab_dir: Option<&'a Path>,
    /// What emulates them.
    pub emulator: Timed,
    /// Ends what takes time.
    pub stop: &'a AtomicBool,
}

/// SHA-256 of this program and `more`, in hex.
pub(super) fn program_hash(more: &[u8]) -> anyhow::Result<String> {
    let path = std::env::current_exe().context("cannot find this program")?;
    let program =
        std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(unspin_computers::sha256(&[&program, more]))
}

/// Whether `name` is the kernel this computer runs, on a machine that runs no other.
pub(super) fn only_kernel(machine: &str, name: &str, release: &str) -> Result<(), Refusal> {
    if name == release {
        return Ok(());
    }
    Err(Refusal {
        message: format!("machine {machine} does not run kernel {name:?}"),
        allowed: format!("{release:?}, this computer's own"),
    })
}
