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
//! engine   numbers of things as types, events in time, the clock, random numbers
//! core     where each vCPU is, its account and what is charged to it, what things cost
//! host     the scheduler: fair, with groups, caps and asymmetric vCPUs beside it; or Credit
//! kvm      PLE exits: windows, whom a yield is for, the module's epochs
//! guest    programs, threads, locks, barriers, mutexes, sockets, interrupts to siblings
//! probe    what a run reads of it all
//! machine  hands events and effects to the rooms, and tells all of them who got or lost a pCPU
//! setup    what a run is made of, checked and built; run: from a plan's run to its result
//! ```
//!
//! Calls go down only: `setup, run -> machine -> probe -> host, kvm, guest -> core -> engine`. A room
//! changes its own state and what lies below it. What a guest does to its host it says in effects
//! (`core/effect.rs`), which the machine sees to in order.
//!
//! ```text
//! a vCPU is picked                 host/fair/rq.rs: switch()      host/credit/mod.rs: switch_credit()
//! whom a PLE exit yields to        kvm/pick.rs
//! a lock is handed over            guest/lock/mod.rs: hand_over()
//! a cost is charged                core/mod.rs: charge()          its size: core/costs.rs
//! a vCPU's time is booked          core/ledger.rs, guest/time.rs
//! an arm's setting takes effect    setup/arm.rs (the module)      core/model.rs: on() (the host)
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
