// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripts in place of programs.

use std::path::Path;
use std::process::Command;

/// Creates a program from these lines of shell. Another process writes it: otherwise a test that starts a
/// program at that moment would have the file open for writing, and such a file cannot be run.
pub fn script(path: &Path, lines: &str) {
    let write = r#"printf '#!/bin/sh\n%s\n' "$1" >"$0" && chmod 755 "$0""#;
    let status = Command::new("sh").args(["-c", write]).arg(path).arg(lines).status();
    assert!(status.unwrap().success(), "{}", path.display());
}
