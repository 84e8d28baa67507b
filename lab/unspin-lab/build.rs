// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells the program the commit it is built from, if that is known, and whether the sources differ
//! from it (`-dirty`).

use std::process::Command;

/// What results depend on, beside the commit.
const SOURCES: &[&str] = &["Cargo.lock", "core", "host", "lab", "papers/crates"];

fn main() {
    for source in SOURCES {
        println!("cargo:rerun-if-changed=../../{source}");
    }
    // In a worktree .git is no directory, and a path that does not exist would build this each time.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    if let Some(commit) = git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]) {
        println!("cargo:rustc-env=UNSPIN_COMMIT={commit}");
    }
}

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_string())
}
