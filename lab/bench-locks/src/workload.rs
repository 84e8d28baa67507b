// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads, and the order in which they are measured.

use crate::bench::{Config, Subject};
use serde::{Deserialize, Serialize};

/// Threads a CPU that are compared.
pub const LEVELS: [u32; 4] = [1, 2, 4, 8];
/// The level whose fairness counts.
pub const FAIR_LEVEL: u32 = 4;
/// Runs of each lock over the long window.
pub const FAIR_RUNS: u32 = 3;
/// The workloads beside the levels, in which only locks take part that a program may have.
pub const WORKLOADS: [Part; 8] = [
    Part::Long(1),
    Part::Long(4),
    Part::Unpinned(4),
    Part::Locks(64),
    Part::Open(4),
    Part::Queue(4),
    Part::Threads(64),
    Part::Threads(256),
];
/// Locks of strict order that spin, and variants. With more threads than CPUs they make some hundred
/// acquisitions a second, as the levels show.
const LEVELS_ONLY: [&str; 11] = [
    "ticket",
    "mcs",
    "oticket",
    "oticket_spin",
    "oticket_wake",
    "iticket",
    "long_ticket",
    "pv_ticket",
    "pv_ticket_2048",
    "ck_ticket",
    "ck_mcs",
];
/// Sections of the open loop, loop iterations.
const OPEN_ITERATIONS: u32 = 20_000;
const OPEN_GAP_US: u32 = 200;
const PLACES: u32 = 16;

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    pub cpus: u32,
    /// Runs of each lock at each level.
    pub runs: u32,
    /// Runs of each lock in each other workload.
    pub workload_runs: u32,
    pub window_ms: u32,
    /// Window of the runs for fairness.
    pub fair_window_ms: u32,
    pub critical_iterations: u32,
    pub outside_iterations: u32,
    /// Both, in the workload of long sections.
    pub long_iterations: u32,
    /// All threads are SCHED_RR.
    pub realtime: bool,
    /// [`crate::campaign::CODE`] of the build that measures.
    pub code: String,
}

/// What one measurement is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// One thread alone, nothing inside the lock or outside.
    Uncontended,
    /// This many threads a CPU.
    Level(u32),
    /// As the level [`FAIR_LEVEL`], over the long window.
    Fair,
    /// As this level, with long sections inside and outside.
    Long(u32),
    /// As this level, threads pinned to no CPU.
    Unpinned(u32),
    /// So many locks, 4 threads a CPU: each turn draws one.
    Locks(u32),
    /// This many threads a CPU whose requests fall due every 0.2 ms on average, beside one busy thread
    /// per CPU.
    Open(u32),
    /// This many threads a CPU that fill and empty a queue, with condition variables.
    Queue(u32),
    /// This many threads.
    Threads(u32),
}

impl Part {
    /// As in tables.
    pub fn name(self) -> String {
        match self {
            Part::Uncontended => "alone".to_string(),
            Part::Level(level) => format!("{level}x"),
            Part::Fair => "fair".to_string(),
            Part::Long(level) => format!("long {level}x"),
            Part::Unpinned(level) => format!("free {level}x"),
            Part::Locks(locks) => format!("{locks} locks"),
            Part::Open(level) => format!("open {level}x"),
            Part::Queue(level) => format!("queue {level}x"),
            Part::Threads(threads) => format!("{threads} thr"),
        }
    }

    fn is_for(self, subject: &Subject) -> bool {
        let variant = subject.name.contains("_tau_");
        !WORKLOADS.contains(&self) || !(variant || LEVELS_ONLY.contains(&subject.name))
    }
}

impl Setup {
    /// What [`crate::bench::run`] needs for a part.
    pub fn config(&self, part: Part) -> Config {
        let cpus = self.cpus;
        let level = |level: u32| Config {
            threads: level * cpus,
            cpus,
            critical_iterations: self.critical_iterations,
            outside_iterations: self.outside_iterations,
            warmup_ms: 20,
            window_ms: self.window_ms,
            waits: 1,
            locks: 1,
            realtime: u32::from(self.realtime),
            ..Config::default()
        };
        let long = self.long_iterations;
        match part {
            Part::Uncontended => {
                let none = Config { critical_iterations: 0, outside_iterations: 0, ..level(1) };
                Config { threads: 1, waits: 0, ..none }
            }
            Part::Level(x) => level(x),
            Part::Fair => Config { window_ms: self.fair_window_ms, ..level(FAIR_LEVEL) },
            Part::Long(x) => {
                Config { critical_iterations: long, outside_iterations: long, ..level(x) }
            }
            Part::Unpinned(x) => Config { cpus: 0, ..level(x) },
            Part::Locks(locks) => Config { locks, ..level(4) },
            Part::Open(x) => Config {
                critical_iterations: OPEN_ITERATIONS,
                gap_us: OPEN_GAP_US,
                busy: cpus,
                ..level(x)
            },
            Part::Queue(x) => Config { places: PLACES, ..level(x) },
            Part::Threads(threads) => Config { threads, ..level(1) },
        }
    }

    /// Every measurement, in order: run by run, part by part, the locks rotated by the run's number
    /// so that none always follows the same one; the long ones for fairness last.
    pub fn order(&self, subjects: &[&'static Subject]) -> Vec<(u32, Part, &'static Subject)> {
        let mut order = Vec::new();
        let mut add = |run: u32, part: Part| {
            let n = subjects.len().max(1);
            let rotated = (0..subjects.len()).map(|i| subjects[(i + run as usize) % n]);
            order.extend(rotated.filter(|s| part.is_for(s)).map(|s| (run, part, s)));
        };
        for run in 0..self.runs.max(self.workload_runs) {
            if run < self.runs {
                add(run, Part::Uncontended);
                for level in LEVELS {
                    add(run, Part::Level(level));
                }
            }
            if run < self.workload_runs {
                for part in WORKLOADS {
                    add(run, part);
                }
            }
        }
        for run in 0..FAIR_RUNS {
            add(run, Part::Fair);
        }
        order
    }
}
