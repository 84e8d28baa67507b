// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which room knows which: by cargo's dependencies, by includes, and by the paths that build scripts and
//! `include_str!` name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use proc_macro2::{TokenStream, TokenTree};

use crate::c;
use crate::files::{files, normal, C_ENDINGS};
use crate::workspace::{Crate, Workspace};

#[derive(Debug, PartialEq, Eq)]
pub struct Rooms {
    /// By directory: one line of what it is.
    pub rooms: BTreeMap<String, String>,
    pub knows: BTreeSet<(String, String)>,
    /// Known by tests, benches and examples only.
    pub tests_know: BTreeSet<(String, String)>,
}

impl Rooms {
    pub fn of(workspace: &Workspace) -> Result<Rooms> {
        let mut rooms = workspace.config.c.clone();
        for room in &workspace.crates {
            let Some(description) = &room.description else {
                bail!(
                    "{}/Cargo.toml has no `description`: one line of what the crate is",
                    room.dir
                );
            };
            rooms.insert(room.dir.clone(), description.clone());
        }
        let mut found = Found { workspace, knows: BTreeSet::new(), tests_know: BTreeSet::new() };
        for room in &workspace.crates {
            found.of_crate(room)?;
        }
        for dir in workspace.config.c.keys() {
            found.of_c(dir)?;
        }
        let Found { knows, mut tests_know, .. } = found;
        tests_know.retain(|pair| !knows.contains(pair));
        Ok(Rooms { rooms, knows, tests_know })
    }

    /// How high each room is: 0 knows no other, each other is a floor above the highest it knows.
    pub fn floors(&self) -> Result<BTreeMap<&str, usize>> {
        let mut floors = BTreeMap::new();
        while floors.len() < self.rooms.len() {
            let before = floors.len();
            for room in self.rooms.keys() {
                let below = self.knows.iter().filter(|(from, _)| from == room);
                let below: Option<Vec<usize>> =
                    below.map(|(_, to)| floors.get(to.as_str()).copied()).collect();
                if let Some(below) = below {
                    floors.insert(room.as_str(), below.into_iter().max().map_or(0, |f| f + 1));
                }
            }
            if floors.len() == before {
                let left: Vec<&String> =
                    self.rooms.keys().filter(|r| !floors.contains_key(r.as_str())).collect();
                bail!("rooms in a circle, or above one: {left:?}");
            }
        }
        Ok(floors)
    }

    /// All of it, a line each.
    pub fn facts(&self) -> String {
        let rooms = self.rooms.iter().map(|(room, what)| format!("{room}: {what}\n"));
        let knows = self.knows.iter().map(|(from, to)| format!("{from} knows {to}\n"));
        let tests = self.tests_know.iter().map(|(from, to)| format!("tests of {from} know {to}\n"));
        rooms.chain(knows).chain(tests).collect()
    }
}

struct Found<'a> {
    workspace: &'a Workspace,
    knows: BTreeSet<(String, String)>,
    tests_know: BTreeSet<(String, String)>,
}

impl Found<'_> {
    fn of_crate(&mut self, room: &Crate) -> Result<()> {
        let pair = |to: &String| (room.dir.clone(), to.clone());
        self.knows.extend(room.dependencies.iter().map(pair));
        self.tests_know.extend(room.test_dependencies.iter().map(pair));
        let all = files(&self.workspace.root, &room.dir, &["rs", "c", "h", "S", "cc"], true)?;
        for file in all {
            let inside = file[room.dir.len() + 1..].split('/').next().unwrap_or("");
            let for_tests = matches!(inside, "tests" | "benches" | "examples");
            for named in self.named_by(room, &file)? {
                self.add(&room.dir, &named, for_tests);
            }
        }
        Ok(())
    }

    fn of_c(&mut self, dir: &str) -> Result<()> {
        for file in files(&self.workspace.root, dir, &C_ENDINGS, true)? {
            if self.workspace.room_of(&file) != Some(dir) {
                continue;
            }
            let for_tests = Path::new(&file).components().any(|c| c.as_os_str() == "test");
            for named in self.included_by(&file)? {
                self.add(dir, &named, for_tests);
            }
        }
        Ok(())
    }

    fn add(&mut self, from: &str, named: &str, for_tests: bool) {
        let Some(to) = self.workspace.room_of(named) else { return };
        if to == from {
            return;
        }
        let pair = (from.to_string(), to.to_string());
        if for_tests { &mut self.tests_know } else { &mut self.knows }.insert(pair);
    }

    fn text(&self, file: &str) -> Result<String> {
        let path = self.workspace.root.join(file);
        std::fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    fn included_by(&self, file: &str) -> Result<Vec<String>> {
        let dirs: Vec<String> = self.workspace.config.c.keys().cloned().collect();
        let includes = c::includes(&self.text(file)?).into_iter();
        includes
            .filter_map(|i| c::resolve(&self.workspace.root, file, &i.name, &dirs).transpose())
            .collect()
    }

    /// Files and directories that exist, relative to the root.
    fn named_by(&self, room: &Crate, file: &str) -> Result<Vec<String>> {
        if !file.ends_with(".rs") {
            return self.included_by(file);
        }
        let tokens: TokenStream =
            self.text(file)?.parse().map_err(|e| anyhow::anyhow!("{file}: {e}"))?;
        let beside = Path::new(file).parent().unwrap_or(Path::new("")).to_path_buf();
        let mut strings = Vec::new();
        if room.build_script.as_deref() != Some(file) {
            included_strings(tokens, &mut strings);
            return Ok(self.existing(&[beside, room.dir.clone().into()], &strings));
        }
        // They name what lies in the crate, or below a root they find for themselves.
        all_strings(tokens, &mut strings);
        let mut found = self.existing(&[beside, "".into()], &strings);
        // `join("../../locks")`, and then `join("interpose")`
        let is_room = |f: &&String| self.workspace.config.c.contains_key(f.as_str());
        let dirs: Vec<PathBuf> = found.iter().filter(is_room).map(PathBuf::from).collect();
        found.extend(self.existing(&dirs, &strings));
        Ok(found)
    }

    /// Those of the paths that there are.
    fn existing(&self, bases: &[PathBuf], strings: &[String]) -> Vec<String> {
        let paths =
            strings.iter().flat_map(|s| bases.iter().map(move |base| normal(&base.join(s))));
        let there = paths.filter(|path| self.workspace.root.join(path).exists());
        there.map(|path| path.to_string_lossy().into_owned()).collect()
    }
}

fn string(token: &TokenTree) -> Option<String> {
    let text = token.to_string();
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    // `{root}/uapi` is below a root that the script found.
    let inner = inner.strip_prefix("{root}/").unwrap_or(inner);
    (!inner.is_empty()).then(|| inner.to_string())
}

fn all_strings(tokens: TokenStream, out: &mut Vec<String>) {
    for token in tokens {
        match &token {
            TokenTree::Group(group) => all_strings(group.stream(), out),
            token => out.extend(string(token)),
        }
    }
}

/// Those that lead out of the crate (`../`): in `include_str!`, `#[path]`, `join()`.
fn included_strings(tokens: TokenStream, out: &mut Vec<String>) {
    let mut strings = Vec::new();
    all_strings(tokens, &mut strings);
    out.extend(strings.into_iter().filter(|s| s.starts_with("../")));
}
