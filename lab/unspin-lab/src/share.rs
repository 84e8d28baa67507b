// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--shard I/N`: this computer's share of the work.

use std::fmt;
use unspin_scenario::result::Shard;

/// A larger number of computers is refused as a mistake.
const SHARES_MAX: u32 = 100_000;

/// Share `index` of `of`, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub index: u32,
    pub of: u32,
}

impl Share {
    /// Parses `I/N`.
    pub fn parse(text: &str) -> Result<Share, String> {
        let wrong = || format!("expected I/N with 1 <= I <= N <= {SHARES_MAX}, such as 1/8");
        let (index, of) = text.split_once('/').ok_or_else(wrong)?;
        let index = index.parse().map_err(|_| wrong())?;
        let of = of.parse().map_err(|_| wrong())?;
        if !(1..=SHARES_MAX).contains(&of) || !(1..=of).contains(&index) {
            return Err(wrong());
        }
        Ok(Share { index, of })
    }

    /// The share of a plan with this many runs.
    pub fn of(self, runs: usize) -> Shard {
        Shard { index: self.index, of: self.of, runs: runs as u32 }
    }
}

/// The form used in names of directories.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard-{}-of-{}", self.index, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_wrong_ones_refused() {
        assert_eq!(Share::parse("2/3"), Ok(Share { index: 2, of: 3 }));
        for wrong in ["", "3", "0/3", "4/3", "1/0", "a/b", "-1/3", "1/100001", "1/2/3"] {
            assert!(Share::parse(wrong).unwrap_err().contains("such as 1/8"), "{wrong}");
        }
    }
}
