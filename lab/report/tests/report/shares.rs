// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each VM got of the host.

use crate::common::{documents_of, edited, lines, plan};
use serde_json::Value;
use unspin_report::{html, text, Document, Row};
use unspin_scenario::plan::{Coscheduling, Run};
use unspin_scenario::result::{VmResult, VmTurns};

const SCENARIO: &str = r#"
title = "Shares"
repeats = 3
vm = [{ vcpus = 4 }]
arm = [
    { name = "stock", baseline = true },
    { name = "gangs", yield_to = "hvs", coscheduling = "con" },
]
[host]
pcpus = 4
[sweep]
profiles = ["ebizzy"]
vms = [2]
[measure]
alone = false
"#;

const KHZ: u64 = 200_000;
const WINDOW_NS: u64 = 300_000_000;

/// Own turns in `shares` of the windows of the repeats.
fn with_turns(shares: [f64; 3]) -> impl Fn(&Run, &mut VmResult) {
    move |run, v| {
        let m = v.module.as_mut().unwrap();
        if run.arm.coscheduling != Coscheduling::None {
            let cycles = (WINDOW_NS * KHZ / 1_000_000) as f64 * shares[run.repeat as usize];
            (m.turns, m.turn_cycles) = (3, cycles as u64);
        }
        v.cpu_ns = vec![WINDOW_NS / 8 * u64::from(run.repeat + 2); 4];
    }
}

fn records(tune: impl Fn(&Run, &mut VmResult)) -> String {
    lines("6.12.57+deb13-amd64", &plan(SCENARIO), tune)
}

fn made(tune: impl Fn(&Run, &mut VmResult)) -> Vec<Document> {
    documents_of(&records(tune))
}

/// The records with the module's counts of each VM, by number, changed.
fn recounted(records: &str, change: impl Fn(usize, &mut serde_json::Map<String, Value>)) -> String {
    edited(records, |record| {
        for (vm, result) in record["vm"].as_array_mut().into_iter().flatten().enumerate() {
            change(vm, result["module"].as_object_mut().unwrap());
        }
    })
}

/// The rows of an arm in the JSON document: of all VMs, and of each.
fn rows(docs: &[Document], arm: &str) -> (Value, Vec<Value>) {
    let json = serde_json::to_value(&docs[0].summary).unwrap();
    let of_arm = json["arms"].as_array().unwrap().iter().filter(|r| r["arm"] == arm).cloned();
    let (mut whole, each): (Vec<Value>, Vec<Value>) = of_arm.partition(|r| r["vm_index"].is_null());
    assert_eq!((whole.len(), each.len()), (1, 2));
    (whole.remove(0), each)
}

#[test]
fn shares_are_of_the_host_and_of_the_window() {
    let docs = made(with_turns([0.25, 0.5, 0.375]));
    let (whole, each) = rows(&docs, "gangs");
    assert!(whole.get("cpu_share").is_none() && whole.get("turn_share").is_none());
    for vm in &each {
        // Two, three and four eighths of each of four pCPUs.
        assert_eq!((&vm["cpu_share"], &vm["turn_share"]), (&0.375.into(), &0.375.into()));
    }
    let sum: f64 = each.iter().map(|vm| vm["cpu_share"].as_f64().unwrap()).sum();
    assert!(sum <= 1.0, "{sum}");
    // CPU time is known without turns.
    let (_, each) = rows(&docs, "stock");
    for vm in &each {
        assert_eq!((&vm["cpu_share"], vm.get("turn_share")), (&0.375.into(), None));
    }
}

#[test]
fn a_vm_without_turns_of_its_own_has_none_of_others() {
    let records = records(with_turns([0.5; 3]));
    let docs = documents_of(&recounted(&records, |vm, module| {
        if vm == 1 {
            module.insert("turn_cycles".into(), 0.into());
        }
    }));
    let shares: Vec<Value> =
        rows(&docs, "gangs").1.iter().map(|vm| vm["turn_share"].clone()).collect();
    assert_eq!(shares, [0.5, 0.0]);
    // In one repeat of three there are none.
    let docs = made(with_turns([0.0, 0.5, 0.0]));
    assert_eq!(rows(&docs, "gangs").1[1]["turn_share"], 0.0);
}

#[test]
fn what_was_not_counted_is_no_field() {
    let without =
        |docs: &[Document], key: &str| rows(docs, "gangs").1.iter().all(|vm| vm.get(key).is_none());
    assert!(without(&made(|_, _| ()), "turn_share"), "no turns were made");
    assert!(without(&made(|_, v| v.module = None), "turn_share"));
    // A record whose rate of cycles nobody knows.
    let records = records(with_turns([0.5; 3]));
    assert!(!without(&documents_of(&records), "turn_share"));
    let unknown = records.replace("\"tsc_khz\":200000", "\"tsc_khz\":null");
    assert_ne!(unknown, records);
    let unknown = documents_of(&unknown);
    assert!(without(&unknown, "turn_share") && !without(&unknown, "cpu_share"));
}

#[test]
fn tables_have_shares_where_there_are_turns() {
    let docs = made(with_turns([0.25, 0.5, 0.375]));
    let (table, page) = (text(&docs, usize::MAX), html(&docs));
    assert!(table.contains("CPU time of each VM, %") && table.contains("38+38"), "{table}");
    let turns = table.split("own turns of each VM, %").nth(1).expect("a table of turns");
    let line = turns.lines().find(|line| line.contains("ebizzy")).unwrap();
    assert!(line.contains("-") && line.contains("38+38"), "stock has none: {line}");
    assert!(page.contains("<h2>Turns</h2>") && page.contains("<td>38+38<td>38+38</tr>"));
    let docs = made(|_, _| ());
    assert!(
        !text(&docs, usize::MAX).contains("own turns") && !html(&docs).contains("<h2>Turns</h2>")
    );
}

#[test]
fn rows_say_why_a_vm_has_no_turns_and_how_often_it_waited_in_vain() {
    let refused = |run: &Run, v: &mut VmResult| {
        let is_second = v.turns.is_none() && run.arm.name == "gangs";
        let reason = is_second.then(|| "vCPUs of a real-time class".to_string());
        v.turns = Some(VmTurns { parks: 40, parks_late: 7, refused: reason });
        // The module leaves it alone, and turns of others do not.
        v.module = None;
    };
    let docs = made(refused);
    let of = |arm: &str, vm_index: Option<u32>| {
        let is = |r: &&Row| r.key.arm == arm && r.key.vm_index == vm_index;
        serde_json::to_value(docs[0].summary.arms.iter().find(is).unwrap()).unwrap()
    };
    let one = of("gangs", Some(1));
    assert_eq!((&one["parks"], &one["parks_late"]), (&40.into(), &7.into()));
    assert_eq!(one["turns_refused"], "vCPUs of a real-time class");
    assert_eq!(of("gangs", None)["parks_late"], 14, "of both VMs");
    let stock = of("stock", Some(1));
    assert!(stock["turns_refused"].is_null() && stock.get("turns_refused").is_some());
    let said = "ebizzy, gangs: VM 1 has no turns: vCPUs of a real-time class";
    assert!(text(&docs, usize::MAX).contains(said), "{}", text(&docs, usize::MAX));
    // Records of other machines have what the module counted, and no reason.
    let old = &made(|_, _| ())[0].summary;
    let row = old.arms.iter().find(|r| r.key.arm == "gangs").unwrap();
    assert_eq!((row.turns.parks_late, &row.turns.refused), (Some(0), &None));
}

#[test]
fn every_row_says_how_idle_the_host_was() {
    let plain = records(|_, _| ());
    let told = edited(&plain, |record| {
        if let Some(repeat) = record["run"]["repeat"].as_u64() {
            record["host_idle_share"] = serde_json::json!([0.5, 0.125, 0.25][repeat as usize]);
        }
    });
    let rows_of = |records: &str| -> Vec<Value> {
        let docs = documents_of(records);
        docs[0].summary.arms.iter().map(|row| serde_json::to_value(row).unwrap()).collect()
    };
    assert!(rows_of(&told).iter().all(|row| row["host_idle_share"] == 0.25), "the median");
    let unknown = |row: &Value| row.get("host_idle_share").is_some_and(Value::is_null);
    assert!(rows_of(&plain).iter().all(unknown));
}

/// Of runs beside two hogs of the host, one of which has half a pCPU and the other a quarter.
#[test]
fn hogs_have_a_share_of_a_pcpu_each() {
    let plain = records(|_, _| ());
    let beside = documents_of(&edited(&plain, |record| {
        if let Some(window_ns) = record["window_ns"].as_u64() {
            record["hogs_cpu_ns"] = serde_json::json!([window_ns / 2, window_ns / 4]);
        }
    }));
    let rows = &beside[0].summary.arms;
    let whole = |r: &&Row| r.key.vm_index.is_none() && r.key.arm != "ideal";
    assert!(rows.iter().filter(whole).all(|r| r.hog_cpu_share == Some(0.375)));
    assert!(rows.iter().filter(|r| r.key.vm_index.is_some()).all(|r| r.hog_cpu_share.is_none()));
    assert!(documents_of(&plain)[0].summary.arms.iter().all(|r| r.hog_cpu_share.is_none()));
    assert!(text(&beside, usize::MAX).contains("CPU time of the host's hogs"));
}
