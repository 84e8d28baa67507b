// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios as a whole, and their `[sweep]`, `[measure]` and `[trace]`.

use crate::parse::arm::read_arms;
use crate::parse::case::{cases, read_cases};
use crate::parse::host::read_host;
use crate::parse::keys::{optional, read_in, read_list};
use crate::parse::linux::{check_guests, read_series, Said};
use crate::parse::problem::Problems;
use crate::parse::quota::{check_quotas, Quotas};
use crate::parse::ranges::Ranges;
use crate::parse::reader::{no_doubles, or, Reader, Table, Value};
use crate::parse::vm::{read_lock, read_vms, Swept};
use crate::schema::arm::{ApleParams, Arm};
use crate::schema::host::CgroupLayout;
use crate::schema::keys::scenario as keys;
use crate::schema::linux::GuestLock;
use crate::schema::lock::LockChoice;
use crate::schema::scenario::{
    usual_layout, vms_beside, Beside, Measure, Role, Scenario, Sweep, Trace, VmGroup,
};

/// Reads a scenario; of ranges and choices the usual values. `file` is what errors call it.
pub fn parse_scenario(file: &str, name: &str, text: &str) -> Result<Scenario, Problems> {
    let text = Ranges::read(file, text)?.usual();
    let reader = Reader::new(file, &text);
    let doc = reader.parse();
    let scenario =
        if reader.is_clean() { read_scenario(&Table::top(&reader, &doc), name) } else { None };
    reader.finish(scenario)
}

fn read_scenario(top: &Table, name: &str) -> Option<Scenario> {
    top.only_of(&keys::SCENARIO);
    let title = top.needed(&keys::TITLE).and_then(|v| read_title(&v));
    let seed = top.read(&keys::SEED);
    let repeats = top.read(&keys::REPEATS);
    let slice_ns = top.read(&keys::SLICE_NS);
    let epoch = top.read(&keys::EPOCH);
    let epoch_min = top.read(&keys::EPOCH_MIN);
    let kernels = or(top.at(&keys::KERNEL), Vec::new(), |v| read_kernels(&v));
    let boots = top.read(&keys::BOOTS);
    let host = top.needed(&keys::HOST).and_then(read_host);
    let sweep = top.at(&keys::SWEEP_TABLE).map(read_sweep);
    let swept = sweep.as_ref().map(|s| s.says).unwrap_or_default();
    let groups = top.needed(&keys::VM).and_then(|v| read_vms(&v, host.as_ref(), swept));
    let arms = top.needed(&keys::ARM).and_then(|v| {
        let module = ApleParams::default();
        let aple = ApleParams {
            epoch_ple_exits: epoch.flatten().unwrap_or(module.epoch_ple_exits),
            epoch_min_us: epoch_min.flatten().unwrap_or(module.epoch_min_us),
            ..module
        };
        read_arms(&v, &aple, host.as_ref().map(|h| h.scheduler))
    });
    let written = read_cases(top);
    let measure = read_measure(top.at(&keys::MEASURE_TABLE));
    let trace = read_trace(top.at(&keys::TRACE_TABLE));

    let groups = groups?;
    let sweep = sweep.unwrap_or_default();
    let (arms, baseline) = arms?;
    for group in &groups {
        check_locks(top, group, &sweep, &arms);
    }
    let by_case = top.at(&keys::CASE).is_some();
    let cases = cases(top, written?, &groups, &arms, baseline);
    let guest_locks = sweep.guest_locks.as_deref();
    check_beside(top, &groups, &sweep);
    if let Some(host) = &host {
        check_quotas(top, &Quotas { groups: &groups, arms: &arms, host, by_case }, &sweep);
    }
    check_guests(top, &Said { groups: &groups, arms: &arms, by_case, guest_locks });
    Some(Scenario {
        name: name.to_string(),
        title: title?,
        seed: seed?,
        repeats: repeats?,
        slice_ns: slice_ns?,
        epoch_ple_exits: epoch?,
        epoch_min_us: epoch_min?,
        kernels: kernels?,
        boots: boots?,
        host: host?,
        sweep: sweep.of(&groups),
        vms: groups,
        cases: cases?,
        arms,
        baseline,
        measure: measure?,
        trace: trace?,
    })
}

fn read_title(v: &Value) -> Option<String> {
    let s = v.str("a string")?;
    if s.trim().is_empty() {
        v.problem("empty", "one line that says what is compared");
    }
    Some(s.to_string())
}

fn read_kernels(v: &Value) -> Option<Vec<String>> {
    let form = "a series such as \"6.12\", or a list of them";
    let all = if v.is_array() {
        let all = v.array(form)?;
        if all.is_empty() {
            v.problem("empty", form);
        }
        all.iter().map(read_series).collect::<Option<Vec<_>>>()?
    } else {
        vec![read_series(v)?]
    };
    no_doubles(v, &all);
    Some(all)
}

/// What `[sweep]` says; `None` where it says nothing.
#[derive(Default)]
pub(crate) struct SweepKeys {
    profiles: Option<Vec<String>>,
    vms: Option<Vec<u32>>,
    pub(crate) cgroups: Option<Vec<CgroupLayout>>,
    locks: Option<Vec<LockChoice>>,
    guest_locks: Option<Vec<GuestLock>>,
    pub(crate) beside: Option<Vec<Beside>>,
    pub(crate) quota_on: Option<Vec<String>>,
    pub(crate) says: Swept,
}

impl SweepKeys {
    /// What is run over: what is not swept is as the VMs have it.
    fn of(self, groups: &[VmGroup]) -> Sweep {
        let workload = || groups[0].workload.clone().into_iter().collect();
        let beside = self.beside.unwrap_or_default();
        let count = || match &beside[..] {
            [] => vec![groups.iter().map(|g| g.count).sum()],
            all => all.iter().map(|who| vms_beside(groups, *who).len() as u32).collect(),
        };
        Sweep {
            profiles: self.profiles.unwrap_or_else(workload),
            vms: self.vms.unwrap_or_else(count),
            cgroups: self.cgroups.unwrap_or_else(|| vec![usual_layout(groups.iter())]),
            locks: self.locks.unwrap_or_default(),
            guest_locks: self.guest_locks.unwrap_or_default(),
            beside,
            quota_on: self.quota_on.unwrap_or_default(),
        }
    }
}

fn read_sweep(v: Value) -> SweepKeys {
    let Some(t) =
        v.table("[sweep] with profiles, vms, cgroups, locks, guest_locks, beside or quota_on")
    else {
        return SweepKeys::default();
    };
    t.only_of(&keys::SWEEP);
    let says = Swept { profiles: t.at(&keys::PROFILES).is_some(), vms: t.at(&keys::VMS).is_some() };
    SweepKeys {
        says,
        profiles: t.read(&keys::PROFILES).flatten(),
        vms: t.read(&keys::VMS).flatten(),
        cgroups: t.read(&keys::CGROUPS).flatten(),
        guest_locks: t.read(&keys::GUEST_LOCKS).flatten(),
        beside: t.read(&keys::BESIDE).flatten(),
        quota_on: t.read(&keys::QUOTA_ON).flatten(),
        locks: t.at(&keys::LOCKS).and_then(|v| read_list(&v, &keys::LOCKS.takes.0, read_lock)),
    }
}

/// Locks are said in one place: of the VMs, of the arms, or swept; and those that halt at CPL 0.
fn check_locks(top: &Table, group: &VmGroup, sweep: &SweepKeys, arms: &[Arm]) {
    let arm_locks = || arms.iter().filter_map(|a| a.lock.as_ref());
    let swept = sweep.locks.as_deref().unwrap_or_default();
    if let Some(at) = top.get("sweep").filter(|_| !swept.is_empty()) {
        if arm_locks().next().is_some() {
            at.problem("locks are swept, and arms name locks too", "one of the two");
        }
        let said = |v: Value| v.array("")?.first()?.table("")?.get("lock").map(|_| ());
        if top.get("vm").and_then(said).is_some() {
            at.problem("sweep.locks already says which locks there are", "no lock in [[vm]]");
        }
    }
    let own = swept.is_empty().then_some(&group.lock);
    let halting = own.into_iter().chain(swept).chain(arm_locks()).find(|l| l.kind.halts());
    if let (3, Some(lock), Some(at)) = (group.cpl, halting, top.get("vm")) {
        at.problem(
            format!("waiters of {} halt, and CPL 3 has no HLT", lock.kind.name()),
            "cpl = 0, or a lock that only spins: tas, ticket, mcs, preemptable",
        );
    }
}

/// It is clear who is shaped and who is a hog, and their numbers tell whom the VM stands beside.
fn check_beside(top: &Table, groups: &[VmGroup], sweep: &SweepKeys) {
    let (Some(_), Some(at)) = (&sweep.beside, top.get("sweep")) else { return };
    let of = |role| groups.iter().filter(move |g| g.role == role).map(|g| g.count).sum::<u32>();
    let [shaped, hogs] = [Role::Shaped, Role::Hog].map(of);
    if (shaped, groups.len()) != (1, 2) || hogs < 2 {
        at.problem(
            "sweep.beside, but it is not clear who stands beside whom",
            "two [[vm]]: one with role = \"shaped\", and one with role = \"hog\" and a count of 2 or more",
        );
    }
    if sweep.vms.is_some() {
        at.problem("sweep.beside already says how many VMs there are", "no vms in [sweep]");
    }
}

fn read_measure(v: Option<Value>) -> Option<Measure> {
    let t = optional(
        v,
        &keys::MEASURE,
        "[measure] with warmup_ms, window_ms, stagger_ms, alone, wakeups_hz, hogs, states",
    )?;
    let warmup = read_in(&t, &keys::WARMUP_MS);
    let window = read_in(&t, &keys::WINDOW_MS);
    let stagger = read_in(&t, &keys::STAGGER_MS);
    let alone = read_in(&t, &keys::ALONE);
    let wakeups = t.as_ref().map_or(Some(None), |t| t.read(&keys::WAKEUPS_HZ));
    let hogs = read_in(&t, &keys::HOGS);
    let states = read_in(&t, &keys::STATES);
    Some(Measure {
        warmup_ms: warmup?,
        window_ms: window?,
        stagger_ms: stagger?,
        alone: alone?,
        wakeups_hz: wakeups?,
        hogs: hogs?,
        states: states?,
    })
}

fn read_trace(v: Option<Value>) -> Option<Trace> {
    let t = optional(v, &keys::TRACE, "[trace] with epochs, picks, stalls")?;
    let epochs = read_in(&t, &keys::EPOCHS);
    let picks = read_in(&t, &keys::PICKS);
    let stalls = read_in(&t, &keys::STALLS);
    Some(Trace { epochs: epochs?, picks: picks?, stalls: stalls? })
}
