// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario and its profiles become a plan: single runs in the order to make them.

use crate::plan::{Arm, CgroupLayout, LockChoice, Plan, Run, Window, YieldTo, SCHEMA};
use crate::problem::nearest;
use crate::profile::Profile;
use crate::scenario::{Pin, Scenario, VmGroup};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Arm of the runs that show what one VM does alone; arm the report computes from them.
pub const ALONE_ARM: &str = "alone";
pub const IDEAL_ARM: &str = "ideal";

/// What of a scenario to run; an empty list means all of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection {
    /// The baseline comes along.
    pub arms: Vec<String>,
    pub profiles: Vec<String>,
    pub vms: Vec<u32>,
    pub cgroups: Vec<CgroupLayout>,
    /// Labels of swept locks ([`LockChoice::label`]).
    pub locks: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    #[error("the scenario has no {what} {name:?}; it has {has}{}", hint(.suggestion))]
    NotInScenario { what: &'static str, name: String, has: String, suggestion: Option<String> },
    #[error("profile {0:?} was not read")]
    NoProfile(String),
    #[error("host.pcpus = {pcpus}, but a VM is pinned to pCPU {wanted}")]
    NoPcpu { pcpus: u32, wanted: u32 },
}

fn hint(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map(|s| format!("; did you mean {s:?}?")).unwrap_or_default()
}

/// Expands `scenario`. `texts` are the scenario's text and those of the profiles it names, by
/// name: what the hash is taken over.
pub fn expand(
    scenario: &Scenario,
    text: &str,
    profiles: &BTreeMap<String, (Profile, String)>,
    select: &Selection,
) -> Result<Plan, ExpandError> {
    check_selection(scenario, select)?;
    let mut used = BTreeMap::new();
    for name in &scenario.sweep.profiles {
        let p = profiles.get(name).ok_or_else(|| ExpandError::NoProfile(name.clone()))?;
        used.insert(name.as_str(), p);
    }
    let mut runs = Vec::new();
    for repeat in 0..scenario.repeats {
        if scenario.measure.alone {
            for name in &scenario.sweep.profiles {
                for lock in locks_of(scenario) {
                    runs.push(alone_run(scenario, &used[name.as_str()].0, lock, repeat));
                }
            }
        }
        for cgroup in &scenario.sweep.cgroups {
            for name in &scenario.sweep.profiles {
                for vms in &scenario.sweep.vms {
                    for lock in locks_of(scenario) {
                        let profile = &used[name.as_str()].0;
                        let point = Point { profile, vms: *vms, cgroup: *cgroup, lock };
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
    for wanted in runs.iter().flat_map(|r| r.pin.iter().flatten()) {
        if *wanted >= scenario.host.pcpus {
            return Err(ExpandError::NoPcpu { pcpus: scenario.host.pcpus, wanted: *wanted });
        }
    }
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
        runs,
    })
}

/// What the arms are compared at.
struct Point<'a> {
    profile: &'a Profile,
    vms: u32,
    cgroup: CgroupLayout,
    /// The lock swept; `None`: locks are not.
    lock: Option<LockChoice>,
}

/// The locks swept, or once `None`.
fn locks_of(s: &Scenario) -> Vec<Option<LockChoice>> {
    match s.sweep.locks.as_slice() {
        [] => vec![None],
        locks => locks.iter().copied().map(Some).collect(),
    }
}

fn rotated(arms: &[Arm], by: usize) -> impl Iterator<Item = &Arm> {
    arms.iter().cycle().skip(by % arms.len()).take(arms.len())
}

fn run(s: &Scenario, point: &Point, arm: &Arm, repeat: u32) -> Run {
    let groups = vms_of(s, point.vms);
    let first = &s.vms[0];
    let weights: Vec<u32> = groups.iter().map(|g| g.weight).collect();
    let alike = weights.iter().all(|w| *w == weights[0]);
    let lock = arm.lock.or(point.lock).unwrap_or(first.lock);
    Run {
        id: 0,
        profile: point.profile.name.clone(),
        spin_intensive: point.profile.spin_intensive,
        program: point.profile.program.clone(),
        vms: point.vms,
        vcpus: first.vcpus,
        pin: pins(&groups),
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
    }
}

fn alone_run(s: &Scenario, profile: &Profile, lock: Option<LockChoice>, repeat: u32) -> Run {
    let arm = Arm {
        name: ALONE_ARM.to_string(),
        window: Window::Off,
        yield_to: YieldTo::Stock,
        observe: true,
        ..Arm::default()
    };
    let point = Point { profile, vms: 1, cgroup: CgroupLayout::Flat, lock };
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

fn check_selection(s: &Scenario, select: &Selection) -> Result<(), ExpandError> {
    let arms: Vec<&str> = s.arms.iter().map(|a| a.name.as_str()).collect();
    let profiles: Vec<&str> = s.sweep.profiles.iter().map(String::as_str).collect();
    let missing = |what, name: &str, has: &[&str]| ExpandError::NotInScenario {
        what,
        name: name.to_string(),
        has: has.join(", "),
        suggestion: nearest(name, has.iter().copied()).map(str::to_string),
    };
    if let Some(a) = select.arms.iter().find(|a| !arms.contains(&a.as_str())) {
        return Err(missing("arm", a, &arms));
    }
    if let Some(p) = select.profiles.iter().find(|p| !profiles.contains(&p.as_str())) {
        return Err(missing("profile", p, &profiles));
    }
    let counts: Vec<String> = s.sweep.vms.iter().map(u32::to_string).collect();
    if let Some(n) = select.vms.iter().find(|n| !s.sweep.vms.contains(n)) {
        let has: Vec<&str> = counts.iter().map(String::as_str).collect();
        return Err(missing("number of VMs", &n.to_string(), &has));
    }
    if let Some(c) = select.cgroups.iter().find(|c| !s.sweep.cgroups.contains(c)) {
        let has = format!("{:?}", s.sweep.cgroups).to_lowercase();
        return Err(missing("cgroup layout", &format!("{c:?}").to_lowercase(), &[&has]));
    }
    let locks: Vec<String> = s.sweep.locks.iter().map(LockChoice::label).collect();
    if let Some(l) = select.locks.iter().find(|l| !locks.contains(l)) {
        let has: Vec<&str> = locks.iter().map(String::as_str).collect();
        return Err(missing("swept lock", l, &has));
    }
    Ok(())
}

fn selected(r: &Run, select: &Selection, baseline: &str) -> bool {
    fn among<T: PartialEq>(wanted: &[T], x: &T) -> bool {
        wanted.is_empty() || wanted.contains(x)
    }
    among(&select.profiles, &r.profile)
        && among(&select.locks, &r.lock_group)
        && (r.alone
            || (among(&select.vms, &r.vms)
                && among(&select.cgroups, &r.cgroup)
                && (among(&select.arms, &r.arm.name) || r.arm.name == baseline)))
}

/// SHA-256 over the scenario and its profiles, each with its name and length.
fn hash(text: &str, profiles: &BTreeMap<&str, &(Profile, String)>) -> String {
    let mut h = Sha256::new();
    let mut add = |name: &str, text: &str| {
        h.update(format!("{name} {}\n", text.len()));
        h.update(text);
    };
    add("scenario", text);
    for (name, (_, text)) in profiles {
        add(name, text);
    }
    hex(&h.finalize())
}

/// Shares a plan among `parts` computers: all arms and repeats of a point stay together, every
/// computer gets about the same length of virtual time. Parts that would be empty are left out.
pub fn split(plan: &Plan, parts: u32) -> Vec<Plan> {
    let mut points: Vec<(PointKey, u64, Vec<Run>)> = Vec::new();
    for r in &plan.runs {
        let key = (r.profile.clone(), r.vms, r.cgroup, r.lock_group.clone(), r.alone);
        // An emulated computer's time grows with the CPUs at work, not with the VMs on them.
        let cost = r.warmup_ms + r.window_ms + r.stagger_ms;
        match points.iter_mut().find(|(k, _, _)| *k == key) {
            Some((_, c, runs)) => {
                *c += cost;
                runs.push(r.clone());
            }
            None => points.push((key, cost, vec![r.clone()])),
        }
    }
    points.sort_by_key(|(_, c, _)| std::cmp::Reverse(*c));
    let parts = (parts.max(1) as usize).min(points.len().max(1));
    let mut shares: Vec<(u64, Vec<Run>)> = vec![(0, Vec::new()); parts];
    for (_, cost, runs) in points {
        if let Some(least) = shares.iter_mut().min_by_key(|(c, _)| *c) {
            least.0 += cost;
            least.1.extend(runs);
        }
    }
    shares
        .into_iter()
        .map(|(_, mut runs)| {
            runs.sort_by_key(|r| r.id);
            Plan { runs, ..plan.clone() }
        })
        .collect()
}

type PointKey = (String, u32, CgroupLayout, String, bool);

impl Plan {
    /// SHA-256 of the plan: two plans with the same one ask for the same runs.
    pub fn fingerprint(&self) -> String {
        // A plan has string keys and integers only: it always has a JSON form.
        hex(&Sha256::digest(serde_json::to_vec(self).unwrap_or_default()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
