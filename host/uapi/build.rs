// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generates Rust tables from uapi/unspin.h and unspin_guest.h by the preprocessor; see
//! src/tables.c.

use std::path::PathBuf;

/// The line in src/tables.c after which the output is Rust.
const BEGIN: &str = "rust_from_here";

fn main() {
    let root = "../..";
    for header in [
        "core/uapi/unspin.h",
        "core/uapi/unspin_guest.h",
        "core/policy/hvs.h",
        "core/policy/types.h",
    ] {
        println!("cargo::rerun-if-changed={root}/{header}");
    }
    println!("cargo::rerun-if-changed=src/tables.c");
    let expanded = cc::Build::new()
        .std("c11")
        .flag("-P") // no line markers
        .include(format!("{root}/core/uapi"))
        .include(format!("{root}/core/policy"))
        .file("src/tables.c")
        .expand();
    let text = String::from_utf8(expanded).expect("the headers are UTF-8");
    let (_, tables) = text.split_once(BEGIN).expect("src/tables.c says where Rust begins");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    std::fs::write(out.join("tables.rs"), tables).expect("OUT_DIR can be written");
}
