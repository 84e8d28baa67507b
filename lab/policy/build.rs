// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the policies: core/policy, the same sources that link into the kernel module, and those of c/, which
//! only the simulator and a scheduler of sched_ext take. And lists the checks of tests/common.

use std::path::PathBuf;
use std::{env, fs};

const MODULE: [&str; 8] =
    ["aple", "demand", "gang_account", "gang_turn", "gang_use", "hvs", "userspin", "vcrd"];
const MODELLED: [&str; 3] = ["credit", "defaults", "kvm_stock"];

fn main() {
    let policy = "../../core/policy";
    println!("cargo::rerun-if-changed={policy}");
    println!("cargo::rerun-if-changed=c");
    cc::Build::new()
        .std("c11")
        .flag("-ffreestanding")
        .flag("-Wconversion")
        .extra_warnings(true)
        .opt_level(2)
        .include(policy)
        .files(MODULE.map(|unit| format!("{policy}/{unit}.c")))
        .files(MODELLED.map(|unit| format!("c/{unit}.c")))
        .compile("unspin_policy");
    list_checks();
}

/// Writes a macro that hands every check to another one.
fn list_checks() {
    let dir = "tests/common";
    println!("cargo::rerun-if-changed={dir}");
    let files = fs::read_dir(dir).expect("the tests' folder").map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    let mut list = String::new();
    for file in files {
        let stem = file.file_stem().unwrap().to_str().unwrap().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let of_line = |line: &'_ str| {
            let name = line.strip_prefix("pub fn ")?.strip_suffix("(api: &Api) {")?;
            Some(format!("{stem}: {name},\n"))
        };
        list.extend(text.lines().filter_map(of_line));
    }
    let text = format!(
        "#[allow(unused_macros)]\nmacro_rules! for_each_check {{\n($with:ident) => {{ $with! {{\n{list}}} }};\n}}\n"
    );
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("of cargo")).join("checks.rs");
    fs::write(out, text).expect("the list of checks");
}
