// SPDX-License-Identifier: MIT OR Apache-2.0
//! Performance, headroom and fairness against the baseline.

use super::{as_is, near, one, row, SCENARIO};
use crate::common::{documents_of, lines, plan, plan_of};
use unspin_report::{charts, text, Row};
use unspin_scenario::plan::Run;
use unspin_scenario::result::VmResult;

#[test]
fn performance_is_normalised_to_the_baseline() {
    let d = one(as_is);
    for vms in [2, 3] {
        near(row(&d, "ebizzy", vms, "stock").perf.performance, 1.0);
        near(row(&d, "ebizzy", vms, "apples").perf.performance, 1.3);
        near(row(&d, "dbench", vms, "ple-off").perf.performance, 0.5);
    }
    assert_eq!(row(&d, "ebizzy", 2, "apples").perf.verdict, Some("better"));
    assert_eq!(row(&d, "ebizzy", 2, "ple-off").perf.verdict, Some("worse"));
    assert_eq!(row(&d, "ebizzy", 2, "stock").perf.verdict, None);
}

#[test]
fn a_spread_that_covers_the_difference_tells_nothing() {
    let d = one(|run, v| {
        if run.arm.name == "apples" && run.repeat == 1 {
            v.units.iter_mut().for_each(|u| *u /= 2);
        }
    });
    let r = row(&d, "ebizzy", 2, "apples");
    near(r.perf.performance, 1.3);
    near(r.perf.performance_min, 0.65);
    near(r.perf.performance_max, 1.3);
    assert_eq!(r.perf.verdict, Some("cannot tell"));
}

#[test]
fn swept_locks_are_compared_each_by_itself() {
    let scenario = SCENARIO.replace("vms = [2, 3]", "vms = [2]\nlocks = [\"ticket\", \"tas\"]");
    let tune = |run: &Run, v: &mut VmResult| {
        if run.lock_group == "tas" {
            v.units.iter_mut().for_each(|u| *u *= 3);
            if run.arm.name == "apples" {
                v.units.iter_mut().for_each(|u| *u *= 2);
            }
        }
    };
    let docs = documents_of(&lines("6.12.57+deb13-amd64", &plan(&scenario), tune));
    let s = &docs[0].summary;
    let of = |lock: &str, arm: &str| {
        let own = s.arms.iter().filter(|r| (&*r.key.lock, &*r.key.arm) == (lock, arm));
        own.filter(|r| r.key.profile == "ebizzy" && r.key.is_whole()).collect::<Vec<_>>()
    };
    for (lock, gain) in [("ticket", 1.3), ("tas", 2.6)] {
        assert_eq!(of(lock, "apples").len(), 1);
        near(of(lock, "apples")[0].perf.performance, gain);
        near(of(lock, "stock")[0].perf.performance, 1.0);
        near(of(lock, "ideal")[0].perf.performance, 4.0 / 3.0);
    }
    near(
        of("tas", "stock")[0].perf.throughput_per_s,
        3.0 * of("ticket", "stock")[0].perf.throughput_per_s.unwrap(),
    );
    assert!(text(&docs, usize::MAX).contains("2 VMs, no cgroups, lock tas ("));
    assert!(s.means.iter().any(|m| m.place.lock == "tas" && m.arm == "apples"));
    let mut names: Vec<String> = charts(&docs[0]).into_iter().map(|c| c.name).collect();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "two pictures of one name");
}

/// One workload in VMs of 2 and of 4 vCPUs: what each does alone is known.
#[test]
fn runs_that_differ_in_their_vcpus_alone_are_both_kept() {
    let vms = "vm = [\n    { name = \"small\", vcpus = 2, workload = \"ebizzy\" },\n    \
               { name = \"big\", vcpus = 4, workload = \"ebizzy\" },\n]\n";
    let scenario = format!(
        "title = \"Sizes\"\n{vms}arm = [{{ name = \"stock\" }}]\n[host]\npcpus = 4\n[measure]\nalone = true\n"
    );
    let docs = documents_of(&lines("6.12.57+deb13-amd64", &plan_of(&scenario, &["ebizzy"]), as_is));
    let ideal = |group: &str| {
        let of = |r: &&Row| r.key.arm == "ideal" && r.key.profile == group && r.key.is_whole();
        docs[0].summary.arms.iter().filter(of).count()
    };
    assert_eq!((ideal("small"), ideal("big")), (1, 1), "{:?}", docs[0].summary.notices);
}

#[test]
fn ideal_is_the_cpu_time_got_at_the_pace_alone() {
    let d = one(as_is);
    near(row(&d, "ebizzy", 2, "ideal").perf.performance, 4.0 / 3.0);
    // With all the CPU it wants, a VM still does no more than alone.
    let rich = one(|_, v| v.cpu_ns.iter_mut().for_each(|n| *n *= 4));
    let ideal = row(&rich, "ebizzy", 2, "ideal");
    near(ideal.perf.performance, 1000.0 / 375.0 / 4.0 * 2.0);
    assert!(row(&d, "ebizzy", 2, "ideal").inefficiency.is_none());
}

#[test]
fn headroom_is_pooled_over_profiles_that_have_any() {
    // compute is already at its ideal.
    let d = one(|run, v| {
        if run.profile == "compute" && !run.alone {
            v.units.iter_mut().for_each(|u| *u = u64::from(1000 / run.vm_count()));
        }
    });
    let h = d.summary.headroom.iter().find(|h| h.arm == "apples" && h.place.vms == 2).unwrap();
    assert_eq!(h.profiles, ["ebizzy", "dbench"]);
    near(h.closed, 0.9);
    near(h.stock_loss, 0.25);
    assert!(d.summary.headroom.iter().all(|h| h.arm != "stock" && h.arm != "ideal"));
    let off = d.summary.headroom.iter().find(|h| h.arm == "ple-off").unwrap();
    assert!(off.closed.unwrap() < 0.0, "losing to stock is negative");
}

/// What pause-loop exits see, and what KVM polls, are of Linux guests only.
#[test]
fn headroom_of_the_bench_guest_is_whatever_exits_cost_it() {
    let plain = one(|_, _| ());
    let d = one(|run, v| {
        let m = v.module.as_mut().unwrap();
        (m.wasteful_spin_cycles, m.wasteful_switch_cycles) = (0, 0);
        v.halt_poll_ns = Some(if run.alone { 100_000_000 } else { 0 });
    });
    assert_eq!(row(&d, "ebizzy", 2, "stock").inefficiency, Some(0.0));
    assert!(!plain.summary.headroom.is_empty());
    assert_eq!(d.summary.headroom, plain.summary.headroom);
}

#[test]
fn no_headroom_is_null_not_zero() {
    let d = one(|run, v| {
        if !run.alone {
            v.units.iter_mut().for_each(|u| *u = u64::from(1000 / run.vm_count()));
        }
    });
    assert!(d.summary.headroom.iter().all(|h| h.closed.is_none() && h.profiles.is_empty()));
}

#[test]
fn best_and_worst_fixed_windows_are_named() {
    let scenario = SCENARIO.to_string()
        + "[[arm]]\nname = \"fixed-512\"\nwindow = { fixed_cycles = 512 }\n"
        + "[[arm]]\nname = \"fixed-4096\"\nwindow = { fixed_cycles = 4096 }\n";
    let docs = documents_of(&lines("6.12.1", &plan(&scenario), as_is));
    let best = row(&docs[0], "ebizzy", 2, "best-fixed");
    assert_eq!(best.key.same_as.as_deref(), Some("fixed-4096"));
    assert_eq!(row(&docs[0], "ebizzy", 2, "worst-fixed").key.same_as.as_deref(), Some("fixed-512"));
    assert!(text(&docs, usize::MAX).contains("(fixed-4096)"));
}

#[test]
fn weights_enter_fairness() {
    let scenario = SCENARIO
        .replace("vms = [2, 3]\n", "")
        .replace("[[vm]]\n", "[[vm]]\nweight = 200\n")
        .replace("[sweep]", "[[vm]]\nvcpus = 4\npin = \"one-per-pcpu\"\nweight = 100\n[sweep]");
    let p = plan(&scenario);
    let weights: Vec<_> = p.runs.last().unwrap().vms.iter().map(|vm| vm.weight).collect();
    assert_eq!(weights, [Some(200), Some(100)]);
    let d = documents_of(&lines("6.12.1", &p, as_is));
    near(row(&d[0], "ebizzy", 2, "stock").fairness_vms, 0.9);
}

#[test]
fn vms_that_differ_have_rows_of_their_own() {
    let mut plan = plan(SCENARIO);
    let is_of_two = |r: &Run| !r.alone && r.profile == "ebizzy" && r.vms.len() == 2;
    for run in plan.runs.iter_mut().filter(|r| is_of_two(r)) {
        let [one, other] = &mut run.vms[..] else { unreachable!() };
        (one.group, one.profile) = ("busy".into(), "ebizzy".into());
        (other.group, other.profile) = ("dbench-beside-ebizzy".into(), "dbench".into());
    }
    let halve = |run: &Run, v: &mut VmResult| {
        if run.alone && run.profile == "dbench" {
            v.units.iter_mut().for_each(|n| *n /= 2);
        }
    };
    let d = documents_of(&lines("6.1", &plan, halve)).remove(0);
    assert_eq!(row(&d, "busy", 2, "stock").key.vms, 2);
    let members = |group: &str| -> Vec<u32> {
        let rows = d
            .summary
            .arms
            .iter()
            .map(|r| &r.key)
            .filter(|k| k.profile == group && k.vms == 2 && k.arm == "stock");
        rows.filter_map(|k| k.vm_index).collect()
    };
    assert_eq!(
        (members("busy"), members("dbench-beside-ebizzy"), members("dbench")),
        (vec![0], vec![1], vec![0, 1])
    );
    assert!(
        d.summary.arms.iter().all(|r| r.key.profile != "ebizzy" || r.key.vms != 2),
        "no row sums what differs"
    );
    // Each group is held against its own workload alone.
    near(row(&d, "busy", 2, "ideal").perf.performance, 4.0 / 3.0);
    near(row(&d, "dbench-beside-ebizzy", 2, "ideal").perf.performance, 2.0 / 3.0);
}
