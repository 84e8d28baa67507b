// SPDX-License-Identifier: MIT OR Apache-2.0
//! How late tasks of the host ran.

use crate::common::{documents_of, edited, lines, plan};
use unspin_report::{text, Document};

const SCENARIO: &str = r#"
title = "Wake-ups"
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
wakeups_hz = 1000
"#;

/// Every run has these wake-ups, p99 in µs by arm and repeat; `None`: it has none.
fn made(p99_us: impl Fn(&str, u64) -> Option<u64>) -> Vec<Document> {
    let plain = lines("6.12.57+deb13-amd64", &plan(SCENARIO), |_, _| ());
    documents_of(&edited(&plain, |record| {
        if record["record"] == "run" {
            let (arm, repeat) = (&record["run"]["arm"]["name"], &record["run"]["repeat"]);
            if let Some(us) = p99_us(arm.as_str().unwrap(), repeat.as_u64().unwrap()) {
                record["wakeups"] = serde_json::json!({
                    "count": 1000, "p50_ns": 10_000, "p99_ns": us * 1000, "max_ns": us * 2000
                });
            }
        }
    }))
}

#[test]
fn they_are_medians_against_the_baselines() {
    let docs = made(|arm, repeat| Some(if arm == "stock" { 100 } else { 100 + 50 * repeat }));
    let rows = &docs[0].summary.wakeups;
    // Runs of one VM alone have no row.
    let told: Vec<_> = rows
        .iter()
        .map(|r| (&*r.arm, r.count, r.p50_us, r.p99_us, r.max_us, r.p99_against_baseline))
        .collect();
    let stock = ("stock", 3000, 10.0, 100.0, 200.0, Some(1.0));
    assert_eq!(told, [stock, ("gangs", 3000, 10.0, 150.0, 400.0, Some(1.5))]);
    assert!(text(&docs, usize::MAX).contains("wake-up latency of host tasks"));
    let json = serde_json::to_value(&docs[0].summary).unwrap();
    assert_eq!(json["wakeups"][1]["p99_us"], 150.0);
}

#[test]
fn what_was_not_asked_for_is_not_told() {
    let docs = made(|_, _| None);
    assert!(docs[0].summary.wakeups.is_empty() && !text(&docs, usize::MAX).contains("how late"));
    let json = serde_json::to_value(&docs[0].summary).unwrap();
    assert!(json.get("wakeups").is_none());
    // Without the baseline's, or where it is 0, nothing can be compared.
    for stock in [None, Some(0)] {
        let docs = made(|arm, _| if arm == "stock" { stock } else { Some(7) });
        let gangs = docs[0].summary.wakeups.iter().find(|r| r.arm == "gangs").unwrap();
        assert_eq!((gangs.p99_us, gangs.p99_against_baseline), (7.0, None));
    }
}
