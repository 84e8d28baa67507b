// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--counts`: what waiting was like (`core/locks/stats.h`), as a table: VEE'13's Table 1, and its 4.3.

use crate::bench::{count, Config, Counts, COUNTED};
use crate::workload::LEVELS;
use std::io;

/// Share of the stalls in which the lock was free; `None` without stalls.
fn free_share(c: &Counts) -> Option<f64> {
    let all = c.stalls_held + c.stalls_free;
    (all > 0).then(|| c.stalls_free as f64 / all as f64)
}

/// Share of the rescheduled waiters that had the lock after at most R / 2 overtakes; a half by the
/// paper's P(x) = x / R.
fn by_half(c: &Counts) -> Option<f64> {
    let early: u64 = c.by_share[..=5].iter().sum();
    (c.returned > 0).then(|| early as f64 / c.returned as f64)
}

fn per_1000(overtakes: u64, c: &Counts) -> f64 {
    overtakes as f64 * 1000.0 / c.acquisitions.max(1) as f64
}

fn shown(share: Option<f64>) -> String {
    share.map_or("-".to_string(), |s| format!("{:.1}", s * 100.0))
}

/// Counts every lock that `wanted` names for `window_ms` at every level on `cpus` CPUs; a table. Errors
/// as of [`count`].
pub fn table(cpus: u32, config: &Config, wanted: impl Fn(&str) -> bool) -> io::Result<String> {
    let mut text = format!(
        "{:<25} {:>3} {:>10} {:>8} {:>8} {:>7} {:>10} {:>10} {:>10} {:>9} {:>7}\n",
        "lock", "x", "N", "N_h", "N_w", "N_w %", "running", "off", "back", "returned", "R/2 %"
    );
    for lock in COUNTED.iter().filter(|l| wanted(l.name)) {
        for level in LEVELS {
            let config = Config { threads: level * cpus, cpus, ..*config };
            let c = count(lock, &config)
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", lock.name)))?;
            text += &format!(
                "{:<25} {:>3} {:>10} {:>8} {:>8} {:>7} {:>10.2} {:>10.2} {:>10.2} {:>9} {:>7}\n",
                lock.name,
                level,
                c.acquisitions,
                c.stalls_held,
                c.stalls_free,
                shown(free_share(&c)),
                per_1000(c.overtakes_running, &c),
                per_1000(c.overtakes_off, &c),
                per_1000(c.overtakes_back, &c),
                c.returned,
                shown(by_half(&c)),
            );
        }
    }
    Ok(text)
}
