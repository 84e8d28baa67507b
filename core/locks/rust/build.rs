// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Compiles the functions of the locks' headers.

fn main() {
    println!("cargo::rerun-if-changed=src/locks.c");
    println!("cargo::rerun-if-changed=..");
    cc::Build::new()
        .std("gnu11")
        .opt_level(2)
        .include("..")
        .file("src/locks.c")
        .compile("unspin_locks");
}
