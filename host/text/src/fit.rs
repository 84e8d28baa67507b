// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text that fits the terminal: no line has more cells than the terminal.

use std::collections::{BTreeMap, BTreeSet};
use unicode_width::UnicodeWidthStr;

/// Width without a terminal and without COLUMNS.
pub const WIDTH: usize = 80;
/// Smallest width that is used, even if the terminal is narrower.
const WIDTH_MIN: usize = 20;

/// Cells of the first column, if it needs them, before other columns are left out.
const FIRST_MIN: usize = 12;
/// A wrapping last column with fewer cells is left out.
const LAST_MIN: usize = 18;
const GAP: usize = 2;

/// Width of the terminal on standard output: COLUMNS, if it is a number; 80 without a terminal.
pub fn terminal_width() -> usize {
    width_of(libc::STDOUT_FILENO).unwrap_or(WIDTH)
}

/// Width of the terminal on standard error, or COLUMNS. `None` if there is neither: logs and programs get
/// unwrapped lines.
pub fn error_width() -> Option<usize> {
    width_of(libc::STDERR_FILENO)
}

fn width_of(descriptor: i32) -> Option<usize> {
    let given = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    let width = given.filter(|width| *width > 0).or_else(|| of_terminal(descriptor))?;
    Some(width.max(WIDTH_MIN))
}

fn of_terminal(descriptor: i32) -> Option<usize> {
    // SAFETY: all zeroes are a valid value, and the call writes only to it.
    let (size, done) = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        let done = libc::ioctl(descriptor, libc::TIOCGWINSZ, &mut size);
        (size, done)
    };
    (done == 0 && size.ws_col > 0).then_some(size.ws_col.into())
}

/// Number of cells of a line.
pub fn cells(text: &str) -> usize {
    text.width()
}

/// The longest beginning with at most `max` cells, and the rest.
fn split(text: &str, max: usize) -> (&str, &str) {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(|end| text[..*end].width() <= max).last().unwrap_or(0);
    text.split_at(end)
}

/// Text of at most `max` cells; the end of a longer one is replaced by `…`. A suffix in parentheses,
/// which distinguishes names, stays if it takes at most half.
pub fn cut(text: &str, max: usize) -> String {
    let apart = text.rfind(" (").filter(|_| text.ends_with(')')).map(|at| &text[at + 1..]);
    cut_before(text, apart.filter(|apart| 2 * apart.width() <= max).unwrap_or(""), max)
}

/// The same without regard to a suffix.
pub fn cut_end(text: &str, max: usize) -> String {
    cut_before(text, "", max)
}

fn cut_before(text: &str, apart: &str, max: usize) -> String {
    if text.width() <= max {
        return text.to_string();
    }
    let room = max.saturating_sub(1 + apart.width());
    let kept = split(text, room).0;
    // Do not cut an escape in the middle: the rest would be read as another character.
    let kept = match kept.rfind('\\') {
        Some(at) if text[at..].starts_with("\\u{") && !kept[at..].contains('}') => &kept[..at],
        Some(at) if at + 1 == kept.len() => &kept[..at],
        _ => kept,
    };
    match max {
        0 => String::new(),
        _ => format!("{kept}…{apart}"),
    }
}

/// Whether `short`, with `…` for a part, may stand for the name.
fn may_be(short: &str, name: &str) -> bool {
    let cut = |(at, mark): (usize, &str)| {
        let (begin, end) = (&short[..at], &short[at + mark.len()..]);
        begin.len() + end.len() < name.len() && name.starts_with(begin) && name.ends_with(end)
    };
    short == name || short.match_indices('…').any(cut)
}

/// Names of VMs, cut so that they stay distinct. A name without room for that is replaced by its `instead`.
pub fn cut_apart(names: &[&str], instead: &[String], max: usize) -> Vec<String> {
    let mut all = cut_all(names, max);
    let different: BTreeSet<&str> = names.iter().copied().collect();
    for ((short, name), instead) in all.iter_mut().zip(names).zip(instead) {
        let is_cut = short.as_str() != *name;
        if is_cut && different.iter().filter(|name| may_be(short, name)).count() > 1 {
            *short = cut_end(instead, max);
        }
    }
    all
}

/// Names, cut in the same way. Different names that would become equal keep their ends, too.
fn cut_all(names: &[&str], max: usize) -> Vec<String> {
    let all: Vec<String> = names.iter().map(|name| cut(name, max)).collect();
    let mut whose: BTreeMap<&str, &str> = BTreeMap::new();
    let mut alike: BTreeSet<&str> = BTreeSet::new();
    for (short, name) in all.iter().zip(names) {
        if whose.insert(short, name).is_some_and(|other| other != *name) {
            alike.insert(short);
        }
    }
    let each = all.iter().zip(names);
    let inside = |short: &str, name: &str| match alike.contains(short) {
        true => cut_inside(name, max),
        false => short.to_string(),
    };
    each.map(|(short, name)| inside(short, name)).collect()
}

/// Text of at most `max` cells; the middle of a longer one is replaced by `…`.
fn cut_inside(text: &str, max: usize) -> String {
    let begin = split(text, max / 2).0;
    let room = max.saturating_sub(begin.width() + 1);
    let rest = &text[begin.len()..];
    let tail = (0..rest.len()).rev().filter(|at| rest.is_char_boundary(*at));
    match tail.take_while(|at| rest[*at..].width() <= room).last() {
        Some(0) => text.to_string(),
        Some(at) => format!("{begin}…{}", &rest[at..]),
        None => cut(text, max),
    }
}

/// Splits into words. A percent sign belongs to its number; a command in backquotes is one word if it has
/// room.
fn words(text: &str, room: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_sign = word.starts_with('%') && !word.contains(char::is_alphanumeric);
        let is_inside = |last: &String| {
            last.matches('`').count() % 2 == 1 && last.width() + 1 + word.width() <= room
        };
        match words.last_mut().filter(|last| is_sign || is_inside(last)) {
            Some(last) => *last += &format!(" {word}"),
            None => words.push(word.to_string()),
        }
    }
    words
}

/// Lines of at most `width` cells, broken between words. The first begins with `first`, the others with
/// as many spaces.
pub fn wrap(text: &str, width: usize, first: &str) -> Vec<String> {
    let indent = " ".repeat(first.width());
    let room = width.saturating_sub(indent.len()).max(1);
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in words(text, room) {
        let mut word = word.as_str();
        if !line.is_empty() && line.width() + 1 + word.width() > room {
            lines.push(std::mem::take(&mut line));
        }
        while word.width() > room {
            let (begin, rest) = match split(word, room) {
                ("", _) => word.split_at(word.chars().next().map_or(0, char::len_utf8)),
                parts => parts,
            };
            lines.push(begin.to_string());
            word = rest;
        }
        line = if line.is_empty() { word.to_string() } else { format!("{line} {word}") };
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    let begin =
        |(at, line): (usize, String)| format!("{}{line}", if at == 0 { first } else { &indent });
    lines.into_iter().enumerate().map(begin).collect()
}

/// Wraps each line of a text. Continuation lines have the leading spaces of their line.
pub fn wrap_lines(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let inner = line.trim_start_matches(' ');
        let indent = &line[..line.len() - inner.len()];
        match line.width() <= width || indent.len() >= width {
            true => out += &format!("{line}\n"),
            false => wrap(inner, width, indent).iter().for_each(|line| out += &format!("{line}\n")),
        }
    }
    out
}

/// Formats a share, 0 to 1.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub title: &'static str,
    /// Numbers are right-aligned.
    pub is_number: bool,
    /// If there is no room for all columns, those of the highest rank are left out first, all
    /// together.
    pub rank: u8,
}

impl Column {
    pub const fn number(title: &'static str, rank: u8) -> Column {
        Column { title, is_number: true, rank }
    }

    pub const fn text(title: &'static str, rank: u8) -> Column {
        Column { title, is_number: false, rank }
    }
}

/// A table, with its titles in the first row. The first column always remains, and is cut if necessary. The
/// last column wraps unless it is numeric.
pub fn table(columns: &[Column], rows: &[Vec<String>], width: usize) -> String {
    table_with(columns, rows, width, &cut_all)
}

/// The same for a first column of VM titles; `instead` replaces titles that would become equal.
pub fn table_of_vms(
    columns: &[Column],
    rows: &[Vec<String>],
    instead: &[String],
    width: usize,
) -> String {
    let mut others = vec![String::new()];
    others.extend_from_slice(instead);
    table_with(columns, rows, width, &|names, max| cut_apart(names, &others, max))
}

/// Cuts the cells of a first column, including its title, to a number of cells.
pub type CutAll<'a> = &'a dyn Fn(&[&str], usize) -> Vec<String>;

/// The same with `cut_all` for the first column.
pub fn table_with(
    columns: &[Column],
    rows: &[Vec<String>],
    width: usize,
    cut_all: CutAll,
) -> String {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let natural: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| {
            let cells = rows.iter().map(|row| row[at].width());
            cells.max().unwrap_or(0).max(column.title.width())
        })
        .collect();
    let wraps = columns.len().checked_sub(1).filter(|at| *at > 0 && !columns[*at].is_number);
    let least = |at: usize| match at {
        0 => natural[0].min(FIRST_MIN),
        _ if Some(at) == wraps => natural[at].min(LAST_MIN),
        _ => natural[at],
    };
    let takes = |kept: &[usize], least: &dyn Fn(usize) -> usize| {
        kept.iter().map(|at| least(*at) + GAP).sum::<usize>().saturating_sub(GAP)
    };
    while kept.len() > 1 && takes(&kept, &least) > width {
        let Some(drop) = kept[1..].iter().map(|at| columns[*at].rank).max() else { break };
        kept.retain(|at| *at == 0 || columns[*at].rank != drop);
    }
    // Spare room goes to the first column, then to the one that wraps.
    let mut widths: Vec<usize> = kept.iter().map(|at| least(*at)).collect();
    let mut left = width.saturating_sub(takes(&kept, &least));
    for (at, has) in kept.iter().zip(&mut widths) {
        let more = natural[*at].saturating_sub(*has).min(left);
        (*has, left) = (*has + more, left - more);
    }
    let mut text = String::new();
    let titles: Vec<String> = columns.iter().map(|column| column.title.to_string()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&titles).chain(rows).collect();
    let names = cut_all(&all.iter().map(|row| row[0].as_str()).collect::<Vec<_>>(), widths[0]);
    for (row, name) in all.into_iter().zip(names) {
        let cell = |(at, width): (&usize, &usize)| match Some(*at) == wraps {
            _ if *at == 0 => vec![name.clone()],
            true => wrap(&row[*at], (*width).max(1), ""),
            false => vec![cut(&row[*at], *width)],
        };
        let cells: Vec<Vec<String>> = kept.iter().zip(&widths).map(cell).collect();
        for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let mut out = String::new();
            for ((at, width), cell) in kept.iter().zip(&widths).zip(&cells) {
                let cell = cell.get(line).map_or("", String::as_str);
                let space = " ".repeat(width.saturating_sub(cell.width()));
                let gap = if out.is_empty() && *at == 0 { "" } else { "  " };
                out += &match columns[*at].is_number {
                    true => format!("{gap}{space}{cell}"),
                    false => format!("{gap}{cell}{space}"),
                };
            }
            text += out.trim_end();
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_cut_at_its_end() {
        assert_eq!(cut("database", 8), "database");
        assert_eq!(cut("database", 5), "data…");
        assert_eq!(cut("日本語の名前", 7), "日本語…");
        assert_eq!(cut("database (vmid:104)", 22), "database (vmid:104)");
        assert_eq!(cut("a-long-database-name (vmid:104)", 24), "a-long-databa…(vmid:104)");
        assert_eq!(cut("ab\\u{1b}[31m", 6), "ab…", "no half of an escape");
        assert_eq!(cut("database", 0), "");
    }

    #[test]
    fn different_names_do_not_look_alike() {
        let names = ["instance-00000001", "instance-00000002", "instance", "instance-00000001"];
        let expected = ["insta…0001", "insta…0002", "instance", "insta…0001"];
        assert_eq!(cut_all(&names, 10), expected);
    }

    /// A displayed title selects its VM. If it is too narrow for that, the process id does.
    #[test]
    fn vms_are_told_from_each_other_at_any_width() {
        let names = ["instance-00000001-production", "instance-00000002-production", "db"];
        let instead = [7, 8, 9].map(|pid| format!("pid:{pid}"));
        assert_eq!(cut_apart(&names, &instead, 12), ["pid:7", "pid:8", "db"]);
        let short = cut_apart(&["instance-0001", "instance-0002", "db"], &instead, 9);
        assert_eq!(short, ["inst…0001", "inst…0002", "db"]);
        assert_eq!(cut_apart(&names, &instead, 28), names);
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("one two three", 9, "* "), ["* one two", "  three"]);
        assert_eq!(wrap("abcdefgh", 3, ""), ["abc", "def", "gh"]);
        assert_eq!(wrap("it takes 16.7 % (4 %).", 14, ""), ["it takes", "16.7 % (4 %)."]);
        assert_eq!(wrap("", 10, "* "), ["* "]);
        assert_eq!(wrap("now run `a b c` twice", 10, ""), ["now run", "`a b c`", "twice"]);
        assert_eq!(wrap("run `a b c d e`", 8, ""), ["run", "`a b c d", "e`"]);
        assert_eq!(wrap_lines("one two three\n  four five", 9), "one two\nthree\n  four\n  five\n");
    }

    fn word() -> impl Strategy<Value = String> {
        prop_oneof!["[a-z]{0,30}", "[ -~]{0,40}", "[日本語a]{0,20}", "\\PC{0,10}"]
    }

    proptest! {
        #[test]
        fn no_line_is_wider(
            rows in prop::collection::vec(prop::collection::vec(word(), 5), 0..8),
            ranks in prop::collection::vec(0..9u8, 5),
            is_number in any::<bool>(),
            width in WIDTH_MIN..250,
        ) {
            let titles = ["VM", "lost%", "%RDY", "%MLMTD", "meaning"];
            let columns: Vec<Column> = titles
                .iter()
                .zip(&ranks)
                .enumerate()
                .map(|(at, (title, rank))| {
                    Column { title, is_number: at > 0 && (at < 4 || is_number), rank: *rank }
                })
                .collect();
            let text = table(&columns, &rows, width);
            prop_assert!(text.lines().count() > rows.len());
            for line in text.lines() {
                prop_assert!(cells(line) <= width, "{}: {line}", cells(line));
            }
        }

        #[test]
        fn nothing_is_lost_in_wrapping(words in prop::collection::vec("[a-z]{1,12}", 0..30), width in 4..80usize) {
            let text = words.join(" ");
            let lines = wrap(&text, width, "* ");
            prop_assert!(lines.iter().all(|line| cells(line) <= width), "{lines:?}");
            let letters = |text: &str| text.replace([' ', '*'], "");
            prop_assert_eq!(letters(&lines.concat()), letters(&text));
        }

        #[test]
        fn titles_stay_apart(names in prop::collection::btree_set(word(), 1..8), max in 14..40usize) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let instead: Vec<String> = (0..names.len()).map(|pid| format!("pid:{pid}")).collect();
            let shown = cut_apart(&names, &instead, max);
            for (at, short) in shown.iter().enumerate().filter(|(at, short)| short.as_str() != names[*at]) {
                let is_free = names.iter().enumerate().all(|(of, name)| of == at || !may_be(short, name));
                prop_assert!(short == &instead[at] || is_free, "{short}");
                prop_assert!(cells(short) <= max);
            }
        }

        #[test]
        fn what_is_cut_fits(text in word(), max in 0..40usize) {
            let cut = cut(&text, max);
            prop_assert!(cells(&cut) <= max, "{cut}");
            prop_assert_eq!(cut == text, cells(&text) <= max);
        }
    }
}
