// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scheduler for VMs by sched_ext. On CPUs that are given to it, it schedules all threads of VMs that are taken
//! over: by the VM's weight, and vCPUs of a VM that spin for each other at the same time (bpf/vms.bpf.c).

mod check;
mod error;
pub mod ext;
mod order;
mod scheduler;
mod shared;
mod trace;

pub use check::{check, is_tested, KERNEL_MIN, KERNEL_TESTED};
pub use error::Error;
pub use scheduler::{Options, Scheduler, Vm};
pub use shared::{Gang, Report, VmReport, CPUS_MAX, OTHERS, STRANGERS, VMS_MAX, WEIGHT_USUAL};
pub use trace::{line, Trace};
