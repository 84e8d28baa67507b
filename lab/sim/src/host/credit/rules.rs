// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two sets of rules that Credit can have.
//!
//! By maximal credit, as the sched_ext scheduler (papers/crates/scx/bpf/choose.h): ASMan's Algorithms
//! 3 and 4 alone. `lab/policy/c/credit.c` distributes the credits and picks the vCPU with the most. A
//! vCPU pays for the time it ran, when it leaves its pCPU or its slot ends. On a capped host it does
//! not run without credit. A pCPU chooses when its slot ends, when its vCPU sleeps, when a vCPU with
//! credit comes to one without, and when a sibling calls. A pCPU that idles chooses when its slot
//! would end, and when a vCPU waits anywhere.
//!
//! By Xen's ranks: `books.rs`.

use super::super::ask::ask_reschedule;
use super::super::fair::{Queues, NONE};
use super::state::Credit;
use crate::core::Core;
use crate::engine::{PcpuId, VcpuId};

use unspin_policy::credit;

impl Credit {
    /// Whether `v` may be the leader of its siblings. By Xen's ranks: whether it is UNDER, so that it
    /// may also be boosted.
    pub fn has_credit(&self, v: VcpuId) -> bool {
        match self.xen {
            true => !self.books.of[v].over,
            false => self.vcpus[v].credit >= 0,
        }
    }

    /// Whether `v` may run without having been raised.
    pub(super) fn may_run(&self, v: VcpuId) -> bool {
        let stops = match self.xen {
            true => self.books.of[v].parked,
            false => self.params.capped != 0 && self.vcpus[v].credit < 0,
        };
        self.vcpus[v].raised != 0 || !stops
    }

    /// Whether none of `waiting` may run, so that the pCPU idles correctly.
    pub(super) fn all_spent(&self, waiting: &[VcpuId]) -> bool {
        waiting.iter().all(|&v| !self.may_run(v))
    }

    /// Whether `p` may idle beside `waiting`: none of them may run, or the last hand-out came after
    /// `p` last chose, and its slot has not ended since.
    pub fn may_idle(&self, p: PcpuId, waiting: &[VcpuId], now_ns: u64) -> bool {
        let handed_out_ns = self.handed_out_ns();
        let is_slot_left = !self.xen
            && self.places[p].chose_ns <= handed_out_ns
            && now_ns <= self.idle_slot_end_ns(p, handed_out_ns);
        is_slot_left || self.all_spent(waiting)
    }

    /// When credits were last handed out, ns.
    fn handed_out_ns(&self) -> u64 {
        self.hand_out_ns.saturating_sub(self.period_ns())
    }

    /// Distributes credits. Moves vCPUs of VMs that have become HIGH to different pCPUs.
    pub(super) fn hand_out(&mut self) {
        if self.xen {
            return self.hand_out_by_rank();
        }
        let (vcpus, vms) = (self.vcpus.all_mut(), self.vms.all_mut());
        credit::assign(vcpus, vms, self.pcpus.all_mut(), &self.params);
    }

    /// Picks the vCPU that runs on `p` from now on, and raises its siblings.
    pub(super) fn pick(
        &mut self,
        p: PcpuId,
        last: Option<VcpuId>,
        may_raise: bool,
    ) -> credit::Decision {
        if self.xen {
            return self.pick_by_rank(p, last, may_raise);
        }
        let last = last.map(|v| v.0 as usize);
        credit::pick(self.vcpus.all_mut(), self.vms.all(), p.0, last, may_raise, &self.params)
    }

    /// `v`, which has run on `p`, pays for whole microseconds. By Xen's ranks it paid at ticks.
    pub(super) fn pay(&mut self, p: PcpuId, v: VcpuId, now_ns: u64) {
        if self.xen {
            return;
        }
        let place = &mut self.places[p];
        let us = (now_ns - place.paid_ns) / 1000;
        place.paid_ns += us * 1000;
        self.vcpus[v].charge(&self.params, us);
    }

    /// Asks pCPUs whose slots end now, and which have idled since the last hand-out or longer, to
    /// choose. Returns when the next such slot ends, or credits are handed out.
    pub(super) fn ask_at_slot_ends(&self, core: &mut Core, queues: &Queues) -> u64 {
        let (now_ns, handed_out_ns) = (core.now_ns, self.handed_out_ns());
        let mut next_ns = self.hand_out_ns;
        for p in core.pcpus.ids() {
            if queues[p].current != NONE || self.places[p].chose_ns > handed_out_ns {
                continue;
            }
            if self.idle_slot_end_ns(p, now_ns.saturating_sub(1)) == now_ns {
                ask_reschedule(core, p, NONE);
            }
            next_ns = next_ns.min(self.idle_slot_end_ns(p, now_ns));
        }
        next_ns
    }

    /// When the first slot of `p`, which idles, ends after `ns`.
    fn idle_slot_end_ns(&self, p: PcpuId, ns: u64) -> u64 {
        let end_ns = self.places[p].slice_end_ns;
        match ns.checked_sub(end_ns) {
            None => end_ns,
            Some(since_ns) => ns + self.slot_ns - since_ns % self.slot_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Host, Kernel};
    use crate::engine::VmId;
    use proptest::prelude::*;
    use unspin_policy::credit::Vcpu;
    use unspin_scenario::plan::Coscheduling;

    const PCPUS: u32 = 3;

    /// Credit with these vCPUs of 2 VMs, of which one may be HIGH.
    fn with_vcpus(host: &Host, vcpus: &[Vcpu], high: bool) -> Credit {
        let mut credit = Credit::new(host, &host.credit.unwrap(), Coscheduling::None, 1);
        (0..2).for_each(|seed| credit.add_vm(100 + 50 * seed, false, u64::from(seed)));
        credit.vms[VmId(1)].high = u8::from(high);
        for vcpu in vcpus {
            credit.add_vcpu(PcpuId(vcpu.pcpu));
        }
        credit.vcpus = vcpus.to_vec().into();
        credit
    }

    fn host() -> Host {
        Host::lab(PCPUS, Kernel::V6_12)
    }

    fn vcpu() -> impl Strategy<Value = Vcpu> {
        let of = (0..2u32, 0..PCPUS, -30_000..30_000i64, any::<[bool; 3]>());
        of.prop_map(|(vm, pcpu, credit, [runnable, running, raised])| Vcpu {
            credit,
            runnable: u8::from(runnable),
            running: u8::from(runnable && running),
            raised: u8::from(runnable && raised && !running),
            ..Vcpu::new(vm, pcpu)
        })
    }

    proptest! {
        /// What the sched_ext scheduler calls for a decision, with the same numbers.
        #[test]
        fn by_maximal_credit_the_policy_alone_decides(
            vcpus in prop::collection::vec(vcpu(), 1..9),
            (capped, high, may_raise) in any::<(bool, bool, bool)>(),
            (p, last, ran_ns) in (0..PCPUS, prop::option::of(0..9u32), 0..40_000_000u64),
        ) {
            let mut credit = with_vcpus(&host().with_credit(capped), &vcpus, high);
            let (mut own, mut vms, params) = (vcpus, credit.vms.all().to_vec(), credit.params);
            let last = last.filter(|&v| (v as usize) < own.len());

            credit.pay(PcpuId(p), VcpuId(0), ran_ns);
            own[0].charge(&params, ran_ns / 1000);
            prop_assert_eq!(credit.vcpus.all(), &own[..]);

            credit.hand_out();
            let mut pcpus = [credit::Pcpu::default(); PCPUS as usize];
            credit::assign(&mut own, &mut vms, &mut pcpus, &params);
            prop_assert_eq!(credit.vcpus.all(), &own[..]);

            let found = credit.pick(PcpuId(p), last.map(VcpuId), may_raise);
            let last = last.map(|v| v as usize);
            prop_assert_eq!(found, credit::pick(&mut own, &vms, p, last, may_raise, &params));
            prop_assert_eq!(credit.vcpus.all(), &own[..]);
        }
    }

    /// By maximal credit the richer vCPU stays, by Xen's ranks all that have credit take turns.
    #[test]
    fn the_two_sets_of_rules_differ() {
        let vcpus = [1, 20_000].map(|credit| Vcpu { credit, ..Vcpu::new(0, 0) });
        let picked = |host: Host| {
            let mut credit = with_vcpus(&host, &vcpus, false);
            credit.pick(PcpuId(0), Some(VcpuId(1)), false).vcpu()
        };
        assert_eq!(picked(host().with_credit(false)), Some(1));
        assert_eq!(picked(host().with_xen_credit(false)), Some(0));
    }

    /// Without credit on a capped host no vCPU runs, and none is parked by Xen before a hand-out.
    #[test]
    fn who_owes_stops_at_once_or_at_a_hand_out() {
        let owes = [Vcpu { credit: -1, ..Vcpu::new(0, 0) }];
        for (host, runs) in
            [(host().with_credit(true), None), (host().with_xen_credit(true), Some(0))]
        {
            let mut credit = with_vcpus(&host, &owes, false);
            assert_eq!(credit.may_run(VcpuId(0)), runs.is_some());
            assert_eq!(credit.pick(PcpuId(0), None, false).vcpu(), runs);
        }
    }

    /// A pCPU that idles keeps its grid of slots.
    #[test]
    fn slots_go_on_while_a_pcpu_idles() {
        let mut credit = with_vcpus(&host().with_credit(true), &[], false);
        credit.places[PcpuId(1)].slice_end_ns = 3_000_000;
        for (after_ns, end_ns) in [
            (0, 3_000_000),
            (2_999_999, 3_000_000),
            (3_000_000, 13_000_000),
            (50_000_000, 53_000_000),
        ] {
            assert_eq!(credit.idle_slot_end_ns(PcpuId(1), after_ns), end_ns);
        }
    }
}
