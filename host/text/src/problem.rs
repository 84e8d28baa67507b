// SPDX-License-Identifier: MIT OR Apache-2.0
//! An error in an input file: the place, the key, the allowed values, and the probable meaning.

use crate::show::{printable, printable_lines, shortened};
use std::fmt;

/// Limit of characters of a key and of a message; files may have keys of megabytes.
const KEY_MAX: usize = 80;
const TEXT_MAX: usize = 2000;

/// One error in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub file: String,
    /// Counted from 1, in characters.
    pub line: usize,
    pub column: usize,
    /// Dotted path of the key; empty for the file as a whole.
    pub key: String,
    pub message: String,
    /// The accepted values; empty if the message contains them.
    pub allowed: String,
    pub suggestion: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", printable(&self.file), self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "`{}`: ", printable(&shortened(&self.key, KEY_MAX)))?;
        }
        f.write_str(&printable_lines(&shortened(&self.message, TEXT_MAX)))?;
        if !self.allowed.is_empty() {
            write!(f, "\n    allowed: {}", printable_lines(&shortened(&self.allowed, TEXT_MAX)))?;
        }
        if let Some(s) = &self.suggestion {
            write!(f, "\n    did you mean `{s}`?")?;
        }
        Ok(())
    }
}

/// Limit of printed problems; the others appear once these are fixed.
const SHOWN_MAX: usize = 20;

/// All errors of a file, in the order of its lines. At most 20 are displayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, p) in self.0.iter().take(SHOWN_MAX).enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{p}")?;
        }
        match self.0.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\n… and {more} more"),
        }
    }
}

impl std::error::Error for Problems {}
