// SPDX-License-Identifier: MIT OR Apache-2.0
//! The initramfs that Linux guests boot: a shell, the runner (guest/linux/runner.c) as the first
//! process, the library that counts, and the programs with all they load. Each guest unpacks all of
//! it, so it contains only what a program needs. Guests that load unspin-guest find it below
//! /modules, by their kernel's release.

use crate::archive::Archive;
use crate::error::{io, LabError, Result};
use crate::go::Go;
use crate::guest_kernel;
use crate::hash::{contents, sha256};
use crate::module_build::{module_sources, GUESTS};
use crate::tool;
use crate::unpacked::{Files, Unpacked};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use unspin_scenario::plan::GuestProgram;

/// The code that builds an image is part of its name.
const OWN_SOURCE: &str = concat!(include_str!("guest_image.rs"), include_str!("archive.rs"));

/// What of an image is ours, in the source tree.
pub(crate) const SOURCES: &str = "lab/guest/linux";

const SHELL_PACKAGE: &str = "busybox-static";
const BUSYBOX: &str = "bin/busybox";
/// What sources are compiled with: the C library that the guest has, not this computer's.
const LIBC_PACKAGE: &str = "libc6-dev";

/// Of busybox, for programs' commands.
const APPLETS: &[&str] = &[
    "awk", "basename", "cat", "chmod", "cp", "cut", "dd", "dirname", "env", "expr", "false",
    "find", "grep", "head", "ln", "ls", "mkdir", "mv", "printf", "ps", "rm", "sed", "seq", "sh",
    "sleep", "sort", "tail", "taskset", "test", "touch", "tr", "true", "wc", "xargs", "yes",
];

/// Where the kernel and the runner mount and make things.
const DIRS: [&str; 5] = ["dev", "proc", "sys", "tmp", "programs"];
const PROGRAM_DIRS: [&str; 4] = ["usr/bin", "bin", "usr/sbin", "sbin"];

const COUNT_LIBRARY: &str = "lib/libunspin-count.so";
const COMPILER: [&str; 3] = ["-O2", "-std=gnu11", "-s"];

/// unspin-guest for each kernel, by the kernel's release.
pub type GuestModules = BTreeMap<String, PathBuf>;

/// The image for `programs`, built below `dir` if missing; `root` is the source tree.
pub(crate) fn prepare(
    root: &Path,
    dir: &Path,
    programs: &[GuestProgram],
    modules: &GuestModules,
    go: &mut Go,
) -> Result<PathBuf> {
    let base = [SHELL_PACKAGE, LIBC_PACKAGE].map(str::to_string);
    let names: BTreeSet<String> =
        programs.iter().flat_map(|program| &program.packages).cloned().chain(base).collect();
    let names: Vec<String> = names.into_iter().collect();
    let unpacked = Unpacked::fetch(dir, &names, go)?;
    let sources = root.join(SOURCES);
    let key = key(programs, modules, &unpacked, &sources)?;
    let images = dir.join("images");
    let target = images.join(format!("{key}.cpio"));
    if target.exists() {
        return Ok(target);
    }
    go.say(&format!("making the guests' image of {} programs", programs.len()));
    let work = images.join("work");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).map_err(io(&work))?;
    let compiler = Compiler::prepare(dir, &sources, &work, go)?;
    let mut files = collect(programs, &unpacked, &compiler, go.stop)?;
    files.extend(
        modules.iter().map(|(release, module)| {
            (format!("modules/{release}/unspin-guest.ko"), module.clone())
        }),
    );
    let part = work.join("image.cpio");
    fs::write(&part, archive(programs, &files)?).map_err(io(&part))?;
    fs::rename(&part, &target).map_err(io(&target))?;
    fs::remove_dir_all(&work).map_err(io(&work))?;
    Ok(target)
}

/// A hash of all parts of an image and of the tools that make it.
fn key(
    programs: &[GuestProgram],
    modules: &GuestModules,
    unpacked: &Unpacked,
    sources: &Path,
) -> Result<String> {
    let json = serde_json::to_vec(programs).expect("programs are plain data");
    let versions = unpacked.versions();
    let gcc = tool::output(Command::new("gcc").arg("--version")).unwrap_or_default();
    let mut parts: Vec<Vec<u8>> =
        [OWN_SOURCE, &versions, &gcc].map(|text| text.as_bytes().to_vec()).into();
    parts.push(json);
    parts.extend(contents(sources)?);
    for (release, module) in modules {
        parts.push(release.as_bytes().to_vec());
        parts.push(fs::read(module).map_err(io(module))?);
    }
    Ok(sha256(&parts))
}

/// All parts of an image from this project, of the source tree `root`.
pub(crate) fn own_parts(root: &Path) -> Result<Vec<Vec<u8>>> {
    let mut parts = contents(&root.join(SOURCES))?;
    parts.extend(module_sources(&GUESTS, root)?);
    parts.extend(guest_kernel::sources(root)?);
    parts.push(OWN_SOURCE.as_bytes().to_vec());
    Ok(parts)
}

/// This computer's compiler, with the guest's C library.
struct Compiler<'a> {
    sources: &'a Path,
    work: &'a Path,
    sysroot: PathBuf,
    log: PathBuf,
}

impl Compiler<'_> {
    fn prepare<'a>(
        dir: &Path,
        sources: &'a Path,
        work: &'a Path,
        go: &mut Go,
    ) -> Result<Compiler<'a>> {
        let (sysroot, log) = (work.join("sysroot"), dir.join("image.log"));
        let _ = fs::remove_file(&log);
        let libc = Unpacked::fetch(dir, &[LIBC_PACKAGE.to_string()], go)?;
        libc.lay_out(&sysroot, &log, go.stop)?;
        Ok(Compiler { sources, work, sysroot, log })
    }

    /// Compiles `sources` to a file called `name`. Returns its path.
    fn compile(
        &self,
        name: &str,
        sources: &[&str],
        flags: &[&str],
        stop: &AtomicBool,
    ) -> Result<PathBuf> {
        let target = self.work.join(name);
        let mut sysroot = std::ffi::OsString::from("--sysroot=");
        sysroot.push(&self.sysroot);
        let mut gcc = Command::new("gcc");
        gcc.args(COMPILER).arg(sysroot).args(flags).arg("-o").arg(&target);
        gcc.args(sources.iter().map(|source| self.sources.join(source)));
        tool::run(&format!("compiling {}", sources.join(", ")), &mut gcc, &self.log, stop)?;
        Ok(target)
    }
}

/// All files of the image but its scripts.
fn collect(
    programs: &[GuestProgram],
    unpacked: &Unpacked,
    compiler: &Compiler,
    stop: &AtomicBool,
) -> Result<Files> {
    let busybox = unpacked.find(BUSYBOX).ok_or_else(|| LabError::NotInPackage {
        package: SHELL_PACKAGE.to_string(),
        path: format!("/{BUSYBOX}"),
    })?;
    let mut files = Files::from([(BUSYBOX.to_string(), busybox)]);
    let runner = compiler.compile("runner", &["runner.c"], &["-static"], stop)?;
    files.insert("init".into(), runner);
    let flags = ["-fPIC", "-shared", "-mgeneral-regs-only"];
    let count = compiler.compile("libunspin-count.so", &["count.c"], &flags, stop)?;
    files.insert(COUNT_LIBRARY.into(), count);
    let mut compiled: BTreeMap<String, &GuestProgram> = BTreeMap::new();
    for program in programs {
        if let Some(name) = compiled_name(program) {
            let path = format!("bin/{name}");
            match compiled.insert(path.clone(), program) {
                None => {
                    let file = compile(program, name, compiler, stop)?;
                    files.insert(path, file);
                }
                Some(other) if is_same_file(other, program) => {}
                Some(other) => {
                    let other = &other.name;
                    let detail = format!("its {name} is another than that of program {other}");
                    return Err(refused(program, detail));
                }
            }
        }
        add_named(program, unpacked, &mut files)?;
    }
    unpacked.add_needed(&mut files)?;
    for program in programs {
        check_packages(program, unpacked, &files)?;
    }
    Ok(files)
}

fn refused(program: &GuestProgram, detail: String) -> LabError {
    LabError::GuestProgram { name: program.name.clone(), detail }
}

/// The name of a compiled program in commands: the first source's name without its ending.
fn compiled_name(program: &GuestProgram) -> Option<&str> {
    program.sources.first().map(|source| source.strip_suffix(".c").unwrap_or(source))
}

fn is_same_file(one: &GuestProgram, other: &GuestProgram) -> bool {
    one.sources == other.sources && one.flags == other.flags
}

fn compile(
    program: &GuestProgram,
    name: &str,
    compiler: &Compiler,
    stop: &AtomicBool,
) -> Result<PathBuf> {
    for source in &program.sources {
        let is_plain = Path::new(source).file_name().is_some_and(|name| name == source.as_str());
        if !is_plain || !compiler.sources.join(source).is_file() {
            return Err(refused(program, format!("lab/guest/linux has no source {source}")));
        }
    }
    let sources: Vec<&str> = program.sources.iter().map(String::as_str).collect();
    let flags: Vec<&str> =
        ["-pthread"].into_iter().chain(program.flags.iter().map(String::as_str)).collect();
    compiler.compile(&format!("program-{name}"), &sources, &flags, stop)
}

/// Add what of a program's packages its command and its preparation name: programs by their names,
/// and other files and directories by their paths.
fn add_named(program: &GuestProgram, unpacked: &Unpacked, files: &mut Files) -> Result<()> {
    for word in words(&program.command).chain(words(&program.prepare)) {
        let paths: Vec<String> = match word.strip_prefix('/') {
            Some(path) => vec![path.to_string()],
            None if word.contains('/') => Vec::new(),
            None => PROGRAM_DIRS.iter().map(|dir| format!("{dir}/{word}")).collect(),
        };
        let found = program.packages.iter().find_map(|package| {
            let mut paths = paths.iter();
            paths.find_map(|path| Some((path, unpacked.find_of(package, path)?)))
        });
        if let Some((path, file)) = found {
            add_tree(path, &file, files)?;
        }
    }
    Ok(())
}

/// The words of a shell text, split at all characters that do not belong to a file name.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    text.split(move |c| !is_part(c)).filter(|word| !word.is_empty())
}

fn add_tree(path: &str, file: &Path, files: &mut Files) -> Result<()> {
    if !file.is_dir() {
        files.insert(path.to_string(), file.to_path_buf());
        return Ok(());
    }
    for entry in fs::read_dir(file).map_err(io(file))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        add_tree(&format!("{path}/{name}"), &entry.path(), files)?;
    }
    Ok(())
}

/// A package of which nothing is used is a mistake in the program's description.
fn check_packages(program: &GuestProgram, unpacked: &Unpacked, files: &Files) -> Result<()> {
    let is_used = |package: &str| files.values().any(|file| unpacked.owner(file) == Some(package));
    match program.packages.iter().find(|package| !is_used(package)) {
        None => Ok(()),
        Some(package) => Err(refused(
            program,
            format!("neither its command nor its preparation names a file of package {package}"),
        )),
    }
}

/// The image's bytes.
fn archive(programs: &[GuestProgram], files: &Files) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for dir in DIRS {
        archive.add_dir(dir)?;
    }
    for (path, file) in files {
        let mode = fs::metadata(file).map_err(io(file))?.permissions().mode();
        let contents = fs::read(file).map_err(io(file))?;
        archive.add_file(path, if mode & 0o111 == 0 { 0o644 } else { 0o755 }, &contents)?;
    }
    for applet in APPLETS {
        let path = format!("bin/{applet}");
        // A program's own file wins against busybox's.
        if !PROGRAM_DIRS.iter().any(|dir| files.contains_key(&format!("{dir}/{applet}"))) {
            archive.add(&path, 0o120_777, b"busybox")?;
        }
    }
    for program in programs {
        let dir = format!("programs/{}", program.name);
        let counts = program.counts.join(",");
        for (name, text) in
            [("command", &program.command), ("counts", &counts), ("prepare", &program.prepare)]
        {
            let end = if text.is_empty() || name == "counts" { "" } else { "\n" };
            archive.add_file(&format!("{dir}/{name}"), 0o644, format!("{text}{end}").as_bytes())?;
        }
    }
    archive.finish()
}
