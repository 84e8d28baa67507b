// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the library that `unspin run` preloads, and lists its locks.

use std::path::{Path, PathBuf};

/// `locks/interpose` as one shared object, which the program carries.
fn main() {
    println!("cargo:rerun-if-changed=../../locks");
    let locks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../locks");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut cc = cc::Build::new().warnings(false).get_compiler().to_command();
    cc.args(["-std=gnu11", "-O2", "-g0", "-s", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]);
    cc.arg("-I").arg(&locks);
    for source in ["choice.c", "cond.c", "mutex.c", "spin.c"] {
        cc.arg(locks.join("interpose").join(source));
    }
    let status = cc.arg("-o").arg(out.join("libunspin-locks.so")).status();
    assert!(status.as_ref().is_ok_and(|s| s.success()), "{cc:?}: {status:?}");
    let list = std::fs::read_to_string(locks.join("interpose/list.h")).expect("list.h");
    let names = list.lines().filter_map(|l| l.trim().strip_prefix("X(")?.split(')').next());
    let names: Vec<&str> = names.collect();
    println!("cargo:rustc-env=UNSPIN_RUN_LOCKS={}", names.join(" "));
}
