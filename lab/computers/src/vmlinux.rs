// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extracts the kernel from a vmlinuz, in the form that QEMU needs for a PVH boot. Such a boot
//! needs no BIOS, and the emulated computer need not uncompress the kernel.
//!
//! The header of Documentation/arch/x86/boot.rst in the kernel has the position of the compressed
//! kernel.

use crate::elf;
use crate::error::{LabError, Result};
use crate::tool;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const SETUP_SECTS: usize = 0x1f1;
const HEADER_MAGIC: (usize, &[u8]) = (0x202, b"HdrS");
const VERSION: usize = 0x206;
/// The first version of the boot protocol with the position of the payload.
const VERSION_MIN: u16 = 0x0208;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
const SECTOR: usize = 512;

const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const LZ4_LEGACY: &[u8] = &[0x02, 0x21, 0x4c, 0x18];
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
/// Size of an uncompressed block in LZ4's legacy format.
const LZ4_BLOCK_BYTES: usize = 8 << 20;
/// Limit above any kernel's size, so that a damaged file does not fill the memory.
const KERNEL_MAX_BYTES: usize = 1 << 30;

/// The uncompressed kernel of `release` in the vmlinuz at `path`, without the parts that are not
/// loaded.
pub(crate) fn extract(path: &Path, vmlinuz: &[u8], release: &str) -> Result<Vec<u8>> {
    let refuse = |detail: String| LabError::NotAKernel { path: path.to_path_buf(), detail };
    let (packed, bytes) = payload(vmlinuz).map_err(refuse)?;
    let kernel = unpack(packed, bytes).map_err(refuse)?;
    if kernel.len() != bytes {
        let found = kernel.len();
        return Err(refuse(format!("its kernel is {found} bytes long and should be {bytes}")));
    }
    loaded_parts(path, kernel, release)
}

/// An uncompressed kernel without the parts that are not loaded.
pub(crate) fn loaded_parts(path: &Path, mut kernel: Vec<u8>, release: &str) -> Result<Vec<u8>> {
    let refuse = |detail: String| LabError::NotAKernel { path: path.to_path_buf(), detail };
    if !elf::has_pvh_entry(&kernel) {
        return Err(LabError::NoPvh { release: release.to_string() });
    }
    let loaded = elf::loaded_bytes(&kernel)
        .ok_or_else(|| refuse("its segments lie outside of the kernel".into()))?;
    // Relocations for KASLR follow, which a PVH boot does not use.
    kernel.truncate(loaded);
    without_sections(&mut kernel);
    Ok(kernel)
}

/// The compressed kernel in a vmlinuz, and its uncompressed length.
fn payload(vmlinuz: &[u8]) -> std::result::Result<(&[u8], usize), String> {
    let (at, magic) = HEADER_MAGIC;
    if vmlinuz.get(at..at + magic.len()) != Some(magic) {
        return Err("it has no boot header".into());
    }
    let version = u16::from_le_bytes([vmlinuz[VERSION], vmlinuz[VERSION + 1]]);
    if version < VERSION_MIN {
        return Err(format!("its boot protocol {version:#x} does not say where the kernel is"));
    }
    let word = |at: usize| vmlinuz.get(at..at + 4).map(le_word);
    let (offset, length) = word(PAYLOAD_OFFSET).zip(word(PAYLOAD_LENGTH)).ok_or("it is cut off")?;
    let start = (usize::from(vmlinuz[SETUP_SECTS]) + 1) * SECTOR + offset;
    let payload = vmlinuz.get(start..start + length).ok_or("it is cut off")?;
    // The build appends the uncompressed length.
    let size = payload.len().checked_sub(4).ok_or("its kernel is empty")?;
    let (packed, bytes) = payload.split_at(size);
    match le_word(bytes) {
        bytes if bytes <= KERNEL_MAX_BYTES => Ok((packed, bytes)),
        bytes => Err(format!("its kernel would be {bytes} bytes long")),
    }
}

fn le_word(bytes: &[u8]) -> usize {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
}

fn unpack(packed: &[u8], bytes: usize) -> std::result::Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(bytes);
    if packed.starts_with(ZSTD) {
        let decoder = ruzstd::decoding::StreamingDecoder::new(packed).map_err(|e| e.to_string())?;
        decoder.take(bytes as u64 + 1).read_to_end(&mut out).map_err(|e| e.to_string())?;
        Ok(out)
    } else if packed.starts_with(LZ4_LEGACY) {
        unpack_lz4(&packed[LZ4_LEGACY.len()..], bytes, &mut out)?;
        Ok(out)
    } else if packed.starts_with(XZ) {
        unpack_xz(packed)
    } else {
        let start: Vec<String> = packed.iter().take(4).map(|b| format!("{b:02x}")).collect();
        let start = start.join(" ");
        Err(format!("its kernel is packed neither by zstd nor lz4 nor xz (it begins {start})"))
    }
}

/// Unpacks blocks, each of which follows its packed length.
fn unpack_lz4(
    mut packed: &[u8],
    bytes: usize,
    out: &mut Vec<u8>,
) -> std::result::Result<(), String> {
    let mut block = vec![0; LZ4_BLOCK_BYTES];
    while out.len() < bytes {
        let (length, rest) = packed.split_at_checked(4).ok_or("its kernel is cut off")?;
        let (input, rest) =
            rest.split_at_checked(le_word(length)).ok_or("its kernel is cut off")?;
        let count =
            lz4_flex::block::decompress_into(input, &mut block).map_err(|e| e.to_string())?;
        if count == 0 {
            return Err("its kernel has an empty block".into());
        }
        out.extend_from_slice(&block[..count]);
        packed = rest;
    }
    Ok(())
}

fn unpack_xz(packed: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let mut xz = Command::new("xz");
    xz.args(["-dc", "--single-stream"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let package = tool::package_of("xz");
    let mut child = xz
        .stderr(Stdio::null())
        .spawn()
        .map_err(|_| format!("xz is not installed (apt-get install {package})"))?;
    let mut input = child.stdin.take().ok_or("xz has no input")?;
    let out = std::thread::scope(|scope| {
        // The reader stops at the end of the stream, which may be before the end of our input.
        scope.spawn(move || input.write_all(packed));
        child.wait_with_output()
    });
    let out = out.map_err(|error| error.to_string())?;
    match out.status.success() {
        true => Ok(out.stdout),
        false => Err("xz cannot uncompress its kernel".into()),
    }
}

/// Removes the section table from the header, because the file is cut off before it.
fn without_sections(kernel: &mut [u8]) {
    const E_SHOFF: usize = 0x28;
    const E_SHNUM: usize = 0x3c;
    kernel[E_SHOFF..E_SHOFF + 8].fill(0);
    kernel[E_SHNUM..E_SHNUM + 4].fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmlinuz(packed: &[u8], bytes: u32) -> Vec<u8> {
        let mut file = vec![0u8; 2 * SECTOR];
        file[SETUP_SECTS] = 1;
        file[HEADER_MAGIC.0..HEADER_MAGIC.0 + 4].copy_from_slice(HEADER_MAGIC.1);
        file[VERSION..VERSION + 2].copy_from_slice(&0x020fu16.to_le_bytes());
        file[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4]
            .copy_from_slice(&(packed.len() as u32 + 4).to_le_bytes());
        file.extend_from_slice(packed);
        file.extend_from_slice(&bytes.to_le_bytes());
        file
    }

    fn packed_by_lz4(contents: &[u8]) -> Vec<u8> {
        let block = lz4_flex::block::compress(contents);
        [LZ4_LEGACY, &(block.len() as u32).to_le_bytes(), &block].concat()
    }

    #[test]
    fn a_payload_is_uncompressed_to_its_very_length() {
        let contents = b"kernel ".repeat(1000);
        let file = vmlinuz(&packed_by_lz4(&contents), contents.len() as u32);
        let (packed, bytes) = payload(&file).unwrap();
        assert_eq!(unpack(packed, bytes).unwrap(), contents);
    }

    #[test]
    fn what_is_no_kernel_is_refused_with_the_reason() {
        let contents = b"kernel ".repeat(1000);
        let good = vmlinuz(&packed_by_lz4(&contents), contents.len() as u32);
        let mut old = good.clone();
        old[VERSION] = 7;
        let other = vmlinuz(b"PK\x03\x04 something", 100);
        let huge = vmlinuz(b"\x28\xb5\x2f\xfd", u32::MAX);
        let damaged = vmlinuz(&[LZ4_LEGACY, &[255; 20]].concat(), 100);
        let other_length = vmlinuz(&packed_by_lz4(&contents), 6999);
        for (file, reason) in [
            (&b"MZ"[..], "no boot header"),
            (&old, "boot protocol 0x207"),
            (&good[..good.len() - 1], "cut off"),
            (&other, "begins 50 4b 03 04"),
            (&huge, "4294967295 bytes"),
            (&damaged, "cut off"),
            (&other_length, "7000 bytes long and should be 6999"),
        ] {
            let error = extract(Path::new("/boot/vmlinuz"), file, "6.12").unwrap_err();
            assert!(matches!(error, LabError::NotAKernel { .. }), "{error}");
            assert!(error.to_string().contains(reason), "{error}");
        }
        let error = extract(Path::new("/boot/vmlinuz"), &good, "6.12").unwrap_err();
        assert!(matches!(error, LabError::NoPvh { .. }), "{error}");
    }
}
