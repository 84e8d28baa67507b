// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module's reader of type information (kmod/btf.c), in user space: all kinds of types, kinds that it
//! does not know, data that is cut off or damaged. tests/btf/btf.c has the properties.
//!
//! `UNSPIN_CASES` (20000) of each property, `UNSPIN_SEED` (1).

mod common;

use std::process::Command;

#[test]
fn type_information_is_understood_or_refused_by_name() {
    if !common::has_tools(&["gcc"]) {
        return;
    }
    let sources = format!("{}/tests/btf", env!("CARGO_MANIFEST_DIR"));
    let dir = unspin_scratch::Scratch::new();
    let program = dir.join("btf");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
    gcc.args(["-Wno-missing-field-initializers", "-Wno-sign-compare"]);
    // Types of kinds that are not known may be of any length; the processor does not mind.
    gcc.args(["-fsanitize=address,undefined", "-fno-sanitize=alignment", "-fno-sanitize-recover"]);
    gcc.arg(format!("-I{sources}")).arg(format!("{sources}/btf.c")).arg("-o").arg(&program);
    let built = gcc.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let number = |name, or: &str| std::env::var(name).unwrap_or_else(|_| or.to_string());
    let mut run = Command::new(&program);
    run.args([number("UNSPIN_SEED", "1"), number("UNSPIN_CASES", "20000")]);
    let out = run.output().unwrap();
    let said = [out.stdout, out.stderr].concat();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&said));
}
