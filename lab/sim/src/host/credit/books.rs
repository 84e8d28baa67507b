// SPDX-License-Identifier: MIT OR Apache-2.0
//! The accounting of Credit as in Xen 3.3's `sched_credit.c`, the host of Weng, Liu, Yu, Li,
//! "Dynamic Adaptive Scheduling for Virtual Machines" (ASMan), HPDC 2011, section 5.1.
//!
//! The vCPU that runs when a pCPU ticks pays for a whole tick, however long it ran; the others pay
//! nothing (`csched_vcpu_acct`). Priorities (UNDER with credit, OVER without) change when credits
//! are distributed, every 30 ms. vCPUs of one priority take turns. A vCPU of a capped VM runs on
//! without credit until a distribution finds that it owes more than one distribution gives. Then it
//! is parked, until a distribution finds it with credit again (`csched_acct`). A vCPU with more
//! credit than a slice costs was idle: it returns its credit, and earns again from the next tick
//! that finds it running.
//!
//! On a capped host a VM whose vCPUs run together has one account ([`Credit::share_account`]). In a
//! gang, vCPUs also run without credit. With separate accounts they would owe more than Xen's
//! bound, the excess would be forgiven, and their VM would get more than its weight's share.

use super::state::{Books, Credit, Standing};
use crate::engine::{PcpuId, Table, VcpuId, VmId};
use unspin_policy::credit::{self, Params, Vcpu};

impl Credit {
    /// A tick of a pCPU finds `v` running.
    pub fn sampled(&mut self, v: VcpuId) {
        self.books.of[v].active = true;
        let Params { slot_us, credit_max, .. } = self.params;
        // Bounds apply only at hand-outs.
        let params = Params { credit_max: 2 * credit_max, ..self.params };
        self.vcpus[v].charge(&params, u64::from(slot_us));
    }

    /// Additional credit per slot, if this debt is distributed as well.
    fn more_per_slot(&self, params: &Params, debt: u64) -> u32 {
        let slots = u64::from(params.slots_per_assignment) * self.pcpus.len() as u64;
        let more = (debt / slots.max(1)).min(u64::from(u32::MAX / 2)) as u32;
        params.credit_per_slot.saturating_add(more)
    }

    /// `csched_acct`. On a capped host a VM whose vCPUs run together is parked and released as one,
    /// by the credit of its one account: Algorithm 4 lets all of it run, or none.
    pub(super) fn hand_out_by_rank(&mut self) {
        let mut books = std::mem::take(&mut self.books);
        let before: Vec<i64> = self.vcpus.iter().map(|v| v.credit).collect();
        self.distribute(&books);
        let given: Vec<i64> = self.vcpus.iter().zip(before).map(|(v, b)| v.credit - b).collect();
        let is_capped = self.params.capped != 0;
        let one_account = |vm: &VmId| is_capped && books.one_account[*vm];
        let shared: Vec<VmId> = self.vms.ids().filter(one_account).collect();
        for &vm in &shared {
            self.share_account(vm, &books.of);
        }
        let limit = i64::from(self.params.credit_max);
        let unit = i64::from(self.params.credit_per_slot / 100).max(1);
        books.balance = 0;
        for ((vcpu, standing), given) in self.vcpus.iter_mut().zip(books.of.iter_mut()).zip(given) {
            let earns = standing.active;
            if vcpu.credit > limit {
                standing.active = false;
                vcpu.credit = 0;
            }
            standing.over = vcpu.credit < 0;
            standing.parked &= standing.over;
            // Xen rounds up to its own whole credits, 100 per tick.
            let cap = (given + unit - 1) / unit * unit;
            standing.parked |= is_capped && vcpu.credit < -cap;
            if !shared.contains(&VmId(vcpu.vm)) {
                vcpu.credit = vcpu.credit.max(-limit);
            }
            books.balance += if earns { vcpu.credit } else { 0 };
        }
        for vm in shared {
            let of_vm = |v: &&Vcpu| v.vm == vm.0;
            let owes = self.vcpus.iter().filter(of_vm).any(|v| v.credit < 0);
            let is_high = self.vms[vm].high != 0;
            books.one_account[vm] = is_high || owes;
            let all = self.vcpus.iter().zip(books.of.iter_mut()).filter(|(v, _)| of_vm(v));
            for (_, standing) in all.filter(|_| is_high) {
                (standing.over, standing.parked) = (owes, owes);
            }
        }
        self.books = books;
    }

    /// Distributes credits to all that earn, by weight.
    fn distribute(&mut self, books: &Books) {
        let xen = &books.of;
        let vm_of: Vec<u32> = self.vcpus.iter().map(|v| v.vm).collect();
        let weights: Vec<u32> = self.vms.iter().map(|vm| vm.weight).collect();
        // The bounds are Xen's own, in `hand_out_by_rank`.
        let mut params = Params { credit_max: 2 * self.params.credit_max, ..self.params };
        if params.capped == 0 {
            for (i, vm) in self.vms.iter_mut().enumerate() {
                let earns = |(v, s): (&u32, &Standing)| *v == i as u32 && s.active;
                vm.weight *= u32::from(vm_of.iter().zip(xen.iter()).any(earns));
            }
            let debt = (-books.balance).max(0) as u64;
            params.credit_per_slot = self.more_per_slot(&params, debt);
        }
        for (vcpu, standing) in self.vcpus.iter_mut().zip(xen.iter()) {
            if !standing.active {
                vcpu.vm = u32::MAX;
            }
        }
        credit::assign(self.vcpus.all_mut(), self.vms.all_mut(), self.pcpus.all_mut(), &params);
        for (vm, weight) in self.vms.iter_mut().zip(weights) {
            vm.weight = weight;
        }
        for (vcpu, vm) in self.vcpus.iter_mut().zip(vm_of) {
            vcpu.vm = vm;
        }
    }

    /// Divides the credit and debt of the vCPUs of `vm` evenly among those that earn.
    fn share_account(&mut self, vm: VmId, xen: &Table<VcpuId, Standing>) {
        let earns = |(v, s): &(&mut Vcpu, &Standing)| v.vm == vm.0 && s.active;
        let mut all: Vec<&mut Vcpu> =
            self.vcpus.iter_mut().zip(xen.iter()).filter(earns).map(|(v, _)| v).collect();
        let (sum, count) = (all.iter().map(|v| v.credit).sum::<i64>(), all.len() as i64);
        if count == 0 {
            return;
        }
        let (each, more) = (sum.div_euclid(count), sum.rem_euclid(count));
        for (i, vcpu) in (0..).zip(&mut all) {
            vcpu.credit = each + i64::from(i < more);
        }
    }

    /// [`credit::pick`] by Xen's priorities: within one priority all are equal. Parked vCPUs are
    /// left out, unless their siblings take them along.
    pub(super) fn pick_by_rank(
        &mut self,
        p: PcpuId,
        last: Option<VcpuId>,
        may_raise: bool,
    ) -> credit::Decision {
        let Books { of: xen, credits, hidden, .. } = &mut self.books;
        credits.clear();
        credits.extend(self.vcpus.iter().map(|v| v.credit));
        hidden.clear();
        for (v, vcpu) in self.vcpus.ids().zip(self.vcpus.iter_mut()) {
            vcpu.credit = -i64::from(xen[v].over);
            if xen[v].parked && vcpu.runnable != 0 && vcpu.running == 0 && vcpu.raised == 0 {
                vcpu.runnable = 0;
                hidden.push(v);
            }
        }
        let params = Params { capped: 0, ..self.params };
        let mut decision = credit::pick(
            self.vcpus.all_mut(),
            self.vms.all(),
            p.0,
            last.map(|v| v.0 as usize),
            may_raise,
            &params,
        );
        for (vcpu, credit) in self.vcpus.iter_mut().zip(credits.iter()) {
            vcpu.credit = *credit;
        }
        // Moved out for the loop, in which siblings are looked up.
        let hidden = std::mem::take(hidden);
        let chosen = decision.vcpu().map(|v| VcpuId(v as u32));
        let leader = chosen.filter(|&v| may_raise && self.leads(v));
        for &v in &hidden {
            self.vcpus[v].runnable = 1;
            let along = leader.is_some_and(|l| self.vcpus[v].vm == self.vcpus[l].vm);
            if along && self.vcpus[v].pcpu != p.0 {
                self.vcpus[v].raised = 1;
                decision.raised += 1;
            }
        }
        self.books.hidden = hidden;
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Host, Kernel};
    use unspin_scenario::plan::Coscheduling;

    /// One VM of four vCPUs whose weight gives 22.2 % of a pCPU each, beside one that idles.
    fn books(way: Coscheduling) -> Credit {
        let host = Host::server(8, Kernel::V3_19).with_xen_credit(true);
        let mut credit = Credit::new(&host, &host.credit.unwrap(), way, 1);
        credit.add_vm(32, true, 1);
        for p in 0..4 {
            credit.add_vcpu(PcpuId(p));
        }
        credit.add_vm(256, false, 2);
        for p in 0..8 {
            credit.add_vcpu(PcpuId(p));
        }
        credit
    }

    fn parked(credit: &Credit) -> Vec<bool> {
        credit.books.of.all()[..4].iter().map(|s| s.parked).collect()
    }

    #[test]
    fn who_a_tick_finds_pays_for_all_of_it() {
        let mut credit = books(Coscheduling::None);
        credit.sampled(VcpuId(0));
        let credits: Vec<i64> = credit.vcpus.all()[..4].iter().map(|v| v.credit).collect();
        assert_eq!(credits, [-10_000, 0, 0, 0]);
    }

    /// 30 ms cost 300 of Xen's credits, a hand-out gives 66 and two thirds: one of four or five.
    #[test]
    fn who_owes_more_than_a_share_is_parked_until_it_has_credit() {
        let mut credit = books(Coscheduling::None);
        let mut ran = 0;
        let seen: Vec<bool> = (0..90)
            .map(|_| {
                let is_parked = parked(&credit);
                for v in (0..4).filter(|&v| !is_parked[v as usize]) {
                    (0..3).for_each(|_| credit.sampled(VcpuId(v)));
                    ran += 1;
                }
                credit.hand_out();
                parked(&credit)[0]
            })
            .collect();
        assert_eq!(seen[..6], [true, true, true, true, false, true]);
        assert_eq!(ran, 4 * 20, "90 hand-outs of 22.2 % each");
    }

    /// A share is what a VM may owe; idling gives credit back, and parks nobody.
    #[test]
    fn small_debts_and_idleness_park_nobody() {
        let mut credit = books(Coscheduling::None);
        for round in 0..40 {
            (0..4).for_each(|v| credit.sampled(VcpuId(v)));
            if round % 8 > 0 {
                (0..7).for_each(|_| {
                    credit.hand_out();
                    assert_eq!(parked(&credit), [false; 4], "round {round}");
                });
            }
            credit.hand_out();
            assert_eq!(parked(&credit), [false; 4], "round {round}");
        }
        assert!(credit.vcpus.iter().all(|v| v.credit <= 30_000 && v.credit >= -30_000));
    }

    /// Six ticks cost 600 of Xen's credits, a hand-out gives 266 and two thirds.
    #[test]
    fn a_vm_that_runs_together_pays_and_is_parked_as_one() {
        let mut credit = books(Coscheduling::Con);
        let credits = |credit: &Credit| credit.vcpus.all()[..4].iter().map(|v| v.credit).sum();
        credit.refresh_high(0);
        (0..3).for_each(|_| credit.sampled(VcpuId(0)));
        (1..4).for_each(|v| credit.sampled(VcpuId(v)));
        for (owed, is_parked) in [(-33_334, true), (-6_668, true), (19_998, false)] {
            credit.hand_out();
            assert_eq!(parked(&credit), [is_parked; 4], "{owed}");
            assert_eq!(credit.has_credit(VcpuId(0)), !is_parked);
            let sum: i64 = credits(&credit);
            assert!((sum - owed).abs() < 10, "{sum} not {owed}");
        }
    }

    /// One vCPU's credit let all run, and what they owed beyond Xen's bound was forgiven.
    #[test]
    fn no_debt_of_a_vm_that_runs_together_is_forgiven() {
        let mut credit = books(Coscheduling::Con);
        credit.refresh_high(0);
        let mut ran = 0;
        for _ in 0..200 {
            let is_parked = parked(&credit);
            for v in (0..3).filter(|&v| !is_parked[v as usize]) {
                (0..3).for_each(|_| credit.sampled(VcpuId(v)));
                ran += 3;
            }
            credit.hand_out();
        }
        // 8 pCPUs by 32 of 288.
        let share = 200 * 3 * 8 * 32 / 288;
        assert!((share - 9..=share + 9).contains(&ran), "{ran} ticks, not {share}");
    }
}
