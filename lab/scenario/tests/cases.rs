// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[case]]`: VMs that lose time to causes that are known, run instead of the points of a sweep.

use std::collections::BTreeMap;
use unspin_diagnosis::Cause;
use unspin_scenario::plan::Plan;
use unspin_scenario::{expand, parse_profile, parse_scenario, Selection};

const GOOD: &str = r#"title = "t"
repeats = 2
[host]
pcpus = 4
[[vm]]
name = "one"
vcpus = 2
pin = [0, 1]
workload = "p"
[[vm]]
name = "others"
count = 2
vcpus = 1
workload = "p"
[[arm]]
name = "stock"
[[arm]]
name = "short"
window = { fixed_cycles = 1024 }
[[case]]
name = "nothing"
vms = ["one"]
[[case]]
name = "both"
inject = ["contention", "spin-switch"]
vms = ["others", "one"]
arm = "short"
"#;

fn plan(select: &Selection) -> Result<Plan, String> {
    let scenario = parse_scenario("x.toml", "x", GOOD).unwrap();
    let text = "name = \"p\"\nspin_intensive = false\n[[step]]\nop = \"compute\"\niterations = 9\n";
    let profile = parse_profile("p.toml", "p", text).unwrap();
    let profiles = BTreeMap::from([("p".to_string(), (profile, text.to_string()))]);
    expand(&scenario, GOOD, &profiles.into(), select).map_err(|e| e.to_string())
}

#[test]
fn a_case_is_a_run_of_its_vms_under_its_arm() {
    let runs = plan(&Selection::default()).unwrap().runs;
    let names: Vec<(&str, &str, u32)> =
        runs.iter().map(|r| (r.profile.as_str(), r.arm.name.as_str(), r.repeat)).collect();
    let expected = [
        ("nothing", "stock", 0),
        ("both", "short", 0),
        ("nothing", "stock", 1),
        ("both", "short", 1),
    ];
    assert_eq!(names, expected);
    assert!(runs.iter().all(|r| r.states && !r.alone && r.baseline == r.arm.name));
    assert_eq!(runs[0].inject, Some(vec![]));
    assert_eq!(runs[1].inject, Some(vec![Cause::Contention, Cause::SpinSwitch]));
    assert_eq!((runs[0].vms.len(), runs[0].groups()), (1, vec!["nothing"]));
    assert_eq!((runs[1].vms.len(), runs[1].groups()), (3, vec!["both-others", "both-one"]));
    let pins: Vec<_> = runs[1].vms.iter().map(|vm| vm.pin.clone()).collect();
    assert_eq!(pins, [vec![], vec![], vec![0, 1]]);
}

#[test]
fn cases_are_selected_by_name() {
    let of = |name: &str| Selection { profiles: vec![name.into()], ..Selection::default() };
    assert_eq!(plan(&of("both")).unwrap().runs.len(), 2);
    let error = plan(&of("neither")).unwrap_err();
    assert!(error.contains("no case \"neither\"; allowed: nothing, both"), "{error}");
}

#[track_caller]
fn refused(from: &str, to: &str, key: &str, words: &str) {
    assert!(GOOD.contains(from), "{from}");
    let problems = parse_scenario("x.toml", "x", &GOOD.replace(from, to)).unwrap_err().0;
    let [p] = &problems[..] else { panic!("{problems:#?}") };
    assert_eq!(p.key, key, "{p}");
    assert!(p.to_string().contains(words), "{p}");
}

#[test]
fn what_is_wrong_with_a_case_is_named() {
    refused("vms = [\"one\"]", "vms = [\"two\"]", "case[0].vms", "no [[vm]] has the name \"two\"");
    refused("arm = \"short\"", "arm = \"long\"", "case[1].arm", "no [[arm]] has the name \"long\"");
    refused("\"contention\"", "\"contenion\"", "case[1].inject[0]", "`contention`?");
    refused("\"both\"", "\"nothing\"", "case", "twice");
}

#[test]
fn cases_say_all_that_is_run() {
    refused("[host]", "[sweep]\ncgroups = [\"flat\"]\n[host]", "sweep", "no [sweep] with [[case]]");
    refused("[host]", "[measure]\nalone = true\n[host]", "measure.alone", "alone = false");
    let spare = "[[vm]]\nname = \"spare\"\nvcpus = 1\nworkload = \"p\"\n[[arm]]\nname = \"stock\"";
    refused("[[arm]]\nname = \"stock\"", spare, "vm[2]", "no [[case]] has these VMs");
    let linux = "name = \"others\"\nguest = \"linux\"";
    refused("name = \"others\"", linux, "case[1]", "one kind of guest in a case");
}

#[test]
fn only_machines_with_the_module_have_cases() {
    let scenario = parse_scenario("x.toml", "x", GOOD).unwrap();
    assert_eq!(scenario.refused_by("emulated", |_| true), None);
    for machine in ["sim", "threads"] {
        assert_eq!(scenario.refused_by(machine, |_| true).unwrap().path, "case", "{machine}");
    }
}
