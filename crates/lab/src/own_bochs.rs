// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bochs as the lab builds it, from Debian 13's source and with patches of the lab's own (../bochs). It
//! emulates the same computer as Debian's in a third of the time: every instruction of theirs passes
//! a debugger and hooks that nothing is hung on.
//!
//! It is built once, and kept by the hash of all it is made of. What is not complete is never taken.

use crate::apt::Apt;
use crate::error::{io, LabError, Result};
use crate::hash::{self, sha256};
use crate::lock::Lock;
use crate::tool;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// Where in the lab emulators are kept.
pub(crate) const EMULATORS: &str = "emulators";

const VERSION: &str = "3.0";
const PACKAGE: &str = "bochs";
/// The source, and its hash: the archive may come to have another one, which the patches are not for.
const SOURCE: &str = "bochs_3.0+dfsg.orig.tar.xz";
const SOURCE_SHA256: &str = "78f6c73d4a6472d5130a87ab9dc306d02c7c71ed8e25b3a8ef642e2a7acd282b";

/// A patch's name and itself.
type Patch = (&'static str, &'static str);

macro_rules! patch {
    ($name:literal) => {
        ($name, include_str!(concat!("../bochs/", $name)))
    };
}

const PATCHES: [Patch; 3] = [
    patch!("1-commit-rip-after-an-exception.patch"),
    patch!("2-interrupt-mask-at-vm-entry.patch"),
    patch!("3-each-processor-at-the-stated-rate.patch"),
];

/// What the lab's computers have, and no more. Not repeat speedups, which are a part of "all
/// optimizations": with them a string instruction of one CPU advances the clock of all.
const OPTIONS: &[&str] = &[
    "--with-nogui",
    "--enable-smp",
    "--enable-cpu-level=6",
    "--enable-x86-64",
    "--enable-vmx=2",
    "--enable-avx",
    "--enable-evex",
    "--enable-cet",
    "--enable-fpu",
    "--enable-pci",
    "--enable-long-phy-address",
    "--enable-cdrom",
    "--enable-handlers-chaining",
    "--enable-trace-linking",
    "--enable-fast-function-calls",
    "--disable-repeat-speedups",
    "--disable-debugger",
    "--disable-debugger-gui",
    "--disable-plugins",
    "--disable-docbook",
];

/// The compiler's flags: a build serves any processor, and a figure does not hang on which it was.
const FLAGS: &str = "-O3";

/// Files that are compiled, by which progress is told.
const OBJECTS: usize = 472;
/// A compiler's line in the log of the build.
const COMPILES: &str = " -c ";
/// Progress is said this far apart.
const SAID_EVERY_PERCENT: usize = 20;

/// A complete build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnBochs {
    pub(crate) program: PathBuf,
    /// The hash of what it is made of.
    pub(crate) build: String,
}

impl OwnBochs {
    /// The build that is wanted here, if it is there.
    pub(crate) fn find(lab: &Path) -> Option<OwnBochs> {
        let build = build_hash(&PATCHES, &compiler()?);
        let program = dir_of(lab, &build).join("bochs");
        program.is_file().then_some(OwnBochs { program, build })
    }

    /// The same, built if it is not there.
    pub(crate) fn make(
        lab: &Path,
        stop: &AtomicBool,
        say: &mut dyn FnMut(&str),
    ) -> Result<OwnBochs> {
        if let Some(found) = OwnBochs::find(lab) {
            return Ok(found);
        }
        let compiler = compiler().ok_or_else(|| LabError::MissingTool {
            tool: "g++".into(),
            package: tool::package_of("g++").into(),
        })?;
        let emulators = lab.join(EMULATORS);
        let _lock = Lock::wait(&emulators, stop, say)?;
        // Whoever was waited for may have built it.
        if let Some(found) = OwnBochs::find(lab) {
            return Ok(found);
        }
        let dir = dir_of(lab, &build_hash(&PATCHES, &compiler));
        let part = emulators.join("part");
        let built = Build { emulators: &emulators, part: &part, stop }.run(&PATCHES, say);
        if built.is_ok() {
            // What a build of before left without the program is in the way.
            remove(&dir)?;
            fs::rename(part.join("done"), &dir).map_err(io(&dir))?;
        }
        let removed = remove(&part);
        built?;
        removed?;
        OwnBochs::find(lab).ok_or(LabError::NotBuilt { path: dir.join("bochs") })
    }

    /// As provenances have it.
    pub(crate) fn name(&self) -> String {
        format!("Bochs {VERSION} of unspin, build {:.12}", self.build)
    }
}

/// A build under way.
struct Build<'a> {
    emulators: &'a Path,
    /// Everything but the source and the log; `done` in it is what is kept.
    part: &'a Path,
    stop: &'a AtomicBool,
}

impl Build<'_> {
    fn run(&self, patches: &[Patch], say: &mut dyn FnMut(&str)) -> Result<()> {
        remove(self.part)?;
        let source = self.part.join("source");
        fs::create_dir_all(&source).map_err(io(&source))?;
        let _ = fs::remove_file(self.log());
        let archive = self.fetch(say)?;
        let mut unpack = Command::new("tar");
        unpack.arg("-xf").arg(&archive).args(["--no-same-owner", "--strip-components=1", "-C"]);
        self.step("unpacking the source of Bochs", unpack.arg(&source))?;
        self.patch(&source, patches)?;
        say(&format!(
            "building Bochs {VERSION}, once for this computer: 1 to 4 minutes on two CPUs ({})",
            self.log().display()
        ));
        self.compile(&source, say)?;
        self.keep(&source)
    }

    fn log(&self) -> PathBuf {
        self.emulators.join("build.log")
    }

    fn step(&self, what: &str, command: &mut Command) -> Result<()> {
        tool::run(what, command, &self.log(), self.stop)
    }

    /// The source as it is known here, kept beside what is built of it.
    fn fetch(&self, say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
        let kept = self.emulators.join(SOURCE);
        if hash::of_file(&kept).is_ok_and(|hash| hash == SOURCE_SHA256) {
            return Ok(kept);
        }
        let apt = Apt::trixie_sources(&self.emulators.join("apt"), self.stop, say)?;
        say(&format!("downloading the source of Bochs {VERSION}"));
        apt.download_source(self.part, PACKAGE, &self.log(), self.stop)?;
        let got = self.part.join(SOURCE);
        match hash::of_file(&got) {
            Ok(hash) if hash == SOURCE_SHA256 => {}
            _ => {
                return Err(LabError::OtherSource {
                    package: PACKAGE.into(),
                    wanted: SOURCE.into(),
                })
            }
        }
        fs::rename(&got, &kept).map_err(io(&kept))?;
        Ok(kept)
    }

    fn patch(&self, source: &Path, patches: &[Patch]) -> Result<()> {
        for (name, text) in patches {
            let file = self.part.join(name);
            fs::write(&file, text).map_err(io(&file))?;
            let mut patch = Command::new("patch");
            patch.args(["-p1", "--batch", "--forward", "--fuzz=0", "-i"]).arg(&file);
            self.step(&format!("applying {name} to Bochs"), patch.current_dir(source))?;
        }
        Ok(())
    }

    fn compile(&self, source: &Path, say: &mut dyn FnMut(&str)) -> Result<()> {
        let mut configure = Command::new("./configure");
        self.step("configuring Bochs", in_source(&mut configure, source).args(OPTIONS))?;
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut make = Command::new("make");
        in_source(&mut make, source).args(["-j", &jobs.to_string()]);
        let mut said = 0;
        let log = self.log();
        tool::run_watched("building Bochs", &mut make, &log, self.stop, &mut || {
            let percent = percent_done(&fs::read_to_string(&log).unwrap_or_default());
            if percent >= said + SAID_EVERY_PERCENT {
                said = percent - percent % SAID_EVERY_PERCENT;
                say(&format!("building Bochs: {said} %"));
            }
        })
    }

    /// The program alone, once it says what it is.
    fn keep(&self, source: &Path) -> Result<()> {
        let done = self.part.join("done");
        fs::create_dir_all(&done).map_err(io(&done))?;
        let program = done.join("bochs");
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(&program).arg(source.join("bochs"));
        self.step("stripping Bochs", &mut strip)?;
        let mut help = Command::new(&program);
        self.step("starting the Bochs that was built", help.args(["-q", "--help"]))
    }
}

/// What the user's environment asks of builds is not for this one.
fn in_source<'a>(command: &'a mut Command, source: &Path) -> &'a mut Command {
    for name in ["CPPFLAGS", "LDFLAGS", "LIBS", "CONFIG_SITE", "MAKEFLAGS", "MFLAGS"] {
        command.env_remove(name);
    }
    command.env("CC", "gcc").env("CXX", "g++").env("CFLAGS", FLAGS).env("CXXFLAGS", FLAGS);
    command.current_dir(source)
}

/// The first line of what the compiler says of itself; `None` where there is none.
fn compiler() -> Option<String> {
    let said = tool::output(Command::new("g++").arg("--version"))?;
    said.lines().next().map(str::to_string)
}

/// What a patch does, without its words: those may change.
fn change(patch: &str) -> &str {
    patch.split_once("\n---\n").map_or(patch, |(_, change)| change)
}

fn build_hash(patches: &[Patch], compiler: &str) -> String {
    let mut parts = vec![SOURCE_SHA256, FLAGS, compiler];
    parts.extend(OPTIONS);
    parts.extend(patches.iter().map(|(_, text)| change(text)));
    let parts: Vec<&[u8]> = parts.into_iter().map(str::as_bytes).collect();
    sha256(&parts)
}

fn dir_of(lab: &Path, build: &str) -> PathBuf {
    lab.join(EMULATORS).join(format!("bochs-{VERSION}-{build:.12}"))
}

fn percent_done(log: &str) -> usize {
    let compiled = log.lines().filter(|line| line.contains(COMPILES)).count();
    (100 * compiled / OBJECTS).min(99)
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(dir)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lab of the test's own.
    fn scratch(name: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("unspin-own-bochs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn a_build_is_another_with_each_thing_in_it() {
        let first = build_hash(&PATCHES, "g++ 12");
        assert_eq!(first, build_hash(&PATCHES, "g++ 12"));
        assert_ne!(first, build_hash(&PATCHES, "g++ 14"));
        assert_ne!(first, build_hash(&PATCHES[..2], "g++ 12"));
        let mut other = PATCHES;
        other[0].1 = "other";
        assert_ne!(first, build_hash(&other, "g++ 12"));
        let reworded = PATCHES[0].1.replacen("Description: ", "Description: Really, ", 1).leak();
        other[0].1 = reworded;
        assert_eq!(first, build_hash(&other, "g++ 12"));
    }

    #[test]
    fn patches_say_what_they_are_for() {
        for (name, text) in PATCHES {
            for field in ["Description: ", "\nForwarded: ", "\nApplies-To: ", "\n---\ndiff --git "]
            {
                assert!(text.contains(field), "{name} has no {field:?}");
            }
        }
    }

    #[test]
    fn a_half_built_tree_is_never_taken() {
        let lab = scratch("half");
        let Some(compiler) = compiler() else {
            return println!("SKIPPED: a build of Bochs needs: apt-get install g++");
        };
        let dir = dir_of(&lab, &build_hash(&PATCHES, &compiler));
        fs::create_dir_all(&dir).unwrap();
        assert_eq!(OwnBochs::find(&lab), None);
        let part = lab.join(EMULATORS).join("part/done");
        fs::create_dir_all(&part).unwrap();
        fs::write(part.join("bochs"), "").unwrap();
        assert_eq!(OwnBochs::find(&lab), None);
        fs::write(dir.join("bochs"), "").unwrap();
        let found = OwnBochs::find(&lab).unwrap();
        assert_eq!(found.program, dir.join("bochs"));
        // What is there is not built again.
        let make = OwnBochs::make(&lab, &AtomicBool::new(false), &mut |text| panic!("{text}"));
        assert_eq!(make.unwrap(), found);
        fs::remove_dir_all(lab).unwrap();
    }

    #[test]
    fn a_patch_that_does_not_apply_is_named() {
        let dir = scratch("patch");
        let (source, part) = (dir.join("source"), dir.join("part"));
        for made in [&source, &part] {
            fs::create_dir_all(made).unwrap();
        }
        fs::write(source.join("main.cc"), "another program\n").unwrap();
        let build = Build { emulators: &dir, part: &part, stop: &AtomicBool::new(false) };
        if tool::which("patch").is_none() {
            return println!("SKIPPED: a build of Bochs needs: apt-get install patch");
        }
        let error = build.patch(&source, &PATCHES).unwrap_err().to_string();
        let first = error.lines().next().unwrap();
        assert!(first.contains("applying 1-commit-rip"), "{first}");
        assert!(first.contains("build.log"), "{first}");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_build_that_fails_or_finds_no_room_says_so() {
        let dir = scratch("configure");
        let source = dir.join("source");
        fs::create_dir_all(&source).unwrap();
        let go = AtomicBool::new(false);
        let build = Build { emulators: &dir, part: &dir.join("part"), stop: &go };
        let compile = |script: &str| {
            let configure = source.join("configure");
            let _ = fs::remove_file(&configure);
            fs::write(&configure, format!("#!/bin/sh\n{script}\n")).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&configure, mode).unwrap();
            let _ = fs::remove_file(build.log());
            build.compile(&source, &mut |_| {}).unwrap_err()
        };
        let error = compile("echo 'C++ compiler cannot create executables'; exit 77");
        assert!(error.to_string().contains("configuring Bochs failed"), "{error}");
        let error = compile("echo 'cc1plus: No space left on device'; exit 1");
        assert!(matches!(error, LabError::NoSpace { .. }), "{error}");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn progress_ends_below_the_whole() {
        assert_eq!(percent_done("checking for gcc\n"), 0);
        let lines = |count: usize| "g++ -c -O3 x.cc -o x.o\n".repeat(count);
        assert_eq!(percent_done(&lines(OBJECTS / 2)), 50);
        assert_eq!(percent_done(&lines(2 * OBJECTS)), 99);
    }
}
