// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worlds: what the papers do not print, and what the model does not know of its costs, drawn.

use crate::error::Error;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unspin_scenario::plan::HostCosts;
use unspin_scenario::{Ranges, Unknown};
use unspin_sim::Costs;

/// What is drawn in one world.
pub struct World {
    /// Of its runs' random numbers.
    pub seed: u64,
    /// What of a host's costs is drawn, from the model's own.
    pub costs: Box<dyn Fn(&Costs) -> HostCosts + Sync + Send>,
    /// Places from 0 to 1 of what files do not know, by the files' paths in the project, in the order
    /// of [`unknown`].
    pub places: BTreeMap<PathBuf, Vec<f64>>,
}

impl World {
    /// The text of a file in this world.
    pub(crate) fn text(&self, file: &Path, ranges: &Ranges) -> String {
        let places = self.places.get(file).map_or(&[][..], Vec::as_slice);
        ranges.at(&places.iter().copied().map(Some).collect::<Vec<_>>())
    }
}

/// Everything that files of the papers do not know: scenarios, profiles and models, by their paths in
/// the project.
///
/// # Errors
/// A file that cannot be read, or a range that is wrong.
pub fn unknown(root: &Path) -> Result<Vec<(PathBuf, Unknown)>, Error> {
    let mut dirs = vec![PathBuf::from("models")];
    for key in crate::paper::KEYS {
        let of = |kind: &str| Path::new("papers").join(key).join(kind);
        dirs.extend([of("profiles"), of("scenarios")]);
    }
    let mut all = Vec::new();
    for dir in dirs {
        let path = root.join(&dir);
        let wrong = |error| Error::Read { path: path.clone(), error };
        let files = std::fs::read_dir(&path).map_err(wrong)?.flatten().map(|f| f.file_name());
        let mut files: Vec<PathBuf> = files.map(|name| dir.join(name)).collect();
        files.retain(|file| file.extension().is_some_and(|x| x == "toml"));
        files.sort();
        for file in files {
            let ranges = ranges(root, &file)?;
            all.extend(ranges.unknown.into_iter().map(|unknown| (file.clone(), unknown)));
        }
    }
    Ok(all)
}

/// What a file of the project does not know.
pub(crate) fn ranges(root: &Path, file: &Path) -> Result<Ranges, Error> {
    let path = root.join(file);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Error::Read { path: path.clone(), error })?;
    Ranges::read(&file.display().to_string(), &text)
        .map_err(|e| Error::Wrong { path, text: e.to_string() })
}
