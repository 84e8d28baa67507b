// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text from outside, shown.

/// `text` on one line, without what makes a terminal do other than show it: control characters and
/// those that turn the direction of writing.
pub fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => ' ',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// `1 CPU`, `2 CPUs`.
pub fn counted(count: impl TryInto<u64>, what: &str) -> String {
    // One that is too large is not one.
    match count.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {what}"),
        many => format!("{many} {what}s"),
    }
}

/// [`printable`] for text of several lines.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}
