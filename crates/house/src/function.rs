// SPDX-License-Identifier: MIT OR Apache-2.0
//! A function of a file, in Rust or C.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// Where its name stands.
    pub first_line: usize,
    /// Of its closing brace.
    pub last_line: usize,
}

impl Function {
    pub fn lines(&self) -> usize {
        self.last_line + 1 - self.first_line
    }
}
