// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles bpf/credit.bpf.c, which becomes part of the program. Without clang the program is built
//! all the same, and says so when it is run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What the verifier must see through stands in one function: it forgets half of what was in memory.
/// No loop may become a call of memset().
const FLAGS: &[&str] = &[
    "-target",
    "bpf",
    "-mcpu=v3",
    "-g",
    "-O2",
    "-std=gnu11",
    "-ffreestanding",
    "-fno-builtin",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-parameter",
    "-D__TARGET_ARCH_x86",
    "-mllvm",
    "-inline-threshold=100000",
    "-c",
];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let headers = PathBuf::from(env::var_os("DEP_BPF_INCLUDE").unwrap());
    let object = PathBuf::from(env::var_os("OUT_DIR").unwrap()).join("credit.bpf.o");
    let root = here.join("../..");
    let folders = [here.join("bpf"), root.join("policy"), root.join("uapi")];
    for folder in &folders {
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    println!("cargo:rerun-if-env-changed=PATH");
    if Command::new("clang").arg("--version").output().is_err() {
        println!(
            "cargo:warning=no clang: unspin-scx will have no scheduler (apt-get install clang)"
        );
        fs::write(&object, b"").unwrap();
        return;
    }
    compile(&folders, &headers, &object);
}

fn compile(folders: &[PathBuf], headers: &Path, object: &Path) {
    let mut clang = Command::new("clang");
    clang.args(FLAGS).arg("-I").arg(headers);
    for folder in folders {
        clang.arg("-I").arg(folder);
    }
    clang.arg(folders[0].join("credit.bpf.c")).arg("-o").arg(object);
    let status = clang.status().unwrap_or_else(|e| panic!("{clang:?}: {e}"));
    assert!(status.success(), "{clang:?}: {status}");
}
