// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every way a file can be wrong is named with its line, its key, and what is allowed.

mod files;
mod linux;
mod machines;
mod profiles;
mod tables;

use unspin_scenario::{parse_scenario, Problem, Scenario};

const GOOD: &str = r#"title = "t"
[host]
pcpus = 4
[[vm]]
count = 2
vcpus = 4
workload = "ebizzy"
[[arm]]
name = "stock"
"#;

fn problems(text: &str) -> Vec<Problem> {
    parse_scenario("x.toml", "x", text).expect_err("the scenario is wrong").0
}

/// The one problem of `GOOD` with `from` replaced.
fn problem(from: &str, to: &str) -> Problem {
    assert!(GOOD.contains(from), "{from}");
    let mut all = problems(&GOOD.replace(from, to));
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

#[track_caller]
fn check(from: &str, to: &str, key: &str, words: &str) {
    let p = problem(from, to);
    assert_eq!(p.key, key, "{p}");
    assert!(p.to_string().contains(words), "{p}");
}

/// Where the key stands that asks for what `machine` has not, in an arm that is run.
fn refused(s: &Scenario, machine: &str) -> Option<String> {
    s.refused_by(machine, |arm| arm.name != "idle").map(|refused| refused.path)
}
