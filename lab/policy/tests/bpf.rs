// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies for schedulers of sched_ext, compiled as BPF: each compiles, and needs no outside
//! function but the kernel's for loops (`bpf_for`). `tests/bpf/NAME.bpf.c` has programs that call it. lab/computers/tests/bpf.rs loads
//! them into kernels.

#[path = "bpf/compile.rs"]
mod compile;

use compile::{alone, is_there, object, programs, run};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Names of a directory's files that end so, without that.
fn names(directory: &Path, end: &str) -> BTreeSet<String> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    files.filter_map(|file| Some(file.to_str()?.strip_suffix(end)?.to_owned())).collect()
}

fn symbols(object: &Path, which: &str) -> String {
    let output = run(Command::new("llvm-nm").arg(which).arg(object));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn assert_complete(object: &Path) {
    let undefined = symbols(object, "--undefined-only");
    let unknown: Vec<&str> =
        undefined.lines().filter(|line| !line.contains(" U bpf_iter_num_")).collect();
    assert!(unknown.is_empty(), "{} needs {unknown:?}", object.display());
}

#[test]
fn schedulers_policies_compile_for_bpf() {
    if !is_there("clang", "clang") || !is_there("llvm-nm", "llvm") {
        return;
    }
    for name in names(&programs(), ".bpf.c") {
        assert_complete(&alone(&name));
        let object = object(&name);
        assert_complete(&object);
        assert!(symbols(&object, "--defined-only").contains(" T "), "{name} has no program");
    }
}

#[test]
fn what_needs_something_from_outside_is_seen() {
    if !is_there("clang", "clang") || !is_there("llvm-nm", "llvm") {
        return;
    }
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside.c");
    let object = source.with_extension("o");
    let text = "unsigned long f(unsigned long a, unsigned long b)\n\
                { extern unsigned long g(unsigned long); return g(a) / b; }\n";
    std::fs::write(&source, text).unwrap();
    run(Command::new("clang")
        .args(["-target", "bpf", "-O2", "-c", "-o"])
        .arg(&object)
        .arg(&source));
    assert!(symbols(&object, "--undefined-only").contains("U g"));
}
