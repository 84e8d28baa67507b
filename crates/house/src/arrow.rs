// SPDX-License-Identifier: MIT OR Apache-2.0
//! An arrow between two files: the first names the second, in a path or an include.

use std::collections::BTreeMap;

/// Paths are relative to the project's root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrow {
    pub from: String,
    pub to: String,
    /// In `from`, the first that makes the arrow.
    pub line: usize,
    /// What stands there.
    pub what: String,
}

impl std::fmt::Display for Arrow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} -> {} ({})", self.from, self.line, self.to, self.what)
    }
}

/// The first arrow of each pair of files; none from a file to itself.
#[derive(Debug, Default)]
pub struct Arrows {
    of_pair: BTreeMap<(String, String), Arrow>,
}

impl Arrows {
    pub fn add(&mut self, arrow: Arrow) {
        if arrow.from == arrow.to {
            return;
        }
        let pair = (arrow.from.clone(), arrow.to.clone());
        let first = self.of_pair.entry(pair).or_insert_with(|| arrow.clone());
        if arrow.line < first.line {
            *first = arrow;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arrow> {
        self.of_pair.values()
    }

    pub fn extend(&mut self, other: Arrows) {
        for arrow in other.of_pair.into_values() {
            self.add(arrow);
        }
    }
}
