// SPDX-License-Identifier: MIT OR Apache-2.0
//! C as it is written: what a file includes, and the functions it defines.

use std::path::Path;

use anyhow::{bail, Context, Result};
use tree_sitter::{Node, Parser};

use crate::arrow::{Arrow, Arrows};
use crate::files::normal;
use crate::function::Function;

pub struct Include {
    pub name: String,
    pub line: usize,
}

/// `#include "..."`, in any branch of `#if`.
pub fn includes(text: &str) -> Vec<Include> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix('#') else { continue };
        let Some(rest) = rest.trim_start().strip_prefix("include") else { continue };
        let Some(rest) = rest.trim_start().strip_prefix('"') else { continue };
        if let Some((name, _)) = rest.split_once('"') {
            found.push(Include { name: name.to_string(), line: index + 1 });
        }
    }
    found
}

/// The file that an include means: beside the includer, in a directory above it, or in one of those
/// given. `None` for what is not of this project.
///
/// # Errors
/// Two of the directories have it.
pub fn resolve(root: &Path, from: &str, name: &str, dirs: &[String]) -> Result<Option<String>> {
    let there = |dir: &Path| {
        let path = normal(&dir.join(name));
        root.join(&path).is_file().then(|| path.to_string_lossy().into_owned())
    };
    if let Some(near) = Path::new(from).ancestors().skip(1).find_map(there) {
        return Ok(Some(near));
    }
    let mut found: Vec<String> = dirs.iter().filter_map(|dir| there(Path::new(dir))).collect();
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => bail!("{from} includes \"{name}\", which is any of {}", found.join(", ")),
    }
}

/// The functions that it defines.
pub fn functions(text: &str) -> Vec<Function> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_c::LANGUAGE.into()).expect("the grammar fits the parser");
    let mut found = Vec::new();
    let text = without_defines(text);
    if let Some(tree) = parser.parse(&text, None) {
        collect(tree.root_node(), &text, &mut found);
    }
    found
}

/// What `#define` gives need not be C before it is used: such lines are empty.
fn without_defines(text: &str) -> String {
    let mut out = String::new();
    let mut is_defining = false;
    for line in text.lines() {
        let directive = line.trim_start().strip_prefix('#').unwrap_or("");
        is_defining |= directive.trim_start().starts_with("define");
        if !is_defining {
            out.push_str(line);
        }
        is_defining &= line.ends_with('\\');
        out.push('\n');
    }
    out
}

fn collect(node: Node, text: &str, found: &mut Vec<Function>) {
    if node.kind() == "function_definition" {
        let name = node.child_by_field_name("declarator").and_then(|d| declarator_name(d, text));
        if let Some((name, line)) = name {
            let last_line = node.end_position().row + 1;
            found.push(Function { name, first_line: line, last_line });
        }
        return;
    }
    let mut cursor = node.walk();
    for child in node.named_children(&mut cursor) {
        collect(child, text, found);
    }
}

/// The name inside `*f(int)`; `None` for what is no function.
fn declarator_name(mut node: Node, text: &str) -> Option<(String, usize)> {
    let mut is_function = false;
    while node.kind() != "identifier" {
        is_function |= node.kind() == "function_declarator";
        node = node.child_by_field_name("declarator")?;
    }
    let name = node.utf8_text(text.as_bytes()).ok()?;
    is_function.then(|| (name.to_string(), node.start_position().row + 1))
}

/// A header and the file of its functions count as one.
pub fn node_of(file: &str) -> String {
    Path::new(file).with_extension("").to_string_lossy().into_owned()
}

/// The files that each includes.
pub fn arrows(root: &Path, files: &[String], dirs: &[String]) -> Result<Arrows> {
    let mut arrows = Arrows::default();
    for file in files {
        let path = root.join(file);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for include in includes(&text) {
            if let Some(to) = resolve(root, file, &include.name, dirs)? {
                let what = format!("#include \"{}\"", include.name);
                arrows.add(Arrow { from: file.clone(), to, line: include.line, what });
            }
        }
    }
    Ok(arrows)
}
