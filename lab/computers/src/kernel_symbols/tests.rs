// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images of kernels with few symbols, of any kind that the reader knows.

use super::*;
use proptest::prelude::*;
use std::ops::Range;

/// The kernels that arrange or encode their tables differently.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kernels {
    UpTo6_3,
    UpTo6_14,
    UpTo6_19,
    Since7,
}

const ALL: [Kernels; 4] = [Kernels::UpTo6_3, Kernels::UpTo6_14, Kernels::UpTo6_19, Kernels::Since7];

const LINKED_TO: u64 = 0xffff_ffff_8100_0000;
/// Of the file, where its only segment begins.
const TABLES_AT: usize = 0x1000;

/// Numbers that only the seed decides (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        for (left, by) in [(false, 12), (true, 25), (false, 27)] {
            self.0 ^= if left { self.0 << by } else { self.0 >> by };
        }
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

fn random(seed: u64) -> Random {
    Random(seed | 1)
}

/// Addresses that ascend; where per-CPU symbols are absolute, those come first.
fn some_symbols(kernels: Kernels, count: usize, random: &mut Random) -> Vec<(u64, String)> {
    let letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_._._";
    let absolute = match kernels {
        Kernels::UpTo6_3 | Kernels::UpTo6_14 => random.below(count as u64 / 2) as usize,
        Kernels::UpTo6_19 | Kernels::Since7 => 0,
    };
    let mut address = if absolute > 0 { 0 } else { LINKED_TO };
    let symbol = |i: usize| {
        if i == absolute {
            address = LINKED_TO;
        }
        address += random.below(300) * random.below(2);
        // The longest that a kernel has.
        let length =
            if random.below(50) == 0 { 1 + random.below(511) } else { 1 + random.below(40) };
        let mut text =
            String::from(if i < absolute { 'A' } else { "tTdDbW".as_bytes()[i % 6] as char });
        text.extend(
            (0..length).map(|_| letters[random.below(letters.len() as u64) as usize] as char),
        );
        (address, text)
    };
    (0..count).map(symbol).collect()
}

/// A kernel's file, and where its tables are in it.
struct Image {
    bytes: Vec<u8>,
    count: Range<usize>,
    markers: Range<usize>,
    index: Range<usize>,
    offsets: Range<usize>,
    listed: String,
}

/// What stands for each token: the letters for themselves, and texts that many names have.
fn token_texts() -> Vec<String> {
    let texts = ["__", "_smp", "call_", "lock", "x86_", "t_", "1_2"];
    let text = |token: usize| match char::from(token as u8) {
        letter if letter.is_ascii_alphanumeric() || "_.".contains(letter) => letter.to_string(),
        _ => texts.get(token % 16).map_or(String::new(), |text| text.to_string()),
    };
    (0..TOKENS).map(text).collect()
}

/// As many letters per token as go; one, now and then.
fn packed(name: &str, texts: &[String], random: &mut Random) -> Vec<u8> {
    let long: Vec<usize> = (0..TOKENS).filter(|token| texts[*token].len() > 1).collect();
    let (mut at, mut tokens) = (0, Vec::new());
    while at < name.len() {
        let fits = |token: &&usize| name[at..].starts_with(&texts[**token]);
        let longest = long.iter().filter(fits).max_by_key(|token| texts[**token].len());
        let token = match longest {
            Some(token) if random.below(4) > 0 => *token,
            _ => usize::from(name.as_bytes()[at]),
        };
        tokens.push(token as u8);
        at += texts[token].len();
    }
    match tokens.len() {
        length @ ..0x80 => [vec![length as u8], tokens].concat(),
        length => [vec![length as u8 | 0x80, (length >> 7) as u8], tokens].concat(),
    }
}

struct Builder {
    bytes: Vec<u8>,
    align: usize,
}

impl Builder {
    fn table(&mut self, table: &[u8], align: usize) -> Range<usize> {
        self.bytes.resize(self.bytes.len().next_multiple_of(align), 0);
        let begin = self.bytes.len();
        self.bytes.extend(table);
        begin..self.bytes.len()
    }

    /// `offsets`, and the base behind them if there is one.
    fn offsets(&mut self, kernels: Kernels, symbols: &[(u64, String)]) -> Range<usize> {
        let begin = self.bytes.len().next_multiple_of(self.align);
        let own = |i: usize| LINKED_TO + (begin - TABLES_AT + 4 * i) as u64;
        let offset = |(i, (address, _)): (usize, &(u64, String))| match kernels {
            Kernels::Since7 => address.wrapping_sub(own(i)) as u32,
            Kernels::UpTo6_19 => (address - LINKED_TO) as u32,
            _ if *address < LINKED_TO => *address as u32,
            _ => (LINKED_TO.wrapping_sub(address + 1)) as u32,
        };
        let table: Vec<u8> =
            symbols.iter().enumerate().flat_map(|symbol| offset(symbol).to_le_bytes()).collect();
        let place = self.table(&table, self.align);
        if kernels != Kernels::Since7 {
            self.table(&LINKED_TO.to_le_bytes(), 8);
        }
        place
    }
}

/// An ELF file's head with one segment, which begins with the tables.
fn head(segment_bytes: usize) -> Vec<u8> {
    let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    head.extend([LINKED_TO, 64, 0].iter().flat_map(|number| number.to_le_bytes()));
    head.extend([0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    head.resize(64, 0);
    head.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    let (at, bytes) = (TABLES_AT as u64, segment_bytes as u64);
    let segment = [at, LINKED_TO, LINKED_TO & 0x7fff_ffff, bytes, bytes, 0x1000];
    head.extend(segment.iter().flat_map(|number| number.to_le_bytes()));
    head.resize(TABLES_AT, 0);
    head
}

fn image(kernels: Kernels, align: usize, symbols: &[(u64, String)], random: &mut Random) -> Image {
    let texts = token_texts();
    let mut builder = Builder { bytes: vec![0; TABLES_AT], align };
    // What is there before: numbers, and digits that are no tokens.
    let noise: Vec<u8> = (0..random.below(5000)).map(|_| random.below(256) as u8).collect();
    builder.table(&noise, 1);
    builder.table(b"\x000\x001\x002\x003\x004\x005\x006\x007\x008\x009\0", 1);
    builder.table(&noise, 1);
    let before = (kernels == Kernels::UpTo6_3).then(|| builder.offsets(kernels, symbols));
    let count = builder.table(&(symbols.len() as u32).to_le_bytes(), align);
    let (mut names, mut markers) = (Vec::new(), Vec::new());
    for (i, (_, name)) in symbols.iter().enumerate() {
        if i % MARKED == 0 {
            markers.extend((names.len() as u32).to_le_bytes());
        }
        names.extend(packed(name, &texts, random));
    }
    builder.table(&names, align);
    let markers = builder.table(&markers, align);
    if kernels == Kernels::UpTo6_3 {
        // `seqs_of_names`, three bytes each, since 6.2.
        builder.table(&vec![1; random.below(2) as usize * 3 * symbols.len()], align);
    }
    let (mut table, mut index) = (Vec::new(), Vec::new());
    for text in &texts {
        index.extend((table.len() as u16).to_le_bytes());
        table.extend([text.as_bytes(), b"\0"].concat());
    }
    builder.table(&table, align);
    let index = builder.table(&index, align);
    let offsets = before.unwrap_or_else(|| builder.offsets(kernels, symbols));
    builder.table(&noise, align);
    let mut bytes = builder.bytes;
    let head = head(bytes.len() - TABLES_AT);
    bytes[..TABLES_AT].copy_from_slice(&head);
    let line =
        |(address, name): &(u64, String)| format!("{address:016x} {} {}\n", &name[..1], &name[1..]);
    let listed = symbols.iter().map(line).collect();
    Image { bytes, count, markers, index, offsets, listed }
}

/// Up to 6.3 every table is aligned to 8 bytes.
fn some_image(kernels: Kernels, align: usize, count: usize, seed: u64) -> Image {
    let align = if kernels == Kernels::UpTo6_3 { 8 } else { align };
    let mut random = random(seed);
    let symbols = some_symbols(kernels, count, &mut random);
    image(kernels, align, &symbols, &mut random)
}

fn kernels() -> impl Strategy<Value = Kernels> {
    prop::sample::select(ALL.to_vec())
}

fn align() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![4, 8])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_a_kernel_lists_comes_out_of_its_image(
        kernels in kernels(), align in align(), count in 1000..2500usize, seed: u64,
    ) {
        let image = some_image(kernels, align, count, seed);
        prop_assert!(kallsyms(&image.bytes) == Some(image.listed));
    }

    /// A byte of `num_syms`, the markers or the tokens' index: nothing is read in its stead.
    #[test]
    fn tables_that_do_not_agree_are_refused(
        kernels in kernels(), align in align(), seed: u64, at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
    ) {
        let mut image = some_image(kernels, align, 1000, seed);
        let tables = [image.count, image.markers, image.index];
        let places: Vec<usize> = tables.into_iter().flatten().collect();
        image.bytes[*at.get(&places)] ^= flip;
        prop_assert!(kallsyms(&image.bytes).is_none());
    }

    #[test]
    fn offsets_that_do_not_ascend_are_refused(
        kernels in kernels(), align in align(), seed: u64, at in 501..1000usize, is_low: bool,
    ) {
        let mut image = some_image(kernels, align, 1000, seed);
        let place = image.offsets.start + 4 * at;
        let (low, high) = match kernels {
            Kernels::UpTo6_3 | Kernels::UpTo6_14 => (0, 0x8000_0000),
            Kernels::UpTo6_19 => (0, u32::MAX),
            Kernels::Since7 => (0x8000_0000, 0x7fff_ffff),
        };
        let offset: u32 = if is_low { low } else { high };
        image.bytes[place..place + 4].copy_from_slice(&offset.to_le_bytes());
        prop_assert!(kallsyms(&image.bytes).is_none());
    }

    #[test]
    fn a_part_of_an_image_is_read_whole_or_refused(
        kernels in kernels(), seed: u64, at in any::<prop::sample::Index>(),
    ) {
        let image = some_image(kernels, 8, 1000, seed);
        let read = kallsyms(&image.bytes[..at.index(image.bytes.len())]);
        prop_assert!(read.is_none_or(|read| read == image.listed));
    }

    #[test]
    fn a_damaged_image_is_read_or_refused(
        kernels in kernels(), align in align(), seed: u64,
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let mut image = some_image(kernels, align, 1000, seed);
        for (at, byte) in damages {
            let at = at.index(image.bytes.len());
            image.bytes[at] = byte;
        }
        if let Some(read) = kallsyms(&image.bytes) {
            prop_assert_eq!(read.lines().count(), 1000);
        }
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        prop_assert_eq!(kallsyms(&bytes), None);
    }
}

#[test]
fn a_kernel_without_tables_is_named() {
    let dir = unspin_scratch::Scratch::new();
    let image = some_image(Kernels::UpTo6_14, 8, 1000, 1);
    let path = dir.write("vmlinux", &image.bytes);
    assert_eq!(kernel_symbols(&path).unwrap(), image.listed);
    std::fs::write(&path, &image.bytes[..image.index.start]).unwrap();
    let error = kernel_symbols(&path).unwrap_err().to_string();
    assert!(error.starts_with(&path.display().to_string()), "{error}");
    assert!(error.contains("is not an uncompressed kernel with symbols"), "{error}");
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(kernel_symbols(&path), Err(LabError::Io { .. })));
}
