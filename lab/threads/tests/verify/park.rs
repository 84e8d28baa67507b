// SPDX-License-Identifier: MIT OR Apache-2.0
//! A model under SPIN: how the module keeps a vCPU from running.

use crate::checker::verify_dir;
use crate::common::{in_parallel, scratch};
use std::process::Command;

/// A wrong model of the module: its fault, the check that must find it. Each leaves out a barrier or a step.
const PARK_MUTANTS: &[(&str, &str)] = &[
    ("CLEARS_WITHOUT_BARRIER", "request_not_lost"),
    ("DOES_NOT_ASK", "request_not_lost"),
    ("LOOKS_BEFORE_IT_SLEEPS", "wake_up_not_lost"),
    ("GIVES_WITHOUT_BARRIER", "wake_up_not_lost"),
];

/// `Ok`: every check of `park.pml` holds; otherwise the output of `run.sh`.
fn verify_park(define: &str) -> Result<(), String> {
    let dir = scratch().join(format!("pan-park{define}"));
    let mut command = Command::new(verify_dir().join("run.sh"));
    let output = command.args(["park", define]).env("VERIFY_DIR", &dir).output().expect("run.sh");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0) => Ok(()),
        Some(1) => Err(said.trim().to_string()),
        _ => panic!("park {define}: {said}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

#[test]
fn no_vcpu_overstays_its_turn_or_sleeps_through_it() {
    if Command::new("spin").arg("-V").output().is_err() {
        println!("SKIPPED: the model of parked vCPUs: no spin on this computer");
        return;
    }
    assert_eq!(verify_park("-DTURNS=6"), Ok(()));
    let text = std::fs::read_to_string(verify_dir().join("park.pml")).unwrap();
    in_parallel(PARK_MUTANTS, |(mutant, check)| {
        assert!(text.contains(&format!("M_{mutant}\n")), "park.pml does not read {mutant}");
        assert_eq!(verify_park(&format!("-DM_{mutant}")), Err(format!("park: {check}")));
    });
}
