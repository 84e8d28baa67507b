// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares of a sweep, run one by one and joined, give the same files as the whole.

mod common;

use common::lab;
use unspin_scratch::Scratch;

#[test]
fn shards_are_the_whole() {
    let dir = Scratch::new();
    let path = |name: &str| dir.text(name);
    let bench = ["bench", "smoke", "--machine", "sim", "--quiet", "--repeats", "2", "--out"];
    let made = |out: &str, more: &[&str]| {
        let all: Vec<&str> =
            bench.iter().copied().chain([out]).chain(more.iter().copied()).collect();
        let done = lab(&all);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    made(&path("whole"), &[]);
    // More shares than runs: some are empty, and nothing is lost.
    for of in [2, 40] {
        let mut report = vec!["report".to_string(), "--out".to_string(), path("merged")];
        for i in 1..=of {
            made(&path("shares"), &["--shard", &format!("{i}/{of}")]);
            report.push(path(&format!("shares/shard-{i}-of-{of}")));
        }
        let report: Vec<&str> = report.iter().map(String::as_str).collect();
        assert!(lab(&report).status.success());
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
    let made = |more: &[&str]| {
        let all: Vec<&str> =
            ["figures", "--quiet"].into_iter().chain(more.iter().copied()).collect();
        let done = lab(&all);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    made(&[&ids[..], &["--out", &path("whole")]].concat());
    for i in ["1/2", "2/2"] {
        made(&[&ids[..], &["--shard", i, "--out", &path(&i[..1])]].concat());
    }
    made(&["--merge", &path("1"), &path("2"), "--out", &path("merged")]);
    for file in
        ["summary.json", "dissertation_ch4_fig2_pm.csv", "dissertation_ch4_fig7_vanilla.svg"]
    {
        let read = |of: &str| std::fs::read(dir.join(of).join(file)).unwrap();
        assert_eq!(read("merged"), read("whole"), "{file}");
    }
    let one = lab(&["figures", "--merge", &path("1"), "--out", &path("one")]);
    let said = String::from_utf8_lossy(&one.stderr);
    assert!(one.status.code() == Some(2) && said.contains("dissertation_ch4_fig7"), "{said}");
}

#[test]
fn wrong_shares_are_usage_errors() {
    for (args, words) in [
        (&["bench", "smoke", "--machine", "sim", "--shard", "3/2"][..], "such as 1/8"),
        (&["figures", "--merge", "/nonexistent"], "no file /nonexistent/summary.json"),
    ] {
        let out = lab(args);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains(words), "{said}");
    }
}
