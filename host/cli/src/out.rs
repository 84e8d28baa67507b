// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output and standard error, which may be closed or full.

use anyhow::Context;
use std::io::Write;
use unspin_text::fit::{error_width, wrap_lines};
pub use unspin_text::printable_lines;

/// Writes a line to standard error, safe for a terminal, and ignores errors. For a terminal it is wrapped to
/// the width.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        // A closed standard error is not a failure.
        let _ = writeln!(std::io::stderr(), "{}", $crate::out::of_error(&format!($($arg)*)));
    }};
}

/// Text for standard error: wrapped for a terminal, otherwise unchanged.
pub fn of_error(text: &str) -> String {
    let text = printable_lines(text);
    match error_width() {
        Some(width) => wrap_lines(&text, width).trim_end().to_string(),
        None => text,
    }
}

/// Writes `text` to standard output, safe for a terminal.
pub fn print(text: &str) -> anyhow::Result<()> {
    write(&printable_lines(text))
}

fn write(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write the output")
}

/// Writes `value` as one line of JSON.
pub fn json<T: serde::Serialize>(value: &T) -> anyhow::Result<()> {
    write(&(json_text(value)? + "\n"))
}

/// JSON in which characters that would control a terminal are escaped. Parsers read the original
/// text.
fn json_text<T: serde::Serialize>(value: &T) -> anyhow::Result<String> {
    let mut text = String::new();
    for c in serde_json::to_string(value)?.chars() {
        if printable_lines(c.encode_utf8(&mut [0; 4])) == c.to_string() {
            text.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                text += &format!("\\u{unit:04x}");
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_commands_no_terminal_and_says_the_same() {
        let evil = "a\u{1b}b\u{85}c\u{202e}d\u{e0041}e\u{fffd}ä";
        let text = json_text(&evil).unwrap();
        assert_eq!(text, "\"a\\u001bb\\u0085c\\u202ed\\udb40\\udc41e\u{fffd}ä\"");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), evil);
    }
}
