// SPDX-License-Identifier: MIT OR Apache-2.0
//! A discrete-event model of an overcommitted KVM host. It predicts the results of a plan's runs at
//! any size, within seconds.
//!
//! It runs the guest's program steps on modelled vCPUs, pCPUs and locks under the host's
//! fair scheduler, with pause-loop exits, and asks the policies of `policy/` (through
//! `unspin-policy`) for every decision. Time is integer nanoseconds; the same run gives the same
//! result on every computer. docs/simulator.md lists what is modelled and what is not.
//!
//! ```text
//! engine   types of indexes, events in time, the clock, random numbers
//! error    what cannot be simulated
//! core     where each vCPU is, its account, and costs
//! host     the scheduler: fair, with groups, caps, asymmetric vCPUs and turns beside it; or Credit
//! kvm      PLE exits: windows, targets of yields, the module's epochs
//! guest    programs, threads, locks, barriers, mutexes, sockets, interrupts to siblings
//! probe    reads the results of a run
//! machine  passes events and effects on, and tells all parts which vCPU got or lost a pCPU
//! setup    checks and builds a run's parts
//! run      a plan's run: warm-up, measuring time, results
//! ```
//!
//! Calls go down only: `setup, run -> machine -> {host, kvm, guest, probe} -> core -> engine`. `host`,
//! `kvm` and `guest` do not know each other; `probe` reads `guest` and `kvm`. A component changes its
//! own state and that of lower ones. A guest reports its effects on the host (`core/effect.rs`), and
//! the machine applies them in order. `host`, `kvm` and `guest` keep their state in `state.rs`, and
//! their `mod.rs` only lists modules.
//!
//! docs/simulator-inside.md says where a vCPU is picked, where a lock is handed over, where a cost is
//! charged and where an arm's setting takes effect. Its table has every file.

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

/// Ranges of the model's costs, as factors, by host model: core/ranges.toml.
pub const RANGES: &str = include_str!("core/ranges.toml");

pub use core::{Change, Costs, CreditHost, GroupCosts, Host, IdleState, Kernel, State};
pub use error::Error;
pub use guest::{lock_params, Budgets, Stalls};
pub use host::{CoschedulingStats, TurnsSeen, NEIGHBOURS};
pub use probe::LockCounts;
pub use run::{check, simulate, simulate_setup, Simulated};
pub use setup::{Setup, VmSetup};
