// SPDX-License-Identifier: MIT OR Apache-2.0
//! Swept locks against arms, as a page.

use crate::common::{lines, plan, read};
use unspin_report::{lock_tables, matrix, Matrix, MatrixError};
use unspin_scenario::plan::Run;
use unspin_scenario::result::VmResult;

const SCENARIO: &str = r#"
title = "t"
repeats = 3
[host]
pcpus = 4
lock_clock_mhz = 2600
[[vm]]
vcpus = 4
pin = "one-per-pcpu"
[sweep]
profiles = ["ebizzy"]
vms = [1, 2]
locks = ["ticket", "tas", { preemptable = { tau_ns = 8000 } }]
[measure]
alone = false
[[arm]]
name = "ple-off"
window = "off"
[[arm]]
name = "stock"
baseline = true
[[arm]]
name = "apples"
window = "aple"
yield_to = "hvs"
"#;

fn page(scenario: &str, tune: impl Fn(&Run, &mut VmResult)) -> Result<Matrix, MatrixError> {
    page_of("6.12.57+deb13-amd64", scenario, tune)
}

fn page_of(
    kernel: &str,
    scenario: &str,
    tune: impl Fn(&Run, &mut VmResult),
) -> Result<Matrix, MatrixError> {
    let text = lines(kernel, &plan(scenario), tune);
    Ok(matrix(&lock_tables(&read(&text))?, "matrix"))
}

fn times(v: &mut VmResult, n: u64) {
    v.units.iter_mut().for_each(|u| *u *= n);
}

/// The cells of a lock's row in the n-th table.
fn cells(m: &Matrix, heading: &str, lock: &str) -> Vec<String> {
    let part = m.page.split("#### ").find(|p| p.starts_with(heading)).expect("a section");
    let row = part.lines().find(|l| l.starts_with(&format!("| {lock} |"))).expect("a row");
    row.split('|').skip(2).map(|c| c.trim().to_string()).filter(|c| !c.is_empty()).collect()
}

#[test]
fn every_cell_is_divided_by_ticket_on_stock_with_as_many_vms() {
    let m = page(SCENARIO, |run, v| {
        if run.lock_group == "tas" {
            times(v, if run.vms.len() == 1 { 2 } else { 3 });
        }
    })
    .unwrap();
    assert_eq!(cells(&m, "ebizzy, 1 VM\n", "ticket"), ["0.50", "1.00", "1.30"]);
    assert_eq!(cells(&m, "ebizzy, 1 VM\n", "tas"), ["1.00 ~", "2.00", "2.60"]);
    assert_eq!(cells(&m, "ebizzy, 2 VMs\n", "tas"), ["1.50", "3.00", "3.90"]);
    assert!(m
        .page
        .contains("best: tas under apples (3.90); best policy for ticket: apples (1.30)"));
    assert!(m.page.contains(
        "apples gains over stock with ticket (+30 %), tas (+30 %), preemptable-8000ns (+30 %)."
    ));
    assert!(!m.page.contains("apples loses"));
    assert!(m.page.contains("2600 cycles a microsecond") && m.page.contains("seeds 1, 2, 3"));
}

#[test]
fn what_cannot_be_told_is_marked_and_few_rounds_are_not() {
    let m = page(SCENARIO, |run, v| {
        if run.lock_group == "tas" && run.repeat == 1 {
            times(v, 0);
        }
        if run.lock_group == "preemptable-8000ns" {
            v.module.as_mut().unwrap().rounds_total = 9;
        }
    })
    .unwrap();
    let tas = cells(&m, "ebizzy, 2 VMs\n", "tas");
    assert_eq!(tas[2], "1.30 ~", "seed by seed from 0 to 1.3");
    assert_eq!(cells(&m, "ebizzy, 2 VMs\n", "preemptable-8000ns")[2], "1.30");
    assert!(m.page.contains("apples gains over stock with ticket (+30 %), preemptable"));
}

#[test]
fn windows_that_never_moved_are_said_of_arms_that_do_nothing_else() {
    let with_aple = SCENARIO.to_string() + "[[arm]]\nname = \"aple\"\nwindow = \"aple\"\n";
    let still = |locks: &'static [&'static str]| {
        page(&with_aple, move |run, v| {
            if locks.contains(&run.lock_group.as_str()) {
                let m = v.module.as_mut().unwrap();
                (m.epochs, m.rounds_total) = (0, 0);
            }
        })
        .unwrap()
        .page
    };
    assert!(!still(&[]).contains("never moved"));
    let two = still(&["ticket", "tas"]);
    assert_eq!(two.matches(" aple never moved its window with ticket, tas.").count(), 2);
    assert!(!two.contains("apples never moved"), "HVS acts all the same");
    let all = still(&["ticket", "tas", "preemptable-8000ns"]);
    assert!(all.contains(" aple never moved its window with any lock."));
}

#[test]
fn one_seed_tells_nothing() {
    let m = page(&SCENARIO.replace("repeats = 3", "repeats = 1"), |_, _| ()).unwrap();
    assert_eq!(cells(&m, "ebizzy, 2 VMs\n", "ticket"), ["0.50 ~", "1.00", "1.30 ~"]);
    assert!(!m.page.contains("apples gains"));
}

#[test]
fn waste_kicks_and_fairness_stand_beside_it() {
    let m = page(SCENARIO, |_, v| {
        v.units[0] = 0;
        v.module.as_mut().unwrap().hypercalls_kick = 300;
    })
    .unwrap();
    let part = m.page.split("| wasted").nth(1).unwrap();
    let row = part.lines().find(|l| l.starts_with("| tas |")).unwrap();
    // 300 kicks in 0.3 s; three vCPUs of four do the work.
    assert_eq!(row, "| tas | – · 1000 · 0.75 | 10 % · 1000 · 0.75 | 8 % · 1000 · 0.75 |");
}

#[test]
fn names_of_pictures_can_be_links() {
    let m = page_of("eevdf (simulated)", SCENARIO, |_, _| ()).unwrap();
    assert_eq!(m.pictures[0].0, "matrix-ebizzy-eevdf__simulated_.svg");
    assert!(m.page.contains("](matrix-ebizzy-eevdf__simulated_.svg)"));
}

#[test]
fn results_without_locks_or_without_the_base_are_refused() {
    let none =
        SCENARIO.replace("locks = [\"ticket\", \"tas\", { preemptable = { tau_ns = 8000 } }]", "");
    assert_eq!(page(&none, |_, _| ()), Err(MatrixError::NoLocks));
    let without = SCENARIO.replace("\"ticket\", \"tas\"", "\"mcs\", \"tas\"");
    let error = page(&without, |_, _| ()).unwrap_err().to_string();
    assert!(error.contains("\"stock\" with 1 VMs of ebizzy"), "{error}");
    assert_eq!(lock_tables(&read("")), Err(MatrixError::NoLocks));
}
