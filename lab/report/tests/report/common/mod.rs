// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results made from a plan by formulas, so that every figure of a report can be known.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use unspin_report::{documents, read_str, Document, Input};
use unspin_scenario::plan::{Plan, Run, Window, YieldTo, SCHEMA};
use unspin_scenario::result::{Begin, EpochSample, ModuleStats, Record, RunResult, VmResult};
use unspin_scenario::{expand, parse_profile, parse_scenario, Selection};

const WINDOW_NS: u64 = 300_000_000;

pub fn plan(scenario: &str) -> Plan {
    plan_of(scenario, &[])
}

/// With profiles of VMs besides those that are swept.
pub fn plan_of(scenario: &str, more: &[&str]) -> Plan {
    let s = parse_scenario("test.toml", "test", scenario).unwrap();
    let mut profiles = BTreeMap::new();
    let more = more.iter().map(|name| name.to_string());
    for name in s.sweep.profiles.iter().cloned().chain(more) {
        let name = &name;
        let spin = name != "compute";
        let text = format!(
            "name = \"{name}\"\nspin_intensive = {spin}\n[[step]]\nop = \"compute\"\niterations = 5\n"
        );
        profiles.insert(name.clone(), (parse_profile("p.toml", name, &text).unwrap(), text));
    }
    expand(&s, scenario, &profiles.into(), &Selection::default()).unwrap()
}

pub fn begin(kernel: &str) -> Begin {
    Begin {
        schema: SCHEMA,
        scenario: "test".into(),
        scenario_hash: "ab".repeat(32),
        kernel: kernel.into(),
        cpu_model: "A <CPU>".into(),
        pcpus: 4,
        tsc_khz: Some(200_000),
        module: Some("0.1.0".into()),
        window_control: Some("vmx".into()),
        settings: BTreeMap::from([("halt_poll_ns".to_string(), "0".to_string())]),
        machine: "emulated".into(),
        title: "A test & more".into(),
        commit: Some("c0ffee".into()),
        version: Some("0.1.0".into()),
        image: None,
        shard: None,
        world: None,
    }
}

/// Speed of an arm relative to stock.
pub fn speed(arm: &str) -> f64 {
    match arm {
        "ple-off" => 0.5,
        "aple" => 1.1,
        "hvs" => 1.2,
        "apples" => 1.3,
        "fixed-512" => 0.9,
        "fixed-4096" => 1.05,
        _ => 1.0,
    }
}

pub fn result(run: &Run, tune: impl Fn(&Run, &mut VmResult)) -> RunResult {
    let mut r = RunResult::new(run.clone(), WINDOW_NS, Vec::new());
    for vm in 0..run.vm_count() {
        let mut v = vm_result(run, run.vms[vm as usize].vcpus);
        tune(run, &mut v);
        r.vm.push(v);
        if run.trace_epochs {
            r.epochs.extend((0..20).map(|e| EpochSample {
                vm,
                at_ns: 1_000_000_000 + e * 10_000_000,
                epoch: e,
                window_cycles: 4096 + 512 * e,
                inefficiency_ppm: 50_000,
            }));
        }
    }
    r
}

/// Alone a VM does 1000 units a vCPU on a whole pCPU; of several it gets its share of the CPU and
/// stock makes 3/4 of what that could do.
fn vm_result(run: &Run, vcpus: u32) -> VmResult {
    let share = if run.alone { 1.0 } else { 1.0 / f64::from(run.vm_count()) };
    let units = if run.alone { 1000.0 } else { 750.0 * share * speed(&run.arm.name) };
    let n = vcpus as usize;
    let mut wait_hist = vec![0; 40];
    wait_hist[8] = 900;
    wait_hist[20] = 100;
    VmResult {
        units: vec![units.round() as u64; n],
        acquisitions: vec![units.round() as u64; n],
        cpu_ns: vec![(WINDOW_NS as f64 * share) as u64; n],
        halt_poll_ns: None,
        wait_hist,
        max_wait_cycles: 1_500_000,
        responses: None,
        module: Some(ModuleStats {
            ple_exits: 400,
            wasteful_spin_cycles: if run.arm.yield_to == YieldTo::HVS {
                500_000
            } else {
                1_000_000
            },
            wasteful_switch_cycles: 1_000_000,
            cpu_cycles: 20_000_000,
            window_cycles: 8192,
            epochs: 8,
            rounds_total: if matches!(run.arm.window, Window::Aple(_)) { 12 } else { 0 },
            yields_resource_waiter: 200,
            yields_lock_waiter: 100,
            yields_none: 90,
            yields_failed: 10,
            picks_ran_next: 150,
            ..ModuleStats::default()
        }),
        ..VmResult::default()
    }
}

pub fn lines(kernel: &str, plan: &Plan, tune: impl Fn(&Run, &mut VmResult)) -> String {
    written(begin(kernel), plan.runs.iter().map(|r| result(r, &tune)).collect())
}

/// The records of these runs.
pub fn written(begin: Begin, results: Vec<RunResult>) -> String {
    let runs = results.len() as u32;
    let mut records = vec![Record::Begin(begin)];
    records.extend(results.into_iter().map(|r| Record::Run(Box::new(r))));
    records.push(Record::End { runs, failed: 0 });
    records.iter().map(|r| r.to_json() + "\n").collect()
}

/// The records with each one changed, as JSON.
pub fn edited(records: &str, change: impl Fn(&mut Value)) -> String {
    let line = |line: &str| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        change(&mut record);
        record.to_string() + "\n"
    };
    records.lines().map(line).collect()
}

pub fn read(records: &str) -> Input {
    read_str(Path::new("results.jsonl"), records)
}

pub fn documents_of(records: &str) -> Vec<Document> {
    documents(&read(records))
}
