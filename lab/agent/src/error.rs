// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors that prevent a run. Each says what an operator has to change.

use std::io::Write;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("{path} is not a plan: {source}; `unspin-lab plan` prints one")]
    Plan { path: String, source: serde_json::Error },
    #[error(
        "the plan has format {plan}, and this agent reads format {agent}; use a plan and an agent \
         of the same version"
    )]
    Schema { plan: u32, agent: u32 },
    #[error("the plan needs {wanted} CPUs, and this computer has {online} online")]
    FewCpus { wanted: u32, online: u32 },
    #[error("plan: {0}")]
    Run(String),
    #[error(transparent)]
    Vmm(#[from] unspin_vmm::Error),
    #[error("VM {vm}: {error}")]
    Vm { vm: u32, error: String },
    #[error("VM {vm} did not {what} within {seconds} s and was killed")]
    Timeout { vm: u32, what: &'static str, seconds: u64 },
    #[error("arm {arm} needs the unspin module, which is not loaded; run `unspin load`")]
    NoModule { arm: String },
    #[error(
        "other VMs run on this computer ({vms}), and a plan changes settings of the module for \
             all VMs; stop them first"
    )]
    OtherVms { vms: String },
    #[error("module: cannot set {setting} to {value}: {source}")]
    Module { setting: String, value: String, source: std::io::Error },
    #[error("the module does not list the VM of process {pid}; perhaps it was reloaded")]
    UnknownVm { pid: u32 },
    #[error("module: {path} has {text:?}, which is not a count")]
    Counter { path: String, text: String },
    #[error(
        "module: {counter} fell from {from} to {to} during the run; another program wrote to \
             reset, or reloaded the module"
    )]
    WentBack { counter: &'static str, from: u64, to: u64 },
    #[error("arm {arm} sets the window, which the module cannot do on this host: {reason}")]
    NoWindowControl { arm: String, reason: String },
    #[error("Credit by sched_ext (coscheduling_mechanism = \"sched-ext\"): {what}")]
    NoSchedExt { what: String },
    #[error("unspin schedule (coscheduling_mechanism = \"scheduler\"): {what}")]
    NoScheduler { what: String },
    #[error("asymmetric vCPUs (asym of the arm): {what}")]
    NoShape { what: String },
    #[error("vCPUs' states (measure.states, [[case]]): {what}")]
    NoStates { what: String },
    #[error(
        "the scheduler's slice cannot be set, because /sys/kernel/debug/sched has no file for \
             it; mount debugfs, and use a kernel with CONFIG_SCHED_DEBUG"
    )]
    NoSlice,
    #[error("the cgroup layout needs the cpu controller of cgroup v2 in /sys/fs/cgroup: {0}")]
    NoCgroup(String),
    #[error(
        "{program} is not installed; Linux guests need QEMU (apt-get install qemu-system-x86)"
    )]
    NoQemu { program: String },
    #[error(
        "{mib} MiB of a guest do not fit into {path}: {error}; use fewer or smaller VMs \
             (memory_mib)"
    )]
    NoMemory { path: String, mib: u64, error: String },
    #[error("port 0xE9 is not accessible: {0}; run as root on an emulated computer")]
    Port(std::io::Error),
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    pub(crate) fn io(path: impl AsRef<std::path::Path>, source: std::io::Error) -> Error {
        Error::Io { path: path.as_ref().display().to_string(), source }
    }
}

/// Prints the error. Ignores a failure, for example if the terminal is gone.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "agent: {text}");
}
