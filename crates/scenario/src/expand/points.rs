// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario and its profiles become a plan: single runs in the order to make them.

use crate::expand::hash::hash;
use crate::expand::select::{check_selection, selected, ExpandError, Selection};
use crate::plan::{EachVm, Plan, Run, SCHEMA};
use crate::schema::arm::{Arm, Window, YieldTo};
use crate::schema::host::CgroupLayout;
use crate::schema::lock::LockChoice;
use crate::schema::names::{is_name, ALONE_ARM};
use crate::schema::program::Profile;
use crate::schema::scenario::{Pin, Scenario, VmGroup};
use std::collections::BTreeMap;

/// Expands `scenario`. `texts` are the scenario's text and those of the profiles it names, by
/// name: what the hash is taken over.
pub fn expand(
    scenario: &Scenario,
    text: &str,
    profiles: &BTreeMap<String, (Profile, String)>,
    select: &Selection,
) -> Result<Plan, ExpandError> {
    check_selection(scenario, select)?;
    let names = scenario.profile_names();
    let mut used = BTreeMap::new();
    for name in &names {
        let p = profiles.get(name).ok_or_else(|| ExpandError::NoProfile(name.clone()))?;
        used.insert(name.as_str(), p);
    }
    let mut runs = Vec::new();
    for repeat in 0..scenario.repeats {
        if scenario.measure.alone {
            for (profile, group) in lonely(scenario, &used) {
                for lock in locks_of(scenario) {
                    runs.push(alone_run(scenario, profile, group, lock, repeat));
                }
            }
        }
        for cgroup in &scenario.sweep.cgroups {
            for name in &scenario.sweep.profiles {
                for vms in &scenario.sweep.vms {
                    for lock in locks_of(scenario) {
                        let point = Point {
                            profile: &used[name.as_str()].0,
                            groups: vms_of(scenario, *vms),
                            cgroup: *cgroup,
                            lock,
                            used: &used,
                        };
                        for arm in rotated(&scenario.arms, repeat as usize) {
                            runs.push(run(scenario, &point, arm, repeat));
                        }
                    }
                }
            }
        }
    }
    for (id, r) in (0..).zip(&mut runs) {
        r.id = id;
    }
    let baseline = &scenario.arms[scenario.baseline].name;
    runs.retain(|r| selected(r, select, baseline));
    check_runs(scenario, &runs)?;
    Ok(Plan {
        schema: SCHEMA,
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        scenario_hash: hash(text, &used),
        pcpus: scenario.host.pcpus,
        slice_ns: scenario.slice_ns,
        host_model: scenario.host.model,
        scheduler: scenario.host.scheduler,
        period_ms: scenario.host.period_ms,
        loop_detection: scenario.host.loop_detection,
        llc_pcpus: scenario.host.llc_pcpus,
        skew_tick: scenario.host.skew_tick,
        group_load_lags: scenario.host.group_load_lags,
        runs,
    })
}

/// Names that profiles gave, and CPUs that groups of VMs are pinned to.
fn check_runs(scenario: &Scenario, runs: &[Run]) -> Result<(), ExpandError> {
    for each in runs.iter().flat_map(|r| &r.each) {
        if !is_name(&each.group) {
            return Err(ExpandError::LongName(each.group.clone()));
        }
    }
    for wanted in runs.iter().flat_map(|r| r.pin.iter().flatten()) {
        if *wanted >= scenario.host.pcpus {
            return Err(ExpandError::NoPcpu { pcpus: scenario.host.pcpus, wanted: *wanted });
        }
    }
    Ok(())
}

/// What the arms are compared at.
struct Point<'a> {
    /// What the VMs run that have no workload of their own.
    profile: &'a Profile,
    /// Of each VM.
    groups: Vec<&'a VmGroup>,
    cgroup: CgroupLayout,
    /// The lock swept; `None`: locks are not.
    lock: Option<LockChoice>,
    used: &'a Used<'a>,
}

/// The locks swept, or once `None`.
fn locks_of(s: &Scenario) -> Vec<Option<LockChoice>> {
    match s.sweep.locks.as_slice() {
        [] => vec![None],
        locks => locks.iter().copied().map(Some).collect(),
    }
}

/// The profiles by name, and their texts.
type Used<'a> = BTreeMap<&'a str, &'a (Profile, String)>;

/// What a group runs where `swept` is the profile swept over.
fn workload<'a>(g: &VmGroup, swept: &'a Profile, used: &Used<'a>) -> &'a Profile {
    g.workload.as_ref().map_or(swept, |own| &used[own.as_str()].0)
}

fn rotated(arms: &[Arm], by: usize) -> impl Iterator<Item = &Arm> {
    arms.iter().cycle().skip(by % arms.len()).take(arms.len())
}

fn run(s: &Scenario, point: &Point, arm: &Arm, repeat: u32) -> Run {
    let groups = &point.groups;
    let first = groups[0];
    let profile = workload(first, point.profile, point.used);
    let weights: Vec<u32> = groups.iter().map(|g| g.weight).collect();
    let alike = weights.iter().all(|w| *w == weights[0]);
    let lock = lock_of(first, point, arm);
    Run {
        id: 0,
        profile: point.profile.name.clone(),
        spin_intensive: profile.spin_intensive,
        program: profile.program.clone(),
        vms: groups.len() as u32,
        vcpus: first.vcpus,
        each: each_vm(s, point, arm),
        pin: pins(groups),
        weights: if alike { Vec::new() } else { weights },
        lock: lock.kind,
        tau_ns: lock.tau_ns,
        lock_group: point.lock.map(|l| l.label()).unwrap_or_default(),
        lock_clock_mhz: s.host.lock_clock_mhz,
        cpl: first.cpl,
        cgroup: point.cgroup,
        arm: arm.clone(),
        epoch_ple_exits: s.epoch_ple_exits,
        epoch_min_us: s.epoch_min_us,
        baseline: s.arms[s.baseline].name.clone(),
        seed: s.seed + u64::from(repeat),
        repeat,
        warmup_ms: s.measure.warmup_ms,
        window_ms: s.measure.window_ms,
        stagger_ms: s.measure.stagger_ms,
        alone: false,
        trace_epochs: s.trace.epochs,
        trace_picks: s.trace.picks,
        stalls: s.trace.stalls,
    }
}

/// The lock of a group's VMs: the arm's or the swept one, unless nothing of an arm is for them.
fn lock_of(g: &VmGroup, point: &Point, arm: &Arm) -> LockChoice {
    if g.mode_off {
        return g.lock;
    }
    arm.lock.or(point.lock).unwrap_or(g.lock)
}

/// What each VM is; empty where all are alike and none has a name.
fn each_vm(s: &Scenario, point: &Point, arm: &Arm) -> Vec<EachVm> {
    let key = |g: &VmGroup| {
        let profile = workload(g, point.profile, point.used).name.clone();
        (g.name.clone(), profile, g.vcpus, g.lock, g.cpl, g.mode_off, g.threads, g.tick_hz)
    };
    let first = key(point.groups[0]);
    let usual = point.groups.iter().all(|g| g.threads.is_none() && g.tick_hz == 0);
    if usual && point.groups.iter().all(|g| key(g) == first) && first.0.is_none() {
        return Vec::new();
    }
    let sweeps = s.sweep.profiles.len() > 1;
    let mut names: Vec<(String, _)> = Vec::new();
    let mut all = Vec::new();
    for g in &point.groups {
        let profile = workload(g, point.profile, point.used);
        let base = match (&g.name, &g.workload) {
            (Some(name), _) if sweeps => format!("{name}-{}", point.profile.name),
            (Some(name), _) => name.clone(),
            (None, Some(own)) if sweeps => format!("{own}-beside-{}", point.profile.name),
            (None, _) => profile.name.clone(),
        };
        let same = names.iter().find(|(_, k)| *k == key(g)).map(|(name, _)| name.clone());
        let group = same.unwrap_or_else(|| {
            let taken = |name: &String| names.iter().any(|(n, _)| n == name);
            let numbered = (2..).map(|n| format!("{base}-{n}"));
            let free = std::iter::once(base.clone()).chain(numbered).find(|n| !taken(n));
            let name = free.unwrap_or_default();
            names.push((name.clone(), key(g)));
            name
        });
        let lock = lock_of(g, point, arm);
        all.push(EachVm {
            group,
            profile: profile.name.clone(),
            spin_intensive: profile.spin_intensive,
            program: profile.program.clone(),
            vcpus: g.vcpus,
            lock: lock.kind,
            tau_ns: lock.tau_ns,
            cpl: g.cpl,
            threads: g.threads,
            tick_hz: g.tick_hz,
            mode_off: g.mode_off,
        });
    }
    all
}

/// What is run alone to learn what it could do: every profile in every kind of VM that runs it.
fn lonely<'a>(s: &'a Scenario, used: &Used<'a>) -> Vec<(&'a Profile, &'a VmGroup)> {
    type Kind<'a> = (&'a str, u32, LockChoice, u8);
    let mut seen: Vec<Kind> = Vec::new();
    let mut all = Vec::new();
    for name in &s.sweep.profiles {
        for g in &s.vms {
            let profile = workload(g, &used[name.as_str()].0, used);
            let kind = (profile.name.as_str(), g.vcpus, g.lock, g.cpl);
            if !seen.contains(&kind) {
                seen.push(kind);
                all.push((profile, g));
            }
        }
    }
    all
}

fn alone_run(
    s: &Scenario,
    profile: &Profile,
    group: &VmGroup,
    lock: Option<LockChoice>,
    repeat: u32,
) -> Run {
    let arm = Arm {
        name: ALONE_ARM.to_string(),
        window: Window::Off,
        yield_to: YieldTo::Stock,
        observe: true,
        ..Arm::default()
    };
    let swept = VmGroup { workload: None, name: None, mode_off: false, ..group.clone() };
    let cgroup = CgroupLayout::Flat;
    let point = Point { profile, groups: vec![&swept], cgroup, lock, used: &Used::new() };
    Run {
        alone: true,
        weights: Vec::new(),
        trace_epochs: false,
        trace_picks: false,
        ..run(s, &point, &arm, repeat)
    }
}

/// The group each of the first `vms` VMs belongs to; a sweep over numbers of VMs has one group.
fn vms_of(s: &Scenario, vms: u32) -> Vec<&VmGroup> {
    let listed = s.vms.iter().flat_map(|g| std::iter::repeat_n(g, g.count as usize));
    let last = s.vms.last().into_iter().cycle();
    listed.chain(last).take(vms as usize).collect()
}

fn pins(groups: &[&VmGroup]) -> Vec<Vec<u32>> {
    if groups.iter().all(|g| g.pin == Pin::None) {
        return Vec::new();
    }
    let of = |g: &VmGroup| match &g.pin {
        Pin::None => Vec::new(),
        Pin::OnePerPcpu => (0..g.vcpus).collect(),
        Pin::List(l) => l.clone(),
    };
    groups.iter().map(|g| of(g)).collect()
}
