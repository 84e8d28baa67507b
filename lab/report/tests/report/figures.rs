// SPDX-License-Identifier: MIT OR Apache-2.0
//! From records to figures.

use crate::common::{documents_of, lines, plan, plan_of, read};
use serde_json::Value;
use unspin_report::{charts, csv, documents, html, text, Document, Input, Row};
use unspin_scenario::plan::{Run, Window};
use unspin_scenario::result::{Attribution, EpochSample, Record, RunResult, Stalls, VmResult};

const SCENARIO: &str = r#"
title = "t"
repeats = 3
epoch_ple_exits = 50
[host]
pcpus = 4
[[vm]]
vcpus = 4
pin = "one-per-pcpu"
[sweep]
profiles = ["ebizzy", "dbench", "compute"]
vms = [2, 3]
[trace]
epochs = true
[[arm]]
name = "ple-off"
window = "off"
[[arm]]
name = "stock"
baseline = true
[[arm]]
name = "aple"
window = "aple"
[[arm]]
name = "hvs"
yield_to = "hvs"
[[arm]]
name = "apples"
window = "aple"
yield_to = "hvs"
"#;

fn as_is(_: &Run, _: &mut VmResult) {}

fn one(tune: impl Fn(&Run, &mut VmResult)) -> Document {
    let mut docs = documents_of(&lines("6.12.57+deb13-amd64", &plan(SCENARIO), tune));
    assert_eq!(docs.len(), 1);
    docs.remove(0)
}

fn row<'a>(d: &'a Document, profile: &str, vms: u32, arm: &str) -> &'a Row {
    d.summary
        .arms
        .iter()
        .find(|r| {
            let k = &r.key;
            (k.profile.as_str(), k.vms, k.arm.as_str()) == (profile, vms, arm) && k.is_whole()
        })
        .unwrap_or_else(|| panic!("no row {profile} {vms} {arm}"))
}

fn near(x: Option<f64>, wanted: f64) {
    let x = x.expect("a value");
    assert!((x - wanted).abs() < 0.005, "{x} is not about {wanted}");
}

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
fn a_cut_file_keeps_what_is_before_the_cut() {
    let whole = lines("6.12.1", &plan(SCENARIO), as_is);
    let cut = &whole[..whole.len() * 2 / 3];
    let input = read(cut);
    let (kept, lost) = (cut.matches('\n').count(), &input.notices);
    assert_eq!(input.streams[0].runs.len(), kept - 1);
    assert!(
        lost[0].contains(&format!("results.jsonl:{}: the last record is cut off", kept + 1)),
        "{lost:?}"
    );
    assert!(lost[1].contains("no end record"), "{lost:?}");
    let docs = documents(&input);
    assert!(!docs[0].summary.provenance.complete);
    assert!(text(&docs, usize::MAX).contains("INCOMPLETE"));
    assert!(html(&docs).contains("cut off"));
    let in_the_first = &read(&whole[..100]).notices[0];
    assert!(in_the_first.contains("cut off and lost; records before it: 0"), "{in_the_first}");
}

#[test]
fn rubbish_is_named_by_line_and_left_out() {
    let good = lines("6.12.1", &plan(SCENARIO), as_is);
    let mut with: Vec<&str> = good.lines().collect();
    with.insert(3, "{\"record\":\"run\",\"oops\":1}");
    let input = read(&(with.join("\n") + "\n"));
    assert_eq!(input.notices.len(), 1);
    assert!(input.notices[0].contains("results.jsonl:4: not a record"), "{:?}", input.notices);
    assert!(input.streams[0].ended);
    assert_eq!(read("").notices.len(), 1);
    assert!(read("{\"record\":\"log\",\"text\":\"x\"}\n").notices[0].contains("outside begin"));
}

#[test]
fn other_schemas_are_refused() {
    let text = lines("6.12.1", &plan(SCENARIO), as_is).replacen("\"schema\":1", "\"schema\":9", 1);
    let input = read(&text);
    assert!(input.streams.is_empty());
    assert!(input.notices[0].contains("schema 9"));
}

#[test]
fn kernels_are_told_apart_and_boots_joined() {
    let p = plan(SCENARIO);
    let parts = unspin_scenario::split(&p, 2);
    let joined = lines("6.12.1", &parts[0], as_is) + &lines("6.12.1", &parts[1], as_is);
    let docs = documents_of(&(joined + &lines("6.1.90", &p, as_is)));
    assert_eq!(docs.len(), 2);
    assert_eq!(docs[0].summary.provenance.boots, 2);
    let split_rows: Vec<_> = docs[0]
        .summary
        .arms
        .iter()
        .map(|r| (&r.key.profile, r.key.vms, &r.key.arm, r.perf.performance))
        .collect();
    for r in docs[1].summary.arms.iter().filter(|r| r.key.is_whole()) {
        assert!(split_rows.contains(&(&r.key.profile, r.key.vms, &r.key.arm, r.perf.performance)));
    }
}

#[test]
fn runs_read_twice_count_once() {
    let text = lines("6.12.1", &plan(SCENARIO), as_is);
    let docs = documents_of(&(text.clone() + &text));
    assert_eq!(row(&docs[0], "ebizzy", 2, "stock").perf.repeats, 3);
    assert!(docs[0].summary.notices.is_empty());
}

#[test]
fn failed_vms_are_left_out_and_named() {
    let d = one(|run, v| {
        if run.arm.name == "hvs" && run.repeat == 0 {
            v.error = Some("triple fault".into());
        }
    });
    assert_eq!(row(&d, "ebizzy", 2, "hvs").perf.repeats, 2);
    assert!(d.summary.notices.iter().any(|n| n.contains("triple fault")));
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

/// A file of the plan's runs, of which `change` has touched those of the arm hvs, and then `rewrite` how
/// they are written.
fn tampered(change: impl Fn(&mut RunResult), rewrite: impl Fn(&mut Value)) -> Input {
    let text: String = lines("6.12.1", &plan(SCENARIO), as_is)
        .lines()
        .map(|line| {
            let mut record = Record::from_json(line.as_bytes()).unwrap();
            let Record::Run(r) = &mut record else { return format!("{line}\n") };
            if r.run.arm.name != "hvs" {
                return format!("{line}\n");
            }
            change(r);
            let mut json = serde_json::to_value(&record).unwrap();
            rewrite(&mut json["run"]);
            json.to_string() + "\n"
        })
        .collect();
    read(&text)
}

fn are_left_out(input: &Input, words: &str) {
    assert_eq!(input.notices.len(), 18, "{words}: {:?}", input.notices);
    assert!(input.notices.iter().all(|n| n.contains(words)), "{words}: {:?}", input.notices);
    let docs = documents(input);
    assert!(docs[0].summary.arms.iter().all(|r| r.key.arm != "hvs"), "{words}");
    assert!(text(&docs, usize::MAX).contains("apples"));
}

#[test]
fn runs_whose_lists_are_not_of_their_vms_are_left_out_and_named() {
    type Change = fn(&mut Value);
    let written: [(Change, &str); 2] = [
        (|run| run["vms"] = 4_000_000_000u32.into(), "4000000000 VMs"),
        (|run| run["pin"] = serde_json::json!([[0]]), "has CPUs for 1 VMs of"),
    ];
    for (rewrite, words) in written {
        are_left_out(&tampered(|_| (), rewrite), words);
    }
}

#[test]
fn runs_that_cannot_be_are_left_out_and_named() {
    type Change = fn(&mut RunResult);
    let changes: &[(Change, &str)] = &[
        (|r| r.vm.truncate(1), "VMs and has counts of"),
        (|r| r.run.profile = "../../x".into(), "its profile \"../../x\" cannot be a name"),
        (|r| r.run.arm.name = "/etc/x".into(), "its arm"),
        (|r| r.run.baseline = "a b".into(), "its baseline"),
        (|r| r.run.vms.truncate(1), "VMs and has counts of"),
        (|r| r.run.vms[0].group = "../x".into(), "its group \"../x\" cannot be a name"),
        (|r| r.run.vms[1].vcpus = 5, "its units has 4 numbers, at 5 vCPUs"),
        (|r| r.vm[0].cpu_ns.truncate(3), "its cpu_ns has 3 numbers"),
        (|r| r.vm[0].wait_hist = vec![1; 65], "its wait_hist has 65"),
        (|r| r.vm[0].units = vec![u64::MAX; 4], "its units are too large"),
        (|r| r.vm[0].module.as_mut().unwrap().cpu_cycles = u64::MAX, "its cpu_cycles=1844"),
        (|r| r.window_ns = u64::MAX, "its window"),
        (
            |r| {
                let useful_ns = u64::MAX;
                r.vm[0].attribution = Some(Attribution { useful_ns, ..Default::default() });
            },
            "its useful_ns=1844",
        ),
        (
            |r| {
                let (vm, window_cycles) = (r.run.vm_count(), 1);
                let (at_ns, epoch, inefficiency_ppm) = (0, 0, 0);
                r.epochs.push(EpochSample { vm, at_ns, epoch, window_cycles, inefficiency_ppm });
            },
            "it has an epoch of VM",
        ),
    ];
    let whole = tampered(|_| {}, |_| {});
    assert_eq!((whole.notices.len(), whole.streams[0].runs.len()), (0, 90 + 9));
    for (change, words) in changes {
        are_left_out(&tampered(change, |_| ()), words);
    }
}

#[test]
fn no_text_of_a_file_commands_the_terminal() {
    let evil = "6.12\u{1b}]0;x\u{7}\u{9b}2J\u{202e}\n";
    let all = lines(evil, &plan(SCENARIO), |run, v| {
        if run.arm.name == "hvs" {
            v.error = Some(evil.into());
        }
    });
    let input = read(&(all + "{\"record\":\"\u{9b}2J\"}\n"));
    let docs = documents(&input);
    let shown = text(&docs, usize::MAX) + &csv(&docs) + &html(&docs) + &input.notices.join("\n");
    let commands = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!shown.contains(commands), "{:?}", shown.find(commands));
    assert!(shown.contains("6.12\u{fffd}]0;x") && shown.contains("not a record"));
}
