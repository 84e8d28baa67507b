// SPDX-License-Identifier: MIT OR Apache-2.0
//! A clock that runs only while a vCPU for which others wait has no pCPU.

/// How long a vCPU for which others wait had no pCPU.
#[derive(Debug, Clone, Copy, Default)]
pub struct OffClock {
    sum_ns: u64,
    since_ns: u64,
    runs: bool,
}

impl OffClock {
    #[inline]
    pub fn at(&self, now_ns: u64) -> u64 {
        self.sum_ns + if self.runs { now_ns - self.since_ns } else { 0 }
    }

    #[inline]
    pub fn set(&mut self, runs: bool, now_ns: u64) {
        if runs != self.runs {
            self.sum_ns = self.at(now_ns);
            self.since_ns = now_ns;
            self.runs = runs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_off_clock_runs_only_while_it_is_told_to() {
        let mut clock = OffClock::default();
        assert_eq!(clock.at(10), 0);
        clock.set(true, 10);
        clock.set(true, 12);
        assert_eq!(clock.at(15), 5);
        clock.set(false, 20);
        assert_eq!(clock.at(99), 10);
    }
}
