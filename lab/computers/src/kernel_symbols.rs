// SPDX-License-Identifier: MIT OR Apache-2.0
//! The symbols inside an uncompressed kernel. They equal those of its /proc/kallsyms (without
//! modules) if it runs at its link address.
//!
//! scripts/kallsyms.c of the kernel writes these tables, aligned to 4 or 8 bytes:
//! * `num_syms`, then `names`: per symbol a length (one byte; two if the first has its highest bit
//!   set, since 6.1), then as many tokens of one byte each. The first letter is the type.
//! * `markers`: the positions in `names` of each 256th symbol.
//! * `token_table`: the texts of the 256 tokens, each ended by a zero; `token_index`: their
//!   positions in the table.
//! * `offsets`: the addresses of symbols, in one of several encodings ([`Offsets`]).
//!
//! The kernel does not record where the tables are. The code searches for the tokens of the digits,
//! and each table must agree with the one before.

use std::path::Path;

use goblin::elf::program_header::PT_LOAD;
use goblin::elf::Elf;

use crate::error::{io, LabError, Result};

/// Tables are searched within this many bytes before the tokens.
const TABLES_MAX: usize = 16 << 20;
const SYMBOLS: std::ops::RangeInclusive<u32> = 1000..=4_000_000;
/// Symbols per marker.
const MARKED: usize = 256;
const TOKENS: usize = 256;
/// Limit including the zero: no token is longer than a name.
const TOKEN_BYTES_MAX: usize = 512;

/// The encoding of `offsets`. They precede `num_syms` up to 6.3, and follow the tokens since then.
#[derive(Debug, Clone, Copy)]
enum Offsets {
    /// Up to 6.14: relative to `relative_base`, which follows the offsets. Non-negative values are
    /// addresses of per-CPU symbols; the others count down from the base.
    PerCpuAbsolute(u64),
    /// Then: all relative to `relative_base`.
    FromBase(u64),
    /// Since 7: each relative to its own position.
    FromThemselves,
}

/// The contents of `/proc/kallsyms` for the uncompressed kernel at `path` (an ELF file for x86-64),
/// without modules.
///
/// A kernel runs at its link address if it is started by PVH (`-kernel vmlinux`), or by a boot
/// loader with `nokaslr`.
pub fn kernel_symbols(path: &Path) -> Result<String> {
    let kernel = std::fs::read(path).map_err(io(path))?;
    kallsyms(&kernel).ok_or_else(|| LabError::NoSymbols { path: path.into() })
}

/// The contents of /proc/kallsyms for a kernel without modules.
fn kallsyms(kernel: &[u8]) -> Option<String> {
    let elf = Elf::parse(kernel).ok()?;
    let tokens = tokens(kernel)?;
    let names = names(kernel, &tokens)?;
    let count = names.symbols.len();
    let addresses = offsets(kernel, &tokens, &names)
        .into_iter()
        .find_map(|(at, way)| addresses(kernel, &elf, at, count, way))?;
    let mut text = String::with_capacity(40 * count);
    for (address, name) in addresses.iter().zip(&names.symbols) {
        let (kind, name) = name.split_at_checked(1).filter(|(_, name)| !name.is_empty())?;
        text.push_str(&format!("{address:016x} {kind} {name}\n"));
    }
    Some(text)
}

struct Tokens<'a> {
    /// Start of the table, and end of its index.
    begin: usize,
    end: usize,
    texts: Vec<&'a str>,
}

fn tokens(kernel: &[u8]) -> Option<Tokens<'_>> {
    let digits: Vec<u8> = (b'0'..=b'9').flat_map(|digit| [digit, 0]).collect();
    let mut found = kernel.windows(digits.len()).enumerate();
    found.find_map(|(at, window)| (window == digits).then(|| tokens_around(kernel, at)).flatten())
}

/// The tokens, provided that the token `0` is at `zero`.
fn tokens_around(kernel: &[u8], zero: usize) -> Option<Tokens<'_>> {
    let mut end = zero.checked_sub(1)?;
    for _ in 1..b'0' {
        end = kernel[..end].iter().rposition(|byte| *byte == 0)?;
    }
    // The position of the first token. The bytes before it need not end with a zero.
    (end.saturating_sub(TOKEN_BYTES_MAX)..=end).find_map(|begin| tokens_at(kernel, begin))
}

/// The tokens, provided that the first one is at `begin`; `None` if the index does not agree.
fn tokens_at(kernel: &[u8], begin: usize) -> Option<Tokens<'_>> {
    let (mut texts, mut at, mut index) = (Vec::new(), begin, Vec::new());
    for _ in 0..TOKENS {
        let length = kernel.get(at..)?.iter().take(TOKEN_BYTES_MAX).position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(&kernel[at..at + length]).ok()?;
        texts.push(Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))?);
        index.extend(u16::try_from(at - begin).ok()?.to_le_bytes());
        at += length + 1;
    }
    let is_index = |at: &usize| kernel.get(*at..*at + index.len()) == Some(&index);
    let end = aligned(at).find(is_index)? + index.len();
    Some(Tokens { begin, end, texts })
}

/// Possible starts of a table that follows another which ends at `end`.
fn aligned(end: usize) -> impl Iterator<Item = usize> {
    [4, 8].into_iter().map(move |to| end.next_multiple_of(to))
}

struct Names {
    /// Position of `num_syms`.
    begin: usize,
    /// Types and names.
    symbols: Vec<String>,
}

/// Searches backwards from the tokens for a number that as many names follow.
fn names(kernel: &[u8], tokens: &Tokens) -> Option<Names> {
    let places = (tokens.begin.saturating_sub(TABLES_MAX)..tokens.begin).rev();
    places.filter(|at| at % 4 == 0).find_map(|begin| {
        let count = long(kernel, begin).filter(|count| SYMBOLS.contains(count))?;
        let at = aligned(begin + 4).find(|at| are_names(kernel, *at, count, tokens.begin))?;
        let symbols = texts(kernel, at, count, tokens)?;
        Some(Names { begin, symbols })
    })
}

/// Whether `count` names start at `begin`, and end before `limit` with markers that agree.
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
    let mut places = aligned(at);
    places.any(|at| kernel.get(at..at + markers.len()) == Some(&markers))
}

/// Position and number of the tokens of the name at `at`.
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

/// Possible positions of `offsets`, with their encodings.
fn offsets(kernel: &[u8], tokens: &Tokens, names: &Names) -> Vec<(usize, Offsets)> {
    let bytes = 4 * names.symbols.len();
    // The position of the offsets and of their base. An index is 512 bytes long and ends where the
    // next table begins.
    let behind = tokens.end;
    let mut places: Vec<(usize, usize)> =
        aligned(behind + bytes).map(|base| (behind, base)).collect();
    // Before the names, each table is aligned to 8 bytes.
    if let Some(base) = names.begin.checked_sub(8).map(|base| base & !7) {
        places.extend(base.checked_sub(bytes).map(|at| (at & !7, base)));
    }
    let mut found = Vec::new();
    for (at, base) in places {
        if let Some(base) = quad(kernel, base).filter(|base| is_kernels(*base)) {
            found.extend([(at, Offsets::PerCpuAbsolute(base)), (at, Offsets::FromBase(base))]);
        }
    }
    found.push((behind, Offsets::FromThemselves));
    found
}

/// The addresses in `offsets` if they start at `begin` in this encoding. They must ascend to a kernel
/// address; otherwise the position or the encoding is wrong.
fn addresses(
    kernel: &[u8],
    elf: &Elf,
    begin: usize,
    count: usize,
    way: Offsets,
) -> Option<Vec<u64>> {
    let address = |i: usize| {
        let at = begin + 4 * i;
        let offset = long(kernel, at)?;
        match way {
            Offsets::PerCpuAbsolute(_) if offset >> 31 == 0 => Some(u64::from(offset)),
            Offsets::PerCpuAbsolute(base) => base.checked_add(u64::from(!offset)),
            Offsets::FromBase(base) => base.checked_add(u64::from(offset)),
            Offsets::FromThemselves => {
                address_of(elf, at)?.checked_add_signed(i64::from(offset as i32))
            }
        }
    };
    let all: Vec<u64> = (0..count).map(address).collect::<Option<_>>()?;
    let ascend = all.windows(2).all(|pair| pair[0] <= pair[1]);
    (ascend && is_kernels(*all.last()?)).then_some(all)
}

/// Whether an address is in the last 2 GiB, where kernels are linked.
fn is_kernels(address: u64) -> bool {
    address >> 31 == 0x1_ffff_ffff
}

/// The link address of the byte at position `at` of the file.
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

#[cfg(test)]
mod tests;
