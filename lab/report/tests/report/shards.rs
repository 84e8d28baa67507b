// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares of a plan put together are the whole; a missing share is said.

use crate::common;
use unspin_report::{documents, Input};
use unspin_scenario::plan::Plan;
use unspin_scenario::result::Shard;
use unspin_scenario::shard;

const SCENARIO: &str = r#"
title = "t"
repeats = 3
vm = [{ vcpus = 4 }]
arm = [
    { name = "stock" },
    { name = "hvs", yield_to = "hvs" },
]
[host]
pcpus = 4
[sweep]
profiles = ["ebizzy", "dbench"]
vms = [2, 3]
[measure]
alone = true
"#;

fn records(plan: &Plan, shard: Option<Shard>, kernel: &str) -> Input {
    let mut input = common::read(&common::lines(kernel, plan, |_, _| {}));
    input.streams[0].begin.shard = shard;
    input
}

fn share(plan: &Plan, index: u32, of: u32, kernel: &str, points: bool) -> Input {
    let runs = plan.runs.len() as u32;
    records(&shard(plan, index, of, points), Some(Shard { index, of, runs }), kernel)
}

fn together(all: Vec<Input>) -> Input {
    let mut input = Input::default();
    for i in all {
        input.streams.extend(i.streams);
        input.notices.extend(i.notices);
    }
    input
}

#[test]
fn shards_together_are_the_whole_in_any_order() {
    let plan = common::plan(SCENARIO);
    let kernels = ["6.1", "6.12"];
    let whole = together(kernels.map(|k| records(&plan, None, k)).into());
    let whole = documents(&whole);
    for (of, points) in [(1, false), (3, false), (3, true), (5, true), (100, false)] {
        let mut shards: Vec<Input> = Vec::new();
        for kernel in kernels {
            shards.extend((1..=of).rev().map(|i| share(&plan, i, of, kernel, points)));
        }
        assert_eq!(documents(&together(shards)), whole, "{of} shards, points {points}");
    }
}

#[test]
fn a_missing_shard_is_said() {
    let plan = common::plan(SCENARIO);
    let some = [1, 2, 4].map(|i| share(&plan, i, 4, "6.1", false));
    let docs = documents(&together(some.into()));
    let summary = &docs[0].summary;
    assert!(!summary.provenance.complete);
    let said = summary.notices.join("\n");
    assert!(said.contains("shard 3/4 missing"), "{said}");
    let whole = documents(&records(&plan, None, "6.1"));
    assert!(whole[0].summary.provenance.complete && whole[0].summary.notices.is_empty());
}

#[test]
fn shards_of_other_programs_are_not_joined() {
    let plan = common::plan(SCENARIO);
    let mut other = share(&plan, 2, 2, "6.1", false);
    other.streams[0].begin.image = Some("another".to_string());
    let docs = documents(&together(vec![share(&plan, 1, 2, "6.1", false), other]));
    let said = docs[0].summary.notices.join("\n");
    assert!(said.contains("shard 2/2 missing") && said.contains("shard 1/2 missing"), "{said}");
}
