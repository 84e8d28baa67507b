// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every form of a report, byte by byte against files beside this one. A change of a form must change
//! them: `UNSPIN_BLESS=1 cargo test -p unspin-report --test report forms`, and read the difference.

use crate::common::{lines, plan, read};
use std::path::Path;
use unspin_report::{csv, documents, html, lock_tables, matrix, text, Input};
use unspin_scenario::plan::Run;
use unspin_scenario::result::{Attribution, Factors, Stalls, VmResult};

const SCENARIO: &str = r#"
title = "Every form"
repeats = 2
epoch_ple_exits = 50
vm = [{ vcpus = 2 }]
arm = [
    { name = "ple-off", window = "off" },
    { name = "stock", baseline = true },
    { name = "hvs", yield_to = "hvs" },
    { name = "apples", window = "aple", yield_to = "hvs" },
]
[host]
pcpus = 4
[sweep]
profiles = ["ebizzy", "dbench"]
vms = [1]
[trace]
epochs = true
[measure]
alone = true
"#;

const LOCKS: &str = r#"
title = "Locks"
repeats = 2
vm = [{ vcpus = 2 }]
arm = [
    { name = "stock" },
    { name = "apples", window = "aple", yield_to = "hvs" },
]
[host]
pcpus = 4
[sweep]
profiles = ["ebizzy"]
vms = [2]
locks = ["ticket", "tas"]
[measure]
alone = false
"#;

/// Seeds that differ, an arm with few rounds, time by class and factor, long waits.
fn tune(run: &Run, v: &mut VmResult) {
    if run.repeat == 1 && run.arm.name == "hvs" && run.profile == "dbench" {
        v.units.iter_mut().for_each(|n| *n = *n * 3 / 4);
    }
    if let Some(m) = v.module.as_mut().filter(|_| run.profile == "dbench") {
        m.rounds_total = m.rounds_total.min(9);
    }
    let factors = Factors { idle_switch_ns: 10, user_spin_ns: 20, ..Factors::default() };
    v.attribution = Some(Attribution {
        useful_ns: 600,
        spin_holder_running_ns: 200,
        spin_holder_preempted_ns: 100,
        switch_ns: 40,
        exit_ns: 20,
        waiting_ns: 40,
        factors: Some(factors),
        ..Attribution::default()
    });
    let (free, held) = (vec![9, 9, 8, 7, 5, 3, 1], vec![9, 7, 5, 3, 1, 0, 0]);
    v.stalls = Some(Stalls { free, held });
}

fn input(scenario: &str) -> Input {
    read(&lines("6.12.57+deb13-amd64", &plan(scenario), tune))
}

#[test]
fn forms_are_what_they_were() {
    let docs = documents(&input(SCENARIO));
    let page = matrix(&lock_tables(&input(LOCKS)).unwrap(), "matrix");
    // A line per row, and not one per number as in the file that is written.
    let summary = serde_json::to_string(&docs[0].summary).unwrap();
    let summary = summary.replace(":[{", ":[\n{").replace("},{", "},\n{");
    let forms = [
        ("table.txt", text(&docs, usize::MAX)),
        ("table.csv", csv(&docs)),
        ("summary.json", summary + "\n"),
        ("report.html", html(&docs)),
        ("matrix.md", page.page),
        ("matrix.svg", page.pictures[0].1.clone()),
    ];
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forms");
    for (name, now) in forms {
        let file = dir.join(name);
        if std::env::var_os("UNSPIN_BLESS").is_some() {
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(&file, &now).unwrap();
        }
        let was = std::fs::read_to_string(&file).unwrap();
        for (n, (was, now)) in was.lines().zip(now.lines()).enumerate() {
            assert_eq!(was, now, "{name}:{}", n + 1);
        }
        assert!(was == now, "{name}: {} bytes became {}", was.len(), now.len());
    }
}
