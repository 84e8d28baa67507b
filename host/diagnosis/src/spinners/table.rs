// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts by symbol.

use std::collections::HashMap;

use super::samples::Counts;
use super::symbols::{is_user, Place, Symbols};

/// One line of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// A function, with its module in brackets; "user space"; or an address.
    pub symbol: String,
    pub count: u64,
    /// Share of all counts, 0 to 1.
    pub share: f64,
}

/// How well symbols fit addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// Counts at addresses in the kernel's half.
    pub kernel: u64,
    /// The part at addresses in functions.
    pub named: u64,
}

impl Fit {
    /// Whether these are symbols of another boot or kernel: most kernel addresses are in none of
    /// them. Symbols of a similar version are not detected.
    pub fn is_of_another_kernel(self) -> bool {
        self.kernel > 0 && self.named * 2 < self.kernel
    }
}

/// The name for all addresses of programs.
pub const USER: &str = "user space";

/// Counts per function, most frequent first. Without symbols, or if none fits, per address.
pub fn by_symbol(counts: &Counts, symbols: Option<&Symbols>) -> Vec<Line> {
    let total: u64 = counts.iter().map(|&(_, count)| count).sum();
    let mut by_name = HashMap::<String, u64>::new();
    for &(address, count) in counts {
        *by_name.entry(name(address, symbols)).or_default() += count;
    }
    let share = |count| count as f64 / total.max(1) as f64;
    let mut lines: Vec<Line> = by_name
        .into_iter()
        .map(|(symbol, count)| Line { symbol, count, share: share(count) })
        .collect();
    lines.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.symbol.cmp(&b.symbol)));
    lines
}

/// How many of these counts have a symbol.
pub fn fit(counts: &Counts, symbols: &Symbols) -> Fit {
    let mut fit = Fit { kernel: 0, named: 0 };
    for &(address, count) in counts.iter().filter(|(address, _)| !is_user(*address)) {
        fit.kernel += count;
        if matches!(symbols.place(address), Place::Function { .. }) {
            fit.named += count;
        }
    }
    fit
}

fn name(address: u64, symbols: Option<&Symbols>) -> String {
    if is_user(address) {
        return USER.to_string();
    }
    let symbol = symbols.and_then(|symbols| symbol_of(address, symbols));
    symbol.unwrap_or_else(|| format!("{address:#018x}"))
}

/// The name of an address in the table: a function, with its module in brackets, or "user space";
/// `None` if the symbols have none.
pub fn symbol_of(address: u64, symbols: &Symbols) -> Option<String> {
    match symbols.place(address) {
        Place::User => Some(USER.to_string()),
        Place::Function { name, module: Some(module), .. } => Some(format!("{name} [{module}]")),
        Place::Function { name, module: None, .. } => Some(name.to_string()),
        Place::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    fn symbols() -> Symbols {
        let text = "ffffffff81000000 T _text\nffffffff81000100 t spin\nffffffff81000200 t call\n\
                    ffffffff81000300 T _etext\nffffffffc0000000 t probe [nf]\n";
        Symbols::parse(text, Path::new("x")).unwrap()
    }

    fn lines(counts: &Counts, symbols: Option<&Symbols>) -> Vec<(String, u64)> {
        by_symbol(counts, symbols).into_iter().map(|l| (l.symbol, l.count)).collect()
    }

    const SPIN: u64 = 0xffff_ffff_8100_0110;

    #[test]
    fn counts_of_a_function_are_one_line() {
        let counts =
            vec![(SPIN, 5), (SPIN + 4, 6), (0xffff_ffff_8100_0210, 2), (0x400, 3), (0x500, 1)];
        let expected = [("spin", 11), (USER, 4), ("call", 2)].map(|(s, n)| (s.to_string(), n));
        assert_eq!(lines(&counts, Some(&symbols())), expected);
        let module = vec![(0xffff_ffff_c000_0001, 1)];
        assert_eq!(by_symbol(&module, Some(&symbols()))[0].symbol, "probe [nf]");
        assert!(by_symbol(&Counts::new(), Some(&symbols())).is_empty());
    }

    #[test]
    fn without_symbols_there_are_addresses() {
        let counts = vec![(SPIN, 5), (SPIN + 4, 6), (0x400, 3)];
        let expected = [("0xffffffff81000114", 6), ("0xffffffff81000110", 5), (USER, 3)]
            .map(|(s, n)| (s.to_string(), n));
        assert_eq!(lines(&counts, None), expected);
    }

    #[test]
    fn symbols_of_another_boot_do_not_fit() {
        let counts = vec![(SPIN, 5), (0x400, 30)];
        assert_eq!(fit(&counts, &symbols()), Fit { kernel: 5, named: 5 });
        assert!(!fit(&counts, &symbols()).is_of_another_kernel());
        // KASLR moves the kernel by multiples of 2 MiB.
        let moved = vec![(SPIN + 0x60_0000, 5), (SPIN, 1), (0x400, 30)];
        assert!(fit(&moved, &symbols()).is_of_another_kernel());
        assert!(!fit(&vec![(0x400, 30)], &symbols()).is_of_another_kernel());
        assert!(!fit(&Counts::new(), &symbols()).is_of_another_kernel());
    }

    proptest! {
        #[test]
        fn nothing_is_lost(counts in prop::collection::vec((any::<u64>(), 1..1_000_000u64), 0..50)) {
            let total: u64 = counts.iter().map(|c| c.1).sum();
            for symbols in [None, Some(&symbols())] {
                let lines = by_symbol(&counts, symbols);
                prop_assert_eq!(lines.iter().map(|l| l.count).sum::<u64>(), total);
                prop_assert!(lines.windows(2).all(|l| l[0].count >= l[1].count));
                let shares: f64 = lines.iter().map(|l| l.share).sum();
                prop_assert!(counts.is_empty() || (shares - 1.0).abs() < 1e-9);
            }
        }
    }
}
