// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of records: what is read of them, and what is left out and named.

use super::{as_is, one, row, SCENARIO};
use crate::common::{documents_of, lines, plan, read};
use serde_json::Value;
use unspin_report::{csv, documents, html, text, Input};
use unspin_scenario::result::{Attribution, EpochSample, Record, RunResult};

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
