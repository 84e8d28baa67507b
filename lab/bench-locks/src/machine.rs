// SPDX-License-Identifier: MIT OR Apache-2.0
//! What else runs on this computer while the bench measures: figures taken beside load say so.

use std::time::Instant;

/// Fields of /proc/stat's first line that are time in use, from `user` on: `idle` and `iowait` are not.
/// `steal` is what a host takes.
const IN_USE: [usize; 6] = [0, 1, 2, 5, 6, 7];
/// Fields of /proc/self/stat after the name in parentheses.
const OWN_USER: usize = 11;
const OWN_SYSTEM: usize = 12;
const OWN_NICE: usize = 16;
/// Ticks of those files in a second.
const TICKS_PER_S: f64 = 100.0;

/// CPU time so far, of all CPUs and of this process, s.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    at: Instant,
    all_s: f64,
    own_s: f64,
}

fn numbers(text: &str) -> Vec<f64> {
    text.split_whitespace().map(|word| word.parse().unwrap_or(0.0)).collect()
}

/// Fields of /proc/self/stat after the name.
fn own() -> Vec<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    numbers(text.rsplit_once(')').map_or("", |(_, rest)| rest))
}

fn at(fields: &[f64], index: usize) -> f64 {
    fields.get(index).copied().unwrap_or(0.0)
}

fn in_use_s(stat: &str) -> f64 {
    let fields = numbers(stat.lines().next().unwrap_or("").trim_start_matches("cpu"));
    IN_USE.iter().map(|&index| at(&fields, index)).sum::<f64>() / TICKS_PER_S
}

impl Used {
    /// Until now. Unreadable files count as 0.
    pub fn now() -> Used {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let own = own();
        let own_s = (at(&own, OWN_USER) + at(&own, OWN_SYSTEM)) / TICKS_PER_S;
        Used { at: Instant::now(), all_s: in_use_s(&stat), own_s }
    }

    /// CPUs that other programs and the host used since `self`, on average; at least 0.
    pub fn by_others_since(&self) -> f64 {
        let now = Used::now();
        let others_s = (now.all_s - self.all_s) - (now.own_s - self.own_s);
        (others_s / (now.at - self.at).as_secs_f64().max(1e-9)).max(0.0)
    }
}

/// Mean number of tasks that run or want to, over the last minute; 0 if it cannot be read.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    numbers(&text).first().copied().unwrap_or(0.0)
}

/// The nice value of this process.
pub fn nice() -> i32 {
    at(&own(), OWN_NICE) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_use_is_without_idle_and_iowait() {
        let stat = "cpu  100 10 20 5000 700 3 4 50 9 9\ncpu0 1 2 3\n";
        assert_eq!(in_use_s(stat), 1.87);
        assert_eq!(in_use_s(""), 0.0);
    }

    #[test]
    fn own_work_is_not_that_of_others() {
        let before = Used::now();
        let mut sum = 0u64;
        while before.at.elapsed().as_millis() < 200 {
            sum = std::hint::black_box(sum + 1);
        }
        let after = Used::now();
        assert!(after.own_s - before.own_s >= 0.02, "{before:?} {after:?}");
        // The two files round apart from each other, by a tick per CPU and read.
        assert!(after.all_s - before.all_s + 0.03 >= after.own_s - before.own_s);
    }
}
