// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios that are drawn: each is one, other than what is known, and all there is to choose is chosen.

use proptest::prelude::*;
use std::collections::BTreeSet;
use unspin_scenario::space::{draw, seed_of_release, Drawn, Space};
use unspin_scenario::{parse_scenario, Scenario};

const TEXT: &str = include_str!("../../../spaces/held-out.toml");
/// Of the host in `TEXT`.
const PCPUS: u32 = 4;

fn space() -> Space {
    Space::parse("x.toml", TEXT).unwrap()
}

fn read(drawn: &Drawn) -> Scenario {
    parse_scenario("drawn.toml", "drawn", &drawn.text).unwrap()
}

/// Circumstances that every scenario had before there were drawn ones.
fn is_known(drawn: &Drawn, scenario: &Scenario) -> bool {
    let lab = ["ebizzy", "dbench", "hackbench", "kernbench", "raytrace", "streamcluster", "dedup"];
    let usual = |vm: &unspin_scenario::space::DrawnVm| {
        (vm.vcpus, vm.weight, vm.lock.as_str()) == (4, 100, Some("ticket"))
    };
    drawn.vms.iter().all(usual)
        && drawn.pin == "one-per-pcpu"
        && scenario.sweep.profiles.iter().all(|p| lab.contains(&p.as_str()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_draw_is_a_scenario_that_both_machines_take(seed in any::<u32>(), index in 0u32..1000) {
        let drawn = draw(&space(), seed.into(), index).unwrap();
        prop_assert_eq!(&drawn, &draw(&space(), seed.into(), index).unwrap());
        let scenario = read(&drawn);
        for machine in ["emulated", "sim"] {
            let refused = scenario.refused_by(machine, |_| true);
            prop_assert!(refused.is_none(), "{}: {}", machine, drawn.text);
        }
        prop_assert!(!is_known(&drawn, &scenario), "{}", drawn.text);
        let busy: u32 = scenario.vms.iter().map(|vm| vm.vcpus * vm.count).sum();
        prop_assert!(busy > PCPUS, "nobody waits: {}", drawn.text);
        let unequal = drawn.vms.iter().any(|vm| vm.weight != drawn.vms[0].weight);
        prop_assert!(!unequal || drawn.cgroups != "flat", "weights act nowhere: {}", drawn.text);
        let arms: BTreeSet<&String> = drawn.arms.iter().collect();
        prop_assert_eq!((arms.len(), &*drawn.arms[0]), (3, "stock"));
        prop_assert_eq!(&scenario.arms[scenario.baseline].name, "stock");
        let alone = |name: &str| drawn.vms.iter().all(|vm| vm.lock.as_str() == Some(name));
        let twins = drawn.arms.iter().filter(|name| alone(name)).count();
        prop_assert_eq!(twins, 0, "the baseline under another name: {}", drawn.text);
    }

    #[test]
    fn what_is_drawn_is_what_stands_in_the_file(seed in any::<u32>(), index in 0u32..1000) {
        let drawn = draw(&space(), seed.into(), index).unwrap();
        let scenario = read(&drawn);
        prop_assert_eq!(&scenario.kernels, &vec![drawn.kernel.clone()]);
        prop_assert_eq!(&scenario.sweep.profiles, &vec![drawn.profile.clone()]);
        let vms: Vec<(u32, u32)> = scenario.vms.iter().map(|vm| (vm.vcpus, vm.weight)).collect();
        let said: Vec<(u32, u32)> = drawn.vms.iter().map(|vm| (vm.vcpus, vm.weight)).collect();
        prop_assert_eq!(vms, said);
        let names: Vec<&String> = scenario.arms.iter().map(|arm| &arm.name).collect();
        prop_assert_eq!(names, drawn.arms.iter().collect::<Vec<_>>());
    }
}

#[test]
fn all_there_is_to_choose_is_chosen() {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut texts: BTreeSet<String> = BTreeSet::new();
    for index in 0..500 {
        let d = draw(&space(), 7, index).unwrap();
        let vms = d.vms.iter().flat_map(|vm| {
            [format!("{} vcpus", vm.vcpus), format!("weight {}", vm.weight), vm.lock.to_string()]
        });
        seen.extend(vms);
        let alike = d.vms.iter().all(|vm| (vm.vcpus, &vm.lock) == (d.vms[0].vcpus, &d.vms[0].lock));
        seen.extend([format!("{} VMs", d.vms.len()), format!("alike {alike}")]);
        seen.extend([d.kernel, d.profile, d.pin, d.cgroups].into_iter().chain(d.arms));
        texts.insert(d.text);
    }
    let lists = "2 VMs,3 VMs,4 VMs,2 vcpus,3 vcpus,4 vcpus,weight 100,weight 200,weight 400,alike true,alike false,\
                 6.1,6.12,one-per-pcpu,none,flat,vm,vcpu,ebizzy,dbench,hackbench,kernbench,raytrace,\
                 streamcluster,dedup,lock-bound,one-lock,shootdowns,\"ticket\",\"tas\",\"mcs\",\"preemptable\",\
                 \"pv-ticket\",\"pv-queued\",\"oticket\",\"lease\",stock,hvs,apples,gangs,fixed,pv-queued,lease";
    let all: BTreeSet<String> = lists.split(',').map(str::to_string).collect();
    assert_eq!(seen, all);
    assert_eq!(texts.len(), 500, "no two are the same");
}

#[test]
fn releases_have_seeds_of_their_own() {
    let seeds: BTreeSet<u64> =
        (0..100).map(|minor| seed_of_release(&format!("0.{minor}.0"))).collect();
    assert_eq!(seeds.len(), 100);
    // TOML and JSON keep it.
    assert!(seeds.iter().all(|seed| *seed < 1 << 53));
}

#[test]
fn what_is_wrong_with_a_space_is_named() {
    let refused = |from: &str, to: &str, words: &str| {
        assert!(TEXT.contains(from), "{from}");
        let said = Space::parse("x.toml", &TEXT.replace(from, to)).expect_err(words).to_string();
        assert!(said.contains(words), "{said}");
    };
    refused("kernels = [\"6.1\", \"6.12\"]", "kernels = []", "`draw.kernels`: an empty choice");
    refused("weights = [[100],", "weights = [[],", "`draw.weights`: a list of no weights");
    refused("arms = 2", "arms = 7", "`draw.arms`: 7; it is from 1 to the 6 of [[arm]]");
    refused("arms = 2", "arms = 0", "`draw.arms`: 0");
    refused("pcpus = 4", "", "`scenario.host.pcpus`: missing");
    refused("name = \"hvs\"", "name = \"H V\"", "`arm`: each has a name");
    refused(
        "cgroups = [\"flat\", \"vm\", \"vcpu\"]\nkernels",
        "cgroups = [\"flat\"]\nkernels",
        "`draw.cgroups`",
    );
    refused("[known]", "[unknown]", "unknown key \"unknown\"");
}

#[test]
fn a_space_in_which_nothing_can_be_drawn_says_so() {
    let text = TEXT.replace("vms = [2, 3, 4]", "vms = [1]");
    let said = draw(&Space::parse("x.toml", &text).unwrap(), 1, 0).unwrap_err().to_string();
    assert!(said.contains("no scenario can be drawn"), "{said}");
}
