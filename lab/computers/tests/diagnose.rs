// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin diagnose` on stock kernels under QEMU: states against what the kernel itself counts, and
//! causes that were put there. tests/diagnose.sh is what runs inside.

mod common;

use serde_json::Value;
use unspin_computers::Series;

/// Of the wall time of all vCPUs: how far a state may be from the kernel's own count of it. Both are read
/// one after the other.
const APART_MAX: f64 = 0.02;

type Case = (&'static str, &'static [&'static str], &'static str, f64);

/// What each VM must show: its name in the script, its dominant cause (one of these, or none), a state, and
/// at least which share of the wall time that state takes.
const CASES: &[Case] = &[
    ("alone", &[], "guest", 0.9),
    ("other-vm", &["contention"], "ready:vm", 0.4),
    ("siblings", &["contention"], "ready:sibling", 0.4),
    ("host-task", &["contention"], "ready:host", 0.4),
    ("quota", &["contention"], "throttled", 0.5),
    ("quota-of-version-1", &["contention"], "throttled", 0.5),
    // Its guest sets a timer for each sleep, through its interrupt controller. Which of the two costs more
    // depends on whether its vCPUs share a CPU.
    // The emulator's clock jumps where nobody computes, so what is left of it for sleeping differs.
    ("sleeper", &["idle-switch", "ipi"], "halted", 0.05),
    ("spinners", &["spin-switch"], "exit:pause", 0.2),
];

#[test]
fn diagnoses_under_qemu() {
    let judged = |lines: &[String]| {
        let of = |case| judged(lines, case).into_iter().map(|what| format!("{}: {what}", case.0));
        CASES.iter().flat_map(of).collect()
    };
    let script = include_str!("diagnose.sh");
    common::command_under_qemu("diagnose", &Series::ALL, script, 20, judged);
}

/// What is wrong with a VM's diagnoses, if more than half of them are not right: the emulator's clock may
/// jump in one.
fn judged(lines: &[String], case: &Case) -> Vec<String> {
    let prefix = format!("diagnosis {} ", case.0);
    let texts = lines.iter().filter_map(|line| line.strip_prefix(&prefix));
    let wrong: Vec<Vec<String>> = texts.map(|text| judged_one(text, case)).collect();
    let right = wrong.iter().filter(|wrong| wrong.is_empty()).count();
    match wrong.len() {
        0 => vec!["no diagnosis".into()],
        all if 2 * right > all => Vec::new(),
        _ => wrong.concat(),
    }
}

/// What is wrong with a diagnosis.
fn judged_one(text: &str, case: &Case) -> Vec<String> {
    let (name, dominant, state, share) = *case;
    let Ok(document) = serde_json::from_str::<Value>(text) else {
        return vec![text.to_string()];
    };
    let vm = &document["vms"][0];
    let wall = vm["vcpus"].as_f64().unwrap_or(0.0) * vm["window_s"].as_f64().unwrap_or(0.0);
    let mut wrong = Vec::new();
    let is_it = match vm["dominant"].as_str() {
        Some(found) => dominant.contains(&found),
        None => dominant.is_empty(),
    };
    if !is_it {
        wrong.push(format!("dominant is {}, not {dominant:?}: {}", vm["dominant"], vm["states"]));
    }
    let found = vm["states"][state].as_f64().unwrap_or(0.0) / wall;
    if found.is_nan() || found < share {
        wrong.push(format!("{state} is {found}, less than {share}: {}", vm["states"]));
    }
    wrong.extend(against_the_kernel(vm, wall));
    if !dominant.is_empty() && vm["advice"].as_array().is_none_or(Vec::is_empty) {
        wrong.push("no advice".into());
    }
    common::say(&format!("{name}: {} of {wall:.3} s; kernel {}", vm["states"], vm["kernel"]));
    wrong
}

/// What differs from the kernel's counts. They are read a moment after the states, and how long a moment
/// lasts here depends on who has the CPU; so shares are compared: of being on a CPU, of the time on one or
/// ready for one; and of halting, of all.
fn against_the_kernel(vm: &Value, wall: f64) -> Vec<String> {
    let states = vm["states"].as_object().cloned().unwrap_or_default();
    let sum = |is: &dyn Fn(&str) -> bool| -> f64 {
        states.iter().filter(|(name, _)| is(name)).filter_map(|(_, time)| time.as_f64()).sum()
    };
    let asleep = ["halted", "blocked", "stopped", "parked"];
    let is_ready = |name: &str| name.starts_with("ready:") || name == "throttled";
    let is_on = |name: &str| !is_ready(name) && !asleep.contains(&name);
    let count = |name: &str| vm["kernel"][name].as_f64().unwrap_or(f64::NAN);
    // The emulator's clock has jumped for one CPU and not for the other: nothing can be compared.
    if count("on_cpu_s") > (1.0 + APART_MAX) * wall {
        return Vec::new();
    }
    let (on, ready, halted) = (sum(&is_on), sum(&is_ready), sum(&|name| name == "halted"));
    let kernel_on = count("on_cpu_s") / (count("on_cpu_s") + count("ready_s"));
    // KVM's halting ends only when the vCPU has a CPU again.
    let kernel_halted = (count("halted_s") / wall - ready / wall).max(0.0);
    let mut wrong = Vec::new();
    for (what, found, kernel) in
        [("on a CPU", on / (on + ready), kernel_on), ("halted", halted / wall, kernel_halted)]
    {
        let apart = (found - kernel).abs();
        if apart.is_nan() || apart > APART_MAX {
            wrong.push(format!("{what} is {kernel} by the kernel's counts, {found} by states"));
        }
    }
    wrong
}

#[test]
fn a_wrong_diagnosis_is_seen() {
    let line = |dominant: &str, ready: f64| {
        format!(
            r#"diagnosis x {{"vms":[{{"vcpus":1,"window_s":2.0,"dominant":{dominant},
            "states":{{"guest":1.0,"ready:vm":{ready}}},"advice":[{{}}],
            "kernel":{{"on_cpu_s":1.1,"ready_s":1.1,"halted_s":0.0}}}}]}}"#
        )
    };
    let judge = |line: String| judged(&[line], &("x", &["contention"], "ready:vm", 0.45)).len();
    assert_eq!(judge(line("\"contention\"", 1.0)), 0);
    assert_eq!(judge(line("null", 1.0)), 1);
    assert_eq!(judge(line("\"contention\"", 0.91)), 1, "schedstat has more");
    assert_eq!(judge(line("\"contention\"", 0.8)), 2, "and it is too little");
    let jumped = line("\"contention\"", 1.0).replace("\"on_cpu_s\":1.1", "\"on_cpu_s\":9.1");
    assert_eq!(judge(jumped), 0, "more CPU time than there was");
    assert_eq!(judge("diagnosis x killed".into()), 1);
    let (right, wrong) = (line("\"contention\"", 1.0), line("null", 1.0));
    let case = ("x", &["contention"][..], "ready:vm", 0.45);
    assert!(judged(&[right.clone(), wrong.clone(), right.clone()], &case).is_empty());
    assert_eq!(judged(&[wrong.clone(), right, wrong], &case).len(), 2, "most are wrong");
    assert_eq!(judge("diagnosis y {}".into()), 1);
}
