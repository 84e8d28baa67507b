// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates the type information of a slightly different kernel build, in which a structure is
//! longer. The format is that of Documentation/bpf/btf.rst; a module's strings continue those of
//! the kernel.

use std::fs;

const STRUCT: u32 = 4;
/// Number of bytes by which the structure grows.
const LONGER: u32 = 8;

struct Blob {
    bytes: Vec<u8>,
    types: usize,
    types_end: usize,
    strings: usize,
    strings_len: usize,
}

impl Blob {
    fn read(file: &str) -> Result<Blob, String> {
        let bytes = fs::read(file).map_err(|e| format!("{file}: {e}"))?;
        if bytes.len() < 24 || bytes[..2] != [0x9f, 0xeb] {
            return Err(format!("{file} is no type information"));
        }
        let mut blob = Blob { bytes, types: 0, types_end: 0, strings: 0, strings_len: 0 };
        // struct btf_header: hdr_len, type_off, type_len, str_off, str_len.
        let [header, type_off, type_len, str_off, str_len] =
            [4, 8, 12, 16, 20].map(|at| blob.word(at) as usize);
        (blob.types, blob.types_end) = (header + type_off, header + type_off + type_len);
        (blob.strings, blob.strings_len) = (header + str_off, str_len);
        Ok(blob)
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }

    fn has_name(&self, offset: usize, name: &str) -> bool {
        let at = self.strings + offset;
        self.bytes[at..].starts_with(name.as_bytes()) && self.bytes[at + name.len()] == 0
    }
}

/// Length of a type in bytes: its own twelve bytes and those that follow.
fn length(kind: u32, vlen: u32) -> Option<usize> {
    let (each, rest) = match kind {
        1 | 14 | 17 => (0, 4),          // integer, variable, declaration's tag
        2 | 7..=12 | 16 | 18 => (0, 0), // pointer, forward, typedef, qualifiers, function, float, tag
        3 => (0, 12),                   // array
        4 | 5 | 15 | 19 => (12, 0),     // structure, union, section, 64-bit enumeration
        6 | 13 => (8, 0),               // enumeration, prototype
        _ => return None,
    };
    Some(12 + vlen as usize * each + rest)
}

/// Position of the structure `name` in a blob. Strings before the blob's own are those of `base`.
fn find(own: &Blob, base: Option<&Blob>, name: &str) -> Result<Option<usize>, String> {
    let strings_before = base.map_or(0, |base| base.strings_len);
    let mut at = own.types;
    while at < own.types_end {
        let (name_off, info) = (own.word(at) as usize, own.word(at + 4));
        let (kind, vlen) = (info >> 24 & 0x1f, info & 0xffff);
        let found = match (name_off.checked_sub(strings_before), base) {
            (None, Some(base)) => base.has_name(name_off, name),
            (Some(offset), _) => own.has_name(offset, name),
            (None, None) => false,
        };
        if kind == STRUCT && found {
            return Ok(Some(at));
        }
        at += length(kind, vlen).ok_or_else(|| format!("a type of kind {kind}"))?;
    }
    Ok(None)
}

/// Lengthens the structure `name` in the file that describes it: a module's file, whose strings
/// continue those of `base`, or `base` itself.
pub fn lengthen(base_file: &str, file: &str, name: &str) -> Result<String, String> {
    let (base, own) = (Blob::read(base_file)?, Blob::read(file)?);
    let (file, mut blob, at) = match find(&own, Some(&base), name)? {
        Some(at) => (file, own, at),
        None => match find(&base, None, name)? {
            Some(at) => (base_file, base, at),
            None => return Err(format!("neither {file} nor {base_file} describes {name}")),
        },
    };
    let size = blob.word(at + 8) + LONGER;
    blob.bytes[at + 8..at + 12].copy_from_slice(&size.to_le_bytes());
    fs::write(file, &blob.bytes).map_err(|e| format!("{file}: {e}"))?;
    Ok(format!("{name} has {size} bytes"))
}
