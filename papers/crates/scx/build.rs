// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles bpf/credit.bpf.c, which becomes part of the program.

use std::env;
use std::path::PathBuf;

#[path = "../../../host/probe/bpf.rs"]
mod bpf;

use bpf::Program;

/// Code that the verifier must follow is in one function, because the verifier forgets half of the
/// memory at calls. No loop may become a call of memset().
const FLAGS: &[&str] =
    &["-fno-builtin", "-D__TARGET_ARCH_x86", "-mllvm", "-inline-threshold=100000"];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    let object = out.join("credit.bpf.o");
    let root = here.join("../../..");
    let [policy, modelled, uapi, sched_ext] =
        ["core/policy", "lab/policy/c", "core/uapi", "host/schedule/bpf"]
            .map(|folder| root.join(folder));
    let folders = [here.join("bpf"), policy, modelled, uapi, sched_ext];
    for folder in &folders {
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    println!("cargo:rerun-if-env-changed=PATH");
    let source = here.join("bpf/credit.bpf.c");
    let program = Program { source: &source, folders: &folders, flags: FLAGS };
    program.compile(&out, &object).unwrap_or_else(|error| panic!("{error}"));
}
