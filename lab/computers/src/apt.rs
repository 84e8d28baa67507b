// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds and downloads Debian's packages with apt; installs nothing. Packages of a Debian release
//! other than this computer's come from the lab's own package lists. These use the mirror of this
//! computer's sources, and all signatures are checked.

use crate::error::{io, LabError, Result};
use crate::go::Go;
use crate::tool;
use std::borrow::Borrow;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The keys Debian signs its archive with.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The lab's lists are as old as this file.
const UPDATED: &str = "updated";

/// Lists older than this are fetched again.
const LISTS_MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Hooks and pins of this computer's apt must not affect the lab's lists.
const CONFIG: &str = "\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Default-Release \"\";
APT::Install-Recommends \"false\";
Acquire::Languages \"none\";
";

/// The contents of package lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lists {
    Packages,
    Sources,
}

/// A package's file in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackageFile {
    /// Name in apt's form: `NAME_VERSION_ARCHITECTURE.deb`.
    pub file: String,
    pub package: String,
    pub version: String,
}

impl PackageFile {
    /// Parses the name of a file.
    pub(crate) fn of(file: &str) -> Option<PackageFile> {
        let mut parts = file.strip_suffix(".deb")?.split('_');
        let (package, version) = (parts.next()?.to_string(), parts.next()?.replace("%3a", ":"));
        parts.next()?;
        Some(PackageFile { file: file.to_string(), package, version })
    }

    /// Parses a line of `apt-get --print-uris`: address, file, size and checksum.
    fn parse(line: &str) -> Option<PackageFile> {
        let mut words = line.split(' ');
        words.next().filter(|address| address.starts_with('\''))?;
        PackageFile::of(words.next()?)
    }

    /// The argument by which apt selects exactly this package.
    pub(crate) fn exact(&self) -> String {
        format!("{}={}", self.package, self.version)
    }
}

/// apt with certain package lists.
#[derive(Debug, Default)]
pub(crate) struct Apt {
    options: Vec<OsString>,
    /// Directory for downloaded packages and their dependencies.
    archives: PathBuf,
}

impl Apt {
    /// apt with the lists of this computer.
    pub(crate) fn host() -> Apt {
        Apt::default()
    }

    /// apt with the lists of Debian 13's packages, including backports, or of its sources, kept in
    /// `dir`.
    pub(crate) fn trixie(lists: Lists, dir: &Path, go: &mut Go) -> Result<Apt> {
        let at = |name: &str| dir.join(name);
        let apt = Apt::of_lists_in(dir);
        if is_younger(&at(UPDATED), LISTS_MAX_AGE) {
            return Ok(apt);
        }
        for sub in ["lists/partial", "archives/partial", "none"] {
            fs::create_dir_all(at(sub)).map_err(io(at(sub)))?;
        }
        for (name, text) in
            [("apt.conf", CONFIG), ("status", ""), ("debian.sources", &trixie_sources(lists)?)]
        {
            fs::write(at(name), text).map_err(io(at(name)))?;
        }
        go.say("fetching the package lists of Debian 13");
        let log = at("update.log");
        let _ = fs::remove_file(&log);
        let mut update = apt.get();
        update.args(["--error-on=any", "update"]);
        tool::run("fetching package lists", &mut update, &log, go.stop).map_err(
            |error| match error {
                LabError::Step { tail, .. } if is_unsigned(&tail) => {
                    LabError::Signature { detail: tail.trim().into() }
                }
                other => as_download("the package lists of Debian 13", other),
            },
        )?;
        fs::write(at(UPDATED), "").map_err(io(at(UPDATED)))?;
        Ok(apt)
    }

    fn of_lists_in(dir: &Path) -> Apt {
        let mut options = vec![OsString::from("-c"), dir.join("apt.conf").into()];
        for (option, name) in [
            ("Dir::Etc::sourcelist", "debian.sources"),
            ("Dir::Etc::sourceparts", "none"),
            ("Dir::Etc::preferences", "none/preferences"),
            ("Dir::Etc::preferencesparts", "none"),
            ("Dir::State", "."),
            ("Dir::State::status", "status"),
            ("Dir::State::lists", "lists"),
            ("Dir::Cache", "."),
            ("Dir::Cache::archives", "archives"),
        ] {
            options.extend(setting(option, &dir.join(name)));
        }
        Apt { options, archives: dir.join("archives") }
    }

    /// apt with the lists of this computer, as if nothing were installed. apt's files are in `dir`.
    pub(crate) fn of_nothing_installed(dir: &Path) -> Result<Apt> {
        let (status, archives) = (dir.join("status"), dir.join("archives"));
        let partial = archives.join("partial");
        fs::create_dir_all(&partial).map_err(io(&partial))?;
        fs::write(&status, "").map_err(io(&status))?;
        let settings = [setting("Dir::State::status", &status), setting("Dir::Cache", dir)];
        Ok(Apt { options: settings.concat(), archives })
    }

    /// The files of `packages` and of all their dependencies.
    pub(crate) fn files_of(
        &self,
        packages: &[String],
        log: &Path,
        stop: &AtomicBool,
    ) -> Result<Vec<PackageFile>> {
        let _ = fs::remove_file(log);
        let mut get = self.get();
        get.args(["-y", "--no-install-recommends", "--print-uris", "install"]).args(packages);
        self.run(&packages.join(" "), &mut get, log, stop)?;
        let text = fs::read_to_string(log).map_err(io(log))?;
        Ok(text.lines().filter_map(PackageFile::parse).collect())
    }

    /// The dependencies of `package`, with packages of `suite` preferred.
    pub(crate) fn depends(&self, package: &str, suite: Option<&str>) -> Option<Vec<String>> {
        let mut cache = Command::new("apt-cache");
        cache.args(&self.options);
        if let Some(suite) = suite {
            cache.args(["-t", suite]);
        }
        let text = tool::output(cache.args(["depends", package]))?;
        let names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        Some(names.map(str::to_string).collect())
    }

    /// The version of a package that would be downloaded now.
    pub(crate) fn version(&self, package: &str) -> Option<String> {
        let mut cache = Command::new("apt-cache");
        cache.args(&self.options);
        let text = tool::output(cache.args(["show", "--no-all-versions", package]))?;
        text.lines().find_map(|line| line.strip_prefix("Version: ")).map(str::to_string)
    }

    /// Downloads packages into `dir`: the current ones, or `NAME=VERSION`.
    pub(crate) fn download<S: Borrow<str> + AsRef<OsStr>>(
        &self,
        dir: &Path,
        packages: &[S],
        log: &Path,
        stop: &AtomicBool,
    ) -> Result<()> {
        let mut get = self.get();
        get.arg("download").args(packages).current_dir(dir);
        self.run(&packages.join(" "), &mut get, log, stop)
    }

    /// Download the archives of a package's source, without Debian's changes, into `dir`.
    pub(crate) fn download_source(
        &self,
        dir: &Path,
        package: &str,
        log: &Path,
        stop: &AtomicBool,
    ) -> Result<()> {
        let mut get = self.get();
        get.args(["source", "--download-only", "--tar-only", package]).current_dir(dir);
        self.run(&format!("the source of {package}"), &mut get, log, stop)
    }

    /// Downloads `packages` and all their dependencies, with packages of `suite` preferred. Returns
    /// their directory.
    pub(crate) fn download_with_all(
        &self,
        packages: &[String],
        suite: &str,
        log: &Path,
        stop: &AtomicBool,
    ) -> Result<PathBuf> {
        let mut get = self.get();
        get.args(["-y", "--download-only", "-t", suite, "install"]).args(packages);
        self.run(&packages.join(" "), &mut get, log, stop)?;
        Ok(self.archives.clone())
    }

    fn run(&self, what: &str, get: &mut Command, log: &Path, stop: &AtomicBool) -> Result<()> {
        tool::run(&format!("downloading {what}"), get, log, stop)
            .map_err(|error| self.failed(what, error))
    }

    /// The error of a download. The lab's lists may be damaged or outdated, so they are fetched
    /// again the next time.
    fn failed(&self, what: &str, error: LabError) -> LabError {
        if self.archives.is_absolute() && !matches!(error, LabError::Interrupted) {
            let _ = fs::remove_file(self.archives.with_file_name(UPDATED));
        }
        as_download(what, error)
    }

    fn get(&self) -> Command {
        let mut get = Command::new("apt-get");
        get.args(&self.options).args(["-q", "-o", "APT::Sandbox::User=root"]).args([
            "-o",
            "Acquire::http::Timeout=30",
            // The lab's directory has its own lock.
            "-o",
            "Debug::NoLocking=true",
        ]);
        get
    }
}

/// The arguments that set an option of apt to a path.
fn setting(option: &str, path: &Path) -> [OsString; 2] {
    let mut value = OsString::from(format!("{option}="));
    value.push(path);
    ["-o".into(), value]
}

fn as_download(package: &str, error: LabError) -> LabError {
    match error {
        LabError::Step { tail, .. } => {
            LabError::Download { package: package.into(), detail: first_error(&tail).into() }
        }
        other => other,
    }
}

/// The line of apt's output that says what failed: its first error, or its last line.
fn first_error(said: &str) -> &str {
    let lines = || said.lines().map(str::trim);
    lines().find(|line| line.starts_with("E:")).or_else(|| lines().next_back()).unwrap_or_default()
}

/// Whether a file exists and was written less than `age` ago.
fn is_younger(path: &Path, age: Duration) -> bool {
    let written = path.metadata().and_then(|meta| meta.modified());
    written.is_ok_and(|time| time.elapsed().is_ok_and(|elapsed| elapsed < age))
}

/// Whether apt's message is about a signature.
fn is_unsigned(text: &str) -> bool {
    let text = text.to_lowercase();
    ["no_pubkey", "not signed", "signature", "gpg error"].iter().any(|mark| text.contains(mark))
}

/// The sources of Debian 13's lists, in addition to those of this computer.
fn trixie_sources(lists: Lists) -> Result<String> {
    if !Path::new(KEYRING).exists() {
        let (tool, package) = (KEYRING.into(), "debian-archive-keyring".into());
        return Err(LabError::MissingTool { tool, package });
    }
    let format = "--format=$(CODENAME) $(REPO_URI)";
    let text = tool::output(Command::new("apt-get").args([
        "indextargets",
        format,
        "Created-By: Packages",
        "Origin: Debian",
        "Component: main",
    ]));
    sources_beside(&text.unwrap_or_default(), lists).ok_or(LabError::NoMirror)
}

/// Sources of Debian 13 in addition to `known`: lines with the code name of a release and its
/// mirror.
fn sources_beside(known: &str, lists: Lists) -> Option<String> {
    let mut sources: Vec<String> = Vec::new();
    let mut has_release = false;
    for (codename, mirror) in known.lines().filter_map(|line| line.trim().split_once(' ')) {
        let suites = match (codename.split_once('-'), lists) {
            (None, Lists::Packages) => "trixie trixie-updates trixie-backports",
            (Some((_, "security")), Lists::Packages) => "trixie-security",
            (None, Lists::Sources) => "trixie",
            (Some(_), _) => continue,
        };
        let (types, what) = match lists {
            Lists::Packages => ("deb", "Architectures: amd64\nTargets: Packages\n"),
            Lists::Sources => ("deb-src", "Targets: Sources\n"),
        };
        has_release |= !codename.contains('-');
        let source = format!(
            "Types: {types}\nURIs: {mirror}\nSuites: {suites}\nComponents: main\n\
             {what}Signed-By: {KEYRING}\n"
        );
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    has_release.then(|| sources.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_stand_beside_those_of_this_computer() {
        let known = "bookworm http://a.test/debian/\nbookworm http://a.test/debian/\n\
                     bookworm-updates http://a.test/debian/\n\
                     bookworm-security https://b.test/sec/\n";
        let sources = sources_beside(known, Lists::Packages).unwrap();
        let parts: Vec<&str> = sources.split("\n\n").collect();
        assert_eq!(parts.len(), 2, "{sources}");
        assert!(parts[0].contains(
            "URIs: http://a.test/debian/\nSuites: trixie trixie-updates trixie-backports\n"
        ));
        assert!(parts[1].contains("URIs: https://b.test/sec/\nSuites: trixie-security\n"));
        assert!(parts.iter().all(|part| part.contains(&format!("Signed-By: {KEYRING}"))));
        let of_sources = sources_beside(known, Lists::Sources).unwrap();
        assert!(
            of_sources.starts_with("Types: deb-src\nURIs: http://a.test/debian/\nSuites: trixie\n")
        );
        assert!(!of_sources.contains("b.test"), "{of_sources}");
        // Security alone has no kernel of backports, and lists that were never fetched have no
        // names.
        for unknown in ["", "bookworm-security https://b.test/sec/", "$(CODENAME)"] {
            assert_eq!(sources_beside(unknown, Lists::Packages), None, "{unknown}");
        }
    }

    #[test]
    fn lists_that_did_not_serve_are_fetched_again() {
        let dir = unspin_scratch::Scratch::new();
        let apt = Apt::of_lists_in(&dir);
        let updated = dir.write(UPDATED, "");
        apt.failed("bochs", LabError::Interrupted);
        assert!(is_younger(&updated, LISTS_MAX_AGE));
        apt.failed("bochs", LabError::NoMirror);
        assert!(!is_younger(&updated, LISTS_MAX_AGE));
    }

    #[test]
    fn one_line_of_apt_says_what_failed() {
        let said = "    Ign:1 http://a.test trixie InRelease\n    Err:1 http://a.test trixie\n\
                    E: Failed to fetch http://a.test/x  Could not resolve 'a.test'\n\
                    E: Some index files failed to download.\n";
        assert!(first_error(said).contains("Could not resolve 'a.test'"));
        assert_eq!(first_error("    Get:1\n    killed\n"), "killed");
        assert_eq!(first_error(""), "");
    }

    #[test]
    fn the_files_of_packages_are_told_from_what_else_apt_says() {
        let line = "'http://a.test/pool/main/libc/libcap2/libcap2_2.66-4%2bb1_amd64.deb' \
                    libcap2_1%3a2.66-4+b1_amd64.deb 26600 MD5Sum:a9f7";
        let found = PackageFile::parse(line).unwrap();
        assert_eq!(found.package, "libcap2");
        assert_eq!(found.exact(), "libcap2=1:2.66-4+b1");
        for other in ["Reading package lists...", "  libcap2_1_amd64.deb", "'http://a.test' x", ""]
        {
            assert_eq!(PackageFile::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_signature_that_cannot_be_checked_is_told_from_a_broken_line() {
        assert!(is_unsigned(
            "W: GPG error: http://a.test trixie InRelease: NO_PUBKEY 6ED0E7B82643E131"
        ));
        assert!(is_unsigned("E: The repository 'http://a.test trixie InRelease' is not signed."));
        assert!(!is_unsigned("E: Could not resolve host: a.test"));
    }
}
