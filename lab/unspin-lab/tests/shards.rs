// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares of a sweep, run one by one and joined, give the same files as the whole.

mod common;

use common::{fails, lab, made};
use unspin_scratch::Scratch;

#[test]
fn shards_are_the_whole() {
    let dir = Scratch::new();
    let path = |name: &str| dir.text(name);
    let bench = ["bench", "smoke", "--machine", "sim", "--quiet", "--repeats", "2", "--out"];
    let run = |out: &str, more: &[&str]| made(&[&bench[..], &[out], more].concat());
    run(&path("whole"), &[]);
    // More shares than runs: some are empty, and nothing is lost.
    for of in [2, 40] {
        let mut report = vec!["report".to_string(), "--out".to_string(), path("merged")];
        for i in 1..=of {
            run(&path("shares"), &["--shard", &format!("{i}/{of}")]);
            report.push(path(&format!("shares/shard-{i}-of-{of}")));
        }
        let report: Vec<&str> = report.iter().map(String::as_str).collect();
        made(&report);
        for file in ["summary.json", "table.csv", "report.html"] {
            let read = |of: &str| std::fs::read(dir.join(of).join(file)).unwrap();
            assert_eq!(read("merged"), read("whole"), "{file} of {of} shares");
        }
        let one = lab(&["report", &path("shares/shard-2-of-2")]);
        assert!(String::from_utf8_lossy(&one.stdout).contains("shard 1/2 missing"));
    }
}

#[test]
fn shares_of_figures_are_the_whole() {
    let dir = Scratch::new();
    let path = |name: &str| dir.text(name);
    let ids = ["dissertation_ch4_fig2_pm", "dissertation_ch4_fig7_vanilla"];
    let figures = |more: &[&str]| made(&[&["figures", "--quiet"][..], more].concat());
    figures(&[&ids[..], &["--out", &path("whole")]].concat());
    for i in ["1/2", "2/2"] {
        figures(&[&ids[..], &["--shard", i, "--out", &path(&i[..1])]].concat());
    }
    figures(&["--merge", &path("1"), &path("2"), "--out", &path("merged")]);
    for file in
        ["summary.json", "dissertation_ch4_fig2_pm.csv", "dissertation_ch4_fig7_vanilla.svg"]
    {
        let read = |of: &str| std::fs::read(dir.join(of).join(file)).unwrap();
        assert_eq!(read("merged"), read("whole"), "{file}");
    }
    let one = ["figures", "--merge", &path("1"), "--out", &path("one")];
    fails(&one, 2, "dissertation_ch4_fig7");
}

#[test]
fn wrong_shares_are_usage_errors() {
    fails(&["bench", "smoke", "--machine", "sim", "--shard", "3/2"], 2, "such as 1/8");
    fails(&["figures", "--merge", "/nonexistent"], 2, "no file /nonexistent/summary.json");
}
