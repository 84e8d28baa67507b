// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans on the emulated computer that is measured on.

use super::{kernel, say};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use unspin_computers::{Computer, Kernel, Lab, Series, BOCHS_TOOLS};
use unspin_scenario::plan::Plan;
use unspin_scenario::result::{Record, RunResult};
use unspin_scenario::{expand, parse_profile, parse_scenario, Selection, Workloads};

/// A file of the repository, `scenarios/woken.toml` say.
pub fn of_repository(file: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// These profiles of the repository.
pub fn workloads<S: AsRef<str>>(profiles: &[S]) -> Workloads {
    let read = |name: &S| {
        let name = name.as_ref();
        let text = of_repository(&format!("profiles/{name}.toml"));
        (name.to_string(), (parse_profile(name, name, &text).expect("the profile"), text))
    };
    Workloads::from(profiles.iter().map(read).collect::<BTreeMap<_, _>>())
}

/// All runs of a scenario's text.
pub fn planned(name: &str, scenario: &str, profiles: &[&str]) -> Plan {
    let parsed = parse_scenario(name, name, scenario).expect("the scenario");
    expand(&parsed, scenario, &workloads(profiles), &Selection::default()).expect("the plan")
}

/// The plan's first run alone, and the same with another seed.
pub fn with_another_seed(mut plan: Plan) -> Plan {
    plan.runs.truncate(1);
    let mut another = plan.runs[0].clone();
    (another.id, another.seed) = (another.id + 1, another.seed + 1);
    plan.runs.push(another);
    plan
}

/// Two boots give the same values; which are others with another seed, not the same whatever happens.
pub fn boots_are_alike(
    lab: &Lab,
    kernel: &Kernel,
    computer: &Computer,
    plan: &Plan,
    names: [&str; 2],
) -> Vec<RunResult> {
    let [one, other] = names.map(|name| boot_on(lab, kernel, computer, plan, name));
    assert_eq!(one, other);
    assert_ne!(one[0].vm, one[1].vm);
    one
}

/// The lab and its kernel; or `None`, with the reason printed.
pub fn lab() -> Option<(Lab, Kernel)> {
    let lab = super::lab(BOCHS_TOOLS)?;
    let kernel = kernel(&lab, Series::V6_12)?;
    Some((lab, kernel))
}

/// Every run's result, under Bochs; panics if one fails.
pub fn boot(lab: &Lab, kernel: &Kernel, plan: &Plan, name: &str) -> Vec<RunResult> {
    boot_on(lab, kernel, &Computer::bochs(plan.host.pcpus), plan, name)
}

/// The same on a computer of the caller's.
pub fn boot_on(
    lab: &Lab,
    kernel: &Kernel,
    computer: &Computer,
    plan: &Plan,
    name: &str,
) -> Vec<RunResult> {
    let start = Instant::now();
    let (mut results, mut failed) = (Vec::new(), Vec::new());
    let booted = lab.boot_plan(
        kernel,
        computer,
        &plan.clone().into(),
        name,
        &AtomicBool::new(false),
        &mut |record| match record {
            Record::Progress(p) => {
                say(&format!("[{:4}s] {}", start.elapsed().as_secs(), p.text));
            }
            Record::Run(result) => results.push(*result),
            Record::Failed { id, error } => failed.push(format!("run {id}: {error}")),
            Record::Log { text } => say(&text),
            _ => {}
        },
    );
    booted.unwrap_or_else(|e| panic!("{e}"));
    say(&format!("{name}: {} s", start.elapsed().as_secs()));
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(results.len(), plan.runs.len());
    results
}
