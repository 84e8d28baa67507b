// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is written down is what is read, and what a plan asks for is what the scenario said.

mod text;

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use text::{profile_text, scenario_text};
use unspin_scenario::plan::{
    ApleParams, Arm, Asym, CgroupLayout, Coscheduling, Dist, Factor, GuestLock, HostCosts,
    HostModel, HostScheduler, LockChoice, LockKind, LoopDetection, Op, Plan, Platform, Role, Run,
    Step, Window, YieldTo,
};
use unspin_scenario::{
    expand, parse_guest_program, parse_profile, parse_scenario, split, Calibration, Host, Measure,
    Pin, Profile, Scenario, Selection, Sweep, Trace, VmGroup, Workloads, WINDOW_MAX_CYCLES,
    WINDOW_MIN_CYCLES,
};

fn aple() -> impl Strategy<Value = ApleParams> {
    (
        WINDOW_MIN_CYCLES..1 << 20,
        2u32..1 << 20,
        1u32..5000,
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
    )
        .prop_map(|(min, room, epoch, at, delta)| ApleParams {
            window_min_cycles: min,
            window_max_cycles: min + room,
            window_init_cycles: min + at.index(room as usize + 1) as u32,
            delta_cycles: 1 + delta.index((min + room) as usize) as u32,
            delta_max_cycles: at.index((min + room) as usize + 1) as u32,
            epoch_ple_exits: epoch,
            epoch_min_us: delta.index(1_000_001) as u32,
        })
}

const SCHEDULERS: [HostScheduler; 4] = [
    HostScheduler::Fair,
    HostScheduler::FairCapped,
    HostScheduler::Credit,
    HostScheduler::CreditCapped,
];
const COSCHEDULING: [Coscheduling; 6] = [
    Coscheduling::None,
    Coscheduling::Con,
    Coscheduling::Vcrd,
    Coscheduling::VcrdPle,
    Coscheduling::VcrdUser,
    Coscheduling::VcrdBoth,
];

fn arm() -> impl Strategy<Value = Arm> {
    let window = prop_oneof![
        Just(Window::Stock),
        Just(Window::Off),
        (WINDOW_MIN_CYCLES..=WINDOW_MAX_CYCLES).prop_map(|cycles| Window::Fixed { cycles }),
        aple().prop_map(Window::Aple),
    ];
    let yields = prop::sample::select(YieldTo::all().collect::<Vec<_>>());
    let without = prop::sample::subsequence(Factor::ALL.map(|(_, f)| f).to_vec(), 0..=5);
    let platform = (any::<(bool, bool)>(), 0u32..1000, without).prop_map(
        |((physical, apicv), halt_poll_us, without)| Platform {
            physical,
            apicv,
            halt_poll_us,
            without,
        },
    );
    (window, yields, any::<bool>(), platform).prop_map(|(window, y, observe, platform)| {
        let yield_to = if window == Window::Off { YieldTo::Stock } else { y };
        let acts =
            yield_to != YieldTo::Stock || matches!(window, Window::Fixed { .. } | Window::Aple(_));
        let observe = observe || acts;
        Arm { name: String::new(), window, yield_to, observe, platform, ..Arm::default() }
    })
}

fn lock_choice() -> impl Strategy<Value = LockChoice> {
    let kind = prop::sample::select(LockKind::ALL.map(|(_, kind)| kind).to_vec());
    (kind, prop::option::of(0u64..1_000_000_000))
        .prop_map(|(kind, tau)| LockChoice { kind, tau_ns: tau.filter(|_| kind.has_tau()) })
}

prop_compose! {
    fn scenario()(
        title in "[a-zA-Z \"\\\\é]{0,20}x",
        seed in 0u64..1 << 40,
        repeats in 1u32..5,
        slice_ns in prop::option::of(100_000u64..1_000_000_000),
        (epoch_ple_exits, epoch_min_us) in
            (prop::option::of(1u32..5000), prop::option::of(0u32..=1_000_000)),
        kernels in prop::sample::subsequence(vec!["6.1".to_string(), "6.12".to_string()], 0..=2),
        boots in 1u32..4,
        pcpus in 1u32..9,
        model in prop::sample::select(vec![HostModel::Lab, HostModel::Server]),
        (scheduler, period_ms) in (prop::sample::select(SCHEDULERS.to_vec()), prop::option::of(1u32..1000)),
        scheduling in prop::collection::vec((prop::sample::select(COSCHEDULING.to_vec()), any::<[bool; 3]>()), 6),
        vcpus in 1u32..9,
        pin in prop::sample::select(vec![0, 1, 2]),
        list in prop::collection::vec(any::<prop::sample::Index>(), 8),
        weight in 1u32..=10_000,
        (lock_clock_mhz, mut locks, locks_of) in
            (prop::option::of(1u32..=10_000), prop::collection::vec(lock_choice(), 1..4), 0..3),
        cpl in prop::sample::select(vec![0u8, 3]),
        mut arms in prop::collection::vec(arm(), 1..6),
        baseline in any::<prop::sample::Index>(),
        vms in prop::sample::subsequence(vec![1u32, 2, 3, 4, 8], 1..4),
        cgroups in prop::sample::subsequence(vec![CgroupLayout::Flat, CgroupLayout::Vm, CgroupLayout::Vcpu], 1..4),
        profiles in prop::sample::subsequence(vec!["a".to_string(), "b-1".to_string(), "c_2".to_string()], 1..4),
        (warmup_ms, window_ms, stagger_ms) in (0u64..1000, 1u64..1000, 0u64..100),
        (name, threads, tick_hz, llc_pcpus, loop_detection) in (prop::option::of("[a-z]{1,8}"), prop::option::of(1u32..9), 0u32..1000, prop::option::of(1u32..9), prop::sample::select(vec![LoopDetection::Ple, LoopDetection::PauseFilter])),
        (alone, epochs, picks, stalls) in
            (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
    ) -> Scenario {
        for (i, a) in arms.iter_mut().enumerate() {
            a.name = format!("arm-{i}");
            let (coscheduling, [time, latency, resolver]) = scheduling[i];
            if !scheduler.is_credit() {
                let period_ms = period_ms.filter(|_| latency);
                let (weight, uncorrected) = (latency && !time, resolver && time);
                a.asym = Asym { time, latency, resolver, weight, uncorrected, period_ms };
            } else {
                a.coscheduling = coscheduling;
            }
        }
        // Of the VMs, swept, or of the arms.
        if cpl == 3 {
            locks.retain(|l| !l.kind.halts());
        }
        let mut lock = locks.first().copied().unwrap_or(LockChoice::plain(LockKind::Ticket));
        let mut swept = Vec::new();
        if locks_of == 1 && !locks.is_empty() {
            lock = LockChoice::plain(LockKind::Ticket);
            for l in &locks {
                if !swept.contains(l) {
                    swept.push(*l);
                }
            }
        } else if locks_of == 2 {
            for (a, l) in arms.iter_mut().zip(&locks) {
                a.lock = Some(*l);
            }
        }
        let pin = match pin {
            1 if vcpus <= pcpus => Pin::OnePerPcpu,
            2 => Pin::List(list[..vcpus as usize].iter().map(|i| i.index(pcpus as usize) as u32).collect()),
            _ => Pin::None,
        };
        Scenario {
            name: "x".into(),
            title,
            seed,
            repeats,
            epoch_ple_exits,
            epoch_min_us,
            kernels,
            boots,
            host: Host { pcpus, slice_ns, model, lock_clock_mhz, scheduler, period_ms, loop_detection, llc_pcpus, threads_per_core: 1 + u32::from(pcpus % 2 == 0 && weight % 3 == 1), thread_speed_percent: (pcpus % 2 == 0 && weight % 6 == 1).then_some(50 + weight % 51), skew_tick: weight % 2 == 0, group_load_lags: weight % 3 == 0 && !scheduler.is_credit(), housekeeping_ppm: (!scheduler.is_credit() && weight % 7 == 0).then_some(weight), costs: HostCosts { exit_cycles: (weight % 2 == 0).then_some(weight), wake_cycles: (weight % 5 == 0).then_some(0), ..HostCosts::default() } },
            vms: vec![VmGroup { name, workload: None, mode_off: false, gang: any_of_three(weight), role: [Role::Shaped, Role::Neighbour, Role::Hog][weight as usize % 3], threads, tick_hz, count: 1, vcpus, pin, weight, quota_ppm: (may_have_quota(scheduler, &cgroups)).then_some(10_000 + weight * 99), lock, cpl, linux: None }],
            cases: vec![],
            baseline: baseline.index(arms.len()),
            arms,
            sweep: Sweep { profiles, vms, cgroups, locks: swept, guest_locks: vec![], beside: vec![], quota_on: vec![] },
            measure: Measure { warmup_ms, window_ms, stagger_ms, alone, wakeups_hz: (weight % 2 == 0).then_some(weight.clamp(1, 10_000)), hogs: weight % 3, states: weight % 5 == 0 },
            trace: Trace { epochs, picks, stalls },
        }
    }
}

fn may_have_quota(scheduler: HostScheduler, cgroups: &[CgroupLayout]) -> bool {
    scheduler == HostScheduler::Fair && !cgroups.contains(&CgroupLayout::Flat)
}

/// Left out, or said.
fn any_of_three(number: u32) -> Option<bool> {
    [None, Some(true), Some(false)][number as usize % 3]
}

fn dist() -> impl Strategy<Value = Dist> {
    prop_oneof![
        (1u32..1_000_000).prop_map(|iterations| Dist::Const { iterations }),
        (0u32..1000, 1u32..1000).prop_map(|(min, room)| Dist::Uniform { min, max: min + room }),
        (1u32..1000).prop_map(|mean| Dist::Exp { mean, max: 0 }),
        (1u32..1000, 0u32..1000).prop_map(|(mean, room)| Dist::Exp { mean, max: mean + room }),
    ]
}

fn calibration() -> impl Strategy<Value = Calibration> {
    let entries = prop::collection::vec("[a-z_0-9]{1,9}", 0..3);
    ("[0-9-]{1,10}", entries, "x[ -~é]{0,30}", "[0-9a-f]{64}")
        .prop_map(|(date, entries, how, sha256)| Calibration { date, entries, how, sha256 })
}

/// Blocks that are right by construction: each takes and gives back its lock.
fn profile() -> impl Strategy<Value = Profile> {
    let none = Dist::Const { iterations: 0 };
    let step = move |op, dist, lock, permille| Step { op, dist, lock, permille };
    let block = (0u8..4, dist(), dist(), 0u32..16, 1u32..=1000).prop_map(
        move |(kind, a, b, lock, permille)| match kind {
            0 => vec![step(Op::Compute, a, 0, permille)],
            1 => vec![
                step(Op::Lock, none, lock, permille),
                step(Op::Critical, b, 0, 1000),
                step(Op::Unlock, none, lock, 1000),
            ],
            2 => vec![step(Op::SpinBarrier, none, 0, 1000), step(Op::Barrier, none, 0, 1000)],
            _ => vec![step(Op::Wake, none, 0, permille), step(Op::Block, a, 0, permille)],
        },
    );
    let blocks = prop::collection::vec(block, 1..10);
    (blocks, any::<bool>(), prop::option::of(calibration())).prop_map(
        |(blocks, spin_intensive, calibration)| {
            let (name, program) = ("p".to_string(), blocks.concat());
            Profile { name, spin_intensive, program, calibration }
        },
    )
}

fn plan_of(s: &Scenario, select: &Selection) -> Plan {
    let profiles: BTreeMap<_, _> = s
        .profile_names()
        .iter()
        .map(|n| {
            let p = Profile {
                name: n.clone(),
                spin_intensive: true,
                program: vec![Step {
                    op: Op::Compute,
                    dist: Dist::Const { iterations: 1 },
                    lock: 0,
                    permille: 1000,
                }],
                calibration: None,
            };
            (n.clone(), (p, format!("text of {n}")))
        })
        .collect();
    expand(s, "text", &profiles.into(), select).unwrap()
}

proptest! {
    #[test]
    fn scenarios_are_read_as_written(s in scenario()) {
        let text = scenario_text(&s);
        let read = parse_scenario("x.toml", "x", &text);
        prop_assert_eq!(read.map_err(|e| format!("{e}\n{text}")), Ok(s));
    }

    #[test]
    fn profiles_are_read_as_written(p in profile()) {
        let text = profile_text(&p);
        let read = parse_profile("p.toml", "p", &text);
        prop_assert_eq!(read.map_err(|e| format!("{e}\n{text}")), Ok(p));
    }

    #[test]
    fn rubbish_never_panics(text in "\\PC{0,200}", cut in any::<prop::sample::Index>(), s in scenario()) {
        let _ = parse_scenario("x.toml", "x", &text);
        let whole = scenario_text(&s);
        let mut at = cut.index(whole.len());
        while !whole.is_char_boundary(at) { at -= 1; }
        let _ = parse_scenario("x.toml", "x", &whole[..at]);
        let _ = parse_profile("p.toml", "p", &(whole[..at].to_string() + &text));
    }

    #[test]
    fn plans_hold_every_run_once(s in scenario()) {
        let plan = plan_of(&s, &Selection::default());
        let locks = s.sweep.locks.len().max(1);
        let points = s.sweep.profiles.len() * s.sweep.vms.len() * s.sweep.cgroups.len() * locks;
        let alone = if s.measure.alone { s.sweep.profiles.len() * locks } else { 0 };
        prop_assert_eq!(plan.runs.len(), s.repeats as usize * (points * s.arms.len() + alone));
        for (i, r) in plan.runs.iter().enumerate() {
            prop_assert_eq!(r.id as usize, i);
            prop_assert_eq!(r.seed, s.seed + u64::from(r.repeat));
            prop_assert!(r.vms.iter().flat_map(|vm| &vm.pin).all(|p| *p < s.host.pcpus));
            prop_assert_eq!(&r.baseline, &s.arms[s.baseline].name);
            let first = r.first();
            let swept = s.sweep.locks.iter().find(|l| l.label() == r.lock_group);
            prop_assert_eq!(swept.is_some(), !s.sweep.locks.is_empty());
            prop_assert!(r.vms.iter().all(|vm| vm.lock == first.lock && vm.vcpus == first.vcpus));
            let threads = s.vms[0].threads;
            prop_assert!(r.vms.iter().all(|vm| vm.threads == threads && vm.tick_hz == s.vms[0].tick_hz));
            prop_assert_eq!(first.lock_choice(), r.arm.lock.or(swept.copied()).unwrap_or(s.vms[0].lock));
        }
        // Each repeat begins every point with another arm.
        let mut first: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for r in plan.runs.iter().filter(|r| !r.alone) {
            let point = (r.profile.clone(), r.vms.len(), r.cgroup as u8, r.lock_group.clone());
            if seen.insert((point.clone(), r.repeat)) {
                first.entry(point).or_default().insert(&r.arm.name);
            }
        }
        for names in first.values() {
            prop_assert_eq!(names.len(), s.arms.len().min(s.repeats as usize));
        }
        let json = serde_json::to_string(&plan).unwrap();
        prop_assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    }

    #[test]
    fn shares_are_the_whole(s in scenario(), parts in 1u32..6) {
        let plan = plan_of(&s, &Selection::default());
        let shares = split(&plan, parts);
        prop_assert!(shares.iter().all(|p| !p.runs.is_empty()));
        let mut runs: Vec<_> = shares.iter().flat_map(|p| p.runs.clone()).collect();
        runs.sort_by_key(|r| r.id);
        prop_assert_eq!(&runs, &plan.runs);
        let cost = |p: &Plan| p.runs.len();
        let (most, least) = (shares.iter().map(cost).max().unwrap(), shares.iter().map(cost).min().unwrap());
        let largest_point = s.arms.len() * s.repeats as usize;
        prop_assert!(most - least <= largest_point, "{most} {least}");
    }

    #[test]
    fn a_selection_keeps_ids_baseline_and_hash(s in scenario(), arm in any::<prop::sample::Index>()) {
        let arm = s.arms[arm.index(s.arms.len())].name.clone();
        let whole = plan_of(&s, &Selection::default());
        let some = plan_of(&s, &Selection { arms: vec![arm.clone()], vms: vec![s.sweep.vms[0]], ..Selection::default() });
        prop_assert_eq!(&some.scenario_hash, &whole.scenario_hash);
        for r in &some.runs {
            prop_assert_eq!(r, &whole.runs[r.id as usize]);
            prop_assert!(r.alone || r.arm.name == arm || r.arm.name == r.baseline);
        }
    }
}

#[test]
fn the_hash_covers_scenario_and_profiles() {
    let p = |text: &str| {
        let program = vec![Step {
            op: Op::Barrier,
            dist: Dist::Const { iterations: 0 },
            lock: 0,
            permille: 1000,
        }];
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
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
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
    assert!(!serde_json::to_string(&both).unwrap().contains("\"gang\""));
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
    let json = serde_json::to_string(&plan).unwrap();
    assert!(!json.contains("each"), "alike VMs need no list");
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
}

/// The repository's own files.
#[test]
fn shipped_scenarios_and_profiles_are_right() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = |dir: &str| -> Vec<(String, String, String)> {
        let mut all: Vec<_> =
            std::fs::read_dir(root.join(dir)).unwrap().flatten().map(|e| e.path()).collect();
        all.retain(|p| p.extension().is_some_and(|x| x == "toml"));
        all.sort();
        all.iter()
            .map(|p| {
                (
                    p.display().to_string(),
                    p.file_stem().unwrap().to_str().unwrap().to_string(),
                    std::fs::read_to_string(p).unwrap(),
                )
            })
            .collect()
    };
    let mut profiles = BTreeMap::new();
    for (file, name, text) in files("profiles") {
        let p = parse_profile(&file, &name, &text).unwrap_or_else(|e| panic!("{e}"));
        let is_calm = [
            "balanced",
            "compute",
            "fork-and-join",
            "heavy-stage",
            "interactive",
            "shares-300-lines",
            "shares-3000-lines",
            "sleeps",
            "phases",
            "wandering",
        ]
        .contains(&&*name);
        assert_eq!(p.spin_intensive, !is_calm, "{file}");
        profiles.insert(name, (p, text));
    }
    let mut programs = BTreeMap::new();
    for (file, name, text) in files("programs") {
        let p = parse_guest_program(&file, &name, &text).unwrap_or_else(|e| panic!("{e}"));
        programs.insert(name, (p, text));
    }
    let workloads = Workloads { profiles, programs };
    let scenarios = files("scenarios");
    assert!(scenarios.len() >= 10);
    for (file, name, text) in scenarios.into_iter().chain(files("scenarios/threads")) {
        let s = parse_scenario(&file, &name, &text).unwrap_or_else(|e| panic!("{e}"));
        let plan = expand(&s, &text, &workloads, &Selection::default()).unwrap();
        // What the exit path costs is compared at one window, locks with the one that suffers, stalls
        // with nothing, cases with themselves, sizes with a window that nothing exits of; all else with KVM as it is.
        let of_threads = file.contains("scenarios/threads/");
        let baseline = match name.as_str() {
            "exit-path" => "kvm",
            "diagnosis" | "diagnosis-hogs" | "diagnosis-quota" => "watched",
            "diagnosis-ab" => "wide",
            "asymmetric"
            | "asymmetric-smoke"
            | "asymmetric-unpinned"
            | "asymmetric-linux"
            | "asymmetric-parts" => "symmetric",
            "idle-poll" => "halt",
            "table1" => "ple-off",
            "gangs-victim" | "gangs-linux-victim" => "off",
            "one-vm-locks" => "ticket",
            _ if of_threads => "ticket",
            _ => "stock",
        };
        assert_eq!(plan.runs[0].baseline, baseline, "{file}");
    }
}

const LINUX: &str = r#"
title = "Linux guests"
repeats = 2
[host]
pcpus = 4
[[vm]]
guest = "linux"
vcpus = 4
[sweep]
profiles = ["a", "b"]
vms = [2, 3]
guest_locks = ["pv", "queued"]
[[arm]]
name = "stock"
baseline = true
[[arm]]
name = "hvs"
yield_to = "hvs"
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
[host]
pcpus = 4
[[vm]]
name = "one"
count = 2
vcpus = 4
workload = "a"
quota = 0.2
[[vm]]
name = "other"
vcpus = 4
workload = "b"
quota = 0.5
[sweep]
quota_on = ["one", "other"]
cgroups = ["libvirt"]
[[arm]]
name = "stock"
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
