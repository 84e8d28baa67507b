// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with an input file: where, which key, what is allowed, what was probably meant.

use crate::show::{printable, printable_lines, shortened};
use std::fmt;

/// Most characters of a key, and of what is said of it; files may have keys of megabytes.
const KEY_MAX: usize = 80;
const TEXT_MAX: usize = 2000;

/// One thing wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub file: String,
    /// Counted from 1, in characters.
    pub line: usize,
    pub column: usize,
    /// Dotted path of the key, empty for the file as a whole.
    pub key: String,
    pub message: String,
    /// What would have been accepted; empty where the message says it.
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

/// Most problems to print; further ones appear once these are fixed.
const SHOWN_MAX: usize = 20;

/// Everything wrong with a file, in the order of its lines. Written out, the list ends after 20.
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
