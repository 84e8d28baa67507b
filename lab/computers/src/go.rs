// SPDX-License-Identifier: MIT OR Apache-2.0
//! How steps that take time are interrupted, and to whom they report.

use std::sync::atomic::AtomicBool;

/// Passed to every step that takes time.
pub struct Go<'a> {
    /// Once set, the step ends with [`crate::LabError::Interrupted`].
    pub stop: &'a AtomicBool,
    /// Receives a line for each step.
    pub say: &'a mut dyn FnMut(&str),
}

impl<'a> Go<'a> {
    pub fn new(stop: &'a AtomicBool, say: &'a mut dyn FnMut(&str)) -> Go<'a> {
        Go { stop, say }
    }

    pub(crate) fn say(&mut self, text: &str) {
        (self.say)(text);
    }
}
