// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the report about VMs.

use super::*;
use crate::watch::Synthetic;
use proptest::prelude::*;
use std::time::Duration;
use unspin_host::{Kind, Names};

fn samples(vms: usize, vcpus: u32) -> (Sample, Sample) {
    let source = Synthetic::new(vms, vcpus);
    (source.at(Duration::from_secs(10)), source.at(Duration::from_secs(20)))
}

fn document(before: &Sample, after: &Sample) -> Document {
    let all = after.vms.iter().filter_map(|vm| vm.between(&before.seen, &after.seen));
    Document::new(&all.collect::<Vec<_>>(), before, after)
}

#[test]
fn waits_are_in_the_words_of_operators() {
    let (before, after) = samples(2, 4);
    let json = serde_json::to_value(document(&before, &after)).unwrap();
    let web = &json["vms"][0];
    // The vCPUs lose all, 3/4, 1/2 and 1/4 of their time: together 2.5 times what the first
    // loses.
    let near = |value: &Value, expected: f64| {
        assert!((value.as_f64().unwrap() - expected).abs() < 1e-6, "{value} is not {expected}");
    };
    near(&web["ready_pct"], 2.5 * 32.0);
    near(&web["costop_pct"], 2.5 * 12.5);
    near(&web["limit_pct"], 2.5 * 2.0);
    near(&web["steal_pct"], 2.5 * 8.0);
    near(&web["vcpu"][0]["ready_pct"], 32.0);
    near(&web["vcpu"][3]["costop_pct"], 12.5 / 4.0);
    let by = web["ready_by"].as_array().unwrap();
    assert_eq!((&by[0]["vm"], &by[1]["command"]), (&"db1".into(), &"stress-ng".into()));
    near(&by[0]["share"], 25.0 / 30.0);
    assert_eq!((by[1]["pid"].as_u64(), web["paused"].as_bool()), (Some(4242), Some(false)));
    let text = document(&before, &after).text(80, true);
    for words in ["%RDY 80.0, %CSTP 31.2, %MLMTD 5.0", "db1 83.3 %, stress-ng", "itself 100.0 %"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn what_is_not_counted_is_null() {
    let (mut before, mut after) = samples(1, 2);
    for sample in [&mut before, &mut after] {
        sample.takers.clear();
        for seen in sample.seen.values_mut() {
            (seen.costop, seen.tells_throttled) = (None, false);
        }
    }
    let json = serde_json::to_value(document(&before, &after)).unwrap();
    let vm = json["vms"][0].as_object().unwrap();
    for key in ["costop_pct", "limit_pct", "ready_by", "ready_by_rest"] {
        assert!(vm[key].is_null(), "{key}");
    }
    assert!(vm["vcpu"][1]["costop_pct"].is_null() && vm["ready_pct"].is_number());
    assert!(document(&before, &after).text(80, false).contains("%CSTP ?, %MLMTD ?"));
}

/// If a vCPU stays in its guest for the whole time, it may also have waited for a CPU.
#[test]
fn a_vcpu_of_which_nothing_was_seen_is_unknown() {
    for (unseen, of_vm) in [(1, false), (2, true)] {
        let (mut before, mut after) = samples(1, 2);
        for sample in [&mut before, &mut after] {
            for seen in sample.seen.values_mut().rev().take(unseen) {
                *seen = Seen { costop: Some(0), tells_throttled: true, ..Seen::default() };
            }
        }
        let document = document(&before, &after);
        let json = serde_json::to_value(&document).unwrap();
        let (vm, vcpu) = (&json["vms"][0], &json["vms"][0]["vcpu"][1]);
        for key in ["ready_pct", "costop_pct", "limit_pct", "steal_pct"] {
            assert!(vm[key].is_null() && vcpu[key].is_null(), "{key}: {vm}");
        }
        assert!(vcpu["states"].is_null() && vm["right_size"].is_null(), "{vm}");
        assert!(vm["cpus"]["vcpus"].is_null() && vm["paused"] == false, "{vm}");
        assert_eq!((vm["states"].is_null(), vm["remainder"].is_null()), (of_vm, of_vm));
        assert_eq!((&vm["window_s"], vm["ready_by"].is_null()), (&10.0.into(), of_vm), "{vm}");
        assert_eq!(vm["causes"][0]["share"].is_null(), of_vm, "{vm}");
        let text = document.text(120, true);
        let line = text.lines().find(|line| line.starts_with("vCPU 1")).unwrap();
        assert!(line.contains('?') && !line.contains('0'), "{text}");
        assert_eq!(text.contains("What its vCPUs do is unknown"), of_vm, "{text}");
    }
}

#[test]
fn a_paused_vm_is_not_idle() {
    for (state, words) in [(State::Blocked, "paused?"), (State::Stopped, "stopped")] {
        let (mut before, mut after) = samples(2, 2);
        for (sample, seconds) in [(&mut before, 10), (&mut after, 20)] {
            let pid = sample.vms[0].process.pid;
            for (thread, seen) in &mut sample.seen {
                if thread.pid == pid {
                    (seen.times, seen.exits) = Default::default();
                    seen.times[state] = seconds * 1_000_000_000;
                }
            }
        }
        let both = document(&before, &after);
        let lines = both.table(80);
        let web = lines.lines().find(|line| line.starts_with("web1")).unwrap();
        assert!(web.contains(words), "{lines}");
        assert!(
            !both.text(80, true).contains("probably the VM is paused") || state == State::Blocked
        );
        assert_eq!(serde_json::to_value(&both).unwrap()["vms"][0]["paused"], true);
    }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,12}", "[日本語]{1,60}", "\\PC{1,60}", "[a-z \n\u{1b}\"\\\\]{0,4000}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// For any names of VMs, each VM is listed, and no line is wider than the terminal.
    #[test]
    fn text_fits_the_terminal(
        names in prop::collection::vec(name(), 1..8),
        vcpus in 1..6u32,
        width in prop_oneof![Just(20), Just(40), Just(80), Just(120), Just(200), 20..260usize],
    ) {
        let (before, mut after) = samples(names.len(), vcpus);
        for (vm, name) in after.vms.iter_mut().zip(&names) {
            let (old, names) = (&vm.process, Names::default().with(Kind::Name, name.as_str()));
            vm.process = VmProcess::new(old.pid, old.monitor, names, old.vcpus.clone());
        }
        let document = document(&before, &after);
        let table = document.table(width);
        prop_assert_eq!(table.lines().count(), names.len() + 1, "{}", table);
        for text in [table, document.text(width, false), document.text(width, true)] {
            for line in text.lines() {
                prop_assert!(cells(line) <= width, "{} of {width}: {line}", cells(line));
                prop_assert!(!line.chars().any(char::is_control));
            }
        }
    }
}

#[test]
fn it_is_said_why_no_vcpu_has_a_thread() {
    let (before, after) = samples(1, 4);
    let mut vm = after.vms[0].process.clone();
    vm.vcpus.clear();
    let paused = "as those of a paused VM do";
    for (take_turns, words) in [(false, paused), (true, "more threads have run the guest than")] {
        vm.take_turns = take_turns;
        let watched = Watched { vm: &vm, vcpus: Vec::new() };
        let sentence = OfVm::new(&watched, &before, &after).sentence();
        assert!(sentence.contains(words), "{sentence}");
        assert_eq!(sentence.contains(paused), !take_turns, "{sentence}");
    }
}
