// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arrows between the files of a crate, and the length of its functions.

mod functions;
mod import;
mod names;
mod paths;
mod tree;

use std::path::Path;

use anyhow::Result;

use crate::arrow::Arrows;

pub use functions::functions;
pub use tree::Tree;

/// The arrows of the target whose root file (`src/lib.rs`, `src/main.rs`) is given.
pub fn arrows(root: &Path, target: &str) -> Result<(Tree, Arrows)> {
    let tree = Tree::read(root, target)?;
    let arrows = paths::arrows(&tree);
    Ok((tree, arrows))
}
