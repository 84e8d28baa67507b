// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables in frames that fit the terminal.

use crate::fit::{cells, wrap};

/// Cells that the frame takes per column.
const FRAME: usize = 3;
/// Keys are narrowed down to this width before other columns lose their room.
const KEY_MIN: usize = 8;
/// Width of other columns beside the keys, if they need it.
const OTHER_MIN: usize = 10;

/// A table in a frame. Columns without room go into a second frame below, which repeats the keys of the
/// rows. A cell that is wider than the terminal wraps.
#[derive(Debug, Clone, Default)]
pub struct Framed {
    /// The rows; the first one has the titles.
    pub records: Vec<Vec<String>>,
    /// Number of leading columns that identify a row.
    pub keys: usize,
    /// Columns from this one on are numeric and right-aligned.
    pub right_from: Option<usize>,
    /// Whether their titles are right-aligned, too.
    pub right_titles: bool,
}

impl Framed {
    /// The table in lines of at most `width` cells.
    pub fn text(&self, width: usize) -> String {
        let widths = self.widths(width);
        let keys = self.keys.min(widths.len());
        let room = width.saturating_sub(taken(&widths[..keys]));
        let (mut text, mut block, mut left) = (String::new(), Vec::new(), room);
        for (at, cell) in widths.iter().enumerate().skip(keys) {
            if cell + FRAME > left && !block.is_empty() {
                text += &self.frame(&std::mem::take(&mut block), &widths);
                left = room;
            }
            block.push(at);
            left = left.saturating_sub(cell + FRAME);
        }
        text + &self.frame(&block, &widths)
    }

    /// The width of each column.
    fn widths(&self, width: usize) -> Vec<usize> {
        let count = self.records.iter().map(Vec::len).max().unwrap_or(0);
        let most = |at: usize| {
            self.records.iter().filter_map(|row| row.get(at)).map(|cell| cells(cell)).max()
        };
        let mut widths: Vec<usize> = (0..count).map(|at| most(at).unwrap_or(0)).collect();
        let (keys, others) = widths.split_at_mut(self.keys.min(count));
        let least = others.iter().max().map_or(0, |most| (*most).min(OTHER_MIN) + FRAME);
        while taken(keys).saturating_add(least) > width {
            match keys.iter_mut().max().filter(|most| **most > KEY_MIN) {
                Some(most) => *most -= 1,
                None => break,
            }
        }
        let room = width.saturating_sub(taken(keys) + FRAME).max(1);
        others.iter_mut().for_each(|cell| *cell = (*cell).min(room));
        widths
    }

    /// A frame with the keys and these columns.
    fn frame(&self, columns: &[usize], widths: &[usize]) -> String {
        let keys = 0..self.keys.min(widths.len());
        let all: Vec<usize> = keys.chain(columns.iter().copied()).collect();
        let rule = |[left, middle, right]: [&str; 3]| {
            let bars: Vec<String> = all.iter().map(|at| "─".repeat(widths[*at] + 2)).collect();
            format!("{left}{}{right}\n", bars.join(middle))
        };
        let mut text = rule(["┌", "┬", "┐"]);
        for (number, record) in self.records.iter().enumerate() {
            let lines = |at: &usize| {
                let cell = record.get(*at).map_or("", String::as_str);
                match cells(cell) <= widths[*at] {
                    true => vec![cell.to_string()],
                    false => wrap(cell, widths[*at], ""),
                }
            };
            let row: Vec<Vec<String>> = all.iter().map(lines).collect();
            for line in 0..row.iter().map(Vec::len).max().unwrap_or(0) {
                for (at, lines) in all.iter().zip(&row) {
                    let cell = lines.get(line).map_or("", String::as_str);
                    let space = " ".repeat(widths[*at].saturating_sub(cells(cell)));
                    let is_number = self.right_from.is_some_and(|first| *at >= first);
                    text += &match is_number && (number > 0 || self.right_titles) {
                        true => format!("│ {space}{cell} "),
                        false => format!("│ {cell}{space} "),
                    };
                }
                text += "│\n";
            }
            if number == 0 {
                text += &rule(["├", "┼", "┤"]);
            }
        }
        text + &rule(["└", "┴", "┘"])
    }
}

/// Cells of columns including their frame.
fn taken(widths: &[usize]) -> usize {
    widths.iter().map(|width| width + FRAME).sum::<usize>() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn columns_without_room_stand_below_with_their_keys() {
        let records = [["VM", "mode", "exits"], ["web", "hvs", "17"]];
        let records = records.map(|row| row.map(String::from).to_vec()).to_vec();
        let table = Framed { records, keys: 1, right_from: Some(2), right_titles: false };
        let wide = "┌─────┬──────┬───────┐\n│ VM  │ mode │ exits │\n├─────┼──────┼───────┤\n\
                    │ web │ hvs  │    17 │\n└─────┴──────┴───────┘\n";
        assert_eq!((table.text(22).as_str(), table.text(usize::MAX).as_str()), (wide, wide));
        let narrow = "┌─────┬──────┐\n│ VM  │ mode │\n├─────┼──────┤\n│ web │ hvs  │\n└─────┴──────┘\n\
                      ┌─────┬───────┐\n│ VM  │ exits │\n├─────┼───────┤\n│ web │    17 │\n└─────┴───────┘\n";
        assert_eq!(table.text(21), narrow);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_line_is_wider_and_nothing_is_lost(
            records in prop::collection::vec(prop::collection::vec("[a-z日]{0,40}", 7), 1..5),
            keys in 0..3usize,
            right_from in prop::option::of(0..7usize),
            width in 20..200usize,
        ) {
            // Two keys, each of 8 cells, need a wider terminal.
            let keys = if width < 40 { keys.min(1) } else { keys };
            let table = Framed { records: records.clone(), keys, right_from, right_titles: false };
            let text = table.text(width);
            for line in text.lines() {
                prop_assert!(cells(line) <= width, "{}: {line}", cells(line));
            }
            let count = |text: &str| text.chars().filter(char::is_ascii_lowercase).count();
            let all: usize = records.iter().flatten().map(|cell| count(cell)).sum();
            prop_assert!(count(&text) >= all);
        }
    }
}
