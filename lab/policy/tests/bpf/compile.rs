// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs here, compiled: for BPF, and for this computer.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The compiler keeps a structure of pointers and lengths in registers only if it is not passed to
/// a function, and the verifier does not track values in memory completely.
const INLINE: [&str; 2] = ["-mllvm", "-inline-threshold=100000"];

const FOR_BPF: [&str; 5] = ["-target", "bpf", "-mcpu=v3", "-g", "-c"];

const FOR_THIS_COMPUTER: [&str; 2] = ["-shared", "-fPIC"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where policies are: those of the kernel module, and those that are modelled only.
fn folders() -> [PathBuf; 2] {
    ["core/policy", "lab/policy/c"].map(|folder| root().join(folder))
}

pub fn programs() -> PathBuf {
    root().join("lab/policy/tests/bpf")
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
    output
}

/// Whether a tool of a Debian package is there; says so if not.
pub fn is_there(tool: &str, package: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok();
    if !there {
        println!("SKIPPED: policy/ as BPF: no {tool} on this computer: apt-get install {package}");
    }
    there
}

fn clang(source: &Path, object: &Path, flags: &[&str]) {
    let mut clang = Command::new("clang");
    clang.args(["-std=gnu11", "-O2", "-ffreestanding", "-Wall", "-Wextra", "-Werror"]);
    clang.args(folders().map(|folder| format!("-I{}", folder.display())));
    clang.args(flags).arg(source).arg("-o").arg(object);
    run(&mut clang);
}

/// A policy's file as it is, for BPF.
#[allow(dead_code)]
pub fn alone(name: &str) -> PathBuf {
    let object = scratch(&format!("{name}.alone.bpf.o"));
    let files = folders().map(|folder| folder.join(format!("{name}.c")));
    let file =
        files.into_iter().find(|file| file.is_file()).unwrap_or_else(|| panic!("no {name}.c"));
    clang(&file, &object, &FOR_BPF);
    object
}

/// The programs of a policy, for BPF.
pub fn object(name: &str) -> PathBuf {
    let object = scratch(&format!("{name}.bpf.o"));
    let flags = [FOR_BPF.as_slice(), &INLINE].concat();
    clang(&programs().join(format!("{name}.bpf.c")), &object, &flags);
    object
}

/// The same programs as a library for this computer.
#[allow(dead_code)]
pub fn library(name: &str) -> PathBuf {
    let library = scratch(&format!("{name}.bpf.so"));
    clang(&programs().join(format!("{name}.bpf.c")), &library, &FOR_THIS_COMPUTER);
    library
}
