// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C as its users compile it: as strictly as a kernel module, needing nothing from
//! outside, and under sanitizers at the borders of its types.

mod sources;

use sources::{include, source, UNITS};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
    output
}

fn is_there(compiler: &str) -> bool {
    let there = Command::new(compiler).arg("--version").output().is_ok();
    if !there {
        eprintln!("SKIP: no {compiler} on this computer");
    }
    there
}

/// No floating point, no 128-bit helper, no memcpy, no big frame, with either compiler.
fn compiles_alone(compiler: &str) {
    if !is_there(compiler) {
        return;
    }
    for unit in UNITS {
        for (standard, level) in [("c11", "-O2"), ("gnu11", "-O2"), ("gnu11", "-O0")] {
            let object = scratch(&format!("{compiler}-{standard}{level}-{unit}.o"));
            let mut cc = Command::new(compiler);
            cc.arg(format!("-std={standard}")).arg(level);
            cc.args(["-ffreestanding", "-nostdlib", "-Wall", "-Wextra", "-Werror"]);
            cc.args(["-Wconversion", "-Wdeclaration-after-statement", "-Wmissing-prototypes"]);
            cc.args(["-Wvla", "-Wimplicit-fallthrough", "-Wframe-larger-than=1024"]);
            if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
                cc.arg("-mgeneral-regs-only");
            }
            cc.args(include()).arg("-c").arg(source(unit)).arg("-o").arg(&object);
            run(&mut cc);
            let undefined = run(Command::new("nm").arg("-u").arg(&object)).stdout;
            assert!(undefined.is_empty(), "{unit}: {}", String::from_utf8_lossy(&undefined));
        }
    }
}

#[test]
fn gcc_compiles_it_alone() {
    compiles_alone("gcc");
}

#[test]
fn clang_compiles_it_alone() {
    compiles_alone("clang");
}

/// Unsigned wraps and lossy conversions abort, and no sanitizer runtime is needed.
const TRAPS: [&str; 2] =
    ["-fsanitize=undefined,unsigned-integer-overflow,implicit-conversion", "-fsanitize-trap=all"];

fn extremes(compiler: &str, name: &str, flags: &[&str]) -> Command {
    let program = scratch(name);
    let mut cc = Command::new(compiler);
    cc.args(["-std=c11", "-O1", "-g"]).args(flags).args(include());
    cc.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/extremes.c"));
    cc.args(UNITS.map(source)).arg("-o").arg(&program);
    run(&mut cc);
    Command::new(program)
}

/// A wrap that is meant is written so that it does not wrap.
#[test]
fn nothing_wraps_at_the_borders() {
    if !is_there("clang") {
        return;
    }
    let trapping = run(&mut extremes("clang", "extremes-trapping", &TRAPS)).stdout;
    let plain = run(&mut extremes("clang", "extremes-plain", &[])).stdout;
    assert_eq!(trapping, plain);

    let flags = [TRAPS.as_slice(), &["-DWRAP_ONCE"]].concat();
    let wraps = extremes("clang", "extremes-wrapping", &flags).output().unwrap();
    assert!(!wraps.status.success(), "a wrap passes unnoticed");
}

/// No read or write outside the slots and vCPUs given.
#[test]
fn nothing_is_touched_out_of_bounds() {
    if !is_there("gcc") {
        return;
    }
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let sanitized = run(&mut extremes("gcc", "extremes-addresses", &flags)).stdout;
    let plain = run(&mut extremes("gcc", "extremes-plain-gcc", &[])).stdout;
    assert_eq!(sanitized, plain);
}
