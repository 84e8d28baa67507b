// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the decisions of `unspin schedule`, which its BPF program makes by the same header.

fn main() {
    let bpf = "../../host/schedule/bpf";
    println!("cargo::rerun-if-changed={bpf}/decide.h");
    println!("cargo::rerun-if-changed=c");
    let mut cc = cc::Build::new();
    cc.std("c11").flag("-ffreestanding").flag("-Wconversion").extra_warnings(true).opt_level(2);
    cc.include(bpf).file("c/decide.c").compile("unspin_decide");
}
