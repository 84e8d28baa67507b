// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[vm]]`: number, size, placement and lock of VMs.

use crate::parse::keys::{read_all, OfKeys, Read};
use crate::parse::linux::read_linux;
use crate::schema::keys::vm::PIN_FORMS;
use crate::schema::keys::{self, vm};
use crate::schema::limits::{PCPUS_MAX, VMS_MAX};
use crate::schema::lock::{LockChoice, LockKind};
use crate::schema::scenario::{Host, Mode, Pin, VmGroup};
use unspin_text::{no_doubles, or, Value};

/// Which properties `[sweep]` sets, so that VMs do not.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Swept {
    pub profiles: bool,
    pub vms: bool,
}

/// `"ticket"`, `{ preemptable = { tau_ns = 8000 } }` or `{ pv-ticket = { spin_ns = 1000 } }`.
pub(crate) fn read_lock(v: &Value) -> Option<LockChoice> {
    if !v.is_table() {
        return v.choice(&LockKind::all()).map(LockChoice::plain);
    }
    let mut settable = LockKind::all();
    settable.retain(|(_, kind)| kind.has_tau() || *kind == LockKind::PvTicket);
    let names: Vec<&str> = settable.iter().map(|(name, _)| *name).collect();
    let t = v.table("a lock's name")?;
    t.only(&names);
    if t.keys().is_empty() {
        v.problem("empty", "\"ticket\" or { preemptable = { tau_ns = N } }");
    }
    let (name, kind) = settable.into_iter().find(|(n, _)| t.get(n).is_some())?;
    if t.keys().len() > 1 {
        v.problem("two locks", "one of them");
    }
    if kind == LockKind::PvTicket {
        let params = t.get(name)?.table("{ spin_ns = N }")?;
        params.only_of(&keys::lock::PV_TICKET);
        let spin_ns = Some(params.read(&keys::lock::SPIN_NS)?);
        return Some(LockChoice { spin_ns, ..LockChoice::plain(kind) });
    }
    let params = t.get(name)?.table("{ tau_ns = N }")?;
    params.only_of(&keys::lock::LOCK);
    let tau_ns = Some(params.read(&keys::lock::TAU_NS)?);
    Some(LockChoice { tau_ns, ..LockChoice::plain(kind) })
}

/// The groups.
pub(crate) fn read_vms(v: &Value, host: Option<&Host>, swept: Swept) -> Option<Vec<VmGroup>> {
    let all = v.array("[[vm]] tables")?;
    if all.is_empty() {
        v.problem("no VMs", "at least one [[vm]]");
        return None;
    }
    if swept.vms && all.len() > 1 {
        v.problem("sweep.vms already sets the number of VMs", "one [[vm]] under sweep.vms");
    }
    let read: Vec<_> = all.iter().map(|v| read_vm(v, host, swept)).collect();
    let read = read.into_iter().collect::<Option<Vec<_>>>()?;
    if swept.profiles && read.iter().all(|g| g.workload.is_some()) {
        let first = all[0].table("a [[vm]] table").and_then(|t| t.get("workload"));
        first.unwrap_or_else(|| all[0].clone()).problem(
            "sweep.profiles already sets the workload",
            "one of the two, or a [[vm]] without a workload, which runs the swept one",
        );
    }
    if read.iter().all(|g| g.mode_off) {
        v.problem("mode = \"off\" in every [[vm]]: arms would have no effect", "a [[vm]] without");
    }
    let names: Vec<String> = read.iter().filter_map(|g| g.name.clone()).collect();
    no_doubles(v, &names);
    let total: u64 = read.iter().map(|g| u64::from(g.count)).sum();
    if total > u64::from(VMS_MAX) {
        v.problem(format!("{total} VMs"), format!("at most {VMS_MAX}"));
    }
    Some(read)
}

fn read_vm(v: &Value, host: Option<&Host>, swept: Swept) -> Option<VmGroup> {
    let t = v.table("a [[vm]] table")?;
    t.only_of(&vm::VM);
    if let Some(v) = t.at(&vm::COUNT).filter(|_| swept.vms) {
        v.problem("sweep.vms already sets the number of VMs", "one of the two");
    }
    let vcpus = t.read(&vm::VCPUS);
    read_all!(VmGroup {
        name: t.read(&vm::NAME),
        workload: match t.at(&vm::WORKLOAD) {
            None if swept.profiles => Some(None),
            _ => t.read(&vm::WORKLOAD).map(Some),
        },
        mode_off: t.read(&vm::MODE).map(|mode| mode == Mode::Off),
        gang: t.read(&vm::GANG),
        role: t.read(&vm::ROLE),
        threads: t.read(&vm::THREADS),
        tick_hz: t.read(&vm::TICK_HZ),
        count: t.read(&vm::COUNT),
        vcpus: vcpus,
        pin: or(t.at(&vm::PIN), Pin::None, |v| read_pin(&v, vcpus, host)),
        weight: t.read(&vm::WEIGHT),
        quota_ppm: t.read(&vm::QUOTA),
        lock: or(t.at(&vm::LOCK), LockChoice::plain(LockKind::Ticket), |v| read_lock(&v)),
        cpl: or(t.at(&vm::CPL), 0, |v| read_cpl(&v)),
        linux: read_linux(&t),
    })
}

fn read_cpl(v: &Value) -> Option<u8> {
    match vm::CPL.takes.read(v)? {
        level @ (0 | 3) => Some(level),
        other => {
            v.problem(
                format!("the guest has no privilege level {other}"),
                "0 (PLE sees it) or 3 (it does not)",
            );
            None
        }
    }
}

fn read_pin(v: &Value, vcpus: Option<u32>, host: Option<&Host>) -> Option<Pin> {
    if !v.is_array() {
        if !v.is_str() {
            v.problem("not a way to pin", PIN_FORMS);
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
    let all: Vec<_> = v.array(PIN_FORMS)?.iter().map(|v| v.u32(0..=last, " (a pCPU)")).collect();
    if let Some(n) = vcpus.filter(|n| all.len() != *n as usize) {
        v.problem(
            format!("pins {} vCPUs, but the VM has {n}", all.len()),
            format!("a list of {n} pCPUs"),
        );
    }
    Some(Pin::List(all.into_iter().collect::<Option<_>>()?))
}
