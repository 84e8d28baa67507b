// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of a VM as a whole, and of its guest's accesses.

use crate::error::Error;
use crate::layout::{
    self, bytes, from_bytes, AccessKey, Cpu, Share, Vm, OTHERS, VMM, VMS_MAX, WANTING,
};
use crate::maps::{self, Table};
use crate::plan::Extent;
use crate::sum;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use unspin_diagnosis::{Access, Accessed, Kind};

/// What a VM has done since it is watched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenVm {
    /// CPU time of its VMM's threads that run no vCPU, in ns.
    pub monitor_ns: u64,
    /// How long 0, 1, 2, … of its vCPUs wanted a CPU at the same time, with or without getting one, in
    /// ns. The last entry is for all larger numbers. Empty unless the probe is detailed.
    pub wanting_ns: Vec<u64>,
    /// What its guest accesses. `None`: unknown, because the probe is not detailed, or the kernel does not
    /// show it.
    pub accesses: Option<BTreeMap<Access, Accessed>>,
}

impl SeenVm {
    /// The difference since `before`.
    pub fn since(&self, before: &SeenVm) -> SeenVm {
        let wanting = self.wanting_ns.iter().enumerate();
        let of = |many: usize| before.wanting_ns.get(many).copied().unwrap_or(0);
        let accesses = self.accesses.as_ref().zip(before.accesses.as_ref());
        let since = |(now, before): (&BTreeMap<Access, Accessed>, &BTreeMap<Access, Accessed>)| {
            let of = |access| before.get(access).copied().unwrap_or_default();
            now.iter().map(|(access, sum)| (*access, sum.since(&of(access)))).collect()
        };
        SeenVm {
            monitor_ns: self.monitor_ns.saturating_sub(before.monitor_ns),
            wanting_ns: wanting.map(|(many, ns)| ns.saturating_sub(of(many))).collect(),
            accesses: accesses.map(since),
        }
    }
}

/// The maps with these counts.
pub struct Vms {
    sums: Table<Vm>,
    accesses: MapHandle,
    extent: Extent,
    cpus: u32,
}

impl Vms {
    /// `extent`: that of the attached programs.
    pub fn of(object: &Object, cpus: u32, extent: Extent) -> Result<Vms, Error> {
        let accesses = maps::handle(object, "accesses")?;
        Ok(Vms { sums: Table::shared(object, "vm_sums")?, accesses, extent, cpus })
    }

    /// Gives this number to a VM from `now` on.
    pub fn enter(&self, number: u32, now: u64) -> Result<(), Error> {
        let old = |key: &AccessKey| key.vm == number;
        for key in self.keys().into_iter().filter(old) {
            let _ = self.accesses.delete(bytes(&key));
        }
        let mut sums = Vm::default();
        sums.time[0] = now.wrapping_neg();
        self.sums.put(number, &sums)
    }

    /// Stops watching a vCPU of that VM that wanted a CPU: `want()` in C.
    pub fn wants_no_more(&self, number: u32, now: u64) {
        let word = |place| self.sums.word(number, place);
        let Some(wanting) = word(offset_of!(Vm, wanting)) else { return };
        let many = wanting.fetch_sub(1, Ordering::AcqRel);
        let [from, to] = [many, many.wrapping_sub(1)].map(counted_at);
        for (entry, time) in [(from, now), (to, now.wrapping_neg())] {
            let place = offset_of!(Vm, time) + entry * size_of::<u64>();
            word(place).map(|word| word.fetch_add(time, Ordering::AcqRel));
        }
    }

    /// How long vCPUs of that VM waited for unknown processes, in ns.
    pub fn lost_ns(&self, number: u32) -> Result<u64, Error> {
        Ok(self.sums.get(number)?.unwrap_or_default().lost)
    }

    fn keys(&self) -> Vec<AccessKey> {
        self.accesses.keys().filter_map(|key| from_bytes(&key)).collect()
    }

    /// The counts of the VMs with these numbers, by process.
    pub fn read(
        &self,
        numbers: &BTreeMap<u32, u32>,
        (cpus, shares): (&Table<Cpu>, &Table<Share>),
        now: u64,
    ) -> Result<BTreeMap<u32, SeenVm>, Error> {
        let mut accesses = self.read_accesses()?;
        let knows_accesses = self.extent == Extent::Detailed { accesses: true };
        let is_detailed = matches!(self.extent, Extent::Detailed { .. });
        let wanting = |sums: &Vm| sums.time.iter().map(|time| sum::at(*time, now)).collect();
        let mut all = BTreeMap::new();
        for (pid, number) in numbers {
            let sums = self.sums.get(*number)?.unwrap_or_default();
            let mut monitor_ns = 0;
            for at in 0..self.cpus {
                let cpu = cpus.get(at)?.unwrap_or_default();
                let share = shares.get(at * VMS_MAX + number)?.unwrap_or_default();
                let runs = cpu.kind == VMM && cpu.vm == *number;
                monitor_ns += share.vmm + if runs { now.saturating_sub(cpu.since) } else { 0 };
            }
            let seen = SeenVm {
                monitor_ns,
                wanting_ns: if is_detailed { wanting(&sums) } else { Vec::new() },
                accesses: knows_accesses.then(|| accesses.remove(number).unwrap_or_default()),
            };
            all.insert(*pid, seen);
        }
        Ok(all)
    }

    fn read_accesses(&self) -> Result<BTreeMap<u32, BTreeMap<Access, Accessed>>, Error> {
        let mut all: BTreeMap<u32, BTreeMap<Access, Accessed>> = BTreeMap::new();
        for key in self.keys() {
            let kind = (key.kind as usize).checked_sub(1).and_then(|kind| Kind::ALL.get(kind));
            let found = self.accesses.lookup(bytes(&key), MapFlags::ANY);
            let found = found.map_err(|e| Error::failed("read accesses of the BPF programs", e))?;
            let sum = found.and_then(|value| from_bytes::<layout::Access>(&value));
            if let (Some(kind), Some(sum)) = (kind, sum) {
                let address = Some(key.address).filter(|address| *address != OTHERS);
                let accessed = Accessed { count: sum.count, ns: sum.ns, visits: sum.visits };
                let access = Access { kind: *kind, address };
                all.entry(key.vm).or_default().insert(access, accessed);
            }
        }
        Ok(all)
    }
}

/// The index at which a number of vCPUs is counted: `counted_at()` in C.
fn counted_at(many: u64) -> usize {
    usize::try_from((many as i64).max(0)).map_or(WANTING - 1, |many| many.min(WANTING - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_of_each_access() {
        let access = |address| Access { kind: Kind::Port, address: Some(address) };
        let sum = |count| Accessed { count, ns: 10 * count, visits: count };
        let accesses = |all: &[(u64, u64)]| {
            Some(all.iter().map(|(port, count)| (access(*port), sum(*count))).collect())
        };
        let before = SeenVm { accesses: accesses(&[(0x70, 4)]), ..SeenVm::default() };
        let after = SeenVm {
            monitor_ns: 7,
            wanting_ns: vec![1, 2],
            accesses: accesses(&[(0x70, 9), (0x71, 5)]),
        };
        let since = after.since(&before);
        assert_eq!(since.accesses, accesses(&[(0x70, 5), (0x71, 5)]));
        assert_eq!((since.monitor_ns, &since.wanting_ns[..]), (7, &[1, 2][..]));
        let unknown = SeenVm::default();
        assert_eq!(after.since(&unknown).accesses, None, "unknown is not 0");
    }
}
