// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds modules against the headers of a kernel that the lab has fetched: the host's module, and the
//! one for Linux guests.

use crate::build_root::BuildRoot;
use crate::error::{io, LabError, Result};
use crate::hash::sha256;
use crate::tool;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use unspin_host::source::{errors_in_log, release_of_headers};

/// The kernel headers against which the module is built.
pub(crate) struct Against<'a> {
    /// `uname -r` of the kernel.
    pub release: &'a str,
    pub headers: &'a Path,
    /// An unpacked Debian with the compiler to use; `None`: this computer's compiler.
    pub toolchain: Option<&'a BuildRoot>,
}

/// A module of this project.
pub(crate) struct Module {
    name: &'static str,
    /// Folders of the source tree from which it is built. The first has its Makefile.
    parts: [&'static str; 3],
    /// Variables for make, besides the kernel's headers.
    variables: &'static [&'static str],
    /// Name of the build directory, which is beside its log. Two builds of the same sources share it, so that
    /// what is alike is compiled once.
    work: &'static str,
    log: &'static str,
    /// The built file.
    pub(crate) file: &'static str,
}

/// The host's module as users install it.
pub(crate) const HOSTS: Module = Module {
    name: "unspin",
    parts: ["core/kmod", "core/policy", "core/uapi"],
    variables: &[],
    work: "build",
    log: "build.log",
    file: "unspin.ko",
};

/// The host's module with the parameters that tests use.
pub(crate) const HOSTS_FOR_TESTS: Module = Module {
    variables: &["UNSPIN_TEST=1"],
    log: "build-test.log",
    file: "unspin-test.ko",
    ..HOSTS
};

/// The build of the host's module for an emulated computer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ModuleBuild {
    /// As users install it, without parameters.
    #[default]
    Production,
    /// With the parameters that tests use.
    ForTests,
}

/// The module for Linux guests.
pub(crate) const GUESTS: Module = Module {
    name: "unspin-guest",
    parts: ["core/guest-module", "core/policy", "core/uapi"],
    variables: &[],
    work: "build-guest",
    log: "build-guest.log",
    file: "unspin-guest.ko",
};

impl Module {
    /// The file that names the sources of the module in a kernel's directory. It is written last.
    fn stamp(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.sources", self.file))
    }

    /// The module in `dir`, if it was built from exactly these sources. make alone would take seconds to
    /// check this, because Kbuild compiles its probes of the kernel's headers each time.
    pub(crate) fn find(&self, root: &Path, dir: &Path) -> Result<Option<PathBuf>> {
        let of = fs::read_to_string(self.stamp(dir)).unwrap_or_default();
        let module = dir.join(self.file);
        Ok((module.is_file() && of == self.sources_hash(root)?).then_some(module))
    }

    fn sources_hash(&self, root: &Path) -> Result<String> {
        let mut parts = module_sources(self, root)?;
        parts.extend(self.variables.iter().map(|text| text.as_bytes().to_vec()));
        Ok(sha256(&parts))
    }
}

/// Builds a module in a copy of its sources, so that two kernels do not share object files.
pub(crate) fn build_module(
    of: &Module,
    root: &Path,
    dir: &Path,
    against: &Against,
    stop: &AtomicBool,
) -> Result<PathBuf> {
    check_headers(against)?;
    let (stamp, sources) = (of.stamp(dir), of.sources_hash(root)?);
    let _ = fs::remove_file(&stamp);
    let tool = |program: &str| match against.toolchain {
        Some(root) => root.command(program, dir),
        None => Ok(Command::new(program)),
    };
    let work = dir.join(of.work);
    for source in source_files(of, root)? {
        copy_changed(&source, &work.join(source.strip_prefix(root).unwrap_or(&source)))?;
    }
    let log = dir.join(of.log);
    let before = fs::read(&log).ok();
    let _ = fs::remove_file(&log);
    let folder = work.join(of.parts[0]);
    let mut make = tool("make")?;
    make.arg("-C").arg(&folder).arg(format!("KDIR={}", against.headers.display()));
    make.args(of.variables);
    tool::run("building the module", &mut make, &log, stop).map_err(with_the_errors)?;
    keep_the_log_of_what_was_compiled(&log, before)?;
    // Its debugging data is twenty times its code, and an emulated BIOS would read all of it.
    let module = dir.join(of.file);
    let built = folder.join(format!("{}.ko", of.name));
    let mut strip = tool("strip")?;
    strip.arg("--strip-debug").arg("-o").arg(&module).arg(built);
    tool::run("stripping the module", &mut strip, &log, stop)?;
    fs::write(&stamp, sources).map_err(io(&stamp))?;
    Ok(module)
}

/// Keeps the earlier log if a build had nothing to do, because such a build prints nothing about
/// the existing module.
fn keep_the_log_of_what_was_compiled(log: &Path, before: Option<Vec<u8>>) -> Result<()> {
    let said = String::from_utf8_lossy(&fs::read(log).map_err(io(log))?).into_owned();
    let has_built = ["  CC [M]  ", "  LD [M]  "].iter().any(|step| said.contains(step));
    match before {
        Some(before) if !has_built => fs::write(log, before).map_err(io(log)),
        _ => Ok(()),
    }
}

/// Replaces the last lines of a build's output, which only report that there were errors, by the
/// errors.
fn with_the_errors(error: LabError) -> LabError {
    let LabError::Step { what, status, log, tail } = error else { return error };
    let errors: Vec<String> =
        errors_in_log(&log).iter().map(|line| format!("    {line}\n")).collect();
    let tail = if errors.is_empty() { tail } else { errors.concat() };
    LabError::Step { what, status, log, tail }
}

/// Checks the headers' release. A module built with another kernel's headers does not load, or
/// fails later.
fn check_headers(against: &Against) -> Result<()> {
    let (release, headers) = (against.release.to_string(), against.headers.to_path_buf());
    match release_of_headers(&headers) {
        None => Err(LabError::NoHeaders { release, headers }),
        Some(found) if found == release => Ok(()),
        Some(found) => Err(LabError::OtherHeaders { found, release, headers }),
    }
}

/// All files from which a module is built, in a fixed order.
fn source_files(of: &Module, root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for part in of.parts {
        sources_in(&root.join(part), &mut files)?;
    }
    files.sort();
    Ok(files)
}

/// Their names and contents.
pub(crate) fn module_sources(of: &Module, root: &Path) -> Result<Vec<Vec<u8>>> {
    let mut out = Vec::new();
    for file in source_files(of, root)? {
        let name = file.strip_prefix(root).unwrap_or(&file);
        out.push(name.to_string_lossy().into_owned().into_bytes());
        out.push(fs::read(&file).map_err(io(&file))?);
    }
    Ok(out)
}

fn sources_in(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(io(dir))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if entry.file_name() != "test" {
                sources_in(&path, files)?;
            }
        } else if is_source(&path) {
            files.push(path);
        }
    }
    Ok(())
}

/// Whether a file is an input of the kernel's build. Names of outputs begin with a dot or have an
/// extension.
fn is_source(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let ending = path.extension().and_then(|ending| ending.to_str());
    let made = path.to_str().is_some_and(|p| p.ends_with(".mod.c"));
    !hidden && !made && ending.is_none_or(|ending| matches!(ending, "c" | "h" | "S"))
}

/// Copies a file, unless it is there. Equal files keep their times, so that make does not rebuild.
pub(crate) fn copy_changed(from: &Path, to: &Path) -> Result<()> {
    let new = fs::read(from).map_err(io(from))?;
    if fs::read(to).ok().as_ref() == Some(&new) {
        return Ok(());
    }
    let dir = to.parent().unwrap_or(to);
    fs::create_dir_all(dir).map_err(io(dir))?;
    fs::write(to, new).map_err(io(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASE: &str = "6.12.99-test";

    /// A replacement for Kbuild, which counts its calls in the headers' directory, and fails on request.
    const MAKEFILE: &str = "all: main.o\n\techo made $(UNSPIN_TEST) >> $(KDIR)/count\n\
        \ttest ! -e $(KDIR)/broken\n\tcp /bin/true unspin.ko\n\
        main.o: main.c\n\techo compiled >> $(KDIR)/compiled\n\tcp main.c main.o\n";

    #[test]
    fn a_module_is_built_once_of_each_source() {
        let dir = unspin_scratch::Scratch::new();
        let (root, kernel, headers) = (dir.join("root"), dir.join("kernel"), dir.join("headers"));
        let write = |path: PathBuf, text: &str| dir.write(path, text);
        write(root.join("core/kmod/Makefile"), MAKEFILE);
        write(root.join("core/kmod/main.c"), "int first;");
        write(root.join("core/policy/hvs.h"), "");
        write(root.join("core/uapi/unspin.h"), "");
        let utsrelease = format!("#define UTS_RELEASE \"{RELEASE}\"\n");
        write(headers.join("include/generated/utsrelease.h"), &utsrelease);
        fs::create_dir_all(&kernel).unwrap();

        let find = |of: &Module| of.find(&root, &kernel).unwrap();
        let build = |of: &Module| {
            let against = Against { release: RELEASE, headers: &headers, toolchain: None };
            build_module(of, &root, &kernel, &against, &AtomicBool::new(false))
        };
        assert_eq!(find(&HOSTS), None);
        let module = build(&HOSTS).unwrap();
        assert_eq!(find(&HOSTS), Some(module.clone()));
        assert_eq!(find(&HOSTS_FOR_TESTS), None, "another build of the same sources");
        build(&HOSTS_FOR_TESTS).unwrap();
        let made = fs::read_to_string(headers.join("count")).unwrap();
        assert_eq!(made, "made\nmade 1\n");
        let compiled = fs::read_to_string(headers.join("compiled")).unwrap();
        assert_eq!(compiled, "compiled\n", "both have the objects of the first");

        // Each source affects the result, and a failed build must leave no module that is later
        // reused.
        for path in ["core/kmod/main.c", "core/policy/hvs.h", "core/uapi/more.h"] {
            write(root.join(path), "int second;");
            assert_eq!(find(&HOSTS), None, "{path}");
            assert_eq!(find(&HOSTS_FOR_TESTS), None, "{path}");
            build(&HOSTS).unwrap();
            assert!(find(&HOSTS).is_some(), "{path}");
        }
        write(headers.join("broken"), "");
        assert!(build(&HOSTS).is_err());
        assert_eq!(find(&HOSTS), None);
        fs::remove_file(headers.join("broken")).unwrap();
        build(&HOSTS).unwrap();
        fs::remove_file(module).unwrap();
        assert_eq!(find(&HOSTS), None);
    }
}
