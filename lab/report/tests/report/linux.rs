// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of Linux guests: what they are of, their work, where their vCPUs were.

use crate::common::{begin, read, written};
use unspin_report::{documents, text, Document, Row};
use unspin_scenario::plan::{Plan, Run};
use unspin_scenario::result::{
    FoundGuest, ModuleStats, RunResult, SchedStats, SpinPlace, Spinners, VmResult,
};
use unspin_scenario::{expand, parse_guest_program, parse_scenario, Selection, Workloads};

const WINDOW_NS: u64 = 100_000_000;

const SCENARIO: &str = r#"
title = "Linux guests"
repeats = 1
[host]
pcpus = 4
[[vm]]
guest = "linux"
vcpus = 4
[sweep]
profiles = ["hackbench"]
vms = [2]
guest_locks = ["pv", "queued"]
[[arm]]
name = "stock"
baseline = true
[[arm]]
name = "hvs"
yield_to = "hvs"
"#;

/// Two VMs that run one program in guests of two kinds.
fn two_kinds(second: &str) -> String {
    let vm = |name: &str, guest: &str| {
        format!("[[vm]]\nname = \"{name}\"\nworkload = \"hackbench\"\nguest = \"linux\"\nvcpus = 4\n{guest}\n")
    };
    format!(
        "title = \"Two kinds\"\nrepeats = 1\n[host]\npcpus = 4\n{}{}[[arm]]\nname = \"stock\"\n",
        vm("first", ""),
        vm("second", second)
    )
}

fn plan_of(scenario: &str) -> Plan {
    let s = parse_scenario("x.toml", "x", scenario).unwrap();
    let program = |name: &str| {
        let about = format!(
            "name = \"{name}\"\ntitle = \"t\"\ncommand = \"c\"\nunit = \"u\"\nfrom = \"f\"\n"
        );
        (name.to_string(), (parse_guest_program("p.toml", name, &about).unwrap(), about))
    };
    let programs = ["hackbench", "omp"].map(program).into();
    let workloads = Workloads { programs, ..Workloads::default() };
    expand(&s, scenario, &workloads, &Selection::default()).unwrap()
}

fn plan() -> Plan {
    plan_of(SCENARIO)
}

/// Alone a VM does 1000 units with four CPUs; two on stock do 400 each with two, HVS a tenth more.
fn vm(run: &Run, number: usize) -> VmResult {
    let (units, cpus) = match (run.alone, run.arm.name.as_str()) {
        (true, _) => (1000, 4),
        (false, "hvs") => (440, 2),
        (false, _) => (400, 2),
    };
    let lock = format!("{:?}", run.vms[number].linux.as_ref().unwrap().guest.lock).to_lowercase();
    VmResult {
        units: vec![units],
        cpu_ns: vec![cpus * WINDOW_NS],
        sched: Some(SchedStats {
            steal_ns: Some(vec![WINDOW_NS / 4; 4]),
            involuntary_switches: vec![10; 4],
            voluntary_switches: vec![5; 4],
        }),
        guest: Some(FoundGuest { kernel: "6.12.9".into(), lock, ..FoundGuest::default() }),
        ..VmResult::default()
    }
}

fn result(run: &Run) -> RunResult {
    let place = |address, count, symbol: Option<&str>| SpinPlace {
        address,
        count,
        symbol: symbol.map(str::to_string),
    };
    let slow = Some("native_queued_spin_lock_slowpath");
    let vms = (0..run.vms.len()).map(|n| vm(run, n)).collect();
    RunResult {
        spinners: (!run.alone).then(|| Spinners {
            sampled_ms: 60,
            pause: vec![place(16, 60, slow), place(20, 20, slow), place(0x99, 20, None)],
            interrupted: vec![],
            ..Spinners::default()
        }),
        ..RunResult::new(run.clone(), WINDOW_NS, vms)
    }
}

fn lines(results: Vec<RunResult>) -> String {
    written(begin("6.12.9"), results)
}

fn document(results: Vec<RunResult>) -> Document {
    let input = read(&lines(results));
    assert_eq!(input.notices, Vec::<String>::new());
    documents(&input).remove(0)
}

/// The document of the plan's results, each changed by `tune`.
fn tuned(plan: &Plan, tune: impl Fn(&mut RunResult)) -> Document {
    let results = plan.runs.iter().map(|run| {
        let mut r = result(run);
        tune(&mut r);
        r
    });
    document(results.collect())
}

fn rows<'a>(d: &'a Document, profile: &str, arm: &str) -> Vec<&'a Row> {
    let is_of = |r: &&Row| r.key.profile == profile && r.key.arm == arm;
    let rows: Vec<&Row> = d.summary.arms.iter().filter(is_of).collect();
    assert!(!rows.is_empty(), "{profile} {arm}");
    rows
}

fn whole<'a>(d: &'a Document, profile: &str, arm: &str) -> &'a Row {
    rows(d, profile, arm).into_iter().find(|r| r.key.is_whole()).unwrap()
}

fn spinners(r: &Row) -> Vec<(&str, f64)> {
    r.spinners.iter().map(|s| (s.symbol.as_str(), s.share)).collect()
}

#[test]
fn rows_say_which_guest_they_are_of_and_what_it_did() {
    let docs = [tuned(&plan(), |_| ())];
    let summary = serde_json::to_value(&docs[0].summary).unwrap();
    let rows = summary["arms"].as_array().unwrap();
    let whole = rows.iter().filter(|r| r["vm_index"].is_null());
    let of = |lock: &str, arm: &str| {
        let mut found = whole.clone().filter(|r| r["lock"] == *lock && r["arm"] == *arm);
        found.next().unwrap_or_else(|| panic!("{lock} {arm}"))
    };
    for lock in ["pv", "queued"] {
        let hvs = of(lock, "hvs");
        let guest = serde_json::json!({ "kind": "linux", "kernel": "6.12.9", "lock": lock });
        assert_eq!((&hvs["guest"], &of(lock, "ideal")["guest"]), (&guest, &guest));
        assert_eq!((&hvs["work_units"], &hvs["performance"]), (&880.into(), &1.1.into()));
        assert_eq!(of(lock, "ideal")["performance"], 1.25);
        assert!(of(lock, "ideal").get("work_units").is_none());
        assert_eq!(hvs["vcpu_time"]["running"], 0.5);
        assert_eq!(hvs["vcpu_time"]["waiting"], 0.25);
        assert_eq!(hvs["spinners"][0]["symbol"], "native_queued_spin_lock_slowpath");
        assert_eq!(hvs["spinners"][0]["share"], 0.8);
        assert_eq!(hvs["spinners"][1]["symbol"], "0x99");
        assert_eq!(hvs["spinners_named"], 0.8);
        assert!(hvs["fairness"].is_null() && hvs.get("interrupted").is_none());
    }
    for headroom in summary["headroom"].as_array().unwrap() {
        assert_eq!(headroom["guest_lock"], headroom["lock"]);
        assert_eq!(headroom["closed"], 0.4);
    }
    let page = text(&docs, usize::MAX);
    assert!(page.contains("2 VMs with Linux 6.12.9, libvirt's cgroups, lock queued"), "{page}");
    assert!(page.contains("native_queued_spin_lock_slowpath 80 %"), "{page}");
}

/// A Linux guest has one count of its work, whatever its vCPUs are.
#[test]
fn counts_per_vcpu_are_refused_of_linux_guests() {
    let mut results: Vec<RunResult> = plan().runs.iter().map(result).collect();
    results[1].vm[0].units = vec![100; 4];
    let input = read(&lines(results));
    assert!(input.notices.iter().any(|n| n.contains("units")), "{:?}", input.notices);
}

/// 60 + 20 exits at a lock, 20 at an address, 100 at places the record has no room for.
#[test]
fn shares_are_of_all_exits_of_their_kind() {
    let d = tuned(&plan(), |r| {
        if let Some(s) = &mut r.spinners {
            let interrupted = SpinPlace { address: 8, count: 30, symbol: Some("memcpy".into()) };
            s.interrupted = vec![interrupted];
            (s.others_pause, s.others_interrupted, s.others) = (100, 10, 1000);
        }
    });
    let row = whole(&d, "hackbench", "stock");
    assert_eq!(spinners(row), [("native_queued_spin_lock_slowpath", 0.4), ("0x99", 0.1)]);
    assert_eq!((row.spinners_named, row.interrupted[0].share), (Some(0.4), 0.75));
}

/// Alone KVM polls for half of the VM's CPU time, with the other VM for a quarter of it.
fn polled(r: &mut RunResult) {
    for v in &mut r.vm {
        v.halt_poll_ns = Some(if r.run.alone { 2 * WINDOW_NS } else { WINDOW_NS / 2 });
    }
}

#[test]
fn polls_are_no_work_that_others_could_do() {
    let d = tuned(&plan(), polled);
    // 1000 units take two windows of CPU time; one and a half would do 750, where stock does 400.
    assert_eq!(whole(&d, "hackbench", "ideal").perf.performance, Some(1.875));
    let knows = |alone: bool| {
        let d = tuned(&plan(), |r| {
            if r.run.alone == alone {
                polled(r);
            }
        });
        whole(&d, "hackbench", "ideal").perf.performance
    };
    assert_eq!([knows(true), knows(false)], [Some(1.25); 2], "known of one side only");
    let all_of_it =
        tuned(&plan(), |r| r.vm.iter_mut().for_each(|v| v.halt_poll_ns = Some(u64::MAX)));
    assert_eq!(whole(&all_of_it, "hackbench", "ideal").perf.performance, Some(1.25));
    assert_eq!(whole(&all_of_it, "hackbench", "stock").vcpu_time.unwrap().running, 0.0);
}

#[test]
fn polls_are_a_part_of_the_time_of_their_own() {
    let d = tuned(&plan(), polled);
    let summary = serde_json::to_value(&d.summary).unwrap();
    let stock = summary["arms"].as_array().unwrap().iter().find(|r| r["arm"] == "stock").unwrap();
    let expected = serde_json::json!({
        "running": 0.375, "polling": 0.125, "waiting": 0.25, "halted": 0.25, "halts_per_s": 50.0
    });
    assert_eq!(stock["vcpu_time"], expected);
    let page = text(&[d], usize::MAX);
    assert!(page.contains("running+polling+waiting+halted, %"), "{page}");
    assert!(page.contains("38+12+25+25") && !page.contains("running+waiting+halted"), "{page}");

    // One VM of which it is not known.
    let d = tuned(&plan(), |r| {
        polled(r);
        r.vm.last_mut().unwrap().halt_poll_ns = None;
    });
    let time = whole(&d, "hackbench", "stock").vcpu_time.unwrap();
    assert_eq!((time.running, time.polling), (0.5, None));
    let page = text(&[d], usize::MAX);
    assert!(page.contains("running+waiting+halted, %") && page.contains("50+25+25"), "{page}");
    assert!(!page.contains("polling"), "{page}");
}

/// `of_million`: cycles in a million that pause-loop exits cost `omp` under stock; `hackbench` loses
/// a tenth. `omp` alone does twenty times what it does with others.
fn spins_in_user_space(of_million: u64) -> Document {
    let scenario = SCENARIO.replace("[\"hackbench\"]", "[\"hackbench\", \"omp\"]");
    tuned(&plan_of(&scenario), |r| {
        let is_omp = r.run.profile == "omp";
        for v in &mut r.vm {
            let lost = if is_omp { of_million } else { 100_000 };
            v.module = Some(ModuleStats {
                wasteful_spin_cycles: lost,
                cpu_cycles: 1_000_000,
                ..ModuleStats::default()
            });
            if is_omp && r.run.alone {
                v.units[0] *= 20;
            }
        }
    })
}

#[test]
fn headroom_that_no_exit_sees_is_named_and_not_pooled() {
    let d = spins_in_user_space(999);
    assert_eq!(whole(&d, "omp", "ideal").perf.performance, Some(25.0));
    let summary = serde_json::to_value(&d.summary).unwrap();
    let rows = summary["headroom"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for h in rows {
        assert_eq!((&h["closed"], &h["stock_loss"]), (&0.4.into(), &0.2.into()));
        assert_eq!(h["profiles"], serde_json::json!(["hackbench"]));
        assert_eq!(h["unseen"], serde_json::json!(["omp"]));
    }
    let page = text(&[d], usize::MAX);
    let lines: Vec<&str> = page.lines().filter(|line| line.contains("not in it")).collect();
    assert_eq!(lines.len(), 2, "{page}");
    assert!(
        lines[0].starts_with("2 VMs, libvirt, pv, hvs:") && lines[0].ends_with(": omp"),
        "{page}"
    );

    let seen = spins_in_user_space(1000);
    for h in &seen.summary.headroom {
        assert_eq!((h.profiles.len(), h.unseen.len()), (2, 0));
        assert!(h.closed.unwrap() < 0.01, "{h:?}");
    }
    assert!(!text(&[seen], usize::MAX).contains("not in it"));
}

/// A figure that nobody counted is not 0, and nothing at all is left of a pool without profiles.
#[test]
fn only_what_was_counted_is_unseen() {
    let uncounted = tuned(&plan(), |_| ());
    assert!(uncounted
        .summary
        .headroom
        .iter()
        .all(|h| h.profiles.len() == 1 && h.unseen.is_empty()));
    let none_seen = tuned(&plan(), |r| {
        let module = ModuleStats { cpu_cycles: 1_000_000, ..ModuleStats::default() };
        r.vm.iter_mut().for_each(|v| v.module = Some(module.clone()));
    });
    assert_eq!(none_seen.summary.headroom.len(), 2);
    for h in &none_seen.summary.headroom {
        assert_eq!((h.closed, h.stock_loss), (None, None));
        assert_eq!((h.profiles.len(), h.unseen.as_slice()), (0, &["hackbench".to_string()][..]));
    }
}

/// Places are those of all VMs. Where kernels or locks differ, one VM's row has none.
#[test]
fn one_vm_of_several_kinds_has_no_places() {
    for (second, has_places) in [
        ("guest_lock = \"pv\"", true),
        ("memory_mib = 300", true),
        ("guest_lock = \"queued\"", false),
        ("guest_kernel = \"6.1\"", false),
    ] {
        let d = tuned(&plan_of(&two_kinds(second)), |_| ());
        for group in ["first", "second"] {
            let rows = rows(&d, group, "stock");
            assert_eq!(rows.len(), 2);
            for row in rows {
                let expected = has_places || row.key.is_whole();
                let found = (!spinners(row).is_empty(), row.spinners_named.is_some());
                assert_eq!(found, (expected, expected), "{second} {:?}", row.key);
            }
        }
    }
}
