// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the library that the lab preloads into Bochs, which the lab carries.

use std::path::PathBuf;

const SOURCE: &str = "c/bochs_vm_entry.c";

fn main() {
    for path in ["build.rs", SOURCE] {
        println!("cargo::rerun-if-changed={path}");
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut cc = cc::Build::new().warnings(false).get_compiler().to_command();
    cc.args(["-std=gnu11", "-O2", "-g0", "-s", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]);
    let status = cc.arg(SOURCE).arg("-o").arg(out.join("bochs_vm_entry.so")).status();
    assert!(status.as_ref().is_ok_and(|s| s.success()), "{cc:?}: {status:?}");
}
