// SPDX-License-Identifier: MIT OR Apache-2.0
//! A discrete-event model of an overcommitted KVM host: what a run of a plan would give, at any
//! size, in seconds.
//!
//! It runs the guest's own program of steps on modelled vCPUs, pCPUs and locks under the host's
//! fair scheduler, with pause-loop exits, and asks the policies of `policy/` (through
//! `unspin-policy`) for every decision. Time is integer nanoseconds; the same run gives the same
//! result everywhere. docs/simulator.md says what is modelled and what is not.
//!
//! ```text
//! queue     events, the earliest first          host   clock, kernel, costs
//! machine   pCPUs: who runs, ticks, accounts    sched  CFS and EEVDF on one pCPU
//! guest     steps, barriers, blocks             kvm    PLE exits, windows, yields
//! lock/     who waits for a lock, and how       run    from a plan's run to its result
//! state     vCPUs, VMs, classes of time           program  steps, checked and numbered
//! thread    the guest's threads and scheduler     blocking mutexes, shootdowns, shared lines
//! credit    Xen's Credit and its clocks          watch  who reports that vCPUs wait for each other
//! ```

mod core;
mod engine;
mod guest;
mod host;
mod kvm;
mod machine;
mod probe;
mod run;
mod setup;

pub use core::{Costs, CreditHost, GroupCosts, Host, IdleState, Kernel};
pub use engine::{Queue, Timer, TIMERS_MAX};
pub use guest::{lock_params, Budgets, Stalls};
pub use host::{CoschedulingStats, NEIGHBOURS};
pub use probe::LockCounts;
pub use run::{check, simulate, simulate_setup, Simulated};
pub use setup::{Setup, VmSetup};

/// A run that cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("run {id}: {text}")]
    Run { id: u32, text: String },
    #[error(
        "a host of {pcpus} pCPUs of {khz} kHz with a tick of {tick_ns} ns; it has 1 to 65536 \
         pCPUs of 1 MHz to 100 GHz and a tick of at least 1000 ns"
    )]
    Host { pcpus: u32, khz: u64, tick_ns: u64 },
    #[error(transparent)]
    Program(#[from] unspin_guest_abi::ProgramError),
}
