// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files: their form, unknown and missing keys, and the order of problems.

use crate::{check, problem, problems, GOOD};
use unspin_scenario::{parse_scenario, problem_at};

#[test]
fn the_good_one_is_good() {
    let s = parse_scenario("x.toml", "x", GOOD).unwrap();
    assert_eq!((s.repeats, s.seed, s.sweep.vms.as_slice()), (3, 1, &[2][..]));
}

#[test]
fn unknown_keys_are_placed_and_guessed() {
    let p = problem("pcpus = 4", "pcpus = 4\npcpu = 3");
    assert_eq!((p.line, p.column, p.key.as_str()), (4, 1, "host.pcpu"));
    assert_eq!(p.suggestion.as_deref(), Some("pcpus"));
    assert_eq!(
        p.to_string(),
        "x.toml:4:1: `host.pcpu`: unknown key\n    allowed: pcpus, model, lock_clock_mhz, scheduler, period_ms, loop_detection, llc_pcpus, threads_per_core, thread_speed_percent, skew_tick, group_load_lags, housekeeping_ppm, exit_cycles, yield_cycles, queue_lock_cycles, switch_cycles, tick_cycles, interrupt_cycles, ipi_cycles, kick_cycles, halt_cycles, wake_cycles, handoff_cycles, guest_switch_cycles, migration_cycles\n    did you mean `pcpus`?"
    );
    let p = problem("title", "repeat = 3\ntitle");
    assert_eq!(p.suggestion.as_deref(), Some("repeats"));
    let p = problem("count = 2", "colour = 2");
    assert_eq!((p.key.as_str(), p.suggestion), ("vm[0].colour", None));
}

#[test]
fn types_units_and_ranges() {
    check("title = \"t\"", "title = 3", "title", "the integer 3 is not allowed here");
    check("title = \"t\"", "title = \" \"", "title", "empty");
    check("pcpus = 4", "pcpus = \"4\"", "host.pcpus", "the string \"4\"");
    check("pcpus = 4", "pcpus = 4.5", "host.pcpus", "the fraction 4.5");
    check("pcpus = 4", "pcpus = -4", "host.pcpus", "-4 is out of range");
    check("title", "seed = 99999999999999999999\ntitle", "seed", "out of range");
    check("title", "repeats = 0\ntitle", "repeats", "0 is out of range");
    check("title", "slice_ns = 3\ntitle", "slice_ns", "nanoseconds");
    check("title", "kernel = \"6\"\ntitle", "kernel", "not a kernel series");
    check("[host]", "[measure]\nwindow_ms = 0\n[host]", "measure.window_ms", "milliseconds");
    check("[host]", "[measure]\nwindow_ms = \"300ms\"\n[host]", "measure.window_ms", "300ms");
    check("[host]", "[measure]\nwindow_us = 5\n[host]", "measure.window_us", "`window_ms`?");
    check("[host]", "[trace]\nepochs = 1\n[host]", "trace.epochs", "true or false");
}

#[test]
fn what_is_missing_is_named() {
    let all = problems("");
    let keys: Vec<&str> = all.iter().map(|p| p.key.as_str()).collect();
    assert_eq!(keys, ["title", "host", "vm", "arm"]);
    check("pcpus = 4\n", "", "host.pcpus", "missing");
    check("vcpus = 4\n", "", "vm[0].vcpus", "missing");
    check("workload = \"ebizzy\"\n", "", "vm[0].workload", "missing");
    assert_eq!(
        problems(&format!("arm = []\n{}", GOOD.replace("[[arm]]\nname = \"stock\"\n", "")))[0].key,
        "arm"
    );
}

#[test]
fn all_problems_come_in_one_pass_in_the_order_of_the_file() {
    let text = GOOD
        .replace("title", "titel")
        .replace("pcpus = 4", "pcpus = 0")
        .replace("vcpus = 4", "vcpus = 999")
        .replace("\"stock\"", "\"stock\"\nyield_to = \"nobody\"");
    let all = problems(&text);
    let lines: Vec<usize> = all.iter().map(|p| p.line).collect();
    assert_eq!(lines.len(), 5, "{all:#?}");
    assert!(lines.is_sorted(), "{lines:?}");
}

#[test]
fn what_is_not_toml_is_placed() {
    let all = problems("title = \"t\nseed = 1\n[host\n");
    assert!(all.iter().all(|p| p.message.starts_with("not TOML")), "{all:#?}");
    assert_eq!(all[0].line, 1);
    assert!(problems("title = \"a\"\ntitle = \"b\"\n")[0].message.contains("duplicate key"));
}

#[test]
fn a_key_given_twice_is_named() {
    let p = problem("pcpus = 4", "pcpus = 4\npcpus = 3");
    assert_eq!((p.line, p.message.as_str()), (4, "not TOML: duplicate key \"pcpus\""));
    let p = problem("title = \"t\"", "title = \"t\"\n\"title\" = 3");
    assert!(p.message.contains("\"title\""), "{p}");
}

#[test]
fn a_long_list_of_problems_ends() {
    let nested = format!("x = {}", "{a=".repeat(100_000));
    let said = parse_scenario("x.toml", "x", &nested).unwrap_err().to_string();
    assert!(said.lines().count() <= 21 && said.len() < 10_000, "{said:.2000}");
    let keys: String = (0..25).map(|n| format!("k{n} = 1\n")).collect();
    let problems = parse_scenario("x.toml", "x", &(keys + GOOD)).unwrap_err();
    assert_eq!(problems.0.len(), 25);
    let said = problems.to_string();
    assert!(said.contains("`k19`") && !said.contains("`k20`"), "{said}");
    assert!(said.ends_with("\n… and 5 more"), "{said}");
}

#[test]
fn what_is_refused_is_placed() {
    let text = GOOD
        .replace("name = \"stock\"", "name = \"a\"\n[[arm]]\nname = \"b\"\nasym = { time = true }");
    for (key, line) in [("host.pcpus", 3), ("arm[1].asym", 12), ("arm[1].asym.time", 12)] {
        let at = &problem_at("x.toml", &text, key, "no", "yes").0;
        assert_eq!((at.len(), at[0].line, at[0].key.as_str()), (1, line, key));
    }
    for key in ["arm[2]", "arm[x]", "arm.asym", "host[0]", "host.pcpus.x"] {
        let at = &problem_at("x.toml", &text, key, "no", "yes").0;
        assert_eq!((at.len(), at[0].line, at[0].key.as_str()), (1, 1, key), "{at:?}");
    }
}
