// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths, and the source files of a directory.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

pub const C_ENDINGS: [&str; 4] = ["c", "h", "S", "cc"];

/// Without `a/..`.
pub fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if out.file_name().is_some() => {
                out.pop();
            }
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

/// Sorted, relative to the root, with one of the endings; folders and modules of tests left out unless
/// wanted.
pub fn files(root: &Path, dir: &str, endings: &[&str], tests_too: bool) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut left = vec![root.join(dir)];
    while let Some(dir) = left.pop() {
        let entries = std::fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
        for entry in entries {
            let entry = entry.with_context(|| dir.display().to_string())?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let for_tests = matches!(&*name, "test" | "tests" | "tests.rs");
            if for_tests && !tests_too || name.starts_with('.') || name == "target" {
                continue;
            }
            if entry.file_type()?.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|e| endings.iter().any(|w| e == *w)) {
                let path = path.strip_prefix(root).expect("it is below the root");
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}
