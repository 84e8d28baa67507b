// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long boots and runs of an emulated computer take on this computer, estimated in advance.

use super::guests;
use crate::worlds::time::length_ms;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use unspin_computers::Emulator;
use unspin_scenario::plan::Plan;

/// Times in CPU seconds of this computer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Takes {
    /// Time to the first run.
    pub boot_s: f64,
    pub runs_s: f64,
}

/// Duration of [`pass`] on the computer on which the figures of [`of`] were measured.
const PASS_THERE: Duration = Duration::from_micros(7_100);
/// Virtual seconds from the start of Linux guests to the start of a run.
const GUESTS_UP_S: f64 = 4.0;

/// The times of a plan. A virtual second costs what `unspin-lab lab speed` measured with 4 busy CPUs.
/// The boot is that of 4 CPUs, and has little parallelism.
pub fn of(emulator: Emulator, plan: &Plan) -> Takes {
    let (per_cpu_s, boot_s) = match emulator {
        Emulator::QemuAmd => (0.58, 10.0),
        _ => (0.96, 15.0),
    };
    let slower = slower();
    let runs_s = plan.runs.iter().map(|run| {
        let up = if guests::of(run).next().is_some() { GUESTS_UP_S } else { 0.0 };
        up + length_ms(run) as f64 / 1e3
    });
    let per_virtual_s = per_cpu_s * f64::from(plan.host.pcpus);
    Takes { boot_s: boot_s * slower, runs_s: runs_s.sum::<f64>() * per_virtual_s * slower }
}

/// How many times as long as there the same work takes here; measured once.
fn slower() -> f64 {
    static SLOWER: OnceLock<f64> = OnceLock::new();
    *SLOWER.get_or_init(|| {
        let here = (0..5).map(|_| pass()).min().unwrap_or(PASS_THERE);
        here.as_secs_f64() / PASS_THERE.as_secs_f64()
    })
}

/// Work like an emulator's: arithmetic that waits for what was computed before, and stores in a table.
fn pass() -> Duration {
    let began = Instant::now();
    let (mut x, mut table) = (1_u64, vec![0_u64; 1 << 14]);
    for _ in 0..4_000_000 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let at = x as usize % table.len();
        table[at] = table[at].wrapping_add(x);
    }
    black_box(&table);
    began.elapsed()
}
