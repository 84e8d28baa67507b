// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs that tasks of the host use: VMs there would wait behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The share of a CPU above which tasks of the host use too much of it.
const MOST: f64 = 0.5;
/// For how long they must.
const FOR: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub struct HostUse {
    at: Instant,
    /// Their time at the last look, ns, by CPU.
    ns: BTreeMap<u32, u64>,
    /// Since when they use too much of a CPU.
    since: BTreeMap<u32, Instant>,
}

impl HostUse {
    pub fn begin(now: Instant) -> HostUse {
        HostUse { at: now, ns: BTreeMap::new(), since: BTreeMap::new() }
    }

    /// The CPUs of which they have used too much for too long, and which share of each since the last look. `ns` is
    /// their time so far, by CPU.
    pub fn look(&mut self, now: Instant, cpus: &BTreeSet<u32>, ns: &[u64]) -> Vec<(u32, f64)> {
        let (before, at) = (std::mem::take(&mut self.ns), std::mem::replace(&mut self.at, now));
        let passed = now.duration_since(at).as_nanos().max(1) as f64;
        let mut used = Vec::new();
        for cpu in cpus {
            let Some(is) = ns.get(*cpu as usize) else { continue };
            self.ns.insert(*cpu, *is);
            let share = before.get(cpu).map_or(0.0, |was| is.saturating_sub(*was) as f64 / passed);
            if share <= MOST {
                self.since.remove(cpu);
            } else if now.duration_since(*self.since.entry(*cpu).or_insert(at)) >= FOR {
                used.push((*cpu, share));
            }
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_used_after_three_seconds_of_more_than_half() {
        let start = Instant::now();
        let mut host = HostUse::begin(start);
        let cpus = BTreeSet::from([0, 2, 9]);
        let mut look = |second: u64, ms: [u64; 3]| {
            let ns = ms.map(|ms| ms * 1_000_000);
            host.look(start + Duration::from_secs(second), &cpus, &ns)
        };
        assert_eq!(look(1, [9000, 9000, 0]), [], "from before the first look");
        assert_eq!(look(2, [9900, 9900, 500]), []);
        assert_eq!(look(3, [10_800, 10_800, 1400]), []);
        assert_eq!(look(4, [11_700, 11_700, 2300]), [(0, 0.9)], "CPU 1 is not asked for");
        assert_eq!(look(5, [11_800, 12_600, 3200]), [(2, 0.9)], "since the third second");
        assert_eq!(look(6, [12_700, 12_700, 3300]), [], "both had a second of less");
    }
}
