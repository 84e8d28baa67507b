// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rooms as cargo and the workspace's own `[workspace.metadata.house]` tell of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand, Package, TargetKind};
use serde::Deserialize;

/// `[workspace.metadata.house]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub function_lines_max: Option<usize>,
    pub file_lines_max: Option<usize>,
    /// Directories of C, and a line on each.
    pub c: BTreeMap<String, String>,
    /// Of directories of C: names of files without extension, ground floor first.
    pub floors: BTreeMap<String, Floors>,
    pub may_circle: Vec<MayCircle>,
}

pub type Floors = Vec<Vec<String>>;

/// Files that may know one another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MayCircle {
    pub files: Vec<String>,
    pub why: String,
}

/// `[package.metadata.rooms]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rooms {
    /// Modules, ground floor first. Those of one floor do not know each other.
    floors: Floors,
}

#[derive(Debug)]
pub struct Workspace {
    pub root: PathBuf,
    pub config: Config,
    pub crates: Vec<Crate>,
}

#[derive(Debug)]
pub struct Crate {
    /// Of the directory, relative to the root.
    pub dir: String,
    pub description: Option<String>,
    /// Root files of its library and programs, relative to the project's root.
    pub targets: Vec<String>,
    pub build_script: Option<String>,
    /// Directories of crates of the workspace it is built on, and of those only its tests are.
    pub dependencies: Vec<String>,
    pub test_dependencies: Vec<String>,
    pub floors: Option<Floors>,
}

impl Workspace {
    pub fn read(root: &Path) -> Result<Workspace> {
        let root = root.canonicalize().with_context(|| root.display().to_string())?;
        let metadata = MetadataCommand::new()
            .manifest_path(root.join("Cargo.toml"))
            .no_deps()
            .other_options(vec!["--offline".to_string()])
            .exec()
            .with_context(|| format!("cargo metadata of {}", root.display()))?;
        let config = match metadata.workspace_metadata.get("house") {
            Some(value) => serde_json::from_value(value.clone())
                .context("Cargo.toml: [workspace.metadata.house]")?,
            None => Config::default(),
        };
        let mut crates = Vec::new();
        for package in &metadata.packages {
            crates.push(Crate::of(package, &root)?);
        }
        crates.sort_by(|a, b| a.dir.cmp(&b.dir));
        Ok(Workspace { root, config, crates })
    }

    /// The room a file is in: the directory of its crate, or of its C.
    pub fn room_of(&self, file: &str) -> Option<&str> {
        let dirs = self.crates.iter().map(|c| c.dir.as_str());
        let dirs = dirs.chain(self.config.c.keys().map(String::as_str));
        dirs.filter(|dir| Path::new(file).starts_with(dir)).max_by_key(|dir| dir.len())
    }
}

impl Crate {
    fn of(package: &Package, root: &Path) -> Result<Crate> {
        let manifest = package.manifest_path.as_std_path();
        let dir = relative(root, manifest.parent().unwrap_or(root))?;
        let mut targets = Vec::new();
        let mut build_script = None;
        for target in &package.targets {
            let file = relative(root, target.src_path.as_std_path())?;
            if target.kind.contains(&TargetKind::CustomBuild) {
                build_script = Some(file);
            } else if target.is_lib() || target.is_bin() {
                targets.push(file);
            }
        }
        let (mut dependencies, mut test_dependencies) = (Vec::new(), Vec::new());
        for dependency in &package.dependencies {
            let Some(path) = &dependency.path else { continue };
            let path = relative(root, path.as_std_path())?;
            match dependency.kind {
                DependencyKind::Development => test_dependencies.push(path),
                _ => dependencies.push(path),
            }
        }
        let floors = match package.metadata.get("rooms") {
            Some(value) => {
                let rooms: Rooms = serde_json::from_value(value.clone())
                    .with_context(|| format!("{dir}/Cargo.toml: [package.metadata.rooms]"))?;
                Some(rooms.floors)
            }
            None => None,
        };
        let description = package.description.clone();
        Ok(Crate {
            dir,
            description,
            targets,
            build_script,
            dependencies,
            test_dependencies,
            floors,
        })
    }
}

fn relative(root: &Path, path: &Path) -> Result<String> {
    match path.strip_prefix(root) {
        Ok(path) => Ok(path.to_string_lossy().into_owned()),
        Err(_) => bail!("{} is not inside {}", path.display(), root.display()),
    }
}
