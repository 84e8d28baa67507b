// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the scheduler's BPF programs.

#[path = "../probe/bpf.rs"]
mod bpf;

use bpf::Program;
use std::path::{Path, PathBuf};

fn main() {
    let policy = PathBuf::from("../../core/policy");
    for used in [Path::new("bpf"), &policy] {
        println!("cargo:rerun-if-changed={}", used.display());
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap());
    let source = Path::new("bpf/vms.bpf.c");
    // Only the second records its decisions.
    for (object, traced) in [("vms.bpf.o", "-DTRACED=0"), ("traced.bpf.o", "-DTRACED=1")] {
        let flags = &["-fno-builtin", "-D__TARGET_ARCH_x86", traced];
        let program = Program { source, folders: std::slice::from_ref(&policy), flags };
        program.compile(&out, &out.join(object)).unwrap_or_else(|error| panic!("{error}"));
    }
}
