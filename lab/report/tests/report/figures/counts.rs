// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was counted, and what is unknown.

use super::{as_is, near, one, row, SCENARIO};
use crate::common::{lines, plan, read};
use unspin_report::{html, text};
use unspin_scenario::plan::Window;
use unspin_scenario::result::{Attribution, Stalls};

#[test]
fn long_waits_are_told_apart_by_what_the_lock_was() {
    assert!(one(as_is).summary.stalls.is_empty());
    let d = one(|run, v| {
        let free = if run.vms.len() == 2 { vec![4, 3, 3] } else { vec![4, 0, 0] };
        v.stalls = Some(Stalls { free, held: vec![4, 1, 0] });
    });
    let of = |vms: u32| {
        let mut all = d.summary.stalls.iter();
        all.find(|s| (&*s.profile, s.vms, &*s.arm) == ("ebizzy", vms, "stock")).unwrap()
    };
    // Three repeats of two VMs.
    let waits: Vec<_> = of(2).waits.iter().map(|w| (w.turns, w.held, w.free)).collect();
    assert_eq!(waits, [(1, 24, 24), (2, 6, 18), (4, 0, 18)]);
    let shares = |vms| of(vms).waits.iter().map(|w| w.free_share).collect::<Vec<_>>();
    assert_eq!(shares(2), [Some(0.5), Some(0.75), Some(1.0)]);
    assert_eq!(shares(3), [Some(0.5), Some(0.0), None]);
    assert!(text(&[d], usize::MAX).contains("in how many of them the lock was free"));
}

#[test]
fn few_rounds_count_like_any() {
    let d = one(|run, v| {
        if run.arm.name == "apples" && run.profile == "dbench" && run.repeat == 2 {
            v.module.as_mut().unwrap().rounds_total = 1;
        }
    });
    let r = row(&d, "dbench", 2, "apples");
    assert_eq!((r.adapted, r.rounds), (Some(true), Some(1)));
    let m = d.summary.means.iter().find(|m| m.arm == "apples" && m.place.vms == 2).unwrap();
    assert_eq!(m.profiles, ["ebizzy", "dbench"], "compute does not spin");
    let both = ["ebizzy", "dbench"].map(|p| row(&d, p, 2, "apples").perf.performance.unwrap());
    near(m.performance, (both[0] + both[1]) / 2.0);
    assert_eq!((m.performance_all, m.inefficiency_all), (m.performance, m.inefficiency));
    let h = d.summary.headroom.iter().find(|h| h.arm == "apples" && h.place.vms == 2).unwrap();
    let room = ["ebizzy", "dbench"].map(|p| row(&d, p, 2, "ideal").perf.performance.unwrap() - 1.0);
    near(h.closed, (both[0] + both[1] - 2.0) / (room[0] + room[1]));
    assert_eq!(h.closed_all, h.closed);
    assert!(m.not_adapted.is_empty() && h.not_adapted.is_empty());
    let table = text(&[d], usize::MAX);
    assert!(table.contains("8192 (12)") && table.contains("8192 (1)"), "{table}");
}

#[test]
fn a_window_that_never_moved_is_said_and_counts() {
    let d = one(|run, v| {
        if matches!(run.arm.window, Window::Aple(_))
            && run.profile == "dbench"
            && run.vms.len() == 2
        {
            let m = v.module.as_mut().unwrap();
            (m.epochs, m.rounds_total) = (0, 0);
        }
    });
    for (arm, is_alone) in [("aple", true), ("apples", false)] {
        let r = row(&d, "dbench", 2, arm);
        assert_eq!((r.adapted, r.is_aple_alone), (Some(false), is_alone));
        assert_eq!(row(&d, "dbench", 3, arm).adapted, Some(true));
        let m = d.summary.means.iter().find(|m| m.arm == arm && m.place.vms == 2).unwrap();
        assert_eq!((m.profiles.len(), m.not_adapted.as_slice()), (2, &["dbench".to_string()][..]));
    }
    assert_eq!(row(&d, "dbench", 2, "hvs").adapted, None);
    let json = serde_json::to_value(row(&d, "dbench", 2, "aple")).unwrap();
    assert_eq!(json["adapted"], false);
    let said = "aple never moved its window at dbench: no epoch of 50 PLE exits ended";
    for form in [text(std::slice::from_ref(&d), usize::MAX), html(&[d])] {
        assert_eq!(form.matches(said).count(), 1, "{form}");
        assert!(form.contains("a fixed window of 8192 cycles") && !form.contains("apples never"));
    }
}

#[test]
fn one_vm_whose_window_moved_is_enough() {
    let runs = std::cell::Cell::new(0);
    let d = one(|run, v| {
        if matches!(run.arm.window, Window::Aple(_)) {
            runs.set(runs.get() + 1);
            let m = v.module.as_mut().unwrap();
            (m.epochs, m.rounds_total) = (u64::from(runs.get() % 2 == 1), 0);
        }
    });
    let r = row(&d, "dbench", 2, "aple");
    assert_eq!((r.adapted, r.rounds), (Some(true), Some(0)));
    assert!(!text(&[d], usize::MAX).contains("never moved"));
}

#[test]
fn counters_become_shares() {
    let d = one(as_is);
    let stock = row(&d, "ebizzy", 2, "stock");
    near(stock.inefficiency, 0.1);
    let apples = row(&d, "ebizzy", 2, "apples");
    near(apples.inefficiency, 0.075);
    near(apples.inefficiency_change, -0.25);
    assert_eq!(stock.ple_exits, Some(800), "of both VMs");
    assert_eq!(stock.exit_handling_cycles, Some(2500), "2 VMs of 400 exits");
    assert_eq!(stock.yields.as_ref().unwrap().lock_waiter, 200);
    near(stock.picks_ran_next_share, 0.5);
    near(stock.fairness, 1.0);
    near(stock.fairness_vms, 1.0);
    near(stock.cpus_used, 4.0);
    assert_eq!(stock.wait_cycles.max, Some(1_500_000));
    assert!((256..512).contains(&stock.wait_cycles.p50.unwrap()));
    assert!((1 << 20..1 << 21).contains(&stock.wait_cycles.p99.unwrap()));
    let w = &apples.window_cycles;
    assert_eq!((w.min, w.max, w.last), (Some(4096), Some(4096 + 19 * 512), Some(8192)));
    assert_eq!(apples.epoch_ple_exits, Some(50));
    assert!(row(&d, "ebizzy", 2, "ple-off").inefficiency.is_none(), "nothing is counted there");
}

#[test]
fn unknown_is_null() {
    let d = one(|_, v| v.module = None);
    let r = row(&d, "ebizzy", 2, "stock");
    assert_eq!((r.ple_exits, r.rounds), (None, None));
    let json = serde_json::to_value(&d.summary).unwrap();
    assert!(json["arms"][0]["ple_exits"].is_null());
    assert_eq!(row(&d, "ebizzy", 2, "apples").adapted, None);
}

#[test]
fn what_kvm_picked_by_itself_is_not_known() {
    let d = one(|run, v| {
        if run.arm.name == "stock" {
            let m = v.module.as_mut().unwrap();
            (m.yields_resource_waiter, m.yields_lock_waiter) = (0, 0);
            (m.yields_none, m.yields_failed, m.picks_ran_next) = (0, 0, 0);
        }
    });
    let stock = row(&d, "ebizzy", 2, "stock");
    assert_eq!((&stock.yields, stock.ple_exits), (&None, Some(800)));
    assert!(row(&d, "ebizzy", 2, "hvs").yields.is_some());
}

#[test]
fn attributed_time_is_shown_as_shares_and_only_where_it_is_known() {
    let plain = one(as_is);
    assert!(plain.summary.arms.iter().all(|r| r.time.is_none()));
    assert!(!text(&[plain], usize::MAX).contains("vCPU time"));
    let attributed = one(|run, vm| {
        let preempted = if run.arm.name == "stock" { 300 } else { 100 };
        vm.attribution = Some(Attribution {
            useful_ns: 500,
            spin_holder_running_ns: 400 - preempted,
            spin_holder_preempted_ns: preempted,
            exit_ns: 20,
            waiting_ns: 80,
            ..Attribution::default()
        });
    });
    let of = |arm| row(&attributed, "ebizzy", 2, arm).time.unwrap();
    assert_eq!(of("stock").spin_holder_preempted, 0.3);
    assert_eq!((of("hvs").useful, of("hvs").spin_holder_running), (0.5, 0.3));
    assert!(row(&attributed, "ebizzy", 2, "ideal").time.is_none());
    let text = text(&[attributed], usize::MAX);
    assert!(text.contains("50+10+30+2+0+8") && text.contains("50+30+10+2+0+8"), "{text}");
}

#[test]
fn what_was_not_counted_is_null_or_refused() {
    // The module lost sight of one of the VMs.
    let vms = std::cell::Cell::new(0);
    let d = one(|run, v| {
        if run.arm.name == "stock" && !run.alone {
            vms.set(vms.get() + 1);
            if vms.get() % 2 == 1 {
                v.module = None;
            }
        }
    });
    assert_eq!(row(&d, "ebizzy", 2, "stock").ple_exits, None);
    let all = lines("6.12", &plan(SCENARIO), as_is);
    let without = all.replace("\"wasteful_spin_cycles\":1000000,", "");
    assert_ne!(all, without);
    let input = read(&without);
    let refused = input.notices.iter().filter(|n| n.contains("wasteful_spin_cycles")).count();
    assert_eq!(refused, input.notices.len(), "{:?}", input.notices);
    assert!(refused > 0 && input.streams[0].runs.iter().all(|r| r.run.arm.name != "stock"));
}
