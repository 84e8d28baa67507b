// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles policy/asym.c.

fn main() {
    let policy = "../../policy";
    for file in ["asym.c", "asym.h", "types.h"] {
        println!("cargo::rerun-if-changed={policy}/{file}");
    }
    cc::Build::new()
        .std("c11")
        .flag("-ffreestanding")
        .flag("-Wconversion")
        .extra_warnings(true)
        .opt_level(2)
        .file(format!("{policy}/asym.c"))
        .compile("unspin_shape");
}
