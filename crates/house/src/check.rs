// SPDX-License-Identifier: MIT OR Apache-2.0
//! All that is looked for, over the whole workspace.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result};

use crate::arrow::Arrows;
use crate::circle::{circles, Circle};
use crate::files::{files, C_ENDINGS};
use crate::floors::{order, Names, Up};
use crate::length::{long, Long};
use crate::workspace::{Crate, MayCircle, Workspace};
use crate::{c, rust};

/// Where `[workspace.metadata.house]` says nothing.
const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 500;

#[derive(Debug, Default)]
pub struct Findings {
    pub circles: Vec<Circle>,
    pub allowed: Vec<(Circle, MayCircle)>,
    /// Of `may_circle`, what is none.
    pub no_circles: Vec<MayCircle>,
    pub up: Vec<Up>,
    /// Files in no room and rooms without files, a line each.
    pub misplaced: Vec<String>,
    pub long: Vec<Long>,
}

impl Findings {
    pub fn is_clean(&self) -> bool {
        self.circles.is_empty()
            && self.no_circles.is_empty()
            && self.up.is_empty()
            && self.misplaced.is_empty()
            && self.long.is_empty()
    }
}

pub fn check(workspace: &Workspace) -> Result<Findings> {
    let config = &workspace.config;
    let mut findings = Findings::default();
    let mut found = Vec::new();
    for room in &workspace.crates {
        let (arrows, names) = of_crate(workspace, room)?;
        found.extend(circles(&arrows, str::to_string));
        if let Some(floors) = &room.floors {
            let place = format!("{}/Cargo.toml", room.dir);
            let order = order(&arrows, &names, floors, &place);
            findings.up.extend(order.up);
            findings.misplaced.extend(order.misplaced);
        }
    }
    for dir in config.c.keys() {
        let (arrows, names) = of_c(workspace, dir)?;
        found.extend(circles(&arrows, c::node_of));
        if let Some(floors) = config.floors.get(dir) {
            let place = format!("{dir} in Cargo.toml");
            let order = order(&arrows, &names, floors, &place);
            findings.up.extend(order.up);
            findings.misplaced.extend(order.misplaced);
        }
    }
    sort_out(found, &config.may_circle, &mut findings);
    let file_max = config.file_lines_max.unwrap_or(FILE_LINES_MAX);
    let function_max = config.function_lines_max.unwrap_or(FUNCTION_LINES_MAX);
    for file in sources(workspace)? {
        findings.long.extend(long(&workspace.root, &file, file_max, function_max)?);
    }
    Ok(findings)
}

fn sort_out(found: Vec<Circle>, may_circle: &[MayCircle], findings: &mut Findings) {
    let mut used = vec![false; may_circle.len()];
    for circle in found {
        let entry =
            may_circle.iter().position(|m| circle.files.iter().all(|f| m.files.contains(f)));
        match entry {
            Some(entry) => {
                used[entry] = true;
                findings.allowed.push((circle, may_circle[entry].clone()));
            }
            None => findings.circles.push(circle),
        }
    }
    let unused = may_circle.iter().zip(used).filter(|(_, used)| !used);
    findings.no_circles.extend(unused.map(|(entry, _)| entry.clone()));
}

/// The arrows of all its targets.
fn of_crate(workspace: &Workspace, room: &Crate) -> Result<(Arrows, Names)> {
    let mut all = Arrows::default();
    let mut names = Names::new();
    for target in &room.targets {
        let (tree, arrows) =
            rust::arrows(&workspace.root, target).with_context(|| room.dir.clone())?;
        all.extend(arrows);
        for module in &tree.modules {
            names.entry(module.file.clone()).or_insert_with(|| module.path.clone());
        }
    }
    Ok((all, names))
}

fn of_c(workspace: &Workspace, dir: &str) -> Result<(Arrows, Names)> {
    let own = c_files(workspace, dir)?;
    let dirs: Vec<String> = workspace.config.c.keys().cloned().collect();
    let arrows = c::arrows(&workspace.root, &own, &dirs)?;
    let name = |file: &String| {
        let node = c::node_of(file);
        let inside = node.strip_prefix(dir).unwrap_or(&node).trim_start_matches('/');
        inside.split('/').map(str::to_string).collect()
    };
    let names: BTreeMap<String, Vec<String>> =
        own.iter().map(|file| (file.clone(), name(file))).collect();
    Ok((arrows, names))
}

/// Without those of rooms inside it.
fn c_files(workspace: &Workspace, dir: &str) -> Result<Vec<String>> {
    let mut own = files(&workspace.root, dir, &C_ENDINGS, false)?;
    own.retain(|file| workspace.room_of(file) == Some(dir));
    Ok(own)
}

/// Everything that may not be too long.
fn sources(workspace: &Workspace) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for room in &workspace.crates {
        all.extend(files(&workspace.root, &room.dir, &["rs", "c", "h", "S", "cc"], false)?);
    }
    for dir in workspace.config.c.keys() {
        all.extend(c_files(workspace, dir)?);
    }
    all.sort();
    all.dedup();
    Ok(all)
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for circle in &self.circles {
            writeln!(f, "circle of {} files:", circle.files.len())?;
            for arrow in &circle.arrows {
                writeln!(f, "  {arrow}")?;
            }
        }
        for entry in &self.no_circles {
            let files = entry.files.join(", ");
            writeln!(f, "no circle any more, take it out of may_circle in Cargo.toml: {files}")?;
        }
        for up in &self.up {
            writeln!(f, "arrow up, from {} to {}: {}", up.from_room, up.to_room, up.arrow)?;
        }
        for line in &self.misplaced {
            writeln!(f, "{line}")?;
        }
        for long in &self.long {
            match &long.function {
                Some(function) => writeln!(
                    f,
                    "long function: {}:{} {} has {} lines",
                    long.file, function.first_line, function.name, long.lines
                )?,
                None => writeln!(f, "long file: {} has {} lines", long.file, long.lines)?,
            }
        }
        for (circle, entry) in &self.allowed {
            writeln!(f, "a circle of {} files that may be: {}", circle.files.len(), entry.why)?;
        }
        writeln!(
            f,
            "{} circles of files, {} arrows up, {} files and functions too long",
            self.circles.len(),
            self.up.len(),
            self.long.len()
        )
    }
}
