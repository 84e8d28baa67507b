// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dynamic asymmetric vCPUs over the fair scheduler: what each vCPU did in an allocation period is
//! measured here, `policy/asym` decides, and its weights, latencies and cores are applied.
//!
//! Shan, "High Performance Cloud Computing on Multicore Computers", dissertation, New Jersey
//! Institute of Technology, sections 5.4 and 5.5.1. As in its prototype, CPU time is given as a
//! share within the VM and a scheduling latency as a wake-up granularity of the vCPU's own (CFS);
//! EEVDF has no such granularity, there it is the vCPU's slice. What a VM gets beside others is
//! not changed: the weights of its vCPUs have the mean they had.

use crate::engine::{Event, PcpuId, Table, VcpuId};
use crate::group::WEIGHT_MIN;
use crate::host::Host;
use crate::machine::Sim;
use crate::sched::RunQueue;
use crate::state::{Class, State};
use unspin_policy::asym::{self, Core, Params, Vcpu};
use unspin_scenario::plan;

#[derive(Debug)]
pub(crate) struct Asym {
    params: Params,
    parts: plan::Asym,
    period_ns: u64,
    vcpus: Table<VcpuId, Vcpu>,
    cores: Table<PcpuId, Core>,
    vms: Vec<AsymVm>,
    /// CPU time of each vCPU when the period began, ns.
    cpu_mark_ns: Table<VcpuId, u64>,
    /// Since when each vCPU that was woken has waited for a pCPU, ns; 0: it does not.
    woken_ns: Table<VcpuId, u64>,
}

/// What Asym keeps of a VM.
#[derive(Debug, Clone, Copy)]
struct AsymVm {
    first: VcpuId,
    count: u32,
    /// Its share of the host's time in a period, ns.
    share_ns: u64,
    /// Weight of each of its vCPUs where all are alike.
    weight: u64,
    switch_mark_ns: u64,
}

impl Asym {
    /// The parts that `parts` has on, for a host whose VMs are added next.
    pub fn new(host: &Host, parts: plan::Asym) -> Asym {
        Asym {
            params: host.asym,
            parts,
            period_ns: (parts.period_ms)
                .map_or(host.fair_period_ns(), |ms| u64::from(ms.max(1)) * 1_000_000),
            vcpus: Table::default(),
            cores: vec![Core::default(); host.pcpus as usize].into(),
            vms: Vec::new(),
            cpu_mark_ns: Table::default(),
            woken_ns: Table::default(),
        }
    }

    /// A VM of `count` vCPUs, each of that weight, on these pCPUs; `part` of `whole` is its part
    /// of the host's time, of which it cannot use more than its vCPUs have.
    pub fn add_vm(&mut self, pcpus: &[PcpuId], weight: u64, part: u64, whole: u64) {
        let count = pcpus.len() as u32;
        let host_ns = self.period_ns * self.cores.len() as u64;
        let share_ns = (u128::from(host_ns) * u128::from(part) / u128::from(whole.max(1))) as u64;
        let share_ns = share_ns.min(self.period_ns * u64::from(count));
        let first = VcpuId(self.vcpus.len() as u32);
        self.vms.push(AsymVm { first, count, share_ns, weight, switch_mark_ns: 0 });
        for &pcpu in pcpus {
            let mut vcpu = Vcpu::new(&self.params, pcpu.0);
            vcpu.allocated_ns = share_ns / u64::from(count);
            vcpu.vm = (self.vms.len() - 1) as u16;
            self.vcpus.push(vcpu);
            self.cpu_mark_ns.push(0);
            self.woken_ns.push(0);
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
}

impl Sim {
    /// `by` sends its sibling `v` the interrupt that wakes it.
    pub(crate) fn note_waker(&mut self, v: VcpuId, by: VcpuId) {
        if let Some(asym) = &mut self.asym {
            asym.waker(v, self.vcpus[by].index);
        }
    }

    /// An allocation period has ended.
    pub(crate) fn end_period(&mut self) {
        for p in self.pcpus.ids() {
            self.bill(p);
        }
        let Some(mut asym) = self.asym.take() else { return };
        for v in self.vcpus.ids() {
            self.account(v);
            let (vcpu, seen) = (&self.vcpus[v], &mut asym.vcpus[v]);
            let cpu_ns = vcpu.cpu_ns();
            seen.consumed_ns = cpu_ns - std::mem::replace(&mut asym.cpu_mark_ns[v], cpu_ns);
            seen.ready = u8::from(vcpu.state != State::Halted);
            seen.core = vcpu.pcpu.0;
        }
        for number in 0..asym.vms.len() {
            self.adjust_vm(&mut asym, number);
        }
        if asym.parts.resolver {
            let Asym { vcpus, cores, params, .. } = &mut *asym;
            asym::resolve_time(vcpus.all_mut(), cores.all_mut(), params);
            asym::resolve_urgency(vcpus.all_mut(), cores.all_mut(), params);
        }
        for core in asym.cores.iter_mut() {
            core.conflicts = 0;
        }
        let cores: Vec<PcpuId> = asym.vcpus.iter().map(|v| PcpuId(v.core)).collect();
        let next = self.now_ns + asym.period_ns;
        self.asym = Some(asym);
        for (v, core) in self.vcpus.ids().zip(cores) {
            self.migrate(v, core);
        }
        self.queue.arm(Event::AsymPeriod, next);
    }

    /// Sections 5.4.2 and 5.4.1 for one VM, and what follows for the scheduler.
    fn adjust_vm(&mut self, asym: &mut Asym, number: usize) {
        let Asym { vms, vcpus, params, parts, .. } = asym;
        let vm = &mut vms[number];
        let own = vcpus.part_mut(vm.first, vm.count);
        if parts.latency {
            asym::latency(own, params);
        }
        if parts.time {
            let switched_ns: u64 = (self.vcpus.part(vm.first, vm.count).iter())
                .map(|v| v.time_ns[Class::Switch as usize])
                .sum();
            let switch_ns = switched_ns - std::mem::replace(&mut vm.switch_mark_ns, switched_ns);
            asym::allocate(own, params, vm.share_ns, switch_ns);
        }
        let given_ns: u64 = own.iter().map(|v| v.allocated_ns).sum();
        for (v, seen) in vm.first.and_next(vm.count).zip(own) {
            seen.wakers = 0;
            let entity = &mut self.entities[v];
            if parts.time && given_ns > 0 {
                let all = u128::from(vm.weight) * u128::from(vm.count);
                let weight = all * u128::from(seen.allocated_ns) / u128::from(given_ns);
                let weight = (weight as u64).max(WEIGHT_MIN);
                match &mut self.groups {
                    // What its cgroup within the VM's gets.
                    Some(groups) => groups.set_share(v, weight, self.now_ns),
                    None => entity.weight = weight,
                }
            }
            if parts.latency {
                entity.set_latency(&self.tunables, u64::from(seen.latency_us) * 1000);
            }
        }
    }

    /// `v` changes to another pCPU, for good if it is pinned.
    pub(crate) fn migrate(&mut self, v: VcpuId, to: PcpuId) {
        let from = self.vcpus[v].pcpu;
        if from == to {
            return;
        }
        if self.is_throttled(v) {
            self.vcpus[v].pcpu = to;
            return;
        }
        self.bill(from);
        self.bill(to);
        let state = self.vcpus[v].state;
        if state == State::Running {
            self.switch_out(v, false);
            self.queues[from].put_back();
        }
        // Out of the array for a while: both queues change.
        let mut source = std::mem::replace(&mut self.queues[from], RunQueue::new(0));
        let target = &mut self.queues[to];
        let mut comes_first = false;
        if state == State::Halted {
            target.adopt(&source, &mut self.entities, v);
        } else {
            source.take(&self.tunables, &mut self.entities, v);
            target.give(&self.tunables, &mut self.entities, v);
            comes_first = target.preempts(&self.tunables, &mut self.entities, v);
        }
        self.queues[from] = source;
        self.vcpus[v].pcpu = to;
        if comes_first {
            self.ask_reschedule(to);
        }
        if state == State::Running {
            self.schedule(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Kernel;
    use crate::setup::tests::two_vms;
    use unspin_scenario::plan::{Dist, Op, Step};

    /// Section 5.4.1's example: of 80 ms that two vCPUs have, one used 35 of its 40 ms and sleeps,
    /// the other used 40 and could go on; then they get 35.4 and 44.6 ms.
    #[test]
    fn the_example_of_the_text_comes_out_of_the_simulator() {
        let step =
            |op, iterations| Step { op, dist: Dist::Const { iterations }, lock: 0, permille: 1000 };
        let mut setup = two_vms();
        setup.host = Host::lab(2, Kernel::V3_19).with_period_ns(40_000_000);
        let costs = &mut setup.host.costs;
        (costs.switch_cycles, costs.tick_cycles, costs.step_cycles) = (0, 0, 0);
        (costs.halt_cycles, costs.timer_cycles) = (0, 0);
        setup.run.arm.asym.time = true;
        setup.vms.truncate(1);
        let vm = &mut setup.vms[0];
        (vm.vcpus, vm.threads) = (2, 2);
        (vm.start_ns, vm.pin) = (0, vec![0, 1]);
        // 3,500,000 iterations of two cycles at 200 MHz.
        vm.program = vec![step(Op::Compute, 3_500_000), step(Op::Block, 0)];
        let mut sim = setup.build().unwrap();
        sim.run_until(1_000_000);
        sim.vcpus[VcpuId(1)].remaining_ns = 1_000_000_000;
        sim.rearm(VcpuId(1));
        sim.run_until(40_000_001);
        let asym = sim.asym.as_ref().unwrap();
        let given = [0, 1].map(|v| asym.vcpus[VcpuId(v)].allocated_ns);
        assert_eq!(given.iter().sum::<u64>(), 80_000_000);
        assert_eq!(given.map(|ns| (ns + 50_000) / 100_000), [354, 446], "{given:?}");
        // 2 x 1024 in that proportion.
        let weights = [0, 1].map(|v| sim.entities[VcpuId(v)].weight);
        assert_eq!(weights, [907, 1140]);
    }

    /// One VM of four vCPUs on two pCPUs: the first `busy` share a pCPU and compute for ever, the
    /// others sleep on the other.
    fn stacked(parts: plan::Asym, busy: u32) -> Sim {
        let step =
            |op, iterations| Step { op, dist: Dist::Const { iterations }, lock: 0, permille: 1000 };
        let mut setup = two_vms();
        setup.host = Host::lab(2, Kernel::V3_19);
        setup.run.arm.asym = parts;
        setup.vms.truncate(1);
        let vm = &mut setup.vms[0];
        (vm.start_ns, vm.pin) = (0, (0..4).map(|v| u32::from(v >= busy)).collect());
        vm.program = vec![step(Op::Compute, 10_000), step(Op::Block, 0)];
        let mut sim = setup.build().unwrap();
        sim.run_until(50_000);
        for v in VcpuId(0).and_next(busy) {
            sim.vcpus[v].remaining_ns = 1_000_000_000_000;
            sim.rearm(v);
        }
        sim
    }

    #[test]
    fn vcpus_that_need_the_same_core_are_parted() {
        let parts = |resolver| plan::Asym { time: true, latency: false, resolver, period_ms: None };
        for (resolver, parted) in [(false, false), (true, true)] {
            let mut sim = stacked(parts(resolver), 2);
            sim.run_until(200_000_000);
            assert_eq!(sim.vcpus[VcpuId(0)].pcpu != sim.vcpus[VcpuId(1)].pcpu, parted);
            let busy_ns: u64 = sim.vcpus.iter().map(|v| v.cpu_ns()).sum();
            assert_eq!(busy_ns > 300_000_000, parted, "{busy_ns} ns of two cores' 400 ms");
        }
    }

    /// Section 5.4.2: who can go on but got less than it was given is late; once its latency is the
    /// lowest, those that wake it are hurried.
    #[test]
    fn the_late_are_hurried_and_then_those_who_wake_them() {
        let mut sim =
            stacked(plan::Asym { time: false, latency: true, resolver: false, period_ms: None }, 3);
        let period_ns = sim.asym.as_ref().unwrap().period_ns();
        let min_us = sim.host.asym.latency_min_us;
        for period in 1..=30 {
            // Sleeper 3 is said to have woken vCPU 0.
            sim.note_waker(VcpuId(0), VcpuId(3));
            sim.run_until(period * period_ns + 1);
        }
        let latency = |sim: &Sim| {
            let vcpus = &sim.asym.as_ref().unwrap().vcpus;
            [0, 1, 2, 3].map(|v| vcpus[VcpuId(v)].latency_us)
        };
        let init_us = Params::default().latency_init_us;
        let [first, second, third, waker] = latency(&sim);
        assert_eq!([first, second, third], [min_us; 3]);
        assert!(waker < init_us, "{waker}");
        assert_eq!(sim.entities[VcpuId(0)].wakeup_ns(), u64::from(min_us) * 1000);
        assert_eq!(sim.entities[VcpuId(3)].wakeup_ns(), u64::from(waker) * 1000);
    }

    /// Everybody may be moved at any time, whatever the vCPU does, and time stays conserved.
    #[test]
    fn vcpus_in_every_state_can_be_moved() {
        for kernel in Kernel::ALL {
            let mut setup = two_vms();
            setup.host = Host::lab(4, kernel);
            let block = Step { permille: 300, ..setup.vms[0].program[0] };
            let dist = Dist::Const { iterations: 300_000 };
            setup.vms[0].program.push(Step { op: Op::Block, dist, ..block });
            let mut sim = setup.build().unwrap();
            let mut seen = [0; 3];
            for round in 0..600u32 {
                sim.run_until(u64::from(round + 1) * 377_777);
                let v = VcpuId(round % 8);
                let to = PcpuId((sim.vcpus[v].pcpu.0 + 1 + round % 3) % 4);
                seen[sim.vcpus[v].state as usize] += 1;
                sim.migrate(v, to);
                assert_eq!(sim.vcpus[v].pcpu, to);
            }
            sim.run_until(300_000_000);
            assert!(seen.iter().all(|n| *n > 20), "{kernel:?}: {seen:?}");
        }
    }
}
