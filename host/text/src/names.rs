// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of words and other values, and the word that was probably meant.

/// Number of edits (insert, delete, replace, swap neighbours) from one word to another.
pub use strsim::osa_distance as distance;

/// `"a", "b" or "c"`.
pub fn quoted(words: &[&str]) -> String {
    let mut out = String::new();
    for (i, w) in words.iter().enumerate() {
        if i > 0 {
            out.push_str(if i + 1 == words.len() { " or " } else { ", " });
        }
        out.push_str(&format!("{w:?}"));
    }
    out
}

/// Each value once, in the order in which they first come.
pub fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for value in all {
        if !once.contains(&value) {
            once.push(value);
        }
    }
    once
}

/// Longest word that is checked for a typing error, in bytes.
const WORD_MAX: usize = 200;

/// The candidate nearest to `word`, if it is near enough for a typing error.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_MAX {
        return None;
    }
    let limit = (word.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|c| (distance(&word.to_lowercase(), c), c))
        .filter(|(d, c)| *d <= limit && *d < c.chars().count())
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("window_us", "window_ms"), 1);
        assert_eq!(distance("wnidow", "window"), 1);
        assert_eq!(distance("ticket", "ticket"), 0);
    }

    #[test]
    fn nearest_wants_a_near_word() {
        let keys = ["title", "seed", "repeats", "host"];
        assert_eq!(nearest("repeat", keys), Some("repeats"));
        assert_eq!(nearest("Titel", keys), Some("title"));
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(nearest("x", ["y"]), None, "a one-letter word resembles nothing");
    }
}
