// SPDX-License-Identifier: MIT OR Apache-2.0
//! `use` items as a list of names.

use syn::{ItemUse, UseTree};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// What it is called here; `None` for `*`.
    pub name: Option<String>,
    pub target: Vec<String>,
    pub line: usize,
}

/// An identifier without `r#`.
pub fn plain(ident: &proc_macro2::Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_string)
}

/// None for a path that begins with `::`: it leads out of the crate.
pub fn flatten(item: &ItemUse) -> Vec<Import> {
    let mut out = Vec::new();
    if item.leading_colon.is_none() {
        add(&item.tree, &mut Vec::new(), &mut out);
    }
    out
}

fn add(tree: &UseTree, path: &mut Vec<String>, out: &mut Vec<Import>) {
    match tree {
        UseTree::Path(step) => {
            path.push(plain(&step.ident));
            add(&step.tree, path, out);
            path.pop();
        }
        UseTree::Name(last) => leaf(&last.ident, &last.ident, path, out),
        UseTree::Rename(last) => leaf(&last.ident, &last.rename, path, out),
        UseTree::Glob(star) => {
            let line = star.star_token.spans[0].start().line;
            out.push(Import { name: None, target: path.clone(), line });
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| add(tree, path, out)),
    }
}

fn leaf(
    last: &proc_macro2::Ident,
    name: &proc_macro2::Ident,
    path: &[String],
    out: &mut Vec<Import>,
) {
    let mut target = path.to_vec();
    let mut name = plain(name);
    match plain(last).as_str() {
        // `use a::{self}` names a
        "self" if !target.is_empty() => {
            if name == "self" {
                name = target[target.len() - 1].clone();
            }
        }
        last => target.push(last.to_string()),
    }
    out.push(Import { name: Some(name), target, line: last.span().start().line });
}
