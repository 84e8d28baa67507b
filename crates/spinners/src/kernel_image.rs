// SPDX-License-Identifier: MIT OR Apache-2.0
//! The symbols inside an uncompressed kernel, which are those of its /proc/kallsyms (without modules)
//! where it runs at the addresses it is linked to.
//!
//! scripts/kallsyms.c of the kernel writes these tables, aligned to 4 or 8 bytes:
//! * `num_syms`, then `names`: per symbol a length (one byte; two where the first has its highest bit
//!   set, since 6.1), then so many tokens of a byte each. The first letter is the type.
//! * `markers`: where in `names` each 256th symbol begins.
//! * `token_table`: what each of the 256 tokens stands for, ended by a zero; `token_index`: where in
//!   the table each begins.
//! * `offsets`: where each symbol is, in one of three ways ([`Offsets`]).
//!
//! Nothing says where the tables are: the tokens of the digits are looked for, and each table checks
//! the one before.

use std::path::Path;

use goblin::elf::program_header::PT_LOAD;
use goblin::elf::Elf;

use crate::error::SymbolsError;
use crate::symbols::Symbols;

/// Tables before the tokens are looked for within so many bytes.
const TABLES_MAX: usize = 16 << 20;
const SYMBOLS: std::ops::RangeInclusive<u32> = 1000..=4_000_000;
/// Symbols per marker.
const MARKED: usize = 256;
const TOKENS: usize = 256;

/// How `offsets` gives addresses. The first two lie before `num_syms` up to 6.3, then behind the
/// tokens; the third is there since 7.
#[derive(Debug, Clone, Copy)]
enum Offsets {
    /// From `relative_base`, which stands behind them; where per-CPU symbols are absolute, these are
    /// not negative and others count down from the base.
    Before,
    Behind,
    /// Each from its own place.
    FromThemselves,
}

impl Symbols {
    /// The symbols of the uncompressed kernel at `path` (an ELF file for x86-64).
    ///
    /// Such a kernel runs where it is linked to if nothing moves it: started by PVH (`-kernel vmlinux`)
    /// it is not moved, started through a boot loader only with `nokaslr`.
    pub fn of_kernel(path: &Path) -> Result<Symbols, SymbolsError> {
        let io = |source| SymbolsError::Io { path: path.to_path_buf(), source };
        let kernel = std::fs::read(path).map_err(io)?;
        let text = kallsyms(&kernel).ok_or_else(|| SymbolsError::NoTables { path: path.into() })?;
        Symbols::parse(&text, path)
    }
}

/// What /proc/kallsyms would say of a kernel without modules.
fn kallsyms(kernel: &[u8]) -> Option<String> {
    let elf = Elf::parse(kernel).ok()?;
    let tokens = tokens(kernel)?;
    let names = names(kernel, &tokens)?;
    let all = [Offsets::Before, Offsets::Behind, Offsets::FromThemselves];
    let addresses = all.iter().find_map(|way| addresses(kernel, &elf, &tokens, &names, *way))?;
    let mut text = String::with_capacity(40 * addresses.len());
    for (address, name) in addresses.iter().zip(&names.symbols) {
        let (kind, name) = name.split_at_checked(1)?;
        text.push_str(&format!("{address:016x} {kind} {name}\n"));
    }
    Some(text)
}

struct Tokens<'a> {
    /// Where the table begins, and where its index ends.
    begin: usize,
    end: usize,
    texts: Vec<&'a str>,
}

fn tokens(kernel: &[u8]) -> Option<Tokens<'_>> {
    let digits: Vec<u8> = (b'0'..=b'9').flat_map(|digit| [digit, 0]).collect();
    let mut found = kernel.windows(digits.len()).enumerate();
    found.find_map(|(at, window)| (window == digits).then(|| tokens_around(kernel, at)).flatten())
}

/// The tokens, if that of `0` is at `zero`.
fn tokens_around(kernel: &[u8], zero: usize) -> Option<Tokens<'_>> {
    let mut begin = zero;
    for _ in 0..b'0' {
        begin = kernel[..begin.checked_sub(1)?].iter().rposition(|byte| *byte == 0)? + 1;
    }
    let (mut texts, mut at, mut index) = (Vec::new(), begin, Vec::new());
    for _ in 0..TOKENS {
        let length = kernel.get(at..at + 64)?.iter().position(|byte| *byte == 0)?;
        texts.push(std::str::from_utf8(&kernel[at..at + length]).ok()?);
        index.extend(u16::try_from(at - begin).ok()?.to_le_bytes());
        at += length + 1;
    }
    let is_index = |at: &usize| kernel.get(*at..*at + index.len()) == Some(&index);
    let end = aligned(at).find(is_index)? + index.len();
    Some(Tokens { begin, end, texts })
}

/// Where a table may begin that follows another which ends at `end`.
fn aligned(end: usize) -> impl Iterator<Item = usize> {
    [4, 8].into_iter().map(move |to| end.next_multiple_of(to))
}

struct Names {
    /// Where `num_syms` is.
    begin: usize,
    /// Types and names.
    symbols: Vec<String>,
}

/// Looks back from the tokens for a number that so many names follow.
fn names(kernel: &[u8], tokens: &Tokens) -> Option<Names> {
    let places = (tokens.begin.saturating_sub(TABLES_MAX)..tokens.begin).rev();
    places.filter(|at| at % 4 == 0).find_map(|begin| {
        let count = long(kernel, begin).filter(|count| SYMBOLS.contains(count))?;
        let at = aligned(begin + 4).find(|at| are_names(kernel, *at, count, tokens.begin))?;
        let symbols = texts(kernel, at, count, tokens)?;
        Some(Names { begin, symbols })
    })
}

/// Whether `count` names begin at `begin`, and end before `limit` with markers that agree.
fn are_names(kernel: &[u8], begin: usize, count: u32, limit: usize) -> bool {
    let mut at = begin;
    let mut markers = Vec::new();
    for symbol in 0..count as usize {
        if symbol % MARKED == 0 {
            markers.extend(((at - begin) as u32).to_le_bytes());
        }
        match name_at(kernel, at) {
            Some((first, length)) if length > 0 && first + length < limit => at = first + length,
            _ => return false,
        }
    }
    let found = aligned(at).any(|at| kernel.get(at..at + markers.len()) == Some(&markers));
    found
}

/// Where the tokens of the name at `at` begin, and how many there are.
fn name_at(kernel: &[u8], at: usize) -> Option<(usize, usize)> {
    let low = usize::from(*kernel.get(at)?);
    if low < 0x80 {
        return Some((at + 1, low));
    }
    let high = usize::from(*kernel.get(at + 1)?);
    Some((at + 2, (low & 0x7f) | (high << 7)))
}

fn texts(kernel: &[u8], mut at: usize, count: u32, tokens: &Tokens) -> Option<Vec<String>> {
    let mut symbols = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (first, length) = name_at(kernel, at)?;
        at = first + length;
        let name = kernel.get(first..at)?.iter();
        symbols.push(name.map(|token| tokens.texts[usize::from(*token)]).collect());
    }
    Some(symbols)
}

/// The symbols' addresses, which ascend: else this kernel gives them in another way.
fn addresses(
    kernel: &[u8],
    elf: &Elf,
    tokens: &Tokens,
    names: &Names,
    way: Offsets,
) -> Option<Vec<u64>> {
    let count = names.symbols.len();
    let found: Vec<(usize, Option<u64>)> = match way {
        Offsets::FromThemselves => aligned(tokens.end).map(|at| (at, None)).collect(),
        Offsets::Behind => {
            let based = |at: usize| {
                aligned(at + 4 * count).map(move |base| (at, quad(kernel, base).or(Some(0))))
            };
            aligned(tokens.end).flat_map(based).collect()
        }
        Offsets::Before => {
            let base = (names.begin - 8) & !7;
            let at = base.checked_sub(4 * count);
            let two = at.map(|at| [at, at & !7]).unwrap_or_default();
            two.map(|at| (at, quad(kernel, base).or(Some(0)))).into()
        }
    };
    found.into_iter().find_map(|(at, base)| {
        let address = |i: usize| {
            let offset = i64::from(long(kernel, at + 4 * i)? as i32);
            match base {
                None => Some(address_of(elf, at + 4 * i)?.wrapping_add_signed(offset)),
                Some(base) if base >> 31 != 0x1_ffff_ffff => None,
                Some(base) if offset < 0 => Some(base.wrapping_add_signed(-1 - offset)),
                Some(_) => Some(offset.unsigned_abs()),
            }
        };
        let all: Vec<u64> = (0..count).map(address).collect::<Option<_>>()?;
        let ascend = all.windows(2).all(|pair| pair[0] <= pair[1]);
        (ascend && all.last()? >> 31 == 0x1_ffff_ffff).then_some(all)
    })
}

/// Where the kernel's own addresses have this byte of its file.
fn address_of(elf: &Elf, at: usize) -> Option<u64> {
    let at = at as u64;
    let loaded = elf.program_headers.iter().filter(|segment| segment.p_type == PT_LOAD);
    let has = |offset: u64, bytes: u64| (offset..offset.saturating_add(bytes)).contains(&at);
    let mut mine = loaded.filter(|segment| has(segment.p_offset, segment.p_filesz));
    mine.next().map(|segment| segment.p_vaddr.wrapping_add(at - segment.p_offset))
}

fn long(kernel: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(kernel.get(at..at + 4)?.try_into().ok()?))
}

fn quad(kernel: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(kernel.get(at..at + 8)?.try_into().ok()?))
}
