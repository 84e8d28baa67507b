// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arithmetic of policy/types.h against 128-bit numbers: with the compiler's 128-bit type, and
//! by halves, as in BPF. Injected faults must fail the tests.

mod common;

use common::{any_u64, property};
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;

struct Arithmetic {
    sat_mul: unsafe extern "C" fn(u64, u64) -> u64,
    mul_div: unsafe extern "C" fn(u64, u64, u64) -> u64,
    _library: libloading::Library,
}

/// Built with that text in place of policy/types.h.
fn build(name: &str, types: &str, flags: &[&str]) -> Arithmetic {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let header = directory.join("types.h");
    std::fs::write(&header, types).unwrap();
    let object = directory.join("arithmetic.so");
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.args(["-std=c11", "-ffreestanding", "-O2", "-w", "-shared", "-fPIC"]).args(flags);
    cc.arg("-include").arg(&header).arg(here.join("tests/c/arithmetic.c"));
    cc.arg("-o").arg(&object);
    assert!(cc.status().expect("a C compiler").success(), "{name} does not compile");
    // SAFETY: the library has no constructors and functions of these types, and is kept.
    unsafe {
        let library = libloading::Library::new(object).expect("loads");
        Arithmetic {
            sat_mul: *library.get(b"sat_mul\0").unwrap(),
            mul_div: *library.get(b"mul_div\0").unwrap(),
            _library: library,
        }
    }
}

fn saturated(exact: u128) -> u64 {
    u64::try_from(exact).unwrap_or(u64::MAX)
}

fn is_exact(arithmetic: &Arithmetic) {
    property(20_000, (any_u64(), any_u64(), any_u64()), |(a, b, c)| {
        let product = u128::from(a) * u128::from(b);
        // SAFETY: functions of numbers.
        unsafe {
            assert_eq!((arithmetic.sat_mul)(a, b), saturated(product));
            let expected = product.checked_div(c.into()).map_or(u64::MAX, saturated);
            assert_eq!((arithmetic.mul_div)(a, b, c), expected, "{a} * {b} / {c}");
        }
    });
}

fn types() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/policy/types.h");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn products_and_quotients_are_exact() {
    is_exact(&build("arithmetic", &types(), &[]));
    is_exact(&build("arithmetic-by-halves", &types(), &["-DPOL_MUL_BY_HALVES"]));
}

const MUTANTS: [(&str, &str); 7] = [
    ("(a_high && b_high) ||", ""),
    ("cross >> 32 ||", ""),
    ("a_high ? a_high * b_low : b_high * a_low", "a_high * b_low"),
    ("cross << 32", "cross << 31"),
    ("if (rest >= c - part) {", "if (rest > c - part) {"),
    ("if (rest >= c - rest) {", "if (rest > c - rest) {"),
    ("quotient = pol_sat_add(quotient, whole);", "quotient += whole;"),
];

#[test]
fn each_mutant_is_rejected() {
    let types = types();
    common::SHRINK.set(false);
    for (number, (line, becomes)) in MUTANTS.iter().enumerate() {
        assert_eq!(types.matches(line).count(), 1, "{line:?} is not there exactly once");
        let name = format!("arithmetic-mutant-{number}");
        let changed = types.replacen(line, becomes, 1);
        let mutant = build(&name, &changed, &["-DPOL_MUL_BY_HALVES"]);
        let outcome = catch_unwind(|| is_exact(&mutant));
        assert!(outcome.is_err(), "{line:?} -> {becomes:?} passes");
    }
}
