// SPDX-License-Identifier: MIT OR Apache-2.0
//! Emulators that the lab builds from Debian 13's sources with its own patches (recipe.rs).
//! Debian's Bochs takes three times as long as the lab's, because every instruction passes a
//! debugger and unused hooks. Debian's QEMU has no pause filter, and its clock is not exact enough
//! for figures.
//!
//! Each is built once, and stored by the hash of all its inputs. An incomplete build is never used.

use crate::apt::{Apt, Lists};
use crate::error::{io, LabError, Result};
use crate::go::Go;
use crate::hash;
use crate::kept::{is_whole, remove};
use crate::kernel;
use crate::packages;
use crate::recipe::{Patch, Recipe};
use crate::series::Debian;
use crate::tool;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use unspin_text::Lock;

/// The lab's directory for emulators.
pub(crate) const EMULATORS: &str = "emulators";

/// Progress is reported at this interval.
const SAID_EVERY_PERCENT: usize = 20;

/// Variables that a build keeps.
const ENVIRONMENT: [&str; 3] = ["PATH", "HOME", "LD_LIBRARY_PATH"];

/// A complete build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnEmulator {
    pub(crate) program: PathBuf,
    /// The hash of all its inputs.
    pub(crate) build: String,
    recipe: &'static Recipe,
}

impl OwnEmulator {
    /// The build for these inputs, if it exists.
    pub(crate) fn find(recipe: &'static Recipe, lab: &Path) -> Option<OwnEmulator> {
        let build = recipe.hash(&compiler(recipe)?);
        let program = dir_of(recipe, lab, &build).join(recipe.program);
        is_whole(&program).then_some(OwnEmulator { program, build, recipe })
    }

    /// The same; builds it if it does not exist.
    pub(crate) fn make(recipe: &'static Recipe, lab: &Path, go: &mut Go) -> Result<OwnEmulator> {
        if let Some(found) = OwnEmulator::find(recipe, lab) {
            return Ok(found);
        }
        let compiler = check_tools(recipe)?;
        let emulators = lab.join(EMULATORS);
        check_path(recipe, &emulators)?;
        let _lock = Lock::wait(&emulators, go.stop, go.say)?;
        // The process that held the lock may have built it.
        if let Some(found) = OwnEmulator::find(recipe, lab) {
            return Ok(found);
        }
        let dir = dir_of(recipe, lab, &recipe.hash(&compiler));
        let part = emulators.join("part");
        let build = Build { recipe, lab, emulators: &emulators, part: &part, stop: go.stop };
        let built = build.run(go.say);
        if built.is_ok() {
            // Remove an earlier build that is damaged.
            remove(&dir)?;
            fs::rename(part.join("done"), &dir).map_err(io(&dir))?;
        }
        let removed = remove(&part);
        built?;
        removed?;
        OwnEmulator::find(recipe, lab).ok_or(LabError::NotBuilt { path: dir.join(recipe.program) })
    }

    #[cfg(test)]
    pub(crate) fn of(recipe: &'static Recipe, program: PathBuf, build: String) -> OwnEmulator {
        OwnEmulator { program, build, recipe }
    }

    /// The name in provenances.
    pub(crate) fn name(&self) -> String {
        let Recipe { name, version, .. } = self.recipe;
        format!("{name} {version} of unspin, build {:.12}", self.build)
    }

    /// Names of its patches.
    pub(crate) fn patches(&self) -> String {
        self.recipe.patch_names()
    }
}

/// A build in progress.
struct Build<'a> {
    recipe: &'a Recipe,
    lab: &'a Path,
    emulators: &'a Path,
    /// Directory of everything but the source and the log; its `done` is the part that is kept.
    part: &'a Path,
    stop: &'a AtomicBool,
}

impl Build<'_> {
    fn run(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        let Recipe { name, version, minutes, .. } = *self.recipe;
        remove(self.part)?;
        let source = self.part.join("source");
        fs::create_dir_all(&source).map_err(io(&source))?;
        let _ = fs::remove_file(self.log());
        let archive = self.fetch(say)?;
        let python = self.python(say)?;
        let mut unpack = self.command("tar");
        unpack.arg("-xf").arg(&archive).args(["--no-same-owner", "--strip-components=1", "-C"]);
        self.step(&format!("unpacking the source of {name}"), unpack.arg(&source))?;
        self.patch(&source, self.recipe.patches)?;
        say(&format!(
            "building {name} {version}, once for this computer: {minutes} minutes on two CPUs ({})",
            self.log().display()
        ));
        self.compile(&source, python.as_deref(), say)?;
        self.keep(&source)
    }

    fn log(&self) -> PathBuf {
        self.emulators.join("build.log")
    }

    fn step(&self, what: &str, command: &mut Command) -> Result<()> {
        tool::run(what, command, &self.log(), self.stop)
    }

    /// Fetches the source in the version with the known hash. It is kept beside the builds.
    fn fetch(&self, say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
        let Recipe { name, version, package, source, source_sha256, .. } = *self.recipe;
        let kept = self.emulators.join(source);
        if hash::of_file(&kept).is_ok_and(|hash| hash == source_sha256) {
            return Ok(kept);
        }
        let apt =
            Apt::trixie(Lists::Sources, &self.emulators.join("apt"), &mut Go::new(self.stop, say))?;
        say(&format!("downloading the source of {name} {version}"));
        apt.download_source(self.part, package, &self.log(), self.stop)?;
        let got = self.part.join(source);
        match hash::of_file(&got) {
            Ok(hash) if hash == source_sha256 => {}
            _ => {
                let (package, wanted) = (package.into(), source.into());
                return Err(LabError::OtherSource { package, wanted });
            }
        }
        remove(&kept)?;
        fs::rename(&got, &kept).map_err(io(&kept))?;
        Ok(kept)
    }

    /// Unpacks the modules of its programs in Python, and returns their directory.
    fn python(&self, say: &mut dyn FnMut(&str)) -> Result<Option<PathBuf>> {
        if self.recipe.python.is_empty() {
            return Ok(None);
        }
        // The lists belong to the lab.
        let _held = Lock::wait(self.lab, self.stop, say)?;
        let (debs, root) = (self.part.join("debs"), self.part.join("python"));
        fs::create_dir_all(&debs).map_err(io(&debs))?;
        let apt = kernel::apt_of(self.lab, Debian::Trixie, &mut Go::new(self.stop, say))?;
        apt.download(&debs, self.recipe.python, &self.log(), self.stop)?;
        packages::unpack(&debs, &root, &self.log(), self.stop)?;
        Ok(Some(root.join("usr/lib/python3/dist-packages")))
    }

    fn patch(&self, source: &Path, patches: &[Patch]) -> Result<()> {
        for (name, text) in patches {
            let name = name.rsplit('/').next().unwrap_or(name);
            let file = self.part.join(name);
            fs::write(&file, text).map_err(io(&file))?;
            let mut patch = self.command("patch");
            patch.args(["-p1", "--batch", "--forward", "--fuzz=0", "-i"]).arg(&file);
            let what = format!("applying {name} to {}", self.recipe.name);
            self.step(&what, patch.current_dir(source))?;
        }
        Ok(())
    }

    fn compile(
        &self,
        source: &Path,
        python: Option<&Path>,
        say: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let Recipe { name, options, make: [program, args @ ..], .. } = *self.recipe else {
            unreachable!("a recipe says what builds it")
        };
        let dir = source.join(self.recipe.dir);
        fs::create_dir_all(&dir).map_err(io(&dir))?;
        // By a relative path configure accepts any directory.
        let configure = match self.recipe.dir {
            "." => PathBuf::from("./configure"),
            _ => source.join("configure"),
        };
        let mut configure = self.compiling(configure, &dir, python);
        self.step(&format!("configuring {name}"), configure.args(options))?;
        let mut make = self.compiling(program, &dir, python);
        make.args(args);
        if *program == "make" {
            make.arg(std::thread::available_parallelism().map_or(1, usize::from).to_string());
        }
        let (what, log) = (format!("building {name}"), self.log());
        let mut report = self.recipe.progress.reported(&what, SAID_EVERY_PERCENT, say);
        tool::run_watched(&what, &mut make, &log, self.stop, &mut || {
            report(&fs::read_to_string(&log).unwrap_or_default());
        })
    }

    /// A command of the build, without the user's own settings for tools. Its temporary files are
    /// on the lab's disk.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("TMPDIR", self.part);
        let kept = ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.envs(kept);
        command
    }

    /// The same in `dir`, with the compilers and their flags.
    fn compiling(&self, program: impl AsRef<OsStr>, dir: &Path, python: Option<&Path>) -> Command {
        let flags = self.recipe.flags;
        let mut command = self.command(program);
        command.env("CC", "gcc").env("CXX", "g++").env("CFLAGS", flags).env("CXXFLAGS", flags);
        if let Some(python) = python {
            command.env("PYTHONPATH", python);
        }
        command.current_dir(dir);
        command
    }

    /// Keeps only the program, after it has printed its version.
    fn keep(&self, source: &Path) -> Result<()> {
        let Recipe { name, program, version_option, .. } = *self.recipe;
        let done = self.part.join("done");
        fs::create_dir_all(&done).map_err(io(&done))?;
        let kept = done.join(program);
        let mut strip = self.command("strip");
        strip.arg("-o").arg(&kept).arg(source.join(self.recipe.dir).join(program));
        self.step(&format!("stripping {name}"), &mut strip)?;
        let mut asked = self.command(&kept);
        self.step(&format!("starting the {name} that was built"), asked.args(version_option))?;
        // A crash of this computer must not leave a file whose contents are not written yet.
        fs::File::open(&kept).and_then(|file| file.sync_all()).map_err(io(&kept))
    }
}

/// Returns the compiler's version; an error that names what to install if a tool of the build is
/// missing.
fn check_tools(recipe: &Recipe) -> Result<String> {
    let missing = |tool: &str, package: &str| {
        let (tool, package) = (tool.to_string(), package.to_string());
        Err(LabError::MissingTool { tool, package })
    };
    let Some(compiler) = compiler(recipe) else {
        let program = recipe.compiler;
        if tool::which(program).is_none() {
            return Err(tool::absent(program));
        }
        let source = std::io::Error::other("it does not print its version");
        return Err(LabError::CannotStart { program: program.into(), source });
    };
    if let Some(tool) = recipe.tools.iter().find(|tool| tool::which(tool).is_none()) {
        return Err(tool::absent(tool));
    }
    for (library, version, package) in recipe.libraries {
        let mut asked = Command::new("pkg-config");
        let asked = asked.arg(format!("--atleast-version={version}")).arg(library);
        if tool::output(asked).is_none() {
            return missing(&format!("{library} {version}"), package);
        }
    }
    if !recipe.python.is_empty() && !has_python() {
        return missing("a Python of version 3.9 or newer with venv", "python3-venv");
    }
    Ok(compiler)
}

/// Refuses a directory that the emulator's configure refuses, before anything is downloaded.
fn check_path(recipe: &Recipe, emulators: &Path) -> Result<()> {
    let has = |refused: &u8| emulators.as_os_str().as_encoded_bytes().contains(refused);
    if recipe.refused_in_paths.iter().any(has) {
        return Err(LabError::PathRefused { name: recipe.name, path: emulators.to_path_buf() });
    }
    Ok(())
}

/// Whether this computer has Python's venv: configure creates an environment for its Python
/// programs.
fn has_python() -> bool {
    let asks = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))";
    tool::output(Command::new("python3").args(["-c", asks])).is_some()
}

/// The first line of the compiler's version; `None` if there is no compiler.
fn compiler(recipe: &Recipe) -> Option<String> {
    let said = tool::output(Command::new(recipe.compiler).arg("--version"))?;
    said.lines().next().map(str::to_string)
}

fn dir_of(recipe: &Recipe, lab: &Path, build: &str) -> PathBuf {
    lab.join(EMULATORS).join(format!("{}-{}-{build:.12}", recipe.id, recipe.version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{BOCHS, QEMU_AMD};
    use unspin_scratch::Scratch;

    #[test]
    fn a_half_built_tree_is_never_taken() {
        for recipe in [&BOCHS, &QEMU_AMD] {
            let lab = Scratch::new();
            let find = || OwnEmulator::find(recipe, &lab);
            let Some(compiler) = compiler(recipe) else {
                return println!("SKIPPED: a build needs: apt-get install {}", recipe.compiler);
            };
            let dir = dir_of(recipe, &lab, &recipe.hash(&compiler));
            fs::create_dir_all(&dir).unwrap();
            assert_eq!(find(), None);
            let part = lab.join(EMULATORS).join("part/done");
            fs::create_dir_all(&part).unwrap();
            fs::write(part.join(recipe.program), "").unwrap();
            assert_eq!(find(), None);
            let program = dir.join(recipe.program);
            fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
            let found = find().unwrap();
            assert_eq!(found.program, program);
            // An existing build is not repeated.
            let go = AtomicBool::new(false);
            let make =
                OwnEmulator::make(recipe, &lab, &mut Go::new(&go, &mut |text| panic!("{text}")));
            assert_eq!(make.unwrap(), found);
        }
    }

    #[test]
    fn a_directory_that_configure_refuses_is_named_first() {
        for path in ["/lab of mine/emulators", "/lab:1/emulators"] {
            let error = check_path(&QEMU_AMD, Path::new(path)).unwrap_err().to_string();
            assert!(error.contains(path) && error.contains("--lab-dir"), "{error}");
        }
        check_path(&QEMU_AMD, Path::new("/lab/emulators")).unwrap();
        check_path(&BOCHS, Path::new("/lab of mine:1/emulators")).unwrap();
    }

    #[test]
    fn a_build_has_none_of_the_users_settings() {
        let dir = Scratch::new();
        let (part, stop) = (dir.dir("part"), &AtomicBool::new(false));
        let build = Build { recipe: &BOCHS, lab: &dir, emulators: &dir, part: &part, stop };
        std::env::set_var("UNSPIN_TEST_SETTING", "1");
        build.step("printing", &mut build.compiling("env", &part, None)).unwrap();
        let said = fs::read_to_string(build.log()).unwrap();
        let names = said.lines().filter_map(|line| Some(line.split_once('=')?.0));
        let allowed = ["TMPDIR", "LC_ALL", "CC", "CXX", "CFLAGS", "CXXFLAGS"];
        for name in names {
            assert!(ENVIRONMENT.contains(&name) || allowed.contains(&name), "{said}");
        }
    }

    #[test]
    fn a_patch_that_does_not_apply_is_named() {
        if tool::which("patch").is_none() {
            return println!("SKIPPED: a build needs: apt-get install patch");
        }
        for (recipe, file, patch) in [
            (&BOCHS, "main.cc", "applying 1-commit-rip"),
            (&QEMU_AMD, "meson.build", "applying 1-firmware"),
        ] {
            let dir = Scratch::new();
            let (source, part) = (dir.dir("source"), dir.dir("part"));
            fs::write(source.join(file), "another program\n").unwrap();
            let stop = &AtomicBool::new(false);
            let build = Build { recipe, lab: &dir, emulators: &dir, part: &part, stop };
            let error = build.patch(&source, recipe.patches).unwrap_err().to_string();
            let first = error.lines().next().unwrap();
            assert!(first.contains(patch) && first.contains("build.log"), "{first}");
        }
    }

    #[test]
    fn a_build_that_fails_or_finds_no_room_says_so() {
        for recipe in [&BOCHS, &QEMU_AMD] {
            let dir = Scratch::new();
            let source = dir.dir("source");
            let (part, stop) = (dir.join("part"), &AtomicBool::new(false));
            let build = Build { recipe, lab: &dir, emulators: &dir, part: &part, stop };
            let compile = |script: &str| {
                let configure = source.join("configure");
                let _ = fs::remove_file(&configure);
                fs::write(&configure, format!("#!/bin/sh\n{script}\n")).unwrap();
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
                fs::set_permissions(&configure, mode).unwrap();
                let _ = fs::remove_file(build.log());
                build.compile(&source, None, &mut |_| {}).unwrap_err()
            };
            let error = compile("echo 'compiler cannot create executables'; exit 77").to_string();
            assert!(error.contains(&format!("configuring {} failed", recipe.name)), "{error}");
            let error = compile("echo 'cc1plus: No space left on device'; exit 1");
            assert!(matches!(error, LabError::NoSpace { .. }), "{error}");
        }
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let none: Recipe = Recipe { compiler: "unspin-no-compiler", ..BOCHS };
        let error = check_tools(&none).unwrap_err().to_string();
        assert!(error.contains("unspin-no-compiler is not installed"), "{error}");
        let old: Recipe = Recipe {
            libraries: &[("glib-2.0", "1000.0", "libglib2.0-dev")],
            tools: &[],
            ..QEMU_AMD
        };
        match check_tools(&old) {
            Err(LabError::MissingTool { package, .. }) if package == "gcc" => {}
            other => {
                let error = other.unwrap_err().to_string();
                assert!(error.contains("glib-2.0 1000.0 is not installed"), "{error}");
                assert!(error.contains("apt-get install libglib2.0-dev"), "{error}");
            }
        }
    }
}
