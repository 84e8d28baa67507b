// SPDX-License-Identifier: MIT OR Apache-2.0
//! Displays text from outside.

use std::borrow::Cow;
use std::path::Path;

/// `text` on one line, without characters that control a terminal or deceive a reader: control
/// characters, newlines, changes of the writing direction, and invisible characters.
pub fn printable(text: &str) -> String {
    printable_lines(text).replace(['\n', '\t'], " ")
}

/// `1 CPU`, `2 CPUs`.
pub fn counted(count: impl TryInto<u64>, what: &str) -> String {
    // A number that does not fit is not 1.
    match count.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {what}"),
        many => format!("{many} {what}s"),
    }
}

/// [`printable`] for text of several lines. Tabs stay.
pub fn printable_lines(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        c if commands(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// A path on one line, through [`printable`].
pub fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

/// Whether a terminal or an editor may interpret it as a command. Joiners are allowed: Persian
/// names and emoji of people need them.
fn commands(c: char) -> bool {
    match c {
        // Arabic letter mark, zero-width space, direction marks, line and paragraph separators,
        // overrides.
        '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        // Invisible operators, isolates and old controls; byte order mark; annotations; tags.
        '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' => true,
        '\u{e0000}'..='\u{e007f}' => true,
        c => c.is_control(),
    }
}

/// `text`, cut to `most` characters with an ellipsis if it is longer.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => text.into(),
        Some(_) => {
            let end = text.char_indices().nth(most.saturating_sub(1)).map_or(0, |(at, _)| at);
            format!("{}…", &text[..end]).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_commands_a_terminal() {
        let evil =
            "a\u{1b}[31mb\u{85}c\u{9b}d\u{202e}e\u{2028}f\u{2066}g\u{200b}h\u{e0041}i\u{7f}j\r";
        let shown = printable(evil);
        assert_eq!(shown.chars().filter(|c| *c == '\u{fffd}').count(), 10, "{shown}");
        assert_eq!(printable("a\nb\tc"), "a b c");
        assert_eq!(printable_lines("a\nb\tc\u{1b}"), "a\nb\tc\u{fffd}");
        let names = "b\u{e4}r \u{1f43b} \u{1f469}\u{200d}\u{1f52c} \u{645}\u{6cc}\u{200c}\u{62e}";
        assert_eq!(printable(names), names);
        assert_eq!(super::shown(Path::new("na\nme\u{1b}[31m.toml")), "na me\u{fffd}[31m.toml");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöüß", 3), "äö…");
        assert_eq!(shortened(&"x".repeat(1 << 20), 80).chars().count(), 80);
    }
}
