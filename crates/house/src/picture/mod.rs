// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pictures of docs/.

mod house;
mod layout;
mod steps;
mod svg;

use std::path::Path;

use anyhow::{Context, Result};

use crate::rooms::Rooms;
use crate::workspace::Workspace;

pub use steps::Steps;

pub const HOUSE: &str = "docs/house.svg";

/// Writes them.
pub fn draw(workspace: &Workspace) -> Result<()> {
    let write = |name: &str, text: String| {
        std::fs::write(workspace.root.join(name), text).with_context(|| name.to_string())
    };
    write(HOUSE, house::svg(&Rooms::of(workspace)?)?)?;
    for steps in steps::all(&workspace.root)? {
        write(&steps.picture(), steps.svg()?)?;
    }
    Ok(())
}

/// What is wrong with the pictures as they are: a line each.
pub fn rotten(workspace: &Workspace) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let rooms = Rooms::of(workspace)?;
    rooms.floors()?;
    is_of(&workspace.root, HOUSE, &rooms.facts(), &mut found);
    for steps in steps::all(&workspace.root)? {
        found.extend(steps.unknown_functions(&workspace.root)?);
        is_of(&workspace.root, &steps.picture(), &steps.facts(), &mut found);
    }
    Ok(found)
}

fn is_of(root: &Path, name: &str, facts: &str, found: &mut Vec<String>) {
    let wanted = format!("<metadata>\n{}</metadata>", svg::escape(facts));
    match std::fs::read_to_string(root.join(name)) {
        Ok(text) if text.contains(&wanted) => {}
        Ok(_) => {
            found.push(format!("{name} shows what is no longer so: make house draws it again"))
        }
        Err(error) => found.push(format!("{name}: {error}: make house draws it")),
    }
}
