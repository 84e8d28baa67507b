// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of VMs that were watched say what they lose.

use crate::common::{documents_of, lines, plan};
use serde_json::{json, Value};
use unspin_diagnosis::State;
use unspin_report::text;
use unspin_scenario::plan::Run;
use unspin_scenario::result::{ModuleStats, VcpuStates, VmResult};

const CASES: &str = r#"title = "Cases"
repeats = 2
vm = [
    { name = "waits", vcpus = 2, workload = "compute" },
    { name = "computes", vcpus = 2, workload = "compute" },
]
arm = [{ name = "stock" }]
case = [
    { name = "shared", inject = ["contention"], vms = ["waits", "computes"] },
    { name = "alone", vms = ["computes"] },
]
[host]
pcpus = 4
"#;

/// In the case with an injection half of the time is waited, and the module looked; in the other its
/// looks are too few.
fn watched(run: &Run, vm: &mut VmResult) {
    let injected = run.inject.as_ref().is_some_and(|causes| !causes.is_empty());
    let mut vcpu = VcpuStates::default();
    vcpu.ns[State::Guest] = if injected { 150_000_000 } else { 290_000_000 };
    vcpu.ns[State::ReadyVm] = 300_000_000 - vcpu.ns[State::Guest];
    vm.states = Some(vec![vcpu; 2]);
    let looks = if injected { 100 } else { 9 };
    vm.module = Some(ModuleStats { user_samples: looks, user_spins: 9, ..ModuleStats::default() });
}

/// The table for a terminal, and the rows.
fn report(tune: impl Fn(&Run, &mut VmResult)) -> (String, Value) {
    let documents = documents_of(&lines("6.12", &plan(CASES), tune));
    let summary = serde_json::to_value(&documents[0].summary).unwrap();
    (text(&documents, usize::MAX), summary["arms"].clone())
}

fn row(rows: &Value, profile: &str, vm: Value) -> Value {
    let is_it = |row: &&Value| row["profile"] == profile && row["vm_index"] == vm;
    rows.as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("{profile}")).clone()
}

#[test]
fn a_row_of_one_vm_says_what_was_injected_and_what_was_found() {
    let (text, rows) = report(watched);
    assert!(text.contains("time that VMs lose") && text.contains("right: 3 of 3 VMs"), "{text}");
    let shared = row(&rows, "shared-waits", json!(0));
    assert_eq!(shared["injected"], json!(["contention"]));
    assert_eq!(shared["dominant"], "contention");
    assert_eq!(shared["states"], json!({"guest": 0.6, "ready:vm": 0.6}));
    let cause = |row: &Value, name: &str| -> Value {
        let causes = row["causes"].as_array().unwrap();
        causes.iter().find(|cause| cause["cause"] == name).unwrap().clone()
    };
    let expected =
        json!({"cause": "contention", "lost_s_per_s": 1.0, "share": 0.5, "sure": "measured"});
    assert_eq!(cause(&shared, "contention"), expected);
    assert_eq!(cause(&shared, "user-spin")["share"], 0.045);
    assert_eq!(row(&rows, "shared-computes", json!(1))["dominant"], "contention");
    let alone = row(&rows, "alone", json!(0));
    assert_eq!((&alone["injected"], &alone["dominant"]), (&json!([]), &Value::Null));
    assert!(alone.as_object().unwrap().contains_key("dominant"));
    // 9 looks a repeat: 18 say nothing.
    assert_eq!(cause(&alone, "user-spin")["sure"], "unknown");
    assert!(row(&rows, "alone", Value::Null).get("dominant").is_none(), "it is of one VM");
}

#[test]
fn a_run_that_nobody_watched_is_not_diagnosed() {
    let (text, rows) = report(|_, _| {});
    assert!(!text.contains("time that VMs lose"), "{text}");
    assert!(row(&rows, "alone", json!(0)).get("dominant").is_none());
}
