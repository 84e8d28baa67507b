// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles c/machine.c for every lock, and for two broken ones, and generates the list of them.

use std::fmt::Write;
use std::path::PathBuf;

#[allow(dead_code)]
#[path = "src/locks.rs"]
mod locks;

fn main() {
    let crate_dir = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    for path in ["c", "build.rs", "src/locks.rs", "../../core/locks", "../guest"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let wrong = ["wrong_open", "wrong_lost"].map(|name| (name, false, "c/wrong_locks.h".into()));
    let right =
        locks::LOCKS.iter().map(|l| (l.name, l.node, format!("../../core/locks/{}", l.header)));
    let mut externs = String::new();
    let mut table = String::new();
    for (name, node, header) in right.chain(wrong) {
        let header = crate_dir.join(header);
        let mut build = cc::Build::new();
        build
            .std("gnu11")
            .opt_level(2)
            .extra_warnings(true)
            .warnings_into_errors(true)
            .define("LOCK_HEADER", Some(format!("\"{}\"", header.display()).as_str()))
            .define("LOCK(op)", Some(format!("unspin_{name}_##op").as_str()))
            .define("MACHINE(op)", Some(format!("unspin_machine_{name}_##op").as_str()));
        if node {
            build.define("WITH_NODE", None);
        }
        if name == "preemptable" || name == "pv_preemptable" {
            build.define("WITH_TAU", None);
        }
        build.file(crate_dir.join("c/machine.c")).compile(&format!("unspin_machine_{name}"));
        let f = |op: &str| format!("unspin_machine_{name}_{op}");
        let (new, run, stop, counters, free) =
            (f("new"), f("run"), f("stop"), f("counters"), f("free"));
        writeln!(
            externs,
            "    fn {new}(config: *const Config) -> *mut Raw;
    fn {run}(vm: *mut Raw, index: u32);
    fn {stop}(vm: *mut Raw);
    fn {counters}(vm: *mut Raw, index: u32) -> *mut abi::Counters;
    fn {free}(vm: *mut Raw) -> i32;"
        )
        .unwrap();
        writeln!(
            table,
            "    Code {{ lock: {name:?}, new: {new}, run: {run}, stop: {stop}, counters: {counters}, free: {free} }},"
        )
        .unwrap();
    }
    let text = format!(
        "extern \"C\" {{\n{externs}}}\n/// Of every lock.\nstatic CODE: &[Code] = &[\n{table}];\n"
    );
    std::fs::write(out.join("vms.rs"), text).expect("OUT_DIR can be written");
}
