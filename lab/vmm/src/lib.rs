// SPDX-License-Identifier: MIT OR Apache-2.0
//! A minimal virtual machine monitor (VMM) for the bare-metal bench guest (`guest/`).
//!
//! A [`Vm`] has no firmware, disk or device except the in-kernel interrupt controller. Its vCPUs
//! start in 64-bit mode at the guest's entry, and run a program of steps until they are stopped. A
//! fault of the guest ends that VM with an error, never the host program.
//!
//! As under QEMU, each VM is a separate process. [`process`] is this process, with its line
//! protocol to the program that started it.

mod boot;
mod child;
mod counters;
mod error;
pub mod process;
mod realtime;
mod sched;
mod thread;
mod unserved;
mod vcpu;
mod vm;

pub use child::ends_with_this_thread;
pub use counters::{sample, vm_result, VcpuSample};
pub use error::{Error, GuestFault};
pub use process::{vm_process_main, VM_PROCESS_COMMAND};
pub use realtime::{set_fifo, set_normal, Realtime};
pub use sched::{sched_stats, Counter, Counts};
pub use thread::{allowed_cpus, clock_ns, run_on};
pub use unserved::{unserved, Unserved};
pub use vm::{Vm, VmConfig};
