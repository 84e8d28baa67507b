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
//! error    what cannot be simulated
//! core     where each vCPU is, its account and what is charged to it, what things cost
//! host     the scheduler: fair, with groups, caps, asymmetric vCPUs and turns beside it; or Credit
//! kvm      PLE exits: windows, whom a yield is for, the module's epochs
//! guest    programs, threads, locks, barriers, mutexes, sockets, interrupts to siblings
//! probe    what a run reads of it all
//! machine  hands events and effects to the rooms, and tells all of them who got or lost a pCPU
//! setup    what a run is made of, checked and built
//! run      a plan's run, warmed up, measured, read
//! ```
//!
//! Calls go down only: `setup, run -> machine -> {host, kvm, guest, probe} -> core -> engine`. `host`,
//! `kvm` and `guest` do not know each other; `probe` reads `guest` and `kvm`. A component changes its
//! own state and what lies below it. What a guest does to its host it says in effects
//! (`core/effect.rs`), which the machine sees to in order. In `host`,
//! `kvm` and `guest` what is kept stands in `state.rs`, below the files that change it; `mod.rs` only
//! lists what there is.
//!
//! docs/simulator-inside.md says where a vCPU is picked, where a lock is handed over, where a
//! cost is charged and where an arm's setting takes effect; its table of rooms has every file.

mod core;
mod engine;
mod error;
mod guest;
mod host;
mod kvm;
mod machine;
mod probe;
mod run;
mod setup;

/// How well the model knows its own costs: core/ranges.toml, factors of them by host model.
pub const RANGES: &str = include_str!("core/ranges.toml");

pub use core::{Costs, CreditHost, GroupCosts, Host, IdleState, Kernel};
pub use engine::{Queue, Timer, TIMERS_MAX};
pub use error::Error;
pub use guest::{lock_params, Budgets, Stalls};
pub use host::{CoschedulingStats, TurnsSeen, NEIGHBOURS};
pub use probe::LockCounts;
pub use run::{check, simulate, simulate_setup, Simulated};
pub use setup::{Setup, VmSetup};
