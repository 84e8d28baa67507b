// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[vm]]`: how many, how large, where, and which lock.

use crate::plan::{LockChoice, LockKind};
use crate::reader::{no_doubles, or, read_name, Value};
use crate::scenario::{Host, Pin, SweepKeys, VmGroup, PCPUS_MAX, VMS_MAX};

/// Machine sim's; others have fewer.
const VCPUS_MAX: u32 = 256;
const WEIGHT_MAX: u32 = 10_000;
const THREADS_MAX: u32 = 1024;
const TAU_MAX_NS: u64 = 1_000_000_000;

/// `"ticket"`, or `{ preemptable = { tau_ns = 8000 } }`.
pub(crate) fn read_lock(v: &Value) -> Option<LockChoice> {
    if !v.is_table() {
        return v.choice(&LockKind::ALL).map(LockChoice::plain);
    }
    let tau = |(_, kind): &&(&str, LockKind)| kind.has_tau();
    let names: Vec<&str> = LockKind::ALL.iter().filter(tau).map(|(name, _)| *name).collect();
    let t = v.table("a lock's name")?;
    t.only(&names);
    if t.keys().is_empty() {
        v.problem("empty", "\"ticket\" or { preemptable = { tau_ns = N } }");
    }
    let (name, kind) = *LockKind::ALL.iter().filter(tau).find(|(n, _)| t.get(n).is_some())?;
    if t.keys().len() > 1 {
        v.problem("two locks", "one of them");
    }
    let form = "{ tau_ns = N }";
    let params = t.get(name)?.table(form)?;
    params.only(&["tau_ns"]);
    let tau_ns = params.need("tau_ns", form)?.integer(0..=TAU_MAX_NS, " nanoseconds")?;
    Some(LockChoice { kind, tau_ns: Some(tau_ns) })
}

/// The groups.
pub(crate) fn read_vms(
    v: &Value,
    host: Option<&Host>,
    sweep: Option<&SweepKeys>,
) -> Option<Vec<VmGroup>> {
    let all = v.array("[[vm]] tables")?;
    if all.is_empty() {
        v.problem("no VMs", "at least one [[vm]]");
        return None;
    }
    let sweeps_vms = sweep.is_some_and(|s| s.has_vms);
    let sweeps_profiles = sweep.is_some_and(|s| s.has_profiles);
    if sweeps_vms && all.len() > 1 {
        v.problem("sweep.vms already says how many VMs there are", "one [[vm]] under sweep.vms");
    }
    let read: Vec<_> = all.iter().map(|v| read_vm(v, host, sweeps_vms, sweeps_profiles)).collect();
    let read = read.into_iter().collect::<Option<Vec<_>>>()?;
    if sweeps_profiles && read.iter().all(|g| g.workload.is_some()) {
        let first = all[0].table("a [[vm]] table").and_then(|t| t.get("workload"));
        first.unwrap_or_else(|| all[0].clone()).problem(
            "sweep.profiles already says what the VMs run",
            "one of the two, or a [[vm]] without a workload, which runs the swept one",
        );
    }
    if read.iter().all(|g| g.mode_off) {
        v.problem("mode = \"off\" in every [[vm]]: no arm would do anything", "a [[vm]] without");
    }
    let names: Vec<String> = read.iter().filter_map(|g| g.name.clone()).collect();
    no_doubles(v, &names);
    let total: u64 = read.iter().map(|g| u64::from(g.count)).sum();
    if total > u64::from(VMS_MAX) {
        v.problem(format!("{total} VMs"), format!("at most {VMS_MAX}"));
    }
    Some(read)
}

fn read_vm(
    v: &Value,
    host: Option<&Host>,
    sweeps_vms: bool,
    sweeps_profiles: bool,
) -> Option<VmGroup> {
    let t = v.table("a [[vm]] table")?;
    t.only(&[
        "name", "count", "vcpus", "pin", "weight", "workload", "lock", "cpl", "mode", "threads",
        "tick_hz",
    ]);
    let threads = or(t.get("threads"), None, |v| Some(Some(v.u32(1..=THREADS_MAX, " threads")?)));
    let tick_hz = or(t.get("tick_hz"), 0, |v| v.u32(0..=10_000, " ticks a second"));
    let name = or(t.get("name"), None, |v| Some(Some(read_name(&v)?)));
    let modes = &[("off", true), ("arm", false)];
    let mode_off = or(t.get("mode"), false, |v| v.choice(modes));
    let count = or(t.get("count"), 1, |v| {
        if sweeps_vms {
            v.problem("sweep.vms already says how many VMs there are", "one of the two");
        }
        v.u32(1..=VMS_MAX, " VMs")
    });
    let vcpus = t.need("vcpus", "how many vCPUs a VM").and_then(|v| v.u32(1..=VCPUS_MAX, " vCPUs"));
    let pin = or(t.get("pin"), Pin::None, |v| read_pin(&v, vcpus, host));
    let weight = or(t.get("weight"), 100, |v| v.u32(1..=WEIGHT_MAX, " (cpu.weight)"));
    let lock = or(t.get("lock"), LockChoice::plain(LockKind::Ticket), |v| read_lock(&v));
    let cpl = or(t.get("cpl"), 0, |v| read_cpl(&v));
    let workload = match t.get("workload") {
        Some(v) => Some(read_name(&v)?),
        None if sweeps_profiles => None,
        None => Some(t.need("workload", "the name of a profile").and_then(|v| read_name(&v))?),
    };
    Some(VmGroup {
        name: name?,
        workload,
        mode_off: mode_off?,
        threads: threads?,
        tick_hz: tick_hz?,
        count: count?,
        vcpus: vcpus?,
        pin: pin?,
        weight: weight?,
        lock: lock?,
        cpl: cpl?,
    })
}

fn read_cpl(v: &Value) -> Option<u8> {
    match v.integer(0..=3, " (0 or 3)")? {
        0 => Some(0),
        3 => Some(3),
        other => {
            v.problem(
                format!("the guest has no level {other}"),
                "0 (PLE sees it) or 3 (it does not)",
            );
            None
        }
    }
}

fn read_pin(v: &Value, vcpus: Option<u32>, host: Option<&Host>) -> Option<Pin> {
    let allowed = "\"one-per-pcpu\", \"none\" or a list with the pCPU of each vCPU";
    if !v.is_array() {
        if !v.is_str() {
            v.problem("not a way to pin", allowed);
            return None;
        }
        let pin = v.choice(&[("one-per-pcpu", true), ("none", false)])?;
        if let (true, Some(n), Some(h)) = (pin, vcpus, host) {
            if n > h.pcpus {
                v.problem(
                    format!("{n} vCPUs cannot have one of {} pCPUs each", h.pcpus),
                    "vcpus up to host.pcpus, or a list, or \"none\"",
                );
            }
        }
        return Some(if pin { Pin::OnePerPcpu } else { Pin::None });
    }
    let last = host.map_or(PCPUS_MAX, |h| h.pcpus) - 1;
    let all: Vec<_> = v.array(allowed)?.iter().map(|v| v.u32(0..=last, " (a pCPU)")).collect();
    if let Some(n) = vcpus.filter(|n| all.len() != *n as usize) {
        v.problem(
            format!("pins {} vCPUs, but the VM has {n}", all.len()),
            format!("a list of {n} pCPUs"),
        );
    }
    Some(Pin::List(all.into_iter().collect::<Option<_>>()?))
}
