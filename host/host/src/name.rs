// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name of a VM: untrusted bytes.

use std::fmt;

/// A name as given. `Display` writes one line of printable characters: other characters are escaped
/// as in Rust's strings, a byte that is not UTF-8 as `\xNN`, a backslash as `\\`. Different names
/// are displayed differently.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(Vec<u8>);

impl Name {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Name {
        Name(bytes.into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name if it is UTF-8, otherwise its display form.
    pub fn to_text(&self) -> String {
        std::str::from_utf8(&self.0).map_or_else(|_| self.to_string(), str::to_string)
    }

    /// The display form in at most `max` characters; the end of a longer one is replaced by `…`.
    pub fn short(&self, max: usize) -> String {
        let (mut kept, mut length, mut room) = (String::new(), 0, None);
        for part in self.parts() {
            // Leave out an escape as a whole: a part of it would be read as another escape.
            if room.is_none() && length + part.chars().count() >= max {
                room = Some(kept.len());
            }
            length += part.chars().count();
            kept += &part;
            if length > max {
                kept.truncate(room.unwrap_or_default());
                return kept + "…";
            }
        }
        kept
    }

    /// Whether it is displayed unchanged. Most names are, and this is called often.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'\\')
    }

    /// The display form of each character, or of each byte that is not part of one.
    fn parts(&self) -> impl Iterator<Item = String> + '_ {
        self.0.utf8_chunks().flat_map(|chunk| {
            let valid = chunk.valid().chars().map(|c| match c {
                '"' | '\'' => c.to_string(),
                _ => c.escape_debug().to_string(),
            });
            valid.chain(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")))
        })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if self.is_plain() => f.write_str(text),
            _ => self.parts().try_for_each(|part| f.write_str(&part)),
        }
    }
}

/// In quotes, for messages.
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.to_string().replace('"', "\\\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The inverse of Display.
    fn unescape(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            if c != '\\' {
                out.extend(c.to_string().bytes());
                continue;
            }
            let kind = rest.chars().next().unwrap();
            rest = &rest[1..];
            match kind {
                'n' => out.push(b'\n'),
                'r' => out.push(b'\r'),
                't' => out.push(b'\t'),
                '0' => out.push(0),
                '\\' => out.push(b'\\'),
                'x' => {
                    out.push(u8::from_str_radix(&rest[..2], 16).unwrap());
                    rest = &rest[2..];
                }
                'u' => {
                    let (hex, after) = rest[1..].split_once('}').unwrap();
                    let c = char::from_u32(u32::from_str_radix(hex, 16).unwrap()).unwrap();
                    out.extend(c.to_string().bytes());
                    rest = after;
                }
                other => panic!("{other:?} in {text:?}"),
            }
        }
        out
    }

    #[test]
    fn names_are_written_in_one_printable_line() {
        for (name, written) in [
            (&b"web1"[..], "web1"),
            ("b\u{e4}r \u{1f43b}".as_bytes(), "b\u{e4}r \u{1f43b}"),
            (b"it's \"it\"", "it's \"it\""),
            (b"a\nb\tc\x1b[2J", "a\\nb\\tc\\u{1b}[2J"),
            ("\u{202e}cod".as_bytes(), "\\u{202e}cod"),
            (b"a\xffb\\", "a\\xffb\\\\"),
        ] {
            assert_eq!(Name::new(name).to_string(), written);
        }
        assert_eq!(format!("{:?}", Name::new("a\"b")), r#""a\"b""#);
        assert_eq!(Name::new(*b"a\xff").to_text(), "a\\xff");
        assert_eq!(Name::new(*b"a\\").to_text(), "a\\");
    }

    proptest! {
        #[test]
        fn different_names_are_written_differently(bytes: Vec<u8>) {
            let name = Name::new(bytes.clone());
            let text = name.to_string();
            prop_assert_eq!(unescape(&text), bytes.clone());
            prop_assert!(!text.chars().any(char::is_control), "{}", text);
            prop_assert_eq!(name.short(usize::MAX), text);
        }

        #[test]
        fn a_short_one_is_a_beginning(bytes: Vec<u8>, max in 1..20usize) {
            let name = Name::new(bytes);
            let (text, short) = (name.to_string(), name.short(max));
            prop_assert!(short.chars().count() <= max);
            let kept = short.strip_suffix('…').filter(|_| text.chars().count() > max);
            prop_assert!(kept.map_or(short == text, |kept| text.starts_with(kept)));
        }

        #[test]
        fn text_is_taken_as_it_is(text: String) {
            let name = Name::new(text.clone());
            prop_assert_eq!(unescape(&name.to_string()), text.as_bytes());
            prop_assert_eq!(name.to_text(), text);
        }
    }
}
