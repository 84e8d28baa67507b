// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults put into the C one at a time: each must be rejected by the check named for it,
//! and the unchanged C, built the same way, by none. The checks on the linked code are in the same program, because
//! they take longer to compile than to run.

#[macro_use]
mod common;
mod linked;
mod sources;

use common::Api;
use sources::{folders, include, source, UNITS};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// One fault: a text that is found once in the file, what it becomes, and the check that rejects it.
type Fault = [String; 3];

macro_rules! list {
    ($($module:ident: $name:ident,)*) => {
        &[$((stringify!($name), common::$module::$name as fn(&Api)),)*]
    };
}

type Check = (&'static str, fn(&Api));

const CHECKS: &[Check] = for_each_check!(list);

fn cc() -> Command {
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-std=c11", "-ffreestanding", "-O1", "-w", "-fPIC"]);
    cc
}

fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // A header that an earlier run left here would be taken for policy's.
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// Whether a file includes a header, itself or by another one.
fn includes(file: &str, header: &str) -> bool {
    let text = std::fs::read_to_string(source(file)).unwrap();
    let quoted =
        |line: &'_ str| Some(line.strip_prefix("#include \"")?.split_once('"')?.0.to_string());
    text.lines().filter_map(quoted).any(|name| name == header || includes(&name, header))
}

/// The object of a file, in `to`.
fn compile(file: &Path, to: &Path) -> PathBuf {
    let object = to.join(file.file_name().unwrap()).with_extension("o");
    let mut cc = cc();
    cc.args(include());
    cc.arg("-c").arg(file).arg("-o").arg(&object);
    assert!(cc.status().expect("a C compiler").success(), "{file:?} does not compile in {to:?}");
    object
}

fn link(objects: &[PathBuf], directory: &Path) -> Api {
    let library = directory.join("policy.so");
    let linked = cc().arg("-shared").arg("-o").arg(&library).args(objects).status();
    assert!(linked.expect("a C compiler").success(), "{directory:?} does not link");
    Api::load(&library)
}

/// policy/*.c as it is, compiled once.
struct Unchanged {
    objects: Vec<PathBuf>,
    api: Api,
}

impl Unchanged {
    fn new() -> Unchanged {
        let directory = directory("unchanged");
        let objects: Vec<PathBuf> =
            UNITS.iter().map(|file| compile(&source(file), &directory)).collect();
        let api = link(&objects, &directory);
        Unchanged { objects, api }
    }

    /// The same with the text of one file or header replaced. Only what has it is compiled again.
    fn with(&self, name: &str, which: &str, text: &str) -> Api {
        let directory = directory(name);
        let header = which.ends_with(".h");
        // A file finds headers beside itself first, so that all of them go with a header.
        if header {
            for entry in folders().iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
                let path = entry.unwrap().path();
                std::fs::copy(&path, directory.join(path.file_name().unwrap())).unwrap();
            }
        }
        std::fs::write(directory.join(which), text).unwrap();
        let is_changed = |file: &str| file == which || includes(file, which);
        let object = |(file, unchanged): (&&str, &PathBuf)| match is_changed(file) {
            true => compile(&directory.join(file), &directory),
            false => unchanged.clone(),
        };
        let objects: Vec<PathBuf> = UNITS.iter().zip(&self.objects).map(object).collect();
        link(&objects, &directory)
    }
}

fn passes(check: fn(&Api), api: &Api) -> bool {
    catch_unwind(AssertUnwindSafe(|| check(api))).is_ok()
}

fn check_named(name: &str) -> fn(&Api) {
    CHECKS.iter().find(|check| check.0 == name).unwrap_or_else(|| panic!("no check {name}")).1
}

/// Why a mutant counts as surviving; `None` if it was rejected.
fn survives(
    unchanged: &Unchanged,
    number: usize,
    (file, [line, becomes, rejected_by]): (&str, &Fault),
) -> Option<String> {
    let source = std::fs::read_to_string(source(file)).unwrap();
    if source.matches(line).count() != 1 {
        return Some(format!("{file}: {line:?} is not there exactly once"));
    }
    let api = unchanged.with(&format!("mutant-{number}"), file, &source.replacen(line, becomes, 1));
    passes(check_named(rejected_by), &api)
        .then(|| format!("{file}: {line:?} -> {becomes:?} passes {rejected_by}"))
}

#[test]
fn each_mutant_is_rejected() {
    let unchanged = Unchanged::new();
    let of_files: BTreeMap<String, Vec<Fault>> =
        toml::from_str(include_str!("mutants.toml")).unwrap();
    let all: Vec<(&str, &Fault)> = of_files
        .iter()
        .flat_map(|(file, faults)| faults.iter().map(move |fault| (file.as_str(), fault)))
        .collect();
    for (_, [.., rejected_by]) in &all {
        check_named(rejected_by);
    }

    // Every rejection is a panic; only this test's own verdict is for the reader. Other tests' panics are shown.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if common::SHRINK.get() {
            hook(panic);
        }
    }));
    let next = AtomicUsize::new(0);
    let some = || -> Vec<String> {
        common::SHRINK.set(false);
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Relaxed));
        numbers
            .take_while(|&number| number < all.len())
            .filter_map(|number| survives(&unchanged, number, all[number]))
            .collect()
    };
    let survivors: Vec<String> = std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(some)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    common::SHRINK.set(false);
    let named: BTreeSet<&str> = all.iter().map(|(_, [.., by])| by.as_str()).collect();
    let unwell: Vec<&str> =
        named.into_iter().filter(|name| !passes(check_named(name), &unchanged.api)).collect();
    common::SHRINK.set(true);

    assert!(unwell.is_empty(), "the unchanged code is rejected by {unwell:?}");
    assert!(survivors.is_empty(), "survivors:\n{}", survivors.join("\n"));
}
