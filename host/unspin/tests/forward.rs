// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands of unspin-lab are run there, or the error names it.

mod common;

use common::script::script;
use std::path::Path;
use std::process::{Command, Output};
use unspin_scratch::Scratch;

/// A copy of the command in a directory of its own.
fn alone() -> Scratch {
    let dir = Scratch::new();
    dir.dir("path");
    // Copy it by another process: a file that this process writes would be open in children of
    // other tests.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_unspin")).arg(&dir).status().unwrap();
    assert!(copied.success());
    dir
}

/// A lab that prints its path and its arguments, and ends with 3.
fn lab(dir: &Path) {
    script(&dir.join("unspin-lab"), &format!("echo {} \"$@\"\nexit 3", dir.display()));
}

fn run(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(dir.join("unspin"));
    command.args(args).env("PATH", format!("{}:/usr/bin:/bin", dir.join("path").display()));
    command.output().unwrap()
}

#[test]
fn commands_of_unspin_lab_are_run_there() {
    let dir = alone();
    let said = |args: &[&str]| {
        let out = run(&dir, args);
        assert_eq!(out.status.code(), Some(3), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim().to_string()
    };
    lab(&dir.join("path"));
    let path = dir.join("path").display().to_string();
    assert_eq!(
        said(&["bench", "smoke", "--machine", "sim"]),
        format!("{path} bench smoke --machine sim")
    );
    lab(&dir);
    for command in
        ["agree", "bench", "figures", "generate", "lab", "model", "plan", "replay", "report", "try"]
    {
        let words = format!("{} {command} x", dir.display());
        assert_eq!(said(&[command, "x"]), words);
        assert_eq!(said(&["help", command]), format!("{} help {command}", dir.display()));
    }
    let own = run(&dir, &["help", "top"]);
    assert!(own.status.success() && String::from_utf8_lossy(&own.stdout).contains("top"));
}

#[test]
fn where_there_is_no_lab_its_place_is_told() {
    let dir = alone();
    let out = run(&dir, &["bench", "smoke"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(77), "{said}");
    assert!(said.contains("unspin-lab") && said.contains("make build"), "{said}");
}
