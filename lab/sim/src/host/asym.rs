// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dynamic asymmetric vCPUs on the fair scheduler: measures what each vCPU did in an allocation
//! period, lets `policy/asym` decide, and applies its weights, latencies and cores.
//!
//! Shan, "High Performance Cloud Computing on Multicore Computers", dissertation, New Jersey
//! Institute of Technology, sections 5.4 and 5.5.1. As in its prototype, CPU time is a share within
//! the VM. A scheduling latency is the vCPU's own wake-up granularity (CFS), or its slice with
//! EEVDF, which has no such granularity. The mean weight of a VM's vCPUs stays the same. The VM's
//! own weight is corrected as in `unspin shape` (`unspin_shape::due`), if it has a cgroup and the
//! arm does not switch this off.

use super::fair::{Entity, Tunables};
use super::groups::{Groups, WEIGHT_MIN};
use crate::core::{Class, Core, Host, State};
use crate::engine::{PcpuId, Table, VcpuId};
use unspin_policy::alike;
use unspin_policy::asym::{self, Core as Pace, Params, Vcpu};
use unspin_policy::due::{Due, Got, ROUND};
use unspin_policy::lasting::Lasting;
use unspin_scenario::plan;

/// A core that the host does not have.
const NOWHERE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub struct Asym {
    params: Params,
    parts: plan::Asym,
    period_ns: u64,
    vcpus: Table<VcpuId, Vcpu>,
    cores: Table<PcpuId, Pace>,
    vms: Vec<AsymVm>,
    /// CPU time of each vCPU when the period began, ns.
    cpu_mark_ns: Table<VcpuId, u64>,
    /// For how long each had waited for a pCPU when the period began, ns.
    wait_mark_ns: Table<VcpuId, u64>,
    /// Periods that have ended.
    periods: u32,
    /// Which have become ready in the period.
    woke: Table<VcpuId, bool>,
    /// Since when each vCPU that was woken has waited for a pCPU, ns; 0: it does not.
    woken_ns: Table<VcpuId, u64>,
    /// The lasting need of each vCPU: weights and places follow it. In an `uncorrected` arm only
    /// the last period counts.
    needs: Table<VcpuId, Lasting>,
}

/// How a vCPU's slice follows from its latency.
#[derive(Clone, Copy)]
struct Slices<'a> {
    tunables: &'a Tunables,
    lengthen: f64,
}

/// The state of a VM.
#[derive(Debug, Clone, Copy)]
struct AsymVm {
    first: VcpuId,
    count: u32,
    /// Its share of the host's time in a period, ns.
    share_ns: u64,
    /// Weight of each of its vCPUs if all are equal.
    weight: u64,
    switch_mark_ns: u64,
    shaped: bool,
    due: Due,
}

impl Asym {
    /// Asymmetric vCPUs with these `parts`, for a host whose VMs are added next.
    pub fn new(host: &Host, parts: plan::Asym) -> Asym {
        Asym {
            params: host.asym,
            parts,
            period_ns: (parts.period_ms)
                .map_or(host.fair_period_ns(), |ms| u64::from(ms.max(1)) * 1_000_000),
            cores: vec![Pace::default(); host.pcpus as usize].into(),
            ..Asym::default()
        }
    }

    /// Adds a VM of `count` vCPUs, each with this weight, on these pCPUs. `part` of `whole` is its
    /// part of the host's time, of which it cannot use more than its vCPUs have. A VM that is not
    /// `shaped` is left alone.
    pub fn add_vm(&mut self, pcpus: &[PcpuId], weight: u64, [part, whole]: [u64; 2], shaped: bool) {
        let count = pcpus.len() as u32;
        let host_ns = self.period_ns * self.cores.len() as u64;
        let share_ns = (u128::from(host_ns) * u128::from(part) / u128::from(whole.max(1))) as u64;
        let share_ns = share_ns.min(self.period_ns * u64::from(count));
        let first = VcpuId(self.vcpus.len() as u32);
        let due = Due::new(share_ns as f64 / self.period_ns as f64);
        self.vms.push(AsymVm { first, count, share_ns, weight, switch_mark_ns: 0, shaped, due });
        for &pcpu in pcpus {
            let mut vcpu = Vcpu::new(&self.params, pcpu.0);
            vcpu.allocated_ns = share_ns / u64::from(count);
            vcpu.vm = (self.vms.len() - 1) as u16;
            self.vcpus.push(vcpu);
            self.cpu_mark_ns.push(0);
            self.wait_mark_ns.push(0);
            self.woke.push(false);
            self.woken_ns.push(0);
            self.needs.push(Lasting::default());
        }
    }

    pub fn period_ns(&self) -> u64 {
        self.period_ns
    }

    fn is_urgent(&self, v: VcpuId) -> bool {
        self.vcpus[v].latency_us <= self.params.urgent_us
    }

    /// `v`, running on `p`, was preempted.
    pub fn preempted(&mut self, p: PcpuId, v: VcpuId) {
        self.cores[p].conflicts += u64::from(self.is_urgent(v));
    }

    /// `v` has become ready.
    pub fn woken(&mut self, v: VcpuId, now_ns: u64) {
        self.woken_ns[v] = now_ns;
        self.woke[v] = true;
    }

    /// `v` runs, on `p`.
    pub fn runs(&mut self, p: PcpuId, v: VcpuId, now_ns: u64) {
        let since_ns = std::mem::take(&mut self.woken_ns[v]);
        let latency_ns = u64::from(self.vcpus[v].latency_us) * 1000;
        let late = since_ns != 0 && now_ns - since_ns > latency_ns;
        self.cores[p].conflicts += u64::from(late && self.is_urgent(v));
    }

    /// `by` has sent `v`, a sibling, the interrupt that woke it.
    pub fn waker(&mut self, v: VcpuId, by_index: u32) {
        if by_index < 64 {
            self.vcpus[v].wakers |= 1 << by_index;
        }
    }
    /// Ends the period. All vCPUs are accounted for, and all pCPUs billed. Returns the pCPU of each
    /// vCPU from now on.
    pub fn end_period(
        &mut self,
        core: &Core,
        entities: &mut Table<VcpuId, Entity>,
        tunables: &Tunables,
        mut groups: Option<&mut Groups>,
    ) -> Vec<PcpuId> {
        for (v, vcpu) in core.vcpus.rows() {
            let seen = &mut self.vcpus[v];
            let cpu_ns = vcpu.ledger.cpu_ns();
            seen.consumed_ns = cpu_ns - std::mem::replace(&mut self.cpu_mark_ns[v], cpu_ns);
            seen.ready = u8::from(vcpu.on.state != State::Halted);
            seen.core = vcpu.on.pcpu.0;
        }
        let slices = self.latencies(tunables);
        for number in 0..self.vms.len() {
            if self.vms[number].shaped {
                self.adjust_vm(core, number, entities, slices, groups.as_deref_mut());
            }
        }
        self.periods += 1;
        if self.parts.resolver {
            self.resolve();
        }
        for pace in self.cores.iter_mut() {
            pace.conflicts = 0;
        }
        let stays = |(v, seen): (VcpuId, &Vcpu)| match seen.core {
            NOWHERE => core.vcpus[v].on.pcpu,
            number => PcpuId(number),
        };
        self.vcpus.rows().map(stays).collect()
    }

    /// Section 5.4.2 for all VMs, and the slices that follow. If all VMs are shaped and the arm is
    /// corrected, no slice is shorter than needed.
    fn latencies<'a>(&mut self, tunables: &'a Tunables) -> Slices<'a> {
        let Asym { vms, vcpus, params, parts, woke, .. } = self;
        if parts.latency {
            for vm in vms.iter().filter(|vm| vm.shaped) {
                asym::latency(vcpus.part_mut(vm.first, vm.count), params);
            }
        }
        let urgent = vcpus.rows().filter(|(v, _)| woke[*v]);
        let longest_us = urgent.map(|(_, seen)| seen.latency_us).max().unwrap_or(0);
        let is_relative = tunables.eevdf && !parts.uncorrected && vms.iter().all(|vm| vm.shaped);
        let lengthen = match is_relative {
            true => alike::lengthen(u64::from(longest_us) * 1000, tunables.slice_ns),
            false => 1.0,
        };
        Slices { tunables, lengthen }
    }

    /// Corrects a VM's own weight by what it got in the period that ended. Returns whether it has
    /// its original weights in the next.
    fn correct(&mut self, core: &Core, number: usize, groups: Option<&mut Groups>) -> bool {
        let Asym { vms, vcpus, parts, wait_mark_ns, period_ns, periods, .. } = self;
        let vm = &mut vms[number];
        let (was_own, corrects) = Due::at(*periods);
        let Some(groups) = groups.filter(|_| parts.corrects_weight()) else {
            return false;
        };
        let mut got = Got { wall_ns: *period_ns, ..Got::default() };
        for v in vm.first.and_next(vm.count) {
            let waited_ns = core.vcpus[v].ledger.time_ns[Class::Waiting as usize];
            got.waited_ns += waited_ns - std::mem::replace(&mut wait_mark_ns[v], waited_ns);
            got.on_cpu_ns += vcpus[v].consumed_ns;
        }
        if *periods % ROUND == 0 {
            vm.due.begin();
        }
        vm.due.period(&got, was_own);
        if corrects {
            vm.due.correct();
        }
        let (is_own, _) = Due::at(*periods + 1);
        let shares = if is_own { vm.weight } else { vm.due.raised(vm.weight) };
        groups.set_shares(number, shares);
        is_own
    }

    /// vCPUs that are not shaped have no core in the resolvers.
    fn resolve(&mut self) {
        let Asym { vms, vcpus, cores, params, parts, needs, .. } = self;
        let mut needs_ns: Vec<u64> = Vec::with_capacity(vcpus.len());
        for vm in vms.iter() {
            let own = needs.part(vm.first, vm.count);
            match parts.uncorrected {
                true => needs_ns.extend(own.iter().map(|need| need.ns() as u64)),
                false => needs_ns.extend(alike::counted(own).map(|need| need.ns() as u64)),
            }
        }
        let each = vcpus.all_mut().iter_mut().zip(needs_ns);
        let predicted: Vec<u64> =
            each.map(|(seen, ns)| std::mem::replace(&mut seen.allocated_ns, ns)).collect();
        for vm in vms.iter().filter(|vm| !vm.shaped) {
            vcpus.part_mut(vm.first, vm.count).iter_mut().for_each(|seen| seen.core = NOWHERE);
        }
        asym::resolve_time(vcpus.all_mut(), cores.all_mut(), params);
        asym::resolve_urgency(vcpus.all_mut(), cores.all_mut(), params);
        let each = vcpus.all_mut().iter_mut().zip(predicted);
        each.for_each(|(seen, ns)| seen.allocated_ns = ns);
    }

    /// Section 5.4.1 for one VM, and what follows for the scheduler.
    fn adjust_vm(
        &mut self,
        core: &Core,
        number: usize,
        entities: &mut Table<VcpuId, Entity>,
        slices: Slices,
        mut groups: Option<&mut Groups>,
    ) {
        let is_own = self.correct(core, number, groups.as_deref_mut());
        let Asym { vms, vcpus, params, parts, woke, needs, .. } = self;
        let vm = &mut vms[number];
        let own = vcpus.part_mut(vm.first, vm.count);
        if parts.time {
            let switched_ns: u64 = (core.vcpus.part(vm.first, vm.count).iter())
                .map(|v| v.ledger.time_ns[Class::Switch as usize])
                .sum();
            let switch_ns = switched_ns - std::mem::replace(&mut vm.switch_mark_ns, switched_ns);
            asym::allocate(own, params, vm.share_ns, switch_ns);
        }
        let needs = needs.part_mut(vm.first, vm.count);
        for (need, seen) in needs.iter_mut().zip(own.iter()) {
            if parts.uncorrected {
                *need = Lasting::default();
            }
            need.period(seen.allocated_ns);
        }
        let has_own = is_own || (!parts.uncorrected && alike::need_alike(needs));
        let need_ns = |need: &Lasting| need.ns() as u64;
        let given_ns: u64 = needs.iter().map(need_ns).sum();
        for ((v, seen), own_ns) in
            vm.first.and_next(vm.count).zip(own).zip(needs.iter().map(need_ns))
        {
            seen.wakers = 0;
            let entity = &mut entities[v];
            if parts.time && given_ns > 0 {
                let all = u128::from(vm.weight) * u128::from(vm.count);
                let weight = all * u128::from(own_ns) / u128::from(given_ns);
                let weight = if has_own { vm.weight } else { (weight as u64).max(WEIGHT_MIN) };
                match &mut groups {
                    // What its cgroup within the VM's gets.
                    Some(groups) => groups.set_share(v, weight, core.now_ns),
                    None => entity.weight = weight,
                }
            }
            let woke = std::mem::take(&mut woke[v]);
            if parts.latency {
                // If it did not wake up, a short slice would only cause more switches.
                let slice_ns = (f64::from(seen.latency_us) * 1000.0 * slices.lengthen) as u64;
                entity.set_latency(slices.tunables, slice_ns, woke && !is_own);
            }
        }
    }
}

#[cfg(test)]
impl Asym {
    pub fn allocated_ns(&self, v: VcpuId) -> u64 {
        self.vcpus[v].allocated_ns
    }

    pub fn latency_us(&self, v: VcpuId) -> u32 {
        self.vcpus[v].latency_us
    }
}
