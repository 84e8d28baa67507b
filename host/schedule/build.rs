// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the scheduler's BPF programs.

#[path = "../probe/bpf.rs"]
mod bpf;

use bpf::Program;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap());
    let source = Path::new("bpf/vms.bpf.c");
    let program = Program { source, folders: &[], flags: &["-fno-builtin", "-D__TARGET_ARCH_x86"] };
    program.compile(&out, &out.join("vms.bpf.o")).unwrap_or_else(|error| panic!("{error}"));
}
