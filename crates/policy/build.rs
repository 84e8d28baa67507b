// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles policy/*.c, the same sources that link into the kernel module.

const UNITS: [&str; 11] = [
    "aple",
    "credit",
    "demand",
    "gang_account",
    "gang_turn",
    "gang_use",
    "hvs",
    "ipi",
    "kvm_stock",
    "userspin",
    "vcrd",
];
const HEADERS: [&str; 13] = [
    "types",
    "aple",
    "credit",
    "demand",
    "gang",
    "gang_free",
    "gang_order",
    "gang_rows",
    "hvs",
    "ipi",
    "kvm_stock",
    "userspin",
    "vcrd",
];

fn main() {
    let policy = "../../policy";
    let mut build = cc::Build::new();
    build
        .std("c11")
        .flag("-ffreestanding")
        .flag("-Wconversion")
        .extra_warnings(true)
        .opt_level(2)
        .include(policy);
    for unit in UNITS {
        let path = format!("{policy}/{unit}.c");
        println!("cargo::rerun-if-changed={path}");
        build.file(path);
    }
    for header in HEADERS {
        println!("cargo::rerun-if-changed={policy}/{header}.h");
    }
    println!("cargo::rerun-if-changed=c");
    build.file("c/defaults.c");
    build.compile("unspin_policy");
}
