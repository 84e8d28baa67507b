// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files and functions that are longer than they may be.

use std::path::Path;

use anyhow::{Context, Result};

use crate::function::Function;
use crate::{c, rust};

#[derive(Debug, PartialEq, Eq)]
pub struct Long {
    pub file: String,
    /// `None`: the file itself.
    pub function: Option<Function>,
    pub lines: usize,
}

pub fn long(root: &Path, file: &str, file_max: usize, function_max: usize) -> Result<Vec<Long>> {
    let path = root.join(file);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let functions = match path.extension().and_then(|e| e.to_str()) {
        Some("rs") => rust::functions(&text).with_context(|| path.display().to_string())?,
        Some("c" | "h" | "cc") => c::functions(&text),
        _ => Vec::new(),
    };
    let mut found = Vec::new();
    let lines = text.lines().count();
    if lines > file_max {
        found.push(Long { file: file.to_string(), function: None, lines });
    }
    for function in functions {
        let lines = function.lines();
        if lines > function_max {
            found.push(Long { file: file.to_string(), function: Some(function), lines });
        }
    }
    Ok(found)
}
