// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios and profiles as text.

use std::fmt::Write;
use unspin_scenario::plan::{Arm, Asym, Dist, HostModel, LockChoice, Op, Role, Window};
use unspin_scenario::{Host, Pin, Profile, Scenario, VmGroup};

fn kebab<T: serde::Serialize>(x: &T) -> String {
    serde_json::to_value(x).unwrap().as_str().unwrap().to_string()
}

/// A key, where it has a value.
fn key<T: std::fmt::Display>(o: &mut String, name: &str, value: Option<T>) {
    if let Some(value) = value {
        writeln!(o, "{name} = {value}").unwrap();
    }
}

pub fn scenario_text(s: &Scenario) -> String {
    let mut o = format!("title = {:?}\nseed = {}\nrepeats = {}\n", s.title, s.seed, s.repeats);
    let w = &mut o;
    let kernels = (!s.kernels.is_empty()).then(|| format!("{:?}", s.kernels));
    key(w, "kernel", kernels);
    key(w, "boots", Some(s.boots));
    key(w, "slice_ns", s.host.slice_ns);
    key(w, "epoch_ple_exits", s.epoch_ple_exits);
    key(w, "epoch_min_us", s.epoch_min_us);
    host_text(w, &s.host);
    let cgroups: Vec<String> = s.sweep.cgroups.iter().map(kebab).collect();
    w.push_str("[sweep]\n");
    key(w, "profiles", Some(format!("{:?}", s.sweep.profiles)));
    key(w, "vms", Some(format!("{:?}", s.sweep.vms)));
    key(w, "cgroups", Some(format!("{cgroups:?}")));
    let locks: Vec<String> = s.sweep.locks.iter().map(lock_text).collect();
    key(w, "locks", (!locks.is_empty()).then(|| format!("[{}]", locks.join(", "))));
    let m = &s.measure;
    w.push_str("[measure]\n");
    key(w, "warmup_ms", Some(m.warmup_ms));
    key(w, "window_ms", Some(m.window_ms));
    key(w, "stagger_ms", Some(m.stagger_ms));
    key(w, "alone", Some(m.alone));
    key(w, "wakeups_hz", m.wakeups_hz);
    key(w, "hogs", Some(m.hogs));
    key(w, "states", Some(m.states));
    w.push_str("[trace]\n");
    key(w, "epochs", Some(s.trace.epochs));
    key(w, "picks", Some(s.trace.picks));
    key(w, "stalls", Some(s.trace.stalls));
    for g in &s.vms {
        vm_text(w, g, !s.sweep.locks.is_empty());
    }
    for (i, a) in s.arms.iter().enumerate() {
        arm_text(w, a, i == s.baseline, s.host.scheduler.is_credit());
    }
    o
}

fn host_text(w: &mut String, h: &Host) {
    w.push_str("[host]\n");
    key(w, "pcpus", Some(h.pcpus));
    key(w, "model", (h.model == HostModel::Server).then_some("\"server\""));
    key(w, "lock_clock_mhz", h.lock_clock_mhz);
    key(w, "scheduler", Some(format!("{:?}", kebab(&h.scheduler))));
    key(w, "loop_detection", Some(format!("{:?}", kebab(&h.loop_detection))));
    key(w, "llc_pcpus", h.llc_pcpus);
    key(w, "threads_per_core", Some(h.threads_per_core));
    key(w, "thread_speed_percent", h.thread_speed_percent);
    key(w, "skew_tick", Some(h.skew_tick));
    key(w, "group_load_lags", Some(h.group_load_lags));
    key(w, "housekeeping_ppm", h.housekeeping_ppm);
    key(w, "period_ms", h.period_ms);
    key(w, "exit_cycles", h.costs.exit_cycles);
    key(w, "wake_cycles", h.costs.wake_cycles);
}

fn vm_text(w: &mut String, g: &VmGroup, locks_are_swept: bool) {
    let pin = match &g.pin {
        Pin::None => "\"none\"".to_string(),
        Pin::OnePerPcpu => "\"one-per-pcpu\"".to_string(),
        Pin::List(l) => format!("{l:?}"),
    };
    w.push_str("[[vm]]\n");
    key(w, "mode", Some(if g.mode_off { "\"off\"" } else { "\"arm\"" }));
    key(w, "vcpus", Some(g.vcpus));
    key(w, "pin", Some(pin));
    key(w, "weight", Some(g.weight));
    key(w, "cpl", Some(g.cpl));
    key(w, "threads", g.threads);
    key(w, "tick_hz", Some(g.tick_hz));
    key(w, "gang", g.gang);
    key(w, "quota", g.quota_ppm.map(|ppm| f64::from(ppm) / 1e6));
    if g.role != Role::default() {
        key(w, "role", Some(format!("{:?}", format!("{:?}", g.role).to_lowercase())));
    }
    key(w, "name", g.name.as_ref().map(|name| format!("{name:?}")));
    key(w, "lock", (!locks_are_swept).then(|| lock_text(&g.lock)));
}

fn window_text(window: &Window) -> String {
    match window {
        Window::Stock => "\"stock\"".to_string(),
        Window::Off => "\"off\"".to_string(),
        Window::Fixed { cycles } => format!("{{ fixed_cycles = {cycles} }}"),
        Window::Aple(p) => {
            let keys = serde_json::to_value(p).unwrap();
            let keys: Vec<String> =
                keys.as_object().unwrap().iter().map(|(k, v)| format!("{k} = {v}")).collect();
            format!("{{ aple = {{ {} }} }}", keys.join(", "))
        }
    }
}

fn arm_text(w: &mut String, a: &Arm, is_baseline: bool, is_credit: bool) {
    w.push_str("[[arm]]\n");
    key(w, "name", Some(format!("{:?}", a.name)));
    key(w, "window", Some(window_text(&a.window)));
    key(w, "yield_to", Some(format!("{:?}", kebab(&a.yield_to))));
    key(w, "observe", Some(a.observe));
    key(w, "baseline", Some(is_baseline));
    let p = &a.platform;
    key(w, "physical", Some(p.physical));
    key(w, "apicv", Some(p.apicv));
    key(w, "halt_poll_us", Some(p.halt_poll_us));
    let without: Vec<String> = p.without.iter().map(kebab).collect();
    key(w, "without", (!without.is_empty()).then(|| format!("{without:?}")));
    key(w, "lock", a.lock.as_ref().map(lock_text));
    if is_credit {
        key(w, "coscheduling", Some(format!("{:?}", kebab(&a.coscheduling))));
        return;
    }
    key(w, "queue_aware", Some(a.queue_aware));
    let Asym { time, latency, resolver, weight, uncorrected, period_ms } = a.asym;
    let period = period_ms.map_or(String::new(), |ms| format!(", period_ms = {ms}"));
    let asym = format!("{{ time = {time}, latency = {latency}, resolver = {resolver}, weight = {weight}, uncorrected = {uncorrected}{period} }}");
    key(w, "asym", Some(asym));
}

fn lock_text(lock: &LockChoice) -> String {
    match lock.tau_ns {
        None => format!("{:?}", lock.kind.name()),
        Some(ns) => format!("{{ {} = {{ tau_ns = {ns} }} }}", lock.kind.name()),
    }
}

pub fn profile_text(p: &Profile) -> String {
    let mut o = format!("name = {:?}\nspin_intensive = {}\n", p.name, p.spin_intensive);
    for s in &p.program {
        writeln!(o, "[[step]]\nop = {:?}", kebab(&s.op)).unwrap();
        if matches!(s.op, Op::Lock | Op::Unlock) {
            writeln!(o, "lock = {}", s.lock).unwrap();
        }
        if matches!(s.op, Op::Compute | Op::Critical | Op::Block) {
            let length = match s.dist {
                Dist::Const { iterations } => format!("{iterations}"),
                Dist::Uniform { min, max } => format!("{{ uniform = [{min}, {max}] }}"),
                Dist::Exp { mean, max: 0 } => format!("{{ exp_mean = {mean} }}"),
                Dist::Exp { mean, max } => format!("{{ exp_mean = {mean}, max = {max} }}"),
            };
            writeln!(o, "iterations = {length}").unwrap();
        }
        if s.permille != 1000 {
            writeln!(o, "chance = {}", f64::from(s.permille) / 1000.0).unwrap();
        }
    }
    if let Some(c) = &p.calibration {
        writeln!(o, "[calibration]\ndate = {:?}\nentries = {:?}", c.date, c.entries).unwrap();
        writeln!(o, "how = {:?}\nsha256 = {:?}", c.how, c.sha256).unwrap();
    }
    o
}
