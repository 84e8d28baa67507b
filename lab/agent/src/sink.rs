// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destinations of records: JSON lines in a file or on standard output, or frames through port
//! 0xE9, which Bochs and QEMU copy to the host at no cost in virtual time.

use std::fs::File;
use std::io::Write;

use unspin_scenario::result::Record;

use crate::Error;

const DEBUG_PORT: u16 = 0xe9;
/// Begins a frame. It does not occur in JSON text.
const FRAME_START: char = '\x1e';

pub enum Sink {
    Lines(Box<dyn Write>, String),
    Port,
}

impl Sink {
    /// `out` is `stdout`, `port-e9` or the name of a file to create.
    pub fn open(out: &str) -> Result<Sink, Error> {
        match out {
            "stdout" => Ok(Sink::Lines(Box::new(std::io::stdout()), out.into())),
            "port-e9" => {
                // SAFETY: no memory involved; asks for access to one port.
                if unsafe { libc::ioperm(DEBUG_PORT.into(), 1, 1) } == 0 {
                    Ok(Sink::Port)
                } else {
                    Err(Error::Port(std::io::Error::last_os_error()))
                }
            }
            path => {
                let file = File::create(path).map_err(|e| Error::io(path, e))?;
                Ok(Sink::Lines(Box::new(file), path.into()))
            }
        }
    }

    pub fn send(&mut self, record: &Record) -> Result<(), Error> {
        let json = record.to_json();
        match self {
            Sink::Lines(file, path) => {
                writeln!(file, "{json}").and_then(|()| file.flush()).map_err(|e| Error::io(path, e))
            }
            Sink::Port => {
                frame(&json).bytes().for_each(outb);
                Ok(())
            }
        }
    }
}

/// One line of the channel of an emulated computer: start, length of the JSON in bytes, its CRC-32
/// (IEEE 802.3) in 8 hex digits, the JSON.
pub fn frame(json: &str) -> String {
    format!("{FRAME_START}{} {:08x} {json}\n", json.len(), crc32fast::hash(json.as_bytes()))
}

fn outb(byte: u8) {
    // SAFETY: `Sink::open` was granted this port.
    unsafe {
        std::arch::asm!(
            "out dx, al",
            in("dx") DEBUG_PORT,
            in("al") byte,
            options(nomem, nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_has_length_and_check_value() {
        // 0xcbf43926 is the check value of CRC-32/ISO-HDLC for these nine digits.
        assert_eq!(frame("123456789"), "\x1e9 cbf43926 123456789\n");
        assert_eq!(frame(""), "\x1e0 00000000 \n");
    }

    #[test]
    fn length_counts_bytes_not_characters() {
        assert!(frame("\"é\"").starts_with("\x1e4 "));
    }

    #[test]
    fn json_never_contains_the_start() {
        let json = Record::Log { text: "\x1e\n".into() }.to_json();
        assert!(!json.contains(FRAME_START) && !json.contains('\n'));
    }
}
