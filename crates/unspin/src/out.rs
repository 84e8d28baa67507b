// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output that may be closed or full.

use anyhow::Context;
use std::io::Write;

/// Writes `text` to standard output.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write the output")
}

/// Writes `value` as one line of JSON.
pub fn json<T: serde::Serialize>(value: &T) -> anyhow::Result<()> {
    print(&(serde_json::to_string(value)? + "\n"))
}
