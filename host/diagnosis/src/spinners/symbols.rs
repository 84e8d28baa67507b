// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest's symbols in the format of /proc/kallsyms: `ADDRESS TYPE NAME [MODULE]`.
//!
//! Functions have type `t` or `T`, weak ones `w` or `W`. A function ends where the next symbol of any
//! type begins. Functions of the kernel itself are between `_text` and `_etext`; others are of modules
//! and of programs compiled at run time (`[bpf]`).

use std::path::Path;

use super::error::SymbolsError;

/// Limit of a function's length beyond `_etext` if no symbol follows.
const MODULE_FUNCTION_MAX: u64 = 64 * 1024;

/// Whether an address is in the lower half, which Linux uses for programs.
pub fn is_user(address: u64) -> bool {
    address >> 63 == 0
}

/// The meaning of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// Code of a program.
    User,
    /// `offset` bytes into a function of the kernel or of a module.
    Function { name: &'a str, module: Option<&'a str>, offset: u64 },
    /// In the kernel's half, but in no function.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Symbol {
    address: u64,
    is_function: bool,
    name: String,
    module: Option<String>,
}

/// The symbols of one boot of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Symbols {
    /// By address, one per address.
    symbols: Vec<Symbol>,
    /// `_text` and `_etext`.
    text: Option<(u64, u64)>,
}

impl Symbols {
    pub fn read(path: &Path) -> Result<Symbols, SymbolsError> {
        let io = |source| SymbolsError::Io { path: path.to_path_buf(), source };
        let bytes = std::fs::read(path).map_err(io)?;
        Symbols::parse(&String::from_utf8_lossy(&bytes), path)
    }

    /// `path` is the file's name in errors.
    pub fn parse(text: &str, path: &Path) -> Result<Symbols, SymbolsError> {
        let mut symbols = Vec::new();
        let mut lines = 0;
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            lines += 1;
            let symbol = symbol(line).ok_or_else(|| SymbolsError::Line {
                path: path.to_path_buf(),
                number: number + 1,
                line: line.chars().take(80).collect(),
            })?;
            symbols.push(symbol);
        }
        if lines > 0 && symbols.iter().all(|s| s.address == 0) {
            return Err(SymbolsError::Hidden { path: path.to_path_buf() });
        }
        // Low addresses are offsets, for example of per-CPU variables.
        symbols.retain(|s| !is_user(s.address));
        if !symbols.iter().any(|s| s.is_function) {
            return Err(SymbolsError::NoFunctions { path: path.to_path_buf(), lines });
        }
        let of = |name| symbols.iter().find(|s| s.name == name).map(|s| s.address);
        let text = of("_text").or_else(|| of("_stext")).zip(of("_etext"));
        Ok(Symbols { symbols: one_per_address(symbols), text })
    }

    pub fn place(&self, address: u64) -> Place<'_> {
        if is_user(address) {
            return Place::User;
        }
        let after = self.symbols.partition_point(|s| s.address <= address);
        let Some(symbol) = after.checked_sub(1).map(|i| &self.symbols[i]) else {
            return Place::Unknown;
        };
        let offset = address - symbol.address;
        let is_last = after == self.symbols.len();
        let ends = match self.text {
            Some((text, etext)) if (text..etext).contains(&symbol.address) => address >= etext,
            // Freed sections, modules, and gaps between them.
            _ => {
                offset >= MODULE_FUNCTION_MAX || (is_last && self.text.is_none() && offset >= 4096)
            }
        };
        if ends || !symbol.is_function {
            return Place::Unknown;
        }
        Place::Function { name: &symbol.name, module: symbol.module.as_deref(), offset }
    }

    /// Number of addresses with a symbol.
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }
}

fn symbol(line: &str) -> Option<Symbol> {
    let mut words = line.split_whitespace();
    let address = words.next()?;
    let kind = words.next()?;
    let name = words.next()?;
    let module = words.next();
    let is_module = |word: &str| word.starts_with('[') && word.ends_with(']');
    if kind.len() != 1 || !module.is_none_or(is_module) || words.next().is_some() {
        return None;
    }
    Some(Symbol {
        address: u64::from_str_radix(address, 16).ok().filter(|_| !address.starts_with('+'))?,
        is_function: matches!(kind, "t" | "T" | "w" | "W") && !is_end(name),
        name: name.to_string(),
        module: module.map(|m| m[1..m.len() - 1].to_string()),
    })
}

/// Whether a name only marks the end of functions.
fn is_end(name: &str) -> bool {
    matches!(name, "_etext" | "_einittext") || name.ends_with("_text_end")
}

/// Of several names of an address keeps the one of the function: no mark of a section's beginning,
/// then a global name, then the first in alphabetical order.
fn one_per_address(mut symbols: Vec<Symbol>) -> Vec<Symbol> {
    let is_mark = |s: &Symbol| {
        let ends = ["_start", "_begin", "_end", "_stext", "_etext", "_text"];
        ends.iter().any(|end| s.name.ends_with(end)) || s.name.starts_with("__pfx_")
    };
    symbols.sort_by_cached_key(|s| (s.address, !s.is_function, is_mark(s), s.name.clone()));
    symbols.dedup_by_key(|s| s.address);
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The format of a guest with kernel 6.12, with only a few functions.
    const GUEST: &str = "\
0000000000000000 A fixed_percpu_data
0000000000034000 A cpu_hw_events
ffffffff81000000 T startup_64
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff8110f320 t __pfx_smp_call_function_many_cond
ffffffff8110f330 t smp_call_function_many_cond
ffffffff8110f860 T smp_call_function_many
ffffffff81c00000 T __lock_text_start
ffffffff81c00000 T native_queued_spin_lock_slowpath
ffffffff81c00000 W queued_spin_lock_slowpath
ffffffff81e00000 T _etext
ffffffff81f00000 D some_data
ffffffffc0a00000 t nf_do [nf_tables]
ffffffffc0a00100 d nf_data [nf_tables]
";

    fn parse(text: &str) -> Result<Symbols, SymbolsError> {
        Symbols::parse(text, Path::new("guest.syms"))
    }

    fn named(symbols: &Symbols, address: u64) -> (String, u64) {
        match symbols.place(address) {
            Place::Function { name, module, offset } => {
                let module = module.map(|m| format!(" [{m}]")).unwrap_or_default();
                (format!("{name}{module}"), offset)
            }
            other => (format!("{other:?}"), 0),
        }
    }

    #[test]
    fn addresses_are_named() {
        let symbols = parse(GUEST).unwrap();
        let named = |address| named(&symbols, address);
        for (address, name, offset) in [
            (0xffff_ffff_8100_0000, "startup_64", 0),
            (0xffff_ffff_8110_f330, "smp_call_function_many_cond", 0),
            (0xffff_ffff_8110_f85f, "smp_call_function_many_cond", 0x52f),
            (0xffff_ffff_81c0_0123, "native_queued_spin_lock_slowpath", 0x123),
            (0xffff_ffff_81df_ffff, "native_queued_spin_lock_slowpath", 0x1f_ffff),
            (0xffff_ffff_81e0_0000, "Unknown", 0),
            (0xffff_ffff_81f0_0000, "Unknown", 0),
            (0xffff_ffff_80ff_ffff, "Unknown", 0),
            (0xffff_ffff_c0a0_00ff, "nf_do [nf_tables]", 0xff),
            (0xffff_ffff_c0a0_0100, "Unknown", 0),
            (0x0000_7fff_ffff_ffff, "User", 0),
            (0x0000_0000_0003_4000, "User", 0),
            (u64::MAX, "Unknown", 0),
        ] {
            assert_eq!(named(address), (name.to_string(), offset), "{address:#x}");
        }
    }

    #[test]
    fn what_is_no_kallsyms_is_named() {
        let wrong = |text: &str| parse(text).unwrap_err().to_string();
        let hidden = "0000000000000000 T _text\n0000000000000000 T schedule\n";
        assert!(wrong(hidden).contains("all addresses in guest.syms are 0"));
        assert!(wrong("").contains("no kernel functions"));
        assert!(wrong("0000000000034000 A x\n").contains("no kernel functions"));
        assert!(wrong("ffffffff81000000 D x\n").contains("no kernel functions"));
        for line in [
            "hello",
            "xyz T name",
            "+f T name",
            "ffffffff81000000 TT name",
            "ffffffff81000000 T",
            "ffffffff81000000 T name module",
            "ffffffff81000000 T name [module] more",
            "ffffffffffffffff1 T name",
        ] {
            let error = wrong(&format!("\nffffffff81000000 T a\n{line}\n"));
            assert!(error.contains("line 3") && error.contains("/proc/kallsyms"), "{error}");
        }
        let long = wrong(&"x".repeat(10_000));
        assert!(long.len() < 300, "{long}");
        let missing = Symbols::read(Path::new("/nonexistent/x")).unwrap_err();
        assert!(missing.to_string().starts_with("/nonexistent/x: "), "{missing}");
    }

    #[test]
    fn a_last_function_without_an_end_is_short() {
        let symbols = parse("ffffffff81000000 T last\n").unwrap();
        assert_eq!(named(&symbols, 0xffff_ffff_8100_0fff).0, "last");
        assert_eq!(named(&symbols, 0xffff_ffff_8100_1000).0, "Unknown");
    }

    proptest! {
        /// For functions of any sizes between `_text` and `_etext`, each address in between is in the
        /// last function that begins at or before it.
        #[test]
        fn the_last_symbol_before_an_address_names_it(
            sizes in prop::collection::vec(1..5000u64, 1..60),
            at in any::<prop::sample::Index>(),
            shuffle in any::<u64>(),
        ) {
            let base = 0xffff_ffff_8000_0000u64;
            let mut starts = vec![base];
            for size in &sizes {
                starts.push(starts.last().unwrap() + size);
            }
            let end = *starts.last().unwrap();
            let mut lines: Vec<String> = starts[..sizes.len()].iter().enumerate()
                .map(|(i, start)| format!("{start:x} t f{i}\n")).collect();
            lines.push(format!("{base:x} T _text\n"));
            lines.push(format!("{end:x} T _etext\n"));
            let half = shuffle as usize % lines.len();
            lines.rotate_left(half);
            let symbols = parse(&lines.concat()).unwrap();
            let address = base + at.index((end - base) as usize) as u64;
            let i = starts.iter().rposition(|&start| start <= address).unwrap();
            prop_assert_eq!(named(&symbols, address), (format!("f{i}"), address - starts[i]));
            prop_assert_eq!(symbols.place(end), Place::Unknown);
            prop_assert_eq!(symbols.place(base - 1), Place::Unknown);
        }

        #[test]
        fn any_file_is_read_or_refused(text in "[ \n\\[\\]0-9a-fTtAx]{0,200}", address: u64) {
            if let Ok(symbols) = parse(&text) {
                let _ = symbols.place(address);
            }
        }
    }
}
