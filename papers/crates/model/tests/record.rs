// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles that are recorded of programs whose type is known.

use proptest::prelude::*;
use unspin_model::{setup, App, Counts, OfVcpu, RecordError, Recorded, Sequential};
use unspin_scenario::parse_profile;
use unspin_scenario::plan::Step;
use unspin_sim::{simulate_setup, Change, State};

const UNITS: u32 = 16;
const WINDOW_MS: u64 = 2000;

/// What is recorded of a VM with this program, beside others that never rest so that it has `share` of
/// the CPUs' time.
fn recorded(program: Vec<Step>, share: f64) -> Recorded {
    let app = app(share, &[(UNITS, 1.0)]);
    let mut setup = setup(&app, UNITS, false, WINDOW_MS, 1);
    (setup.vms[0].program, setup.watched) = (program, true);
    let made = simulate_setup(&setup).unwrap();
    let begin_ns = made.changes[0].at_ns;
    let mut counts = Counts::of(&made.changes, begin_ns + made.result.window_ns);
    let spent = made.result.vm[0].attribution.unwrap();
    counts.ple_ns = Some(spent.spin_holder_running_ns + spent.spin_holder_preempted_ns);
    counts.user_spin_ns = Some(0);
    // The simulator's own account of the same time.
    let on: u64 = counts.vcpus.iter().map(|vcpu| vcpu.on_cpu_ns).sum();
    assert_eq!(on, made.result.vm[0].cpu_ns.iter().sum::<u64>());
    assert_eq!(counts.vcpus.iter().map(|vcpu| vcpu.ready_ns).sum::<u64>(), spent.waiting_ns);
    counts.profile("test", 0.25).unwrap()
}

fn app(share: f64, phases: &[(u32, f64)]) -> App {
    let phase: Vec<String> = phases
        .iter()
        .map(|(threads, ms)| format!("[[phase]]\nthreads = {threads}\nms = {ms:?}\n"))
        .collect();
    let text = format!("name = \"x\"\nunits = {UNITS}\nshare = {share:?}\n{}", phase.concat());
    App::parse("x", &text).unwrap()
}

fn read(path: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
    std::fs::read_to_string(format!("{root}/{path}")).unwrap()
}

fn benchmark(name: &str) -> Vec<Step> {
    let name = format!("dissertation-asym-{name}");
    let path = format!("papers/dissertation/profiles/{name}.toml");
    parse_profile(&path, &name, &read(&path)).unwrap().program
}

/// Two programs for each type, which follows from their own numbers: how many threads compute for how long
/// until they sleep.
const KNOWN: [(&str, u32); 8] = [
    ("models/type1.toml", 1),
    ("swaptions", 1),
    ("models/fork-join.toml", 2),
    ("bodytrack", 2),
    ("streamcluster", 3),
    ("ocean_ncp", 3),
    ("models/type4.toml", 4),
    ("models/lu_cb-phases.toml", 4),
];

fn program(name: &str) -> Vec<Step> {
    match name.contains('/') {
        true => unspin_model::program(&App::parse(name, &read(name)).unwrap(), UNITS),
        false => benchmark(name),
    }
}

#[test]
fn known_programs_are_named_right() {
    for (name, kind) in KNOWN {
        let of = recorded(program(name), 1.0);
        assert_eq!(of.kind.number(), kind, "{name}: {:#?}", of.lines());
        assert_eq!(
            of.app.sequential == Sequential::Rotating,
            name.contains("lu_cb") || name == "ocean_ncp"
        );
        if let Some(known) = name.contains('/').then(|| App::parse(name, &read(name)).unwrap()) {
            let (is, was) = (of.app.parallelism(), known.parallelism());
            assert!((is / was - 1.0).abs() < 0.05, "{name}: {is}, not {was}");
        }
    }
}

/// What docs/simulator.md says: siblings of a vCPU that waits for a CPU sleep, and seem idle.
#[test]
fn beside_three_vms_that_never_rest_type_3_looks_like_type_2() {
    for (name, kind) in KNOWN {
        let of = recorded(program(name), 0.25);
        assert_eq!(of.kind.number(), if kind == 3 { 2 } else { kind }, "{name}");
        assert!(of.lines().last().unwrap().starts_with("caution: vCPUs that wanted"), "{name}");
    }
}

/// Programs of table 4.1, with its type and the one that is recorded. Where these differ, the program of
/// papers/dissertation/profiles/ differs from the benchmark: ocean_cp is ocean_ncp's, fluidanimate's
/// threads compute for 6 ms on average, canneal's for 4.5, and in lu_cb one works alone for a tenth of the time.
const BENCHMARKS: [(&str, u32, u32); 11] = [
    ("barnes", 1, 1),
    ("swaptions", 1, 1),
    ("bodytrack", 2, 2),
    ("facesim", 2, 2),
    ("ocean_cp", 2, 3),
    ("fluidanimate", 3, 4),
    ("streamcluster", 3, 3),
    ("ocean_ncp", 3, 3),
    ("canneal", 4, 2),
    ("fmm", 4, 4),
    ("lu_cb", 4, 1),
];

#[test]
fn of_table_4_1_seven_of_eleven_programs_agree() {
    for (name, _, kind) in BENCHMARKS {
        assert_eq!(recorded(benchmark(name), 1.0).kind.number(), kind, "{name}");
    }
    assert_eq!(BENCHMARKS.iter().filter(|(_, theirs, ours)| theirs == ours).count(), 7);
}

/// Spinning that the host does not see is work.
#[test]
fn a_program_that_spins_unseen_looks_parallel() {
    let vcpus = vec![OfVcpu { on_cpu_ns: 1_000_000, ready_ns: 0, halts: 0 }; 4];
    let mut counts = Counts { wanting_ns: vec![0, 0, 0, 0, 1_000_000], vcpus, ..Counts::default() };
    let of = counts.profile("spins", 0.25).unwrap();
    assert_eq!((of.kind.number(), of.app.parallelism()), (1, 4.0));
    assert!(of.lines().iter().any(|line| line.starts_with("unknown: spinning")));
    (counts.ple_ns, counts.user_spin_ns) = (Some(1_000_000), Some(2_000_000));
    let of = counts.profile("spins", 0.25).unwrap();
    assert_eq!((of.kind.number(), of.app.parallelism()), (4, 1.0));
    let lines = of.lines().join("\n");
    assert!(lines.contains("waiting: by spinning") && !lines.contains("unknown"), "{lines}");
}

#[test]
fn a_vm_that_rests_or_is_too_large_has_no_profile() {
    let of = |vcpus: usize| Counts {
        wanting_ns: vec![5_000_000],
        vcpus: vec![OfVcpu::default(); vcpus],
        ..Counts::default()
    };
    assert_eq!(of(2).profile("x", 0.25), Err(RecordError::Idle));
    assert_eq!(of(0).profile("x", 0.25), Err(RecordError::Idle));
    assert_eq!(of(65).profile("x", 0.25), Err(RecordError::Large(65)));
}

const STATES: [State; 3] = [State::Halted, State::Ready, State::Running];

/// State changes of up to 6 vCPUs, and when they end.
fn changes() -> impl Strategy<Value = (Vec<Change>, u64)> {
    let step = (0..2_000_000u64, 0..6u32, 0..3usize);
    (1..=6u32, prop::collection::vec(step, 1..80)).prop_map(|(units, steps)| {
        let mut at_ns = 5_000;
        let first = (0..units).map(|vcpu| Change { at_ns, vcpu, to: State::Ready });
        let mut all: Vec<Change> = first.collect();
        for (ns, vcpu, state) in steps {
            at_ns += ns;
            all.push(Change { at_ns, vcpu: vcpu % units, to: STATES[state] });
        }
        (all, at_ns + 1_000)
    })
}

proptest! {
    #[test]
    fn every_moment_is_counted_once((changes, end_ns) in changes()) {
        let counts = Counts::of(&changes, end_ns);
        prop_assert_eq!(counts.wanting_ns.iter().sum::<u64>(), end_ns - 5_000);
        let wanted: u64 = (0..).zip(&counts.wanting_ns).map(|(k, ns)| k * ns).sum();
        let of_vcpus = counts.vcpus.iter().map(|vcpu| vcpu.on_cpu_ns + vcpu.ready_ns);
        prop_assert_eq!(wanted, of_vcpus.sum::<u64>());
    }

    #[test]
    fn a_profile_keeps_what_was_counted((changes, end_ns) in changes(), spun in 0..=200u64) {
        let counts = Counts::of(&changes, end_ns);
        let on: u64 = counts.vcpus.iter().map(|vcpu| vcpu.on_cpu_ns).sum();
        let Ok(of) = counts.profile("a \"b\"\n", 0.25) else {
            prop_assert!(on < 1_000 + end_ns / 1_000, "{counts:?}");
            return Ok(());
        };
        // The file is read as what was written.
        prop_assert_eq!(&App::parse("x", &of.toml("from")).unwrap(), &of.app);
        // Mean parallelism, and how often all vCPUs together halt.
        let wanted: u64 = counts.vcpus.iter().map(|vcpu| vcpu.on_cpu_ns + vcpu.ready_ns).sum();
        let mean = wanted as f64 / (end_ns - 5_000) as f64;
        prop_assert!((of.app.parallelism() - mean).abs() < 0.01 * mean + 0.01, "{} {mean}", of.app.parallelism());
        let halts: u64 = counts.vcpus.iter().map(|vcpu| vcpu.halts).sum();
        let seconds = (end_ns - 5_000) as f64 / 1e9 * on as f64 / wanted as f64;
        prop_assert!((of.app.blocks_per_s * seconds - halts as f64).abs() <= 1e-3 * halts as f64);
        // Neither the order of vCPUs nor the unit of time matters, and spinning is no work.
        let mut other = counts.clone();
        other.vcpus.reverse();
        prop_assert_eq!(&other.profile("a \"b\"\n", 0.25).unwrap(), &of);
        let slower: Vec<Change> = changes.iter().map(|c| Change { at_ns: 3 * c.at_ns, ..*c }).collect();
        let slower = Counts::of(&slower, 3 * end_ns).profile("slower", 0.25).unwrap();
        prop_assert!((slower.app.parallelism() - of.app.parallelism()).abs() < 0.01);
        prop_assert!((3.0 * slower.app.blocks_per_s - of.app.blocks_per_s).abs() <= 0.001 * of.app.blocks_per_s);
        let spins = Counts { ple_ns: Some(on * spun / 100), ..counts }.profile("spins", 0.25);
        prop_assert!(spins.is_ok_and(|spins| spins.app.parallelism() < of.app.parallelism() + 0.01));
    }
}
