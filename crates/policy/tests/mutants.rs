// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults put into the C one at a time: each must be rejected by the check named for it,
//! and the unchanged C, built the same way, by none.

mod common;
mod mutant_list;

use common::Api;
use mutant_list::{mutants, Mutant};
use std::collections::BTreeSet;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

const FILES: [&str; 12] = [
    "aple.c",
    "asym.c",
    "credit.c",
    "demand.c",
    "gang_account.c",
    "gang_turn.c",
    "gang_use.c",
    "hvs.c",
    "ipi.c",
    "kvm_stock.c",
    "userspin.c",
    "vcrd.c",
];

macro_rules! list {
    ($($module:ident: $name:ident,)*) => {
        &[$((stringify!($name), common::$module::$name as fn(&Api)),)*]
    };
}

type Check = (&'static str, fn(&Api));

const CHECKS: &[Check] = for_each_check!(list);

fn policy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policy")
}

/// A shared object of policy/*.c, with the text of one file or header replaced.
fn build(name: &str, replaced: Option<(&str, &str)>) -> Api {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // A header that an earlier run left here would be taken for policy's.
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let object = directory.join("policy.so");
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-std=c11", "-ffreestanding", "-O1", "-w", "-shared", "-fPIC"]);
    cc.arg("-I").arg(policy()).arg("-o").arg(&object);
    // A file finds headers beside itself first, so that all of them go with a header.
    let header = replaced.is_some_and(|(which, _)| which.ends_with(".h"));
    if header {
        for entry in std::fs::read_dir(policy()).unwrap().map(|entry| entry.unwrap()) {
            std::fs::copy(entry.path(), directory.join(entry.file_name())).unwrap();
        }
    }
    if let Some((which, text)) = replaced {
        std::fs::write(directory.join(which), text).unwrap();
    }
    for file in FILES {
        let here = header || replaced.is_some_and(|(which, _)| which == file);
        cc.arg(if here { directory.join(file) } else { policy().join(file) });
    }
    assert!(cc.status().expect("a C compiler").success(), "{name} does not compile");
    Api::load(&object)
}

fn passes(check: fn(&Api), api: &Api) -> bool {
    catch_unwind(AssertUnwindSafe(|| check(api))).is_ok()
}

#[test]
fn each_mutant_is_rejected() {
    let check_named = |name: &str| {
        CHECKS.iter().find(|check| check.0 == name).unwrap_or_else(|| panic!("no check {name}")).1
    };
    let unchanged = build("unchanged", None);
    let mut survivors = Vec::new();

    // Every rejection is a panic; only this test's own verdict is for the reader.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    common::SHRINK.store(false, Relaxed);
    for (number, mutant) in mutants().enumerate() {
        let Mutant { file, line, becomes, rejected_by } = mutant;
        let source = std::fs::read_to_string(policy().join(file)).unwrap();
        if source.matches(line).count() != 1 {
            survivors.push(format!("{file}: {line:?} is not there exactly once"));
            continue;
        }
        let changed = source.replacen(line, becomes, 1);
        let api = build(&format!("mutant-{number}"), Some((file, &changed)));
        if passes(check_named(rejected_by), &api) {
            survivors.push(format!("{file}: {line:?} -> {becomes:?} passes {rejected_by}"));
        }
    }
    let named: BTreeSet<&str> = mutants().map(|mutant| mutant.rejected_by).collect();
    let unwell: Vec<&str> =
        named.into_iter().filter(|name| !passes(check_named(name), &unchanged)).collect();
    std::panic::set_hook(hook);

    assert!(unwell.is_empty(), "the unchanged code is rejected by {unwell:?}");
    assert!(survivors.is_empty(), "survivors:\n{}", survivors.join("\n"));
}
