// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles c/lock_params.c, so that the model's locks wait as long as those of core/locks/.

fn main() {
    for path in ["build.rs", "c", "../../core/locks"] {
        println!("cargo::rerun-if-changed={path}");
    }
    cc::Build::new()
        .std("gnu11")
        .opt_level(2)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .include("../../core/locks")
        .file("c/lock_params.c")
        .compile("unspin_lock_params");
}
