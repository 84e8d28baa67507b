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

/// The work of one agent.
pub struct Job<'a> {
    pub plan: &'a Plan,
    /// Kernel series of an emulated computer; on kvm, this host's release.
    pub kernel: &'a str,
    /// Directory for the job's own files (consoles, images of its boot).
    pub dir: &'a Path,
    /// Number of threads that the job may keep busy.
    pub threads: usize,
    /// Set when the user wants the job to end.
    pub stop: &'a AtomicBool,
    /// Reports steps that take time before the first record.
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
    /// The kernel on which the plan runs if neither the user nor the scenario names any.
    fn default_kernel(&self) -> &str;
    /// Whether kernels can be chosen, and repeating a job gives the same records.
    fn boots(&self) -> bool {
        true
    }
    /// Whether earlier runs may affect a run, so that the runs of a point belong together.
    fn measures(&self) -> bool {
        true
    }
    /// The number of computers among which to divide a plan if the scenario has `boots`.
    fn shares(&self, boots: u32) -> u32 {
        if self.boots() {
            boots
        } else {
            1
        }
    }
    /// Whether it has a kernel of this name: only its own if kernels cannot be chosen.
    fn check_kernel(&self, name: &str) -> Result<(), Refusal> {
        if name == self.default_kernel() {
            return Ok(());
        }
        Err(Refusal {
            message: format!("machine {} does not run kernel {name:?}", self.name()),
            allowed: format!("{:?}, this computer's own", self.default_kernel()),
        })
    }
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
    /// Whether it supports every run of the plan. The error has the scenario's key that it does not
    /// support, and the reason.
    fn check_plan(&self, _: &Plan) -> Result<(), (&'static str, Refusal)> {
        Ok(())
    }
    /// This computer's time to boot for a plan and to run it; `None` if there is no estimate.
    fn takes(&self, _: &Plan) -> Option<Takes> {
        None
    }
    /// SHA-256, in hex, of this project's code that affects figures: module, policies, agent and
    /// guest, or the simulator. First builds everything else that the runs need, until `stop` is
    /// set.
    fn image(&self, stop: &AtomicBool) -> anyhow::Result<String>;
    /// Runs the job to its End record; an error if that fails.
    fn run(&self, job: &Job, sink: &mut Sink) -> anyhow::Result<()>;
}

/// The requested machine, and the allowed means to get it.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The largest number of physical CPUs of the scenarios.
    pub pcpus: u32,
    /// Whether the module may be built and loaded.
    pub load: bool,
    /// Directory for kernels of emulated computers.
    pub lab_dir: Option<&'a Path>,
    /// The emulator.
    pub emulator: Timed,
    /// Interrupts steps that take time.
    pub stop: &'a AtomicBool,
}

/// SHA-256 of this program and `more`, in hex.
pub(super) fn program_hash(more: &[u8]) -> anyhow::Result<String> {
    let path = std::env::current_exe().context("cannot find this program")?;
    let program =
        std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(unspin_computers::sha256(&[&program[..], more]))
}
