// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output and standard error, which may be closed or full.

use anyhow::Context;
use std::io::Write;

/// Writes a line to standard error, and ignores a closed one.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        // A closed standard error is not a failure.
        let _ = writeln!(std::io::stderr(), $($arg)*);
    }};
}

/// Writes `text` to standard output.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write the output")
}

/// Writes `value` as one line of JSON.
pub fn json<T: serde::Serialize>(value: &T) -> anyhow::Result<()> {
    print(&(serde_json::to_string(value)? + "\n"))
}
