// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worlds: they do not depend on who draws them and in how many parts. And the worlds that are
//! refused.

mod common;

use common::{fails, lab, said};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use unspin_scratch::Scratch;

const SCENARIO: &str = r#"title = "Few"
repeats = 1
[host]
pcpus = 4
exit_cycles = { range = [1200, 33000], log = true, source = "a guess" }
[[vm]]
count = 2
vcpus = 4
workload = "ebizzy"
[measure]
warmup_ms = 5
window_ms = 20
[[arm]]
name = "stock"
[[arm]]
name = "hvs"
yield_to = "hvs"
"#;

/// That scenario, whose host has an unknown exit cost, with `changes`.
fn scenario(dir: &Scratch, changes: &[(&str, &str)]) -> String {
    let mut text = SCENARIO.to_string();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    dir.file("few.toml", text)
}

/// A bench on machine sim that succeeds. Returns its output.
#[track_caller]
fn made(scenario: &str, out: &str, more: &[&str]) -> String {
    let all = ["bench", scenario, "--machine", "sim", "--out", out];
    said(&common::made(&[&all[..], more].concat()))
}

#[track_caller]
fn refused(scenario: &str, more: &[&str], words: &str) {
    let dir = Scratch::new();
    let out = dir.text("out");
    let all = ["bench", scenario, "--machine", "sim", "--quiet", "--out", &out];
    fails(&[&all[..], more].concat(), 2, words);
}

fn summary(dir: &Scratch, of: &str) -> serde_json::Value {
    serde_json::from_str(&dir.read(format!("{of}/summary.json"))).unwrap()
}

#[test]
fn shares_and_a_bench_that_goes_on_are_the_whole() {
    let dir = Scratch::new();
    let few = scenario(&dir, &[]);
    let asked = ["--worlds", "10"];
    let said = made(&few, &dir.text("whole"), &asked);
    assert!(said.contains("10 worlds of 2 runs take about"), "{said}");
    let mut report = vec!["report".to_string(), "--out".to_string(), dir.text("merged")];
    for i in 1..=3 {
        made(&few, &dir.text("shares"), &[&asked[..], &["--shard", &format!("{i}/3")]].concat());
        report.push(dir.text(&format!("shares/shard-{i}-of-3")));
    }
    let report: Vec<&str> = report.iter().map(String::as_str).collect();
    common::made(&report);
    let files =
        ["summary.json", "report.html", "worlds-sample-outcomes.csv", "worlds-sample-design.csv"];
    for file in files {
        assert_eq!(dir.read(format!("merged/{file}")), dir.read(format!("whole/{file}")), "{file}");
    }
    let two = lab(&["report", &dir.text("shares/shard-1-of-3"), &dir.text("shares/shard-2-of-3")]);
    let said = String::from_utf8_lossy(&two.stdout);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("7 of 10 worlds (sample) are here and count; 3 are missing"), "{said}");
    // As if it had been killed: some worlds are not there.
    let boots = fs::read_dir(dir.join("whole/boots")).unwrap().map(|e| e.unwrap().path());
    let boots: Vec<PathBuf> = boots.filter(|p| p.is_file()).collect();
    boots.iter().take(7).for_each(|p| fs::remove_file(p).unwrap());
    made(&few, &dir.text("whole"), &[&asked[..], &["--resume"]].concat());
    assert_eq!(dir.read("whole/summary.json"), dir.read("merged/summary.json"));
}

#[test]
fn the_first_worlds_of_more_are_the_same() {
    let dir = Scratch::new();
    let few = scenario(&dir, &[]);
    made(&few, &dir.text("a"), &["--worlds", "6"]);
    made(&few, &dir.text("b"), &["--worlds", "12"]);
    for file in ["worlds-sample-design.csv", "worlds-sample-outcomes.csv"] {
        let (a, b) = (dir.read(format!("a/{file}")), dir.read(format!("b/{file}")));
        assert!(a.lines().count() == 7 && b.starts_with(&a), "{file}:\n{a}\n{b}");
    }
    // The same worlds as a design of their own.
    let design = dir.text("a/worlds-sample-design.csv");
    made(&few, &dir.text("c"), &["--design", &design]);
    assert_eq!(dir.read("c/worlds-given-outcomes.csv"), dir.read("a/worlds-sample-outcomes.csv"));
}

#[test]
fn tables_of_worlds_that_are_not_drawn_again_are_removed() {
    let dir = Scratch::new();
    let few = scenario(&dir, &[]);
    let tables = |design: &str| {
        ["design", "outcomes"].map(|of| dir.join(format!("out/worlds-{design}-{of}.csv")))
    };
    made(&few, &dir.text("out"), &["--worlds", "4"]);
    assert!(tables("sample").iter().all(|table| table.is_file()));
    let design = dir.text("design.csv");
    fs::copy(&tables("sample")[0], &design).unwrap();
    let mine = dir.file("out/worlds-sample.csv", "mine");
    made(&few, &dir.text("out"), &["--design", &design]);
    assert!(tables("given").iter().all(|table| table.is_file()));
    assert!(tables("sample").iter().all(|table| !table.exists()));
    made(&few, &dir.text("out"), &[]);
    assert!(tables("given").iter().all(|table| !table.exists()));
    assert!(Path::new(&mine).is_file());
}

#[test]
fn a_row_has_its_band_and_what_decides() {
    let dir = Scratch::new();
    let few = scenario(&dir, &[]);
    made(&few, &dir.text("out"), &["--worlds", "40"]);
    let s = summary(&dir, "out");
    let rows = s["arms"].as_array().unwrap();
    let row = rows.iter().find(|r| r["arm"] == "hvs" && r["vm_index"].is_null()).unwrap();
    let at = |p: &str| row["band"][p].as_f64().unwrap();
    let order = ["p05", "p25", "p50", "p75", "p95"].map(at);
    assert!(order.windows(2).all(|w| w[0] <= w[1]) && (0.0..=1.0).contains(&at("p_gain")));
    let decides = row["decides"].as_array().unwrap();
    let inputs: Vec<&str> = decides.iter().map(|d| d["input"].as_str().unwrap()).collect();
    assert!(
        inputs.len() == 2 && inputs.contains(&"host.exit_cycles") && inputs.contains(&"chance")
    );
    assert!(decides.iter().all(|d| (0.0..=1.0).contains(&d["share"].as_f64().unwrap())));
    assert_eq!(s["orders"][0]["order"].as_array().unwrap().len(), 2);
    assert_eq!(s["worlds"][0]["inputs"][0]["source"], "a guess");
    // Without ranges of its own a scenario has the model's.
    let plain =
        scenario(&dir, &[("{ range = [1200, 33000], log = true, source = \"a guess\" }", "2000")]);
    made(&plain, &dir.text("plain"), &["--worlds", "4"]);
    let s = summary(&dir, "plain");
    let inputs = s["worlds"][0]["inputs"].as_array().unwrap().iter();
    let inputs: Vec<&str> = inputs.map(|i| i["name"].as_str().unwrap()).collect();
    assert!(
        inputs.contains(&"host.switch_cycles") && inputs.contains(&"model error"),
        "{inputs:?}"
    );
    assert!(!inputs.contains(&"host.exit_cycles"), "the scenario says it");
}

#[test]
fn impossible_worlds_are_counted_and_shown() {
    let dir = Scratch::new();
    let few = scenario(
        &dir,
        &[
            ("pcpus = 4", "pcpus = { any = [4, 2], source = \"a guess\" }"),
            (
                "vcpus = 4",
                "vcpus = 4\npin = { any = [[0, 1, 0, 1], [0, 1, 2, 3]], source = \"a guess\" }",
            ),
        ],
    );
    made(&few, &dir.text("out"), &["--worlds", "16"]);
    let s = summary(&dir, "out");
    let worlds = &s["worlds"][0];
    assert_eq!((&worlds["made"], &worlds["impossible"]), (&16.into(), &4.into()), "{worlds}");
    assert_eq!(worlds["reasons"][0]["worlds"], 4, "{worlds}");
    let band = |r: &serde_json::Value| r["band"]["worlds"].as_u64();
    let rows = s["arms"].as_array().unwrap();
    assert!(rows.iter().filter_map(band).all(|worlds| worlds == 12));
    assert!(dir.read("out/table.txt").contains("16 of 16 worlds, 4 impossible"));
    assert!(dir.read("out/report.html").contains("impossible in 4"));
}

#[test]
fn what_cannot_be_is_refused_before_anything_runs() {
    let dir = Scratch::new();
    let few = scenario(&dir, &[]);
    refused(&few, &["--worlds", "8", "--machine", "threads"], "cannot be used multiple times");
    let threads = ["bench", &few, "--machine", "threads", "--worlds", "8"];
    fails(&threads, 2, "allowed: --machine sim");
    refused(&few, &["--worlds", "1"], "2..=65536");
    refused(&few, &["--worlds", "65537"], "2..=65536");
    refused(&few, &["--worlds", "8", "--input", "host.exit"], "inputs: host.exit_cycles");
    let design = dir.text("design.csv");
    fs::write(&design, "host.exit_cycles,chances\n0.5,0.5\n").unwrap();
    refused(&few, &["--design", &design], "without chance and with chances");
    fs::write(&design, "host.exit_cycles,chance\n0.5,7\n").unwrap();
    refused(&few, &["--design", &design], "line 2, column chance");
    let long = scenario(&dir, &[("window_ms = 20", "window_ms = 300000")]);
    refused(&long, &["--worlds", "65536"], "more than a day: use fewer worlds");
    let other = scenario(&dir, &[("[1200, 33000]", "[33000, 1200]")]);
    refused(&other, &["--worlds", "8"], "above the upper end");
    let runs = scenario(
        &dir,
        &[
            ("count = 2\n", ""),
            (
                "[measure]",
                "[sweep]\nvms = { any = [[2], [2, 3]], source = \"a guess\" }\n[measure]",
            ),
        ],
    );
    made(&runs, &dir.text("runs"), &["--worlds", "4"]);
    let said = dir.read("runs/table.txt");
    assert!(said.contains("2 impossible") && said.contains("changes the list of runs"), "{said}");
}

#[test]
fn without_worlds_a_range_is_said_to_be_its_middle() {
    let dir = Scratch::new();
    let few = scenario(&dir, &[]);
    let said = made(&few, &dir.text("out"), &[]);
    assert!(said.contains("host.exit_cycles is unknown; this run uses 6293."), "{said}");
    let plain =
        scenario(&dir, &[("{ range = [1200, 33000], log = true, source = \"a guess\" }", "6293")]);
    made(&plain, &dir.text("plain"), &[]);
    assert_eq!(dir.read("plain/summary.json"), dir.read("out/summary.json"));
}

/// The simulator's own records, as if they had been measured, against bands of the scenario's ranges.
#[test]
fn agree_draws_what_a_measured_scenario_does_not_know() {
    let dir = Scratch::new();
    dir.dir("scenarios");
    fs::copy(scenario(&dir, &[]), dir.join("scenarios/few.toml")).unwrap();
    made(&dir.text("scenarios/few.toml"), &dir.text("out"), &[]);
    let records = dir.read("out/results.jsonl");
    let records = records.replace("\"machine\":\"sim\"", "\"machine\":\"emulated\"");
    fs::write(dir.join("measured.jsonl"), records.replace("6.12 (model)", "6.12.57")).unwrap();
    let agree = |changed: bool| {
        if changed {
            // No longer the measured scenario: the model's own ranges are drawn.
            fs::copy(scenario(&dir, &[("count = 2", "count = 3")]), dir.join("scenarios/few.toml"))
                .unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_unspin-lab"));
        command.args(["agree", "measured.jsonl", "--worlds", "40", "--json"]).current_dir(&dir);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice::<serde_json::Value>(&done.stdout).unwrap()
    };
    let (own, models) = (agree(false), agree(true));
    for scores in [&own, &models] {
        assert_eq!((&scores["arms"], &scores["worlds"]), (&1.into(), &40.into()), "{scores}");
        assert!(scores["coverage_90"].is_number() && scores["order"]["of"].is_number(), "{scores}");
    }
    let width = |scores: &serde_json::Value| scores["interval_score"].as_f64().unwrap();
    assert!(width(&own) != width(&models), "{own} {models}");
}
