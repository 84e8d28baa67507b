// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated computer with AMD's pause filter: its exits are exact to the PAUSE (tests/amd.sh), a boot
//! gives the same values again.

mod common;

use common::plans::boot_on;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use unspin_lab::{Computer, Emulator, Kernel, Lab, LabError, Series, QEMU_TOOLS};
use unspin_scenario::plan::Plan;
use unspin_scenario::{expand, parse_profile, parse_scenario, Selection};

const SCENARIO: &str = r#"
title = "two VMs on four CPUs"
seed = 1
repeats = 1
epoch_ple_exits = 50
epoch_min_us = 3000
[host]
pcpus = 4
[[vm]]
vcpus = 4
pin = "one-per-pcpu"
lock = "ticket"
[sweep]
profiles = ["dbench"]
vms = [2]
[measure]
warmup_ms = 20
window_ms = 50
alone = false
[[arm]]
name = "apples"
window = "aple"
yield_to = "hvs"
baseline = true
"#;
const CHECKS_MIN: u32 = 29;

/// One emulator at a time.
static COMPUTER: Mutex<()> = Mutex::new(());

/// The lab with its emulator and kernel, or `None` and the reason said.
fn lab() -> Option<(Lab, Kernel)> {
    if !common::has_tools(QEMU_TOOLS) {
        return None;
    }
    let lab = common::lab();
    let go = AtomicBool::new(false);
    match lab.program(Emulator::QemuAmd, &go, &mut |text| common::say(text)) {
        Ok(program) => common::say(&program.name()),
        Err(e @ (LabError::MissingTool { .. } | LabError::Download { .. })) => {
            common::say(&format!("SKIPPED: the lab's QEMU: {e}"));
            return None;
        }
        Err(e) => panic!("{e}"),
    }
    let kernel = common::kernel(&lab, Series::V6_12)?;
    Some((lab, kernel))
}

#[test]
fn the_pause_filter_is_exact() {
    let _alone = COMPUTER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((lab, kernel)) = lab() {
        let computer = Computer::qemu_amd(1);
        let heard = common::script(&lab, &kernel, &computer, include_str!("amd.sh"), "amd-truth");
        let wrong = common::verdict(Series::V6_12, &heard, CHECKS_MIN, &heard.console);
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    }
}

#[test]
fn the_same_boot_gives_the_same_values() {
    let _alone = COMPUTER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((lab, kernel)) = lab() {
        let plan = plan();
        let boots = ["amd-one", "amd-other"]
            .map(|name| boot_on(&lab, &kernel, &Computer::qemu_amd(plan.pcpus), &plan, name));
        assert_eq!(boots[0], boots[1]);
        // And another seed gives others: the values are not the same whatever happens.
        assert_ne!(boots[0][0].vm, boots[0][1].vm);
        for vm in boots[0].iter().flat_map(|result| &result.vm) {
            let module = vm.module.as_ref().expect("counters of the module");
            assert!(module.ple_exits > 0 && module.fail_open_events == 0, "{module:?}");
        }
    }
}

/// One run of APPLES, and the same with another seed.
fn plan() -> Plan {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/dbench.toml");
    let text = std::fs::read_to_string(&file).expect("profiles/dbench.toml");
    let profile = parse_profile("dbench.toml", "dbench", &text).expect("the profile");
    let profiles = BTreeMap::from([("dbench".to_string(), (profile, text))]);
    let scenario = parse_scenario("amd.toml", "amd", SCENARIO).expect("the scenario");
    let mut plan =
        expand(&scenario, SCENARIO, &profiles.into(), &Selection::default()).expect("the plan");
    let mut another = plan.runs[0].clone();
    (another.id, another.seed) = (another.id + 1, another.seed + 1);
    plan.runs.push(another);
    plan
}
