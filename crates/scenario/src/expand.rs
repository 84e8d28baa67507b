// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario and its profiles become a plan: single runs in the order to make them.

use crate::plan::{
    Arm, CgroupLayout, EachVm, Factor, LockChoice, Plan, Platform, Run, Window, YieldTo,
    PHYSICAL_ARM, SCHEMA,
};
use crate::problem::nearest;
use crate::profile::Profile;
use crate::reader::is_name;
use crate::scenario::{Pin, Scenario, VmGroup};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

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
    #[error(
        "the rows of a [[vm]] would be called {0:?}, which is too long; give it a shorter name"
    )]
    LongName(String),
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

fn check_selection(s: &Scenario, select: &Selection) -> Result<(), ExpandError> {
    let arms: Vec<&str> = s.arms.iter().map(|a| a.name.as_str()).collect();
    let profiles: Vec<&str> = s.sweep.profiles.iter().map(String::as_str).collect();
    let missing = |what, name: &str, has: &[&str]| ExpandError::NotInScenario {
        what,
        name: name.to_string(),
        has: if has.is_empty() { "none".to_string() } else { has.join(", ") },
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

/// Share `index` (1 to `of`) of a plan for a computer of many, empty where there are more shares
/// than there is to share. `whole_points`: arms and repeats of a point stay together, for machines
/// whose runs are compared within a boot; else every `of`-th run.
pub fn shard(plan: &Plan, index: u32, of: u32, whole_points: bool) -> Plan {
    let at = index.saturating_sub(1) as usize;
    let runs = if whole_points {
        split(plan, of).into_iter().nth(at).map(|p| p.runs).unwrap_or_default()
    } else {
        plan.runs.iter().skip(at).step_by(of.max(1) as usize).cloned().collect()
    };
    Plan { runs, ..plan.clone() }
}

impl Plan {
    /// The plan with, beside every arm, arms that each have one of the five factors of
    /// virtualization's cost switched off: `NAME-no-FACTOR` (NJIT 2018, 2.4), and with each program
    /// on the machine itself ([`PHYSICAL_ARM`]), where VMs are alike. Machine `sim` only.
    pub fn attributed(&self) -> Plan {
        let mut runs = Vec::new();
        let mut physical = BTreeSet::new();
        for run in &self.runs {
            let program = (&run.profile, run.cgroup as u8, &run.lock_group, run.repeat);
            if !run.alone && run.groups().len() == 1 && physical.insert(program) {
                runs.push(on_the_machine_itself(run));
            }
            runs.push(run.clone());
            let off = |factor| run.arm.platform.without.contains(&factor);
            for (name, factor) in Factor::ALL.into_iter().filter(|(_, f)| !run.alone && !off(*f)) {
                let mut without = run.clone();
                without.arm.name = format!("{}-no-{name}", run.arm.name);
                without.arm.platform.without.push(factor);
                runs.push(without);
            }
        }
        for (id, run) in (0..).zip(&mut runs) {
            run.id = id;
        }
        Plan { runs, ..self.clone() }
    }
}

fn on_the_machine_itself(run: &Run) -> Run {
    let mut physical = Run { vms: 1, baseline: PHYSICAL_ARM.into(), ..run.clone() };
    physical.pin.truncate(1);
    physical.each.truncate(1);
    physical.weights.clear();
    physical.arm.name = PHYSICAL_ARM.into();
    physical.arm.platform = Platform { physical: true, ..Platform::default() };
    physical
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
