// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a plan asks for is what the scenario says.

use std::collections::{BTreeMap, BTreeSet};
use unspin_scenario::plan::{
    ApleParams, Asym, CgroupLayout, Coscheduling, Factor, GuestLock, HostCosts, HostModel,
    HostScheduler, LockKind, LoopDetection, Op, Plan, Platform, Role, Run, Step, Window, YieldTo,
};
use unspin_scenario::{
    expand, parse_guest_program, parse_profile, parse_scenario, split, Host, Pin, Profile,
    Scenario, Selection, Workloads,
};

fn plan_of(s: &Scenario, select: &Selection) -> Plan {
    let profiles: BTreeMap<_, _> = s
        .profile_names()
        .iter()
        .map(|n| {
            let p = Profile {
                name: n.clone(),
                spin_intensive: true,
                program: vec![Step::new(Op::Compute, 1)],
                calibration: None,
            };
            (n.clone(), (p, format!("text of {n}")))
        })
        .collect();
    expand(s, "text", &profiles.into(), select).unwrap()
}

#[test]
fn the_hash_covers_scenario_and_profiles() {
    let p = |text: &str| {
        let program = vec![Step::new(Op::Barrier, 0)];
        (
            Profile { name: "a".into(), spin_intensive: true, program, calibration: None },
            text.to_string(),
        )
    };
    let text = "title = \"t\"\n[host]\npcpus = 1\n[[vm]]\nvcpus = 1\nworkload = \"a\"\n[[arm]]\nname = \"s\"\n";
    let s = parse_scenario("x.toml", "x", text).unwrap();
    let hash = |text: &str, profile: &str| {
        let profiles = BTreeMap::from([("a".to_string(), p(profile))]);
        expand(&s, text, &profiles.into(), &Selection::default()).unwrap().scenario_hash
    };
    let profile = "name = \"a\"\n[[step]]\nop = \"wake\"\n";
    let first = hash(text, profile);
    assert_ne!(first, hash(text, &profile.replace("wake", "barrier")));
    assert_ne!(first, hash(&text.replace("\"t\"", "\"u\""), profile));
    assert_ne!(first, hash(&format!("{text}[[arm]]\nname = \"b\"\n"), profile));
    // Neither comments count nor where a profile's numbers are from.
    assert_eq!(first, hash(&format!("# A scenario.\n{text}\n"), profile));
    let record = "[calibration]\ndate = \"2026-11-22\"\n";
    assert_eq!(first, hash(text, &format!("# A profile.\n{profile}{record}")));
}

#[test]
fn the_fingerprint_is_the_programs() {
    let profile = |name: &str, text: &str| parse_profile("x.toml", name, text).unwrap();
    let text = "name = \"a\"\nspin_intensive = true\n[[step]]\nop = \"compute\"\niterations = 5\n";
    let first = profile("a", text).fingerprint();
    assert_eq!(first.len(), 64);
    assert_eq!(first, profile("b", &text.replace("\"a\"", "\"b\"")).fingerprint());
    let record =
        format!("[calibration]\ndate = \"1\"\nentries = []\nhow = \"h\"\nsha256 = \"{first}\"\n");
    assert_eq!(first, profile("a", &format!("# Head.\n{text}{record}")).fingerprint());
    assert_ne!(first, profile("a", &text.replace('5', "6")).fingerprint());
    assert_ne!(first, profile("a", &text.replace("true", "false")).fingerprint());
}

/// Two swept profiles beside a VM of its own kind that the module leaves alone.
const MIXED: &str = r#"
title = "t"
[host]
pcpus = 4
[sweep]
profiles = ["a", "b-1"]
[[vm]]
count = 2
vcpus = 4
pin = "one-per-pcpu"
[[vm]]
vcpus = 2
workload = "c_2"
lock = "mcs"
mode = "off"
[[arm]]
name = "stock"
[[arm]]
name = "hvs"
yield_to = "hvs"
"#;

fn mixed(change: impl Fn(&str) -> String) -> Plan {
    let scenario = parse_scenario("x.toml", "x", &change(MIXED)).unwrap();
    plan_of(&scenario, &Selection::default())
}

#[test]
fn vms_that_differ_are_listed_one_by_one() {
    let plan = mixed(str::to_string);
    let alone: Vec<_> = plan
        .runs
        .iter()
        .filter(|r| r.alone && r.repeat == 0)
        .map(|r| (&*r.profile, r.first().vcpus))
        .collect();
    assert_eq!(alone, [("a", 4), ("c_2", 2), ("b-1", 4)], "every kind of VM once");
    let run = plan.runs.iter().find(|r| !r.alone && r.profile == "b-1").unwrap();
    assert_eq!(run.groups(), ["b-1", "c_2-beside-b-1"]);
    assert_eq!((run.vms.len(), run.vcpus_text()), (3, "4+2".into()));
    let pins: Vec<_> = run.vms.iter().map(|vm| vm.pin.clone()).collect();
    assert_eq!(pins, [vec![0, 1, 2, 3], vec![0, 1, 2, 3], vec![]]);
    let last = &run.vms[2];
    assert_eq!((last.vcpus, last.lock, &*last.profile), (2, LockKind::Mcs, "c_2"));
    let hvs = plan.runs.iter().find(|r| r.arm.name == "hvs").unwrap();
    assert_eq!(hvs.arm_of(&hvs.vms[0]).yield_to, YieldTo::HVS);
    let last = hvs.arm_of(&hvs.vms[2]);
    assert_eq!((last.yield_to, last.observe), (YieldTo::Stock, false));
    let json = plan.to_json();
    assert_eq!(Plan::from_json(json.as_bytes()).unwrap(), plan);
}

#[test]
fn who_gangs_is_said_or_is_who_spins() {
    let plan = mixed(|text| {
        let with = text.replace("yield_to = \"hvs\"", "yield_to = \"hvs\"\ncoscheduling = \"con\"");
        with.replace("mode = \"off\"", "gang = true")
    });
    let runs = || plan.runs.iter().filter(|r| r.arm.name == "hvs");
    let of = |run: &Run, vm: usize| run.arm_of(&run.vms[vm]).coscheduling;
    let is = |run: &Run, vm| of(run, vm) == Coscheduling::Con;
    for run in runs() {
        assert_eq!((is(run, 0), is(run, 2)), (run.first().spin_intensive, true), "{}", run.profile);
    }
    let mut run = runs().next().unwrap().clone();
    for (gang, spins, gangs) in [
        (None, true, true),
        (None, false, false),
        (Some(true), false, true),
        (Some(false), true, false),
    ] {
        (run.vms[1].gang, run.vms[1].spin_intensive) = (gang, spins);
        assert_eq!((run.vms[1].gangs(), is(&run, 1)), (gangs, gangs));
    }
    // What looks at VMs by itself is for all of them, but for those that nothing is for.
    run.arm.coscheduling = Coscheduling::VcrdPle;
    assert_eq!(of(&run, 1), Coscheduling::VcrdPle);
    run.vms[1].mode_off = true;
    assert_eq!(of(&run, 1), Coscheduling::None);
}

#[test]
fn a_vm_that_says_whether_it_gangs_is_alone_what_it_was() {
    let said = |text: &str| text.replace("mode = \"off\"", "gang = false");
    let left_out = |text: &str| text.replace("mode = \"off\"", "");
    let alone = |plan: Plan| plan.runs.into_iter().filter(|r| r.alone).collect::<Vec<_>>();
    assert_eq!(alone(mixed(said)), alone(mixed(left_out)));
    assert_ne!(mixed(said).runs, mixed(left_out).runs);
    let both = mixed(|text| text.replace("mode = \"off\"", ""));
    assert!(!both.to_json().contains("\"gang\""));
}

#[test]
fn groups_of_one_workload_have_names_of_their_own() {
    let plan =
        mixed(|text| text.replace("\"a\", \"b-1\"", "\"a\"").replace("workload = \"c_2\"\n", ""));
    let run = plan.runs.iter().find(|r| !r.alone).unwrap();
    assert_eq!(run.groups(), ["a", "a-2"]);
}

#[test]
fn plans_from_before_vms_differed_are_read() {
    let plan = mixed(|text| {
        text.replace("vcpus = 2\nworkload = \"c_2\"\nlock = \"mcs\"\nmode = \"off\"", "vcpus = 4")
    });
    let json = plan.to_json();
    assert!(!json.contains("each"), "alike VMs need no list");
    assert_eq!(Plan::from_json(json.as_bytes()).unwrap(), plan);
}

const LINUX: &str = r#"
title = "Linux guests"
repeats = 2
vm = [{ guest = "linux", vcpus = 4 }]
arm = [
    { name = "stock", baseline = true },
    { name = "hvs", yield_to = "hvs" },
]
[host]
pcpus = 4
[sweep]
profiles = ["a", "b"]
vms = [2, 3]
guest_locks = ["pv", "queued"]
"#;

/// A boot of guests serves all that runs in them: a lock, in it a program, in it a repeat; its arms
/// rotate. Parts of the plan never boot the same guests for the same program.
#[test]
fn linux_guests_are_booted_once_for_all_that_runs_in_them() {
    let s = parse_scenario("x.toml", "x", LINUX).unwrap();
    let described = |name: &str| {
        let text = format!(
            "name = \"{name}\"\ntitle = \"t\"\ncommand = \"c\"\nunit = \"u\"\nfrom = \"f\"\n"
        );
        (name.to_string(), (parse_guest_program("p.toml", name, &text).unwrap(), text))
    };
    let workloads =
        Workloads { programs: ["a", "b"].map(described).into(), ..Workloads::default() };
    let plan = expand(&s, LINUX, &workloads, &Selection::default()).unwrap();
    let lock = |r: &Run| format!("{:?}", r.first().linux.as_ref().unwrap().guest.lock);
    let mut order: Vec<_> =
        plan.runs.iter().map(|r| (lock(r), r.profile.clone(), r.repeat)).collect();
    order.dedup();
    let wanted = ["Pv", "Queued"].iter().flat_map(|lock| {
        ["a", "b"].map(|p| [0, 1].map(|n| (lock.to_string(), p.to_string(), n))).concat()
    });
    assert_eq!(order, wanted.collect::<Vec<_>>());
    let arms = |n: usize| plan.runs[n..n + 5].iter().map(|r| &*r.arm.name).collect::<Vec<_>>();
    assert_eq!(arms(0), ["alone", "stock", "hvs", "stock", "hvs"]);
    assert_eq!(arms(5), ["alone", "hvs", "stock", "hvs", "stock"]);
    assert!(plan
        .runs
        .iter()
        .all(|r| r.cgroup == CgroupLayout::Libvirt && r.first().program.is_empty()));
    let key = |r: &Run| (lock(r), r.profile.clone());
    let parts: Vec<BTreeSet<_>> =
        split(&plan, 3).iter().map(|p| p.runs.iter().map(key).collect()).collect();
    assert_eq!(parts.iter().map(BTreeSet::len).sum::<usize>(), 4);
    let one = Selection { guest_locks: vec![GuestLock::Queued], ..Selection::default() };
    let some = expand(&s, LINUX, &workloads, &one).unwrap();
    assert!(
        some.runs.iter().all(|r| lock(r) == "Queued") && some.runs.len() == plan.runs.len() / 2
    );
}

#[test]
fn a_vm_stands_beside_hogs_among_vms_like_it_or_alone() {
    let text = include_str!("../../../scenarios/asymmetric.toml");
    let s = parse_scenario("x.toml", "x", text).unwrap();
    assert_eq!(s.sweep.vms, [4, 3, 1]);
    let compute = include_str!("../../../profiles/compute.toml");
    let profile = |name: String| {
        (name.clone(), (parse_profile("x.toml", "compute", compute).unwrap(), compute.to_string()))
    };
    let profiles: BTreeMap<_, _> = s.profile_names().into_iter().map(profile).collect();
    let workloads = Workloads::from(profiles);
    let plan = expand(&s, text, &workloads, &Selection::default()).unwrap();
    for run in &plan.runs {
        let roles: Vec<Role> = run.vms.iter().map(|vm| vm.role).collect();
        match run.vms.len() {
            4 => assert_eq!(roles, [Role::Shaped, Role::Hog, Role::Hog, Role::Hog]),
            3 => assert_eq!(roles, [Role::Shaped; 3]),
            _ => assert_eq!(roles, [Role::Shaped]),
        }
    }
    let arms = s.arms.len() * s.sweep.profiles.len() * s.repeats as usize;
    assert_eq!(plan.runs.len(), 3 * arms);
}

/// Two VMs with a quota, of which each has its own at one point.
const QUOTAS: &str = r#"title = "t"
repeats = 2
vm = [
    { name = "one", count = 2, vcpus = 4, workload = "a", quota = 0.2 },
    { name = "other", vcpus = 4, workload = "b", quota = 0.5 },
]
arm = [{ name = "stock" }]
[host]
pcpus = 4
[sweep]
quota_on = ["one", "other"]
cgroups = ["libvirt"]
"#;

#[test]
fn one_group_has_its_quota_at_each_point() {
    let s = parse_scenario("x.toml", "x", QUOTAS).unwrap();
    let plan = plan_of(&s, &Selection::default());
    let quotas = |r: &Run| r.vms.iter().map(|vm| vm.quota_ppm).collect::<Vec<_>>();
    let groups = |r: &Run| r.groups().into_iter().map(String::from).collect::<Vec<_>>();
    let (fifth, half) = (Some(200_000), Some(500_000));
    for r in plan.runs.iter().filter(|r| !r.alone) {
        let (expected, on) = match r.profile.as_str() {
            "quota-on-one" => ([fifth, fifth, None], "one"),
            "quota-on-other" => ([None, None, half], "other"),
            other => panic!("{other}"),
        };
        assert_eq!(quotas(r), expected);
        let names = ["one", "other"].map(|name| format!("{name}-quota-on-{on}"));
        assert_eq!(groups(r), names);
    }
    assert_eq!(plan.runs.iter().filter(|r| !r.alone).count(), 4);
    // Alone nobody has one, and such runs are for every point.
    let alone = |plan: &Plan| plan.runs.iter().filter(|r| r.alone).count();
    assert!(plan.runs.iter().filter(|r| r.alone).all(|r| quotas(r) == [None]));
    let one = Selection { profiles: vec!["quota-on-one".into()], ..Selection::default() };
    let part = plan_of(&s, &one);
    assert_eq!(part.runs.iter().filter(|r| !r.alone).count(), 2);
    assert_eq!(alone(&part), alone(&plan));
    let all =
        parse_scenario("x.toml", "x", &QUOTAS.replace("quota_on = [\"one\", \"other\"]\n", ""));
    let plan = plan_of(&all.unwrap(), &Selection::default());
    let together = plan.runs.iter().find(|r| !r.alone).unwrap();
    assert_eq!(quotas(together), [fifth, fifth, half], "without a sweep each has its own");
}

/// Keys of hosts, VMs and arms that few scenarios have.
const SELDOM: &str = r#"title = "t"
slice_ns = 3000000
vm = [{ vcpus = 4, pin = [3, 2, 1, 0], weight = 7, cpl = 3, threads = 9, tick_hz = 250, workload = "a", lock = { preemptable = { tau_ns = 5 } } }]
[host]
pcpus = 4
model = "server"
scheduler = "fair-capped"
period_ms = 30
loop_detection = "pause-filter"
llc_pcpus = 2
threads_per_core = 2
thread_speed_percent = 60
skew_tick = false
group_load_lags = true
housekeeping_ppm = 0
exit_cycles = 7
wake_cycles = 8
[[arm]]
name = "all"
window = { aple = { window_min_cycles = 512, window_max_cycles = 1024, window_init_cycles = 700, delta_cycles = 3, delta_max_cycles = 4, epoch_ple_exits = 5, epoch_min_us = 6 } }
physical = true
apicv = true
halt_poll_us = 9
without = ["ipi", "cache"]
asym = { time = true, latency = true, resolver = true, weight = true, uncorrected = true, period_ms = 4 }
[trace]
picks = true
[measure]
hogs = 2
states = true
wakeups_hz = 100
"#;

#[test]
fn seldom_keys_are_read() {
    let s = parse_scenario("x.toml", "x", SELDOM).unwrap_or_else(|e| panic!("{e}"));
    let costs = HostCosts { exit_cycles: Some(7), wake_cycles: Some(8), ..HostCosts::default() };
    let host = Host {
        slice_ns: Some(3_000_000),
        model: HostModel::Server,
        scheduler: HostScheduler::FairCapped,
        period_ms: Some(30),
        loop_detection: LoopDetection::PauseFilter,
        llc_pcpus: Some(2),
        threads_per_core: 2,
        thread_speed_percent: Some(60),
        skew_tick: false,
        group_load_lags: true,
        housekeeping_ppm: Some(0),
        costs,
        ..Host::new(4)
    };
    assert_eq!(s.host, host);
    let vm = &s.vms[0];
    assert_eq!((&vm.pin, vm.weight, vm.cpl), (&Pin::List(vec![3, 2, 1, 0]), 7, 3));
    assert_eq!((vm.threads, vm.tick_hz, vm.lock.tau_ns), (Some(9), 250, Some(5)));
    let halts =
        SELDOM.replace("cpl = 3", "cpl = 0").replace("preemptable = { tau", "pv-ticket = { spin");
    let lock = parse_scenario("x.toml", "x", &halts).unwrap_or_else(|e| panic!("{e}")).vms[0].lock;
    assert_eq!((lock.spin_ns, lock.tau_ns, &*lock.label()), (Some(5), None, "pv-ticket-5ns"));
    let arm = &s.arms[0];
    let aple = ApleParams {
        window_init_cycles: 700,
        window_min_cycles: 512,
        window_max_cycles: 1024,
        delta_cycles: 3,
        delta_max_cycles: 4,
        epoch_min_us: 6,
        epoch_ple_exits: 5,
    };
    assert_eq!(arm.window, Window::Aple(aple));
    let without = vec![Factor::Ipi, Factor::Cache];
    let platform = Platform { physical: true, apicv: true, halt_poll_us: 9, without };
    assert_eq!(arm.platform, platform);
    let period_ms = Some(4);
    let (time, latency, resolver, weight, uncorrected) = (true, true, true, true, true);
    assert_eq!(arm.asym, Asym { time, latency, resolver, weight, uncorrected, period_ms });
    assert!(s.trace.picks && s.measure.states);
    assert_eq!((s.measure.hogs, s.measure.wakeups_hz), (2, Some(100)));
}

#[test]
fn a_factor_has_the_name_of_its_cause() {
    for (name, factor) in Factor::all() {
        assert_eq!(name, factor.cause().name());
    }
}
