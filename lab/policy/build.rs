// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the policies: core/policy, the same sources that link into the kernel module, and those of c/, which
//! only the simulator and a scheduler of sched_ext take.

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
}
