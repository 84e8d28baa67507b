// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads records from an emulated computer's port 0xE9: `\x1e<length> <CRC-32> <JSON>\n`, between
//! other output of the emulator.

use unspin_scenario::result::Record;

/// Splits a byte stream into records; bytes may arrive in any pieces.
#[derive(Default)]
pub struct Decoder {
    pending: Vec<u8>,
    /// Number of bytes known to contain no end of line; some lines are megabytes long.
    looked_at: usize,
}

impl Decoder {
    /// Takes more bytes. Each complete frame gives a record, or an error.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Result<Record, String>> {
        self.pending.extend_from_slice(bytes);
        let mut found = Vec::new();
        while let Some(end) = self.pending[self.looked_at..].iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=self.looked_at + end).collect();
            self.looked_at = 0;
            let line = &line[..line.len() - 1];
            // The emulator's own output may precede a frame on the same line.
            if let Some(start) = line.iter().position(|&byte| byte == 0x1e) {
                found.push(decode(&line[start + 1..]));
            }
        }
        self.looked_at = self.pending.len();
        found
    }
}

fn decode(frame: &[u8]) -> Result<Record, String> {
    let mut parts = frame.splitn(3, |&byte| byte == b' ');
    let text = |part: Option<&[u8]>| String::from_utf8_lossy(part.unwrap_or_default()).into_owned();
    let length: usize = text(parts.next()).parse().map_err(|_| "no length".to_string())?;
    let crc =
        u32::from_str_radix(&text(parts.next()), 16).map_err(|_| "no checksum".to_string())?;
    let json = parts.next().unwrap_or_default();
    if json.len() != length {
        return Err(format!("{} bytes where {length} were sent", json.len()));
    }
    if crc32fast::hash(json) != crc {
        return Err("checksum does not match".into());
    }
    Record::from_json(json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(json: &str) -> Vec<u8> {
        format!("\x1e{} {:08x} {json}\n", json.len(), crc32fast::hash(json.as_bytes())).into_bytes()
    }

    const END: &str = r#"{"record":"end","runs":3,"failed":0}"#;

    #[test]
    fn frames_survive_any_split_and_noise_around_them() {
        let mut stream = b"Next at t=0\n<bochs> ".to_vec();
        stream.extend(frame(END));
        stream.extend(b"noise\n");
        stream.extend(frame(END));
        for piece in 1..20 {
            let mut decoder = Decoder::default();
            let found: Vec<_> = stream.chunks(piece).flat_map(|part| decoder.feed(part)).collect();
            assert_eq!(found.len(), 2, "in pieces of {piece}");
            assert!(found.iter().all(|record| *record == Ok(Record::End { runs: 3, failed: 0 })));
        }
    }

    #[test]
    fn damage_is_seen() {
        for at in 1..frame(END).len() - 1 {
            let mut bytes = frame(END);
            bytes[at] ^= 1;
            let found = Decoder::default().feed(&bytes);
            assert!(found.iter().all(Result::is_err), "byte {at} flipped: {found:?}");
        }
    }
}
