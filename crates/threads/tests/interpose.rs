// SPDX-License-Identifier: MIT OR Apache-2.0
//! `locks/interpose` under a program that asks what POSIX promises of pthread_spin_*().

mod common;

use common::{check, locks_dir, scratch};
use std::path::PathBuf;
use std::process::Command;

fn cc(source: &str, out: &str, flags: &[&str]) -> PathBuf {
    let out = scratch().join(out);
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags);
    cc.arg("-I").arg(locks_dir()).arg(locks_dir().join(source)).arg("-o").arg(&out);
    check(&mut cc).unwrap_or_else(|said| panic!("{source}: {said}"));
    out
}

#[test]
fn pthread_spin_keeps_its_promises_over_ours() {
    let program = cc("test/posix_spin.c", "posix_spin", &[]);
    let library = cc("interpose/spin.c", "libunspin-spin.so", &["-shared", "-fPIC"]);
    check(&mut Command::new(&program)).expect("the C library's own");
    for tau in ["", "0", "2000", "not a number", "100000000000"] {
        let mut ours = Command::new(&program);
        ours.arg("ours").env("LD_PRELOAD", &library).env("UNSPIN_TAU_NS", tau);
        check(&mut ours).unwrap_or_else(|said| panic!("tau {tau:?}: {said}"));
    }
}

#[test]
fn a_program_sees_whose_locks_it_has() {
    let program = cc("test/posix_spin.c", "posix_spin_whose", &[]);
    let said = check(Command::new(program).arg("ours")).unwrap_err();
    assert!(said.contains("0x10001"), "{said}");
}
