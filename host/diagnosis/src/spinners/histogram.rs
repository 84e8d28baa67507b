// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of a histogram, as the kernel prints it (Documentation/trace/histogram.rst):
//!
//! ```text
//! # trigger info: hist:keys=guest_rip.hex,exit_reason,common_pid:vals=hitcount:… [active]
//!
//! { guest_rip: ffffffff81abcdef, exit_reason:         40, common_pid:        155 } hitcount:        516
//!
//! Totals:
//!     Hits: 516
//!     Entries: 1
//!     Dropped: 0
//! ```

/// The key fields, as in the trigger.
pub const KEYS: &str = "guest_rip.hex,exit_reason,common_pid";

/// One entry: how often a thread left the guest at an address for a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub address: u64,
    pub exit_reason: u32,
    pub thread: i32,
    pub count: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    pub entries: Vec<Entry>,
    /// Exits that were not counted, because the table was full.
    pub dropped: u64,
}

impl Histogram {
    /// Parses the text. The error is a line that does not fit.
    pub fn parse(text: &str) -> Result<Histogram, String> {
        let mut histogram = Histogram::default();
        let mut totals = false;
        for line in text.lines() {
            let trimmed = line.trim();
            let understood = if trimmed.is_empty() || trimmed.starts_with('#') {
                Some(())
            } else if trimmed.starts_with('{') {
                entry(trimmed).map(|entry| histogram.entries.push(entry))
            } else if trimmed == "Totals:" {
                totals = true;
                Some(())
            } else if let Some(dropped) = trimmed.strip_prefix("Dropped:") {
                dropped.trim().parse().map(|dropped: u64| histogram.dropped += dropped).ok()
            } else {
                // Hits, entries, and further sums of later kernels.
                totals.then_some(())
            };
            understood.ok_or_else(|| line.to_string())?;
        }
        Ok(histogram)
    }
}

fn entry(line: &str) -> Option<Entry> {
    let (keys, values) = line.strip_prefix('{')?.split_once('}')?;
    let field = |name: &str| {
        keys.split(',')
            .find_map(|key| key.trim().strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    };
    Some(Entry {
        address: u64::from_str_radix(field("guest_rip")?, 16).ok()?,
        exit_reason: field("exit_reason")?.parse().ok()?,
        thread: field("common_pid")?.parse().ok()?,
        count: values.trim().strip_prefix("hitcount:")?.split_whitespace().next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As kernel 6.12 prints it, with addresses of a Linux guest.
    const PRINTED: &str = include_str!("../../tests/kvm_exit.hist");

    #[test]
    fn a_kernels_own_text_is_read() {
        let histogram = Histogram::parse(PRINTED).unwrap();
        assert_eq!(histogram.dropped, 3);
        let total: u64 = histogram.entries.iter().map(|e| e.count).sum();
        let hits = PRINTED.lines().find_map(|line| line.trim().strip_prefix("Hits: ")).unwrap();
        let entries = PRINTED.lines().find_map(|line| line.trim().strip_prefix("Entries: "));
        assert_eq!(total, hits.parse::<u64>().unwrap());
        assert_eq!(histogram.entries.len(), entries.unwrap().parse::<usize>().unwrap());
        assert!(histogram.entries.iter().any(|e| e.address > 1 << 63));
    }

    #[test]
    fn an_empty_table_and_several_tables_are_read() {
        assert_eq!(Histogram::parse("").unwrap(), Histogram::default());
        let none =
            "# event histogram\n#\n\n\nTotals:\n    Hits: 0\n    Entries: 0\n    Dropped: 0\n";
        assert_eq!(Histogram::parse(none).unwrap(), Histogram::default());
        let twice = Histogram::parse(&format!("{PRINTED}\n{PRINTED}")).unwrap();
        assert_eq!(twice.dropped, 6);
    }

    #[test]
    fn what_is_no_histogram_is_named() {
        for wrong in [
            "hello",
            "{ guest_rip: x, exit_reason: 40, common_pid: 1 } hitcount: 1",
            "{ guest_rip: 10, common_pid: 1 } hitcount: 1",
            "{ guest_rip: 10, exit_reason: 40, common_pid: 1 }",
            "{ guest_rip: 10, exit_reason: 40, common_pid: 1 } bytes: 1",
            "Totals:\n Dropped: many",
        ] {
            let line = wrong.lines().last().unwrap();
            assert_eq!(Histogram::parse(wrong).unwrap_err(), line, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn entries_come_back(rows in prop::collection::vec(any::<(u64, u32, i32, u64)>(), 0..20)) {
            let entries: Vec<Entry> = rows
                .into_iter()
                .map(|(address, exit_reason, thread, count)| Entry { address, exit_reason, thread, count })
                .collect();
            let print = |e: &Entry| format!(
                "{{ guest_rip: {:x}, exit_reason: {:10}, common_pid: {:10} }} hitcount: {:10}\n",
                e.address, e.exit_reason, e.thread, e.count
            );
            let text: String = entries.iter().map(print).collect();
            prop_assert_eq!(Histogram::parse(&text).unwrap().entries, entries);
        }

        #[test]
        fn no_text_is_too_much(text in "[{}:, \nguest_rip0-9a-z]{0,200}") {
            let _ = Histogram::parse(&text);
        }
    }
}
