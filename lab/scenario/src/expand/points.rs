// SPDX-License-Identifier: MIT OR Apache-2.0
//! Expands a scenario and its profiles into a plan: single runs in order.

use crate::expand::hash::hash;
use crate::expand::select::{check_selection, selected, ExpandError, Selection};
use crate::expand::workload::{Used, Work, Workloads};
use crate::plan::{Plan, Run, Vm, SCHEMA};
use crate::schema::arm::{Arm, Window, YieldTo};
use crate::schema::host::CgroupLayout;
use crate::schema::linux::{GuestLock, LinuxVm};
use crate::schema::lock::LockChoice;
use crate::schema::names::{is_name, Named, ALONE_ARM};
use crate::schema::scenario::{
    quota_point, usual_layout, vms_beside, Case, Host, Pin, Role, Scenario, Sweep, VmGroup,
};
use unspin_text::names::distinct;

/// Expands `scenario`, whose text is `text`, with the workloads it names.
pub fn expand(
    scenario: &Scenario,
    text: &str,
    workloads: &Workloads,
    select: &Selection,
) -> Result<Plan, ExpandError> {
    check_selection(scenario, select)?;
    let used = workloads.of(scenario)?;
    let mut runs = Vec::new();
    for repeat in 0..scenario.repeats {
        if scenario.measure.alone && scenario.cases.is_empty() {
            for (work, group) in lonely(scenario, &used) {
                for locks in locks_of(scenario) {
                    runs.push(alone_run(scenario, &used, work, group, locks, repeat));
                }
            }
        }
        runs.extend(repeat_of(scenario, &used, repeat));
        runs.extend(cases_of(scenario, &used, repeat));
    }
    boot_guests_once(&mut runs);
    for (id, r) in (0..).zip(&mut runs) {
        r.id = id;
    }
    let baseline = &scenario.arms[scenario.baseline].name;
    runs.retain(|r| selected(r, &scenario.sweep, select, baseline));
    check_runs(scenario, &runs)?;
    Ok(Plan {
        schema: SCHEMA,
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        scenario_hash: hash(text, &used.texts()),
        // The locks' clock is in each run.
        host: Host { lock_clock_mhz: None, ..scenario.host.clone() },
        linux: None,
        runs,
    })
}

/// All cases, once.
fn cases_of(scenario: &Scenario, used: &Used, repeat: u32) -> Vec<Run> {
    let of_case = |case: &Case| {
        let groups = case.vms.iter().map(|number| &scenario.vms[*number]);
        let groups: Vec<&VmGroup> =
            groups.flat_map(|g| std::iter::repeat_n(g, g.count as usize)).collect();
        let cgroup = usual_layout(groups.iter().copied());
        let locks = SweptLocks { bench: None, linux: None };
        let name = case.name.clone();
        let point = Point { name, swept: &case.name, quota_on: None, groups, cgroup, locks, used };
        let arm = &scenario.arms[case.arm];
        Run {
            baseline: arm.name.clone(),
            inject: Some(case.inject.clone()),
            states: true,
            ..run(scenario, &point, arm, repeat)
        }
    };
    scenario.cases.iter().map(of_case).collect()
}

/// All arms at every point, once.
fn repeat_of(scenario: &Scenario, used: &Used, repeat: u32) -> Vec<Run> {
    let mut runs = Vec::new();
    if !scenario.cases.is_empty() {
        return runs;
    }
    for cgroup in &scenario.sweep.cgroups {
        for (swept, quota_on) in swept_of(scenario) {
            for vms in &scenario.sweep.vms {
                for locks in locks_of(scenario) {
                    let name = quota_on.map_or_else(|| swept.to_string(), quota_point);
                    let groups = vms_of(scenario, *vms);
                    let cgroup = *cgroup;
                    let point = Point { name, swept, quota_on, groups, cgroup, locks, used };
                    for arm in rotated(&scenario.arms, repeat as usize) {
                        runs.push(run(scenario, &point, arm, repeat));
                    }
                }
            }
        }
    }
    runs
}

/// The swept workloads, or else one workload with each group that has its quota in turn.
fn swept_of(scenario: &Scenario) -> Vec<(&str, Option<&str>)> {
    let Sweep { profiles, quota_on, .. } = &scenario.sweep;
    match quota_on.as_slice() {
        [] => profiles.iter().map(|swept| (swept.as_str(), None)).collect(),
        groups => groups.iter().map(|group| (profiles[0].as_str(), Some(group.as_str()))).collect(),
    }
}

/// Booting Linux guests takes long. So runs with the same guests are grouped, and within a group
/// runs of one workload with their repeats. Other runs keep their order, before these.
fn boot_guests_once(runs: &mut [Run]) {
    let guests_of =
        |r: &Run| distinct(r.vms.iter().filter_map(|vm| Some(vm.linux.as_ref()?.guest.clone())));
    let sets = distinct(std::iter::once(Vec::new()).chain(runs.iter().map(guests_of)));
    let workloads = distinct(runs.iter().map(|r| r.profile.clone()));
    runs.sort_by_cached_key(|r| match sets.iter().position(|set| *set == guests_of(r)) {
        None | Some(0) => (0, 0, 0),
        Some(set) => {
            (set, workloads.iter().position(|w| *w == r.profile).unwrap_or_default(), r.repeat)
        }
    });
}

/// Checks names from profiles, and the CPUs to which groups of VMs are pinned.
fn check_runs(scenario: &Scenario, runs: &[Run]) -> Result<(), ExpandError> {
    let pcpus = scenario.host.pcpus;
    for Vm { group, pin, .. } in runs.iter().flat_map(|r| &r.vms) {
        if !group.is_empty() && !is_name(group) {
            return Err(ExpandError::LongName(group.clone()));
        }
        if let Some(wanted) = pin.iter().copied().find(|pcpu| *pcpu >= pcpus) {
            return Err(ExpandError::NoPcpu { pcpus, wanted });
        }
    }
    Ok(())
}

/// A point at which the arms are compared.
struct Point<'a> {
    /// The name of its runs.
    name: String,
    /// The workload of VMs without one of their own.
    swept: &'a str,
    /// The only group with a quota; `None`: all groups have theirs.
    quota_on: Option<&'a str>,
    /// The group of each VM.
    groups: Vec<&'a VmGroup>,
    cgroup: CgroupLayout,
    locks: SweptLocks,
    used: &'a Used<'a>,
}

/// The swept locks; `None`: locks of this kind are not swept.
#[derive(Debug, Clone, Copy)]
struct SweptLocks {
    bench: Option<LockChoice>,
    linux: Option<GuestLock>,
}

/// All combinations of the swept locks.
fn locks_of(s: &Scenario) -> Vec<SweptLocks> {
    fn of<T: Copy>(swept: &[T]) -> Vec<Option<T>> {
        match swept {
            [] => vec![None],
            locks => locks.iter().copied().map(Some).collect(),
        }
    }
    let linux = of(&s.sweep.guest_locks);
    let with = |bench| linux.iter().map(move |linux| SweptLocks { bench, linux: *linux });
    of(&s.sweep.locks).into_iter().flat_map(with).collect()
}

/// The name of a point's locks; empty if no lock is swept and the guests are this project's own.
fn lock_group(g: &VmGroup, locks: SweptLocks) -> String {
    match &g.linux {
        Some(guest) => locks.linux.unwrap_or(guest.lock).called().to_string(),
        None => locks.bench.map(|l| l.label()).unwrap_or_default(),
    }
}

/// The Linux guest and program of a group's VMs, if they are Linux guests.
fn linux_of(g: &VmGroup, work: Work, point: &Point, arm: &Arm) -> Option<LinuxVm> {
    let (Some(guest), Work::Program(program)) = (&g.linux, work) else { return None };
    let mut guest = guest.clone();
    guest.lock = point.locks.linux.unwrap_or(guest.lock);
    guest.idle = arm.idle.filter(|_| !g.mode_off).unwrap_or(guest.idle);
    Some(LinuxVm { guest, program: program.clone() })
}

fn rotated(arms: &[Arm], by: usize) -> impl Iterator<Item = &Arm> {
    arms.iter().cycle().skip(by % arms.len()).take(arms.len())
}

fn run(s: &Scenario, point: &Point, arm: &Arm, repeat: u32) -> Run {
    Run {
        id: 0,
        profile: point.name.clone(),
        vms: vms(s, point, arm),
        lock_group: lock_group(point.groups[0], point.locks),
        lock_clock_mhz: s.host.lock_clock_mhz,
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
        wakeups_hz: s.measure.wakeups_hz,
        hogs: s.measure.hogs,
        inject: None,
        states: s.measure.states,
    }
}

/// The lock of a group's VMs: the arm's or the swept one, unless arms do not apply to these VMs.
fn lock_of(g: &VmGroup, point: &Point, arm: &Arm) -> LockChoice {
    if g.mode_off {
        return g.lock;
    }
    arm.lock.or(point.locks.bench).unwrap_or(g.lock)
}

/// A kind of VMs: a group of it with its workload, without what VMs of one kind may differ in.
fn kind_of(g: &VmGroup, swept: &str) -> VmGroup {
    let workload = Some(g.workload.as_deref().unwrap_or(swept).to_string());
    VmGroup { workload, count: 0, pin: Pin::None, weight: 0, ..g.clone() }
}

/// The group as if its VMs had neither names nor roles beside others.
fn nameless(g: &VmGroup) -> VmGroup {
    let (name, gang, role) = (None, None, Role::default());
    VmGroup { name, mode_off: false, gang, role, quota_ppm: None, ..g.clone() }
}

/// The quota of a group's VMs at that point.
fn quota_of(g: &VmGroup, point: &Point) -> Option<u32> {
    g.quota_ppm.filter(|_| point.quota_on.is_none_or(|on| g.name.as_deref() == Some(on)))
}

/// Whether all VMs of the point are alike, and none has a name. Then they have the name of the
/// point.
fn is_of_alike(point: &Point) -> bool {
    let kind = |g: &VmGroup| kind_of(g, point.swept);
    let first = kind(point.groups[0]);
    let is_usual = |g: &VmGroup| {
        let runs_usual = g.threads.is_none() && g.tick_hz == 0;
        runs_usual && g.gang.is_none() && g.role == Role::default() && g.quota_ppm.is_none()
    };
    first.name.is_none() && point.groups.iter().all(|g| is_usual(g) && kind(g) == first)
}

fn vms(s: &Scenario, point: &Point, arm: &Arm) -> Vec<Vm> {
    let groups = &point.groups;
    let names = (!is_of_alike(point)).then(|| group_names(s, point));
    let same_weight = groups.iter().all(|g| g.weight == groups[0].weight);
    let vm = |(number, g): (usize, &&VmGroup)| {
        let work = point.used.work(g, point.swept);
        let lock = lock_of(g, point, arm);
        let group = names.as_ref().map(|names| names[number].clone());
        let profile = group.as_ref().map(|_| work.name().to_string());
        Vm {
            group: group.unwrap_or_default(),
            profile: profile.unwrap_or_default(),
            spin_intensive: work.spin_intensive(),
            program: work.steps(),
            vcpus: g.vcpus,
            lock: lock.kind,
            tau_ns: lock.tau_ns,
            spin_ns: lock.spin_ns,
            cpl: g.cpl,
            threads: g.threads,
            tick_hz: g.tick_hz,
            mode_off: g.mode_off,
            gang: g.gang,
            role: g.role,
            quota_ppm: quota_of(g, point),
            linux: linux_of(g, work, point, arm),
            pin: pin_of(g),
            weight: (!same_weight).then_some(g.weight),
        }
    };
    groups.iter().enumerate().map(vm).collect()
}

/// The names of each VM's rows; VMs of one kind share a name.
fn group_names(s: &Scenario, point: &Point) -> Vec<String> {
    let sweeps = s.sweep.profiles.len() > 1 || point.quota_on.is_some();
    let kind = |g: &VmGroup| kind_of(g, point.swept);
    let is_of_first = |g: &&VmGroup| kind(g) == kind(point.groups[0]);
    if !s.cases.is_empty() && point.groups.iter().all(is_of_first) {
        return vec![point.swept.to_string(); point.groups.len()];
    }
    let mut names: Vec<(String, VmGroup)> = Vec::new();
    let mut all = Vec::new();
    for g in &point.groups {
        let kind = kind(g);
        let base = match (&g.name, &g.workload) {
            (Some(name), _) if !s.cases.is_empty() => format!("{}-{name}", point.swept),
            (Some(name), _) if sweeps => format!("{name}-{}", point.name),
            (Some(name), _) => name.clone(),
            (None, Some(own)) if sweeps => format!("{own}-beside-{}", point.swept),
            (None, _) => kind.workload.clone().unwrap_or_default(),
        };
        let same = names.iter().find(|(_, k)| *k == kind).map(|(name, _)| name.clone());
        all.push(same.unwrap_or_else(|| {
            let taken = |name: &String| names.iter().any(|(n, _)| n == name);
            let numbered = (2..).map(|n| format!("{base}-{n}"));
            let free = std::iter::once(base.clone()).chain(numbered).find(|n| !taken(n));
            let name = free.unwrap_or_default();
            names.push((name.clone(), kind));
            name
        }));
    }
    all
}

/// The runs alone, for ideal: every workload in every kind of VM that runs it.
fn lonely<'a>(s: &'a Scenario, used: &Used<'a>) -> Vec<(Work<'a>, &'a VmGroup)> {
    let mut seen: Vec<VmGroup> = Vec::new();
    let mut all = Vec::new();
    for swept in &s.sweep.profiles {
        for g in &s.vms {
            let plain = VmGroup { threads: None, tick_hz: 0, ..nameless(g) };
            let kind = kind_of(&plain, swept);
            if !seen.contains(&kind) {
                seen.push(kind);
                all.push((used.work(g, swept), g));
            }
        }
    }
    all
}

/// Linux guests keep their cgroups, because it is the same boot.
fn alone_run(
    s: &Scenario,
    used: &Used,
    work: Work,
    group: &VmGroup,
    locks: SweptLocks,
    repeat: u32,
) -> Run {
    let arm = Arm {
        name: ALONE_ARM.to_string(),
        window: Window::Off,
        yield_to: YieldTo::Stock,
        observe: true,
        ..Arm::default()
    };
    let swept = VmGroup { workload: None, ..nameless(group) };
    let cgroup = match group.linux {
        None => CgroupLayout::Flat,
        Some(_) => s.sweep.cgroups[0],
    };
    let (name, groups) = (work.name().to_string(), vec![&swept]);
    let point = Point { name, swept: work.name(), quota_on: None, groups, cgroup, locks, used };
    Run { alone: true, trace_epochs: false, trace_picks: false, ..run(s, &point, &arm, repeat) }
}

/// The group of each of the first `vms` VMs. A sweep over numbers of VMs has one group.
fn vms_of(s: &Scenario, vms: u32) -> Vec<&VmGroup> {
    let beside = s.sweep.beside.iter().map(|who| vms_beside(&s.vms, *who));
    if let Some(all) = beside.into_iter().find(|all| all.len() == vms as usize) {
        return all;
    }
    let listed = s.vms.iter().flat_map(|g| std::iter::repeat_n(g, g.count as usize));
    let last = s.vms.last().into_iter().cycle();
    listed.chain(last).take(vms as usize).collect()
}

fn pin_of(g: &VmGroup) -> Vec<u32> {
    match &g.pin {
        Pin::None => Vec::new(),
        Pin::OnePerPcpu => (0..g.vcpus).collect(),
        Pin::List(l) => l.clone(),
    }
}
