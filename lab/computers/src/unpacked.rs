// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unpacks Debian's packages, each into its own directory, and finds the files that a program
//! needs. Nothing is installed, and no package scripts run.

use crate::apt::{Apt, PackageFile};
use crate::elf;
use crate::error::{io, LabError, Result};
use crate::go::Go;
use crate::tool;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// The lab's directory for parts of Linux guests.
pub(crate) const GUESTS: &str = "guests";

/// Directories in which Debian's dynamic linker searches libraries.
const LIBRARY_DIRS: [&str; 4] =
    ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib", "usr/lib"];

/// Number of links to follow before a file counts as missing.
const LINKS_MAX: usize = 16;

/// Files by their paths in a computer, without the leading slash.
pub(crate) type Files = BTreeMap<String, PathBuf>;

/// Packages and all their dependencies, unpacked.
#[derive(Debug)]
pub(crate) struct Unpacked {
    /// The requested packages.
    names: Vec<String>,
    /// Each package and its directory.
    dirs: Vec<(PackageFile, PathBuf)>,
}

impl Unpacked {
    /// Fetches and unpacks the current versions of `names` and of all their dependencies below
    /// `dir`, unless they exist. Without package lists, packages that were unpacked before are
    /// used.
    pub(crate) fn fetch(dir: &Path, names: &[String], go: &mut Go) -> Result<Unpacked> {
        let (sets, packages) = (dir.join("sets"), dir.join("packages"));
        for made in [&sets, &packages] {
            fs::create_dir_all(made).map_err(io(made))?;
        }
        let apt = Apt::of_nothing_installed(&dir.join("apt"))?;
        let set = sets.join(crate::hash::sha256(names));
        let files = match apt.files_of(names, &dir.join("look-up.log"), go.stop) {
            Ok(files) => files,
            Err(LabError::Interrupted) => return Err(LabError::Interrupted),
            Err(error) => known_before(&set, &packages).ok_or(error)?,
        };
        let all: Vec<(PackageFile, PathBuf)> = files
            .into_iter()
            .map(|file| {
                let dir = packages.join(file.file.trim_end_matches(".deb"));
                (file, dir)
            })
            .collect();
        let missing: Vec<&(PackageFile, PathBuf)> =
            all.iter().filter(|(_, dir)| !dir.is_dir()).collect();
        if !missing.is_empty() {
            go.say(&format!("downloading {} packages for {}", missing.len(), names.join(", ")));
            download(&apt, dir, &missing, go.stop)?;
        }
        let text: String = all.iter().map(|(file, _)| format!("{}\n", file.file)).collect();
        fs::write(&set, text).map_err(io(&set))?;
        Ok(Unpacked { names: names.to_vec(), dirs: all })
    }

    /// The file names of all packages, which include their versions.
    pub(crate) fn versions(&self) -> String {
        self.dirs.iter().map(|(file, _)| format!("{}\n", file.file)).collect()
    }

    pub(crate) fn version_of(&self, package: &str) -> Option<String> {
        let mut files = self.dirs.iter().map(|(file, _)| file);
        files.find(|file| file.package == package).map(|file| file.version.clone())
    }

    /// Unpacks all packages into one directory, `dir`.
    pub(crate) fn lay_out(&self, dir: &Path, log: &Path, stop: &AtomicBool) -> Result<()> {
        fs::create_dir_all(dir).map_err(io(dir))?;
        let mut copy = Command::new("cp");
        copy.args(["-a", "--"]);
        copy.args(self.dirs.iter().map(|(_, from)| from.join("."))).arg(dir);
        tool::run("laying packages out", &mut copy, log, stop)
    }

    /// The package of an unpacked file.
    pub(crate) fn owner(&self, file: &Path) -> Option<&str> {
        let mut dirs = self.dirs.iter();
        dirs.find(|(_, dir)| file.starts_with(dir)).map(|(owner, _)| owner.package.as_str())
    }

    /// The file here for a path in the computer. Follows links.
    pub(crate) fn find(&self, path: &str) -> Option<PathBuf> {
        self.find_in(path, |_| true)
    }

    /// As [`Unpacked::find`], for a path in `package`.
    pub(crate) fn find_of(&self, package: &str, path: &str) -> Option<PathBuf> {
        self.find_in(path, |file| file.package == package)
    }

    fn find_in(&self, path: &str, is_wanted: impl Fn(&PackageFile) -> bool) -> Option<PathBuf> {
        let mut path = normal(Path::new(path));
        let mut wanted: &dyn Fn(&PackageFile) -> bool = &is_wanted;
        for _ in 0..LINKS_MAX {
            let found = self.entry(&path, wanted)?;
            if !found.is_symlink() {
                return Some(found);
            }
            let target = fs::read_link(&found).ok()?;
            path = normal(&path.parent()?.join(target));
            wanted = &|_| true;
        }
        None
    }

    /// Finds a path. In a package, a directory of the root may be below /usr, or the other way round.
    fn entry(&self, path: &Path, wanted: &dyn Fn(&PackageFile) -> bool) -> Option<PathBuf> {
        let beside = match path.strip_prefix("usr") {
            Ok(rest) => rest.to_path_buf(),
            Err(_) => Path::new("usr").join(path),
        };
        let is_there = |path: &PathBuf| path.symlink_metadata().is_ok();
        let of = |path: &Path| {
            let mut dirs = self.dirs.iter().filter(|(file, _)| wanted(file));
            dirs.find_map(|(_, dir)| Some(dir.join(path)).filter(is_there))
        };
        of(path).or_else(|| of(&beside))
    }

    /// Adds to `files` all files that its programs load.
    pub(crate) fn add_needed(&self, files: &mut Files) -> Result<()> {
        let mut left: Vec<(String, PathBuf)> = files.clone().into_iter().collect();
        while let Some((path, file)) = left.pop() {
            let contents = fs::read(&file).map_err(io(&file))?;
            let Some(needs) = elf::needs(&contents) else { continue };
            for (name, found) in self.needed(&path, &needs)? {
                if !files.contains_key(&name) {
                    files.insert(name.clone(), found.clone());
                    left.push((name, found));
                }
            }
        }
        Ok(())
    }

    fn needed(&self, path: &str, needs: &elf::Needs) -> Result<Vec<(String, PathBuf)>> {
        let origin = Path::new(path).parent().unwrap_or(Path::new(""));
        let own = needs.run_paths.iter().map(|dir| {
            let origin = origin.to_string_lossy();
            dir.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin)
        });
        let dirs: Vec<String> = own.chain(LIBRARY_DIRS.map(str::to_string)).collect();
        let missing = |library: &str| LabError::MissingLibrary {
            file: path.to_string(),
            library: library.to_string(),
            packages: self.names.join(", "),
        };
        let mut found = Vec::new();
        if let Some(interpreter) = &needs.interpreter {
            let file = self.find(interpreter).ok_or_else(|| missing(interpreter))?;
            found.push((interpreter.trim_start_matches('/').to_string(), file));
        }
        for library in &needs.libraries {
            // Programs already have it by another path, as their interpreter.
            if library.starts_with("ld-linux") {
                continue;
            }
            let places = dirs.iter().map(|dir| normal(&Path::new(dir).join(library)));
            let place = places
                .filter_map(|path| Some((self.find(path.to_str()?)?, path)))
                .find(|(file, _)| file.is_file());
            let (file, path) = place.ok_or_else(|| missing(library))?;
            found.push((path.to_string_lossy().into_owned(), file));
        }
        Ok(found)
    }
}

/// The packages of the last fetch, if all of them still exist.
fn known_before(set: &Path, packages: &Path) -> Option<Vec<PackageFile>> {
    let text = fs::read_to_string(set).ok()?;
    let files: Option<Vec<PackageFile>> = text.lines().map(PackageFile::of).collect();
    let is_there = |file: &PackageFile| packages.join(file.file.trim_end_matches(".deb")).is_dir();
    files.filter(|files| files.iter().all(is_there))
}

/// Downloads packages, and unpacks each to its directory, which exists only once it is complete.
fn download(
    apt: &Apt,
    dir: &Path,
    missing: &[&(PackageFile, PathBuf)],
    stop: &AtomicBool,
) -> Result<()> {
    let (debs, log) = (dir.join("debs"), dir.join("fetch.log"));
    fs::create_dir_all(&debs).map_err(io(&debs))?;
    let _ = fs::remove_file(&log);
    let absent = missing.iter().filter(|(file, _)| !debs.join(&file.file).exists());
    let exact: Vec<String> = absent.map(|(file, _)| file.exact()).collect();
    if !exact.is_empty() {
        apt.download(&debs, &exact, &log, stop)?;
    }
    for (file, target) in missing {
        let (deb, part) = (debs.join(&file.file), target.with_extension("part"));
        let _ = fs::remove_dir_all(&part);
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(&deb).arg(&part);
        if let Err(error) = tool::run(&format!("unpacking {}", file.file), &mut unpack, &log, stop)
        {
            // An interrupted download is repeated at the next fetch.
            if !matches!(error, LabError::Interrupted | LabError::NoSpace { .. }) {
                let _ = fs::remove_file(&deb);
            }
            return Err(error);
        }
        fs::rename(&part, target).map_err(io(target))?;
        fs::remove_file(&deb).map_err(io(&deb))?;
    }
    Ok(())
}

/// A path relative to the root, without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            Component::RootDir => out.clear(),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scratch::Scratch;

    fn unpacked() -> (Scratch, Unpacked) {
        let dir = Scratch::new();
        let dirs = ["a_1_amd64.deb", "b_2_all.deb"].map(|file| {
            let package = PackageFile::of(file).unwrap();
            dir.dir(format!("{}/usr/lib", package.package));
            let at = dir.join(&package.package);
            (package, at)
        });
        (dir, Unpacked { names: vec!["a".into()], dirs: dirs.into() })
    }

    #[test]
    fn links_lead_from_package_to_package_and_never_out_of_them() {
        let (dir, unpacked) = unpacked();
        dir.write("b/usr/lib/real", "");
        dir.link("a/usr/lib/absolute", "/usr/lib/real");
        dir.link("a/usr/lib/relative", "../../../../../usr/lib/real");
        dir.link("a/usr/lib/loop", "/usr/lib/loop");
        dir.link("a/usr/lib/outside", "/etc/passwd");
        let real = Some(dir.join("b/usr/lib/real"));
        for path in ["usr/lib/real", "/usr/lib/absolute", "usr/lib/relative", "/lib/absolute"] {
            assert_eq!(unpacked.find(path), real, "{path}");
        }
        for path in ["usr/lib/loop", "usr/lib/outside", "usr/lib/none", "../../../etc/passwd"] {
            assert_eq!(unpacked.find(path), None, "{path}");
        }
        assert_eq!(unpacked.find_of("a", "usr/lib/absolute"), real);
        assert_eq!(unpacked.find_of("a", "usr/lib/real"), None);
    }

    #[test]
    fn packages_have_versions() {
        let (_dir, unpacked) = unpacked();
        let versions = ["a", "b", "c"].map(|package| unpacked.version_of(package));
        assert_eq!(versions, [Some("1".to_string()), Some("2".to_string()), None]);
    }

    #[test]
    fn a_library_that_no_package_brings_is_named() {
        let (dir, unpacked) = unpacked();
        dir.write("a/usr/lib/libx.so.1", "");
        let mut needs = elf::Needs { libraries: vec!["libx.so.1".into()], ..Default::default() };
        let found = unpacked.needed("usr/bin/x", &needs).unwrap();
        assert_eq!(found[0].1, dir.join("a/usr/lib/libx.so.1"));
        needs.libraries = vec!["libnone.so.1".into()];
        let error = unpacked.needed("usr/bin/x", &needs).unwrap_err().to_string();
        assert!(error.contains("usr/bin/x needs libnone.so.1"), "{error}");
    }

    #[test]
    fn what_was_unpacked_before_serves_only_whole() {
        let (dir, _) = unpacked();
        let (set, packages) = (dir.join("set"), dir.join("packages"));
        dir.dir("packages/a_1_amd64");
        fs::write(&set, "a_1_amd64.deb\n").unwrap();
        assert_eq!(known_before(&set, &packages).unwrap().len(), 1);
        fs::write(&set, "a_1_amd64.deb\nb_2_all.deb\n").unwrap();
        assert_eq!(known_before(&set, &packages), None);
        assert_eq!(known_before(&dir.join("none"), &packages), None);
    }
}
