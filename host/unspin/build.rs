// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the library that `unspin run` preloads, and lists its locks. A build without the feature `module`
//! has no `unspin run`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// `core/locks/interpose` as one shared object, which the program carries.
fn main() {
    println!("cargo:rerun-if-changed=../../core/locks");
    if std::env::var_os("CARGO_FEATURE_MODULE").is_none() {
        return;
    }
    // The library has probes if their header, sys/sdt.h, is installed; it may be so later.
    for headers in ["/usr/include/x86_64-linux-gnu/sys", "/usr/include/sys"] {
        if Path::new(headers).is_dir() {
            println!("cargo:rerun-if-changed={headers}");
        }
    }
    let locks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/locks");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let compiler = cc::Build::new().warnings(false).get_compiler();
    let mut cc = Command::new(compiler.path());
    // Programs that load the library are linked dynamically, also where this one is not.
    cc.args(compiler.args().iter().filter(|argument| *argument != "-static"));
    cc.args(["-std=gnu11", "-O2", "-g0", "-s", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]);
    // Several copies may be in one process, such as those of two versions. Processes of musl load it, too, which
    // has no functions that check bounds.
    cc.args(["-fvisibility=hidden", "-ftls-model=initial-exec", "-U_FORTIFY_SOURCE"]);
    cc.arg("-I").arg(&locks);
    for source in ["choice.c", "cond.c", "mutex.c", "spin.c"] {
        cc.arg(locks.join("interpose").join(source));
    }
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|processor| processor == "x86_64") {
        let versions = locks.join("interpose/versions.map");
        cc.arg(format!("-Wl,--version-script={}", versions.display()));
    }
    let status = cc.arg("-o").arg(out.join("libunspin-locks.so")).status();
    assert!(status.as_ref().is_ok_and(|s| s.success()), "{cc:?}: {status:?}");
    let list = std::fs::read_to_string(locks.join("interpose/list.h")).expect("list.h");
    let names = list.lines().filter_map(|l| l.trim().strip_prefix("X(")?.split(')').next());
    let names: Vec<&str> = names.collect();
    println!("cargo:rustc-env=UNSPIN_RUN_LOCKS={}", names.join(" "));
}
