// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines of a journal, and how they are read if the last writer was killed.

use super::change::Change;
use super::error::Error;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the format. A change that old readers would misunderstand gets a new number.
pub const SCHEMA: u32 = 1;

/// A line of the journal.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// The first line: the boot to which the following lines belong.
    Begin { schema: u32, boot: String },
    /// Changes that are recorded together, before they are made.
    Change(Vec<Change>),
    /// Changes that are finished, by id.
    Back(Vec<u64>),
}

impl Line {
    /// The line as bytes: CRC-32 of the JSON in 8 hexadecimal digits, JSON, newline.
    pub fn write(&self) -> Result<Vec<u8>, serde_json::Error> {
        let json = serde_json::to_string(self)?;
        let crc = crc32fast::hash(json.as_bytes());
        Ok(format!("{crc:08x} {json}\n").into_bytes())
    }

    /// The JSON of a complete line.
    fn json(line: &[u8]) -> Option<&str> {
        let text = std::str::from_utf8(line).ok()?;
        let (crc, json) = text.split_once(' ')?;
        // Compare the text: a capital digit means that a byte has changed.
        let is_whole = crc == format!("{:08x}", crc32fast::hash(json.as_bytes()));
        is_whole.then_some(json)
    }
}

/// Reads lines, and returns the number of bytes in complete lines. An incomplete last line is
/// ignored: its writer ended while writing it, so it made no change after it. Any other incomplete
/// line is an error, because its changes may have been made.
pub fn read(path: &Path, bytes: &[u8]) -> Result<(Vec<Line>, u64), Error> {
    let (mut lines, mut whole) = (Vec::new(), 0);
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let number = index + 1;
        let json = line.strip_suffix(b"\n").and_then(Line::json);
        let Some(json) = json else {
            if !line.ends_with(b"\n") {
                break;
            }
            return Err(Error::Damaged { path: path.into(), line: number });
        };
        let unknown = |_| Error::OtherVersion { path: path.into(), line: number };
        let line_read: Line = serde_json::from_str(json).map_err(unknown)?;
        let is_begin = matches!(&line_read, Line::Begin { schema: SCHEMA, .. });
        if is_begin != (index == 0) {
            return Err(Error::OtherVersion { path: path.into(), line: number });
        }
        lines.push(line_read);
        whole += line.len();
    }
    Ok((lines, whole as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::change::Target;
    use proptest::prelude::*;

    fn lines() -> Vec<Line> {
        let target = Target::File { path: "/sys/a b\n".into() };
        let change = |id, target| Change { id, target, key: 7, was: "1".into(), set: "2".into() };
        vec![
            Line::Begin { schema: SCHEMA, boot: "b".into() },
            Line::Change(vec![change(1, target), change(2, Target::Affinity { tid: 3 })]),
            Line::Back(vec![1]),
        ]
    }

    fn text() -> Vec<u8> {
        lines().iter().flat_map(|line| line.write().unwrap()).collect()
    }

    fn path() -> &'static Path {
        "/j".as_ref()
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        assert_eq!(read(path(), &text()).unwrap(), (lines(), text().len() as u64));
        assert_eq!(read(path(), b"").unwrap(), (vec![], 0));
    }

    /// Its writer finished the line, so its changes may have been made.
    #[test]
    fn a_last_line_that_ends_is_no_torn_one() {
        let mut bytes = text();
        let at = bytes.len() - 4;
        bytes[at] ^= 1;
        let error = read(path(), &bytes).unwrap_err();
        assert!(matches!(&error, Error::Damaged { line: 3, .. }), "{error}");
    }

    #[test]
    fn what_another_version_wrote_is_said_to_be_that() {
        let of = |json: &str| format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
        let begin = of(r#"{"begin":{"schema":1,"boot":"b"}}"#);
        let newer = of(r#"{"begin":{"schema":2,"boot":"b"}}"#);
        let kind = of(
            r#"{"change":[{"id":1,"target":{"kind":"colour","tid":1},"key":1,"was":"","set":""}]}"#,
        );
        for (text, line) in [(newer, 1), (begin + &kind, 2)] {
            let e = read(path(), text.as_bytes()).unwrap_err();
            assert!(matches!(&e, Error::OtherVersion { line: l, .. } if *l == line), "{e}");
            assert!(e.to_string().contains("/j"), "{e}");
        }
    }

    proptest! {
        #[test]
        fn a_torn_end_is_left_out(cut in 0..text().len()) {
            let (read, whole) = read(path(), &text()[..cut]).unwrap();
            prop_assert!(whole as usize <= cut);
            prop_assert!(text()[..whole as usize].ends_with(b"\n") || whole == 0);
            let all = lines();
            prop_assert_eq!(&read[..], &all[..read.len()]);
            let next = all.get(read.len()).map_or(0, |line| line.write().unwrap().len());
            prop_assert!(cut - (whole as usize) < next, "a whole line was left out");
        }

        #[test]
        fn a_byte_that_changed_is_never_believed(at in 0..text().len(), to: u8) {
            let mut bytes = text();
            prop_assume!(bytes[at] != to);
            bytes[at] = to;
            match read(path(), &bytes) {
                Ok((read, _)) => {
                    prop_assert!(!bytes.ends_with(b"\n"), "only a last line without end is torn");
                    prop_assert!(read.len() < 3);
                    prop_assert_eq!(&read[..], &lines()[..read.len()]);
                }
                Err(e) => prop_assert!(matches!(e, Error::Damaged { .. }), "{}", e),
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = read(path(), &bytes);
        }
    }
}
