// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fair scheduler's decisions on one pCPU: who runs next, and whether somebody must be
//! interrupted for it.
//!
//! After `kernel/sched/fair.c`: CFS as of 3.19 and 6.1 (virtual run time, slice, wake-up
//! granularity, the buddies `next` and `skip`), EEVDF as of 6.12 (lag, virtual deadline, run to
//! parity, the buddy `next` while it is eligible). Queues are short here (a task for each VM), so
//! they are lists walked whole, not trees. Not modelled: the buddy `last` (needs eight tasks),
//! and delayed dequeueing but for its effect on a sleeper's lag. Groups (`group`) give tasks weights.

use crate::core::{Host, Kernel};
use crate::engine::{Table, VcpuId};

/// Weight of a task that nobody has weighted (NICE_0_LOAD).
pub const WEIGHT_DEFAULT: u64 = 1024;
/// Below this many tasks CFS shares one latency among them (sched_nr_latency).
const CFS_LATENCY_TASKS: u64 = 8;
pub const NONE: VcpuId = VcpuId::NONE;

/// What the scheduler keeps of a task. Virtual times are ns at the default weight.
#[derive(Debug, Clone, Copy)]
pub struct Entity {
    pub weight: u64,
    pub vruntime: i64,
    /// EEVDF: virtual deadline of the slice it is in.
    pub deadline: i64,
    /// EEVDF: lag kept while it sleeps.
    pub vlag: i64,
    /// EEVDF: deadline when it was put on the pCPU; still the same: it runs to parity.
    parity: i64,
    /// Time since it was put on the pCPU, ns.
    pub ran_ns: u64,
    /// CFS: how far behind the running task it must be to interrupt it when it wakes, ns.
    wakeup_ns: u64,
    /// EEVDF: its slice, ns.
    slice_ns: u64,
}

impl Entity {
    pub fn new(weight: u64, t: &Tunables) -> Entity {
        Entity {
            weight,
            vruntime: 0,
            deadline: 0,
            vlag: 0,
            parity: i64::MIN,
            ran_ns: 0,
            wakeup_ns: t.wakeup_ns,
            slice_ns: t.slice_ns,
        }
    }

    #[cfg(test)]
    pub fn wakeup_ns(&self) -> u64 {
        self.wakeup_ns
    }

    /// Its own latency, ns: CFS's wake-up granularity, EEVDF's slice (0.1 to 100 ms, as
    /// sched_setattr() has it).
    pub fn set_latency(&mut self, t: &Tunables, latency_ns: u64) {
        if t.eevdf {
            self.slice_ns = latency_ns.clamp(100_000, 100_000_000);
        } else {
            self.wakeup_ns = latency_ns;
        }
    }

    /// Another weight for one that is in no queue: a lag is kept in real time (reweight_entity()).
    pub fn set_weight(&mut self, t: &Tunables, weight: u64) {
        if t.eevdf && weight != self.weight {
            self.vlag = scaled(self.vlag, self.weight, weight);
        }
        self.weight = weight;
    }

    fn virtual_ns(&self, ns: u64) -> i64 {
        if self.weight == WEIGHT_DEFAULT {
            ns as i64
        } else {
            (u128::from(ns) * u128::from(WEIGHT_DEFAULT) / u128::from(self.weight)) as i64
        }
    }
}

/// `virtual_ns` of an entity whose weight changes.
fn scaled(virtual_ns: i64, from: u64, to: u64) -> i64 {
    (i128::from(virtual_ns) * i128::from(from) / i128::from(to)) as i64
}

/// Times the scheduler works with, ns.
#[derive(Debug, Clone, Copy)]
pub struct Tunables {
    eevdf: bool,
    latency_ns: u64,
    /// CFS: shortest slice; EEVDF: the slice.
    slice_ns: u64,
    wakeup_ns: u64,
    yields_count: bool,
    /// CFS forgets a buddy when it is picked (pick_next_entity()), since 5.14 only when it is put on
    /// the pCPU (set_next_entity()): there who yields and goes on is still skipped the next time.
    picks_forget: bool,
    /// EEVDF: a yielder gives up the rest of its slice in virtual time as well (upstream commit
    /// 79104becf42b, in 6.18 and in 6.12's stable series), not only its deadline.
    yields_forfeit: bool,
}

impl Tunables {
    /// As the host's kernel sets them at boot, the slice replaced where the host says so.
    /// `alone`: every vCPU is alone in a group of its own. There EEVDF's yield costs it nothing, as
    /// it moves the task within its group; CFS's skips the group as well (set_skip_buddy()).
    pub fn new(host: &Host, alone: bool) -> Tunables {
        let eevdf = host.kernel.is_eevdf();
        let yields_count = !(alone && eevdf);
        let own = host.scaled_ns(if eevdf { 700_000 } else { 750_000 });
        Tunables {
            eevdf,
            latency_ns: host.fair_period_ns(),
            slice_ns: host.slice_ns.unwrap_or(own),
            wakeup_ns: host.scaled_ns(1_000_000),
            yields_count,
            picks_forget: matches!(host.kernel, Kernel::Proposal2012 | Kernel::V3_19),
            yields_forfeit: host.kernel != Kernel::V6_13,
        }
    }
}

/// One pCPU's queue: the task that runs and those that wait.
#[derive(Debug, Clone)]
pub struct RunQueue {
    pub current: VcpuId,
    /// In the order they came; order decides nothing but ties.
    pub waiting: Vec<VcpuId>,
    min_vruntime: i64,
    next: VcpuId,
    skip: VcpuId,
}

impl RunQueue {
    pub fn new(capacity: usize) -> RunQueue {
        RunQueue {
            current: NONE,
            waiting: Vec::with_capacity(capacity),
            min_vruntime: 0,
            next: NONE,
            skip: NONE,
        }
    }

    /// How many tasks run or want to.
    pub fn tasks(&self) -> usize {
        self.waiting.len() + usize::from(self.current != NONE)
    }

    /// The running task ran for `ns`. Whether its slice is over (EEVDF; CFS looks at ticks).
    pub fn ran(&mut self, t: &Tunables, e: &mut Table<VcpuId, Entity>, ns: u64) -> bool {
        if self.current == NONE || ns == 0 {
            return false;
        }
        let task = &mut e[self.current];
        task.ran_ns += ns;
        task.vruntime += task.virtual_ns(ns);
        let mut over = false;
        if t.eevdf && task.vruntime >= task.deadline {
            task.deadline = task.vruntime + task.virtual_ns(task.slice_ns);
            over = true;
        }
        let unprotected = t.eevdf && !over && task.parity != task.deadline;
        self.update_min(e);
        // did_preempt_short(): who runs on past its slice, or after a yield, gives way to those who
        // are owed time.
        over || unprotected && !self.waiting.is_empty() && !self.eligible(e, self.current)
    }

    fn all(&self) -> impl Iterator<Item = VcpuId> + '_ {
        let current = (self.current != NONE).then_some(self.current);
        current.into_iter().chain(self.waiting.iter().copied())
    }

    fn update_min(&mut self, e: &Table<VcpuId, Entity>) {
        if let Some(least) = self.all().map(|i| e[i].vruntime).min() {
            self.min_vruntime = self.min_vruntime.max(least);
        }
    }

    /// Sums of weight and of weighted distance from min_vruntime (EEVDF's average).
    fn average(&self, e: &Table<VcpuId, Entity>) -> (i128, i128) {
        self.all().fold((0, 0), |(load, sum), i| {
            let task = &e[i];
            let weight = i128::from(task.weight);
            (load + weight, sum + weight * i128::from(task.vruntime - self.min_vruntime))
        })
    }

    /// EEVDF: the virtual time at which everybody has had their share.
    fn average_vruntime(&self, e: &Table<VcpuId, Entity>) -> i64 {
        let (load, sum) = self.average(e);
        self.min_vruntime + if load == 0 { 0 } else { sum.div_euclid(load) as i64 }
    }

    fn eligible(&self, e: &Table<VcpuId, Entity>, i: VcpuId) -> bool {
        let (load, sum) = self.average(e);
        sum >= i128::from(e[i].vruntime - self.min_vruntime) * load
    }

    /// `i` starts to want the pCPU. A sleeper gets half a latency of credit (CFS), or the lag it
    /// left with (EEVDF, place_entity).
    pub fn enqueue(
        &mut self,
        t: &Tunables,
        e: &mut Table<VcpuId, Entity>,
        i: VcpuId,
        is_new: bool,
    ) {
        self.update_min(e);
        let task = e[i];
        if t.eevdf {
            let (load, _) = self.average(e);
            let average = self.average_vruntime(e);
            let weight = i128::from(task.weight);
            let lag = if load == 0 || is_new {
                0
            } else {
                (i128::from(task.vlag) * (load + weight) / load) as i64
            };
            let task = &mut e[i];
            task.vruntime = average - lag;
            let slice = task.virtual_ns(task.slice_ns);
            task.deadline = task.vruntime + if is_new { slice / 2 } else { slice };
        } else if is_new {
            e[i].vruntime = self.min_vruntime;
        } else {
            let credit = (t.latency_ns / 2) as i64;
            e[i].vruntime = task.vruntime.max(self.min_vruntime - credit);
        }
        self.waiting.push(i);
        self.update_min(e);
    }

    /// The running task goes to sleep.
    pub fn dequeue_current(&mut self, t: &Tunables, e: &mut Table<VcpuId, Entity>) {
        let i = self.current;
        if t.eevdf {
            let limit = e[i].virtual_ns(2 * e[i].slice_ns.max(1));
            let lag = self.average_vruntime(e) - e[i].vruntime;
            // One that ran ahead stays queued until it is eligible, so that it wakes with none.
            e[i].vlag = lag.clamp(0, limit);
        }
        self.forget(i);
        self.current = NONE;
        self.update_min(e);
    }

    /// Takes a waiting task away, to another queue; its virtual times become relative to none.
    pub fn take(&mut self, t: &Tunables, e: &mut Table<VcpuId, Entity>, i: VcpuId) {
        if t.eevdf {
            e[i].vlag = self.average_vruntime(e) - e[i].vruntime;
        } else {
            e[i].vruntime -= self.min_vruntime;
        }
        self.waiting.retain(|&w| w != i);
        self.forget(i);
    }

    /// Puts a task taken from another queue.
    pub fn give(&mut self, t: &Tunables, e: &mut Table<VcpuId, Entity>, i: VcpuId) {
        if t.eevdf {
            self.enqueue(t, e, i, false);
        } else {
            e[i].vruntime += self.min_vruntime;
            self.waiting.push(i);
        }
    }

    /// The running task waits again: it is to be taken to another queue.
    pub fn put_back(&mut self) {
        let current = std::mem::replace(&mut self.current, NONE);
        if current != NONE {
            self.waiting.push(current);
        }
    }

    /// A sleeping task of `from` is to wake in this queue.
    pub fn adopt(&self, from: &RunQueue, e: &mut Table<VcpuId, Entity>, i: VcpuId) {
        e[i].vruntime += self.min_vruntime - from.min_vruntime;
    }

    fn forget(&mut self, i: VcpuId) {
        if self.next == i {
            self.next = NONE;
        }
        if self.skip == i {
            self.skip = NONE;
        }
    }

    /// `i`, which is in this queue, weighs that from now on. CFS leaves its virtual time as it is;
    /// EEVDF keeps its lag and what is left of its slice in real time.
    pub fn reweigh(&mut self, t: &Tunables, e: &mut Table<VcpuId, Entity>, i: VcpuId, weight: u64) {
        let was = e[i].weight;
        if weight == was {
            return;
        }
        if t.eevdf {
            let average = self.average_vruntime(e);
            let task = &mut e[i];
            let keeps_parity = task.parity == task.deadline;
            let left = scaled(task.deadline - task.vruntime, was, weight);
            task.vruntime = average - scaled(average - task.vruntime, was, weight);
            task.deadline = task.vruntime + left;
            if keeps_parity {
                task.parity = task.deadline;
            }
        }
        e[i].weight = weight;
        self.update_min(e);
    }

    /// At a tick: whether the running task has had its slice (CFS check_preempt_tick; EEVDF knows
    /// from [`RunQueue::ran`]).
    pub fn tick(&mut self, t: &Tunables, e: &Table<VcpuId, Entity>) -> bool {
        if t.eevdf || self.current == NONE || self.waiting.is_empty() {
            return false;
        }
        let task = &e[self.current];
        let tasks = self.tasks() as u64;
        let period = if tasks <= CFS_LATENCY_TASKS { t.latency_ns } else { tasks * t.slice_ns };
        let load: u64 = self.all().map(|i| e[i].weight).sum();
        let share = (u128::from(period) * u128::from(task.weight) / u128::from(load)) as u64;
        let ideal_ns = share.max(t.slice_ns);
        if task.ran_ns > ideal_ns {
            self.forget(self.current);
            return true;
        }
        if task.ran_ns < t.slice_ns {
            return false;
        }
        let least = self.waiting.iter().map(|&i| e[i].vruntime).min();
        least.is_some_and(|least| task.vruntime - least > ideal_ns as i64)
    }

    /// Whether the task that has just been enqueued may interrupt the running one.
    pub fn preempts(&self, t: &Tunables, e: &mut Table<VcpuId, Entity>, woken: VcpuId) -> bool {
        if self.current == NONE {
            return true;
        }
        if t.eevdf {
            // PREEMPT_SHORT: who asks for less does not wait for parity.
            if e[woken].slice_ns < e[self.current].slice_ns {
                e[self.current].parity = i64::MIN;
            }
            return self.pick_eevdf(e) == woken;
        }
        let gran = e[woken].virtual_ns(e[woken].wakeup_ns);
        e[self.current].vruntime - e[woken].vruntime > gran
    }

    /// sched_yield() by the running task.
    pub fn yield_current(&mut self, t: &Tunables, e: &mut Table<VcpuId, Entity>) {
        self.forget(self.current);
        if self.waiting.is_empty() || !t.yields_count {
            return;
        }
        if t.eevdf {
            let eligible = self.eligible(e, self.current);
            let task = &mut e[self.current];
            if !t.yields_forfeit {
                task.deadline += task.virtual_ns(task.slice_ns);
            } else if eligible {
                task.vruntime = task.deadline;
                task.deadline += task.virtual_ns(task.slice_ns);
                self.update_min(e);
            }
        } else {
            self.skip = self.current;
        }
    }

    /// `woken` is about to interrupt the running task: CFS picks it even if another is further
    /// behind (check_preempt_wakeup() makes it the buddy).
    pub fn prefer_woken(&mut self, t: &Tunables, woken: VcpuId) {
        if !t.eevdf && self.current != NONE {
            self.next = woken;
        }
    }

    /// yield_to() named this waiting task.
    pub fn set_next(&mut self, i: VcpuId) {
        self.next = i;
    }

    /// schedule(): chooses who runs next and makes it current; the former current one waits
    /// again. [`NONE`] where nobody wants to run.
    pub fn switch(&mut self, t: &Tunables, e: &mut Table<VcpuId, Entity>) -> VcpuId {
        let chosen = if t.eevdf { self.pick_next_eevdf(e) } else { self.pick_next_cfs(e) };
        if chosen == self.current || chosen == NONE {
            if t.picks_forget && chosen != NONE {
                self.forget(chosen);
            }
            return chosen;
        }
        let at = self.waiting.iter().position(|&i| i == chosen).expect("the chosen one waits");
        self.waiting.remove(at);
        if self.current != NONE {
            self.waiting.push(self.current);
        }
        self.current = chosen;
        self.forget(chosen);
        let task = &mut e[chosen];
        task.ran_ns = 0;
        task.parity = task.deadline;
        chosen
    }

    fn pick_next_cfs(&self, e: &Table<VcpuId, Entity>) -> VcpuId {
        let vruntime = |i: VcpuId| e[i].vruntime;
        let Some(left) = self.all().min_by_key(|&i| vruntime(i)) else { return NONE };
        // wakeup_gran() of whoever is passed over: its own where it has one.
        let gran = e[left].virtual_ns(e[left].wakeup_ns);
        let near = |i: VcpuId| vruntime(i) - vruntime(left) <= gran;
        let mut chosen = left;
        if self.skip == left {
            let second = self.all().filter(|&i| i != left).min_by_key(|&i| vruntime(i));
            chosen = second.filter(|&i| near(i)).unwrap_or(left);
        }
        if self.next != NONE && near(self.next) {
            chosen = self.next;
        }
        chosen
    }

    fn pick_next_eevdf(&self, e: &Table<VcpuId, Entity>) -> VcpuId {
        if self.next != NONE && self.eligible(e, self.next) {
            return self.next;
        }
        self.pick_eevdf(e)
    }

    fn pick_eevdf(&self, e: &Table<VcpuId, Entity>) -> VcpuId {
        let (load, sum) = self.average(e);
        let is_eligible = |i: VcpuId| sum >= i128::from(e[i].vruntime - self.min_vruntime) * load;
        let current = Some(self.current).filter(|&i| i != NONE && is_eligible(i));
        if let Some(i) = current.filter(|&i| e[i].parity == e[i].deadline) {
            return i;
        }
        let candidates = self.waiting.iter().copied().filter(|&i| is_eligible(i));
        let best = current.into_iter().chain(candidates).min_by_key(|&i| e[i].deadline);
        // Somebody is always eligible, but for rounding.
        best.or_else(|| self.all().min_by_key(|&i| e[i].vruntime)).unwrap_or(NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn tunables(kernel: Kernel) -> Tunables {
        Tunables::new(&Host::lab(4, kernel), false)
    }

    /// A queue of tasks of these weights, of which the first was put on the pCPU.
    fn queue(t: &Tunables, weights: &[u64]) -> (RunQueue, Table<VcpuId, Entity>) {
        let each = weights.iter().map(|w| Entity::new(*w, t));
        let mut e = Table::from(each.collect::<Vec<_>>());
        let mut queue = RunQueue::new(weights.len());
        for i in e.ids() {
            queue.enqueue(t, &mut e, i, true);
        }
        queue.switch(t, &mut e);
        (queue, e)
    }

    /// Time each of the tasks got in ten seconds of ticks.
    fn shares(kernel: Kernel, weights: &[u64]) -> Vec<u64> {
        let t = tunables(kernel);
        let (mut queue, mut e) = queue(&t, weights);
        let mut got = vec![0; weights.len()];
        for _ in 0..2500 {
            got[queue.current.0 as usize] += 4 * MS;
            let over = queue.ran(&t, &mut e, 4 * MS);
            if queue.tick(&t, &e) || over {
                queue.switch(&t, &mut e);
            }
        }
        got
    }

    #[test]
    fn time_is_shared_by_weight() {
        for kernel in [Kernel::V6_1, Kernel::V6_12] {
            let got = shares(kernel, &[1024, 1024, 2048]);
            for (ns, expected) in got.iter().zip([2500, 2500, 5000]) {
                assert!(ns.abs_diff(expected * MS) < 60 * MS, "{kernel:?}: {got:?}");
            }
        }
    }

    #[test]
    fn a_sleeper_preempts_who_ran_meanwhile() {
        let t = tunables(Kernel::V6_1);
        let (mut queue, mut e) = queue(&t, &[1024, 1024]);
        let sleeper = queue.current;
        queue.ran(&t, &mut e, MS);
        queue.dequeue_current(&t, &mut e);
        let other = queue.switch(&t, &mut e);
        assert_ne!(other, sleeper);
        queue.ran(&t, &mut e, 100 * MS);
        queue.enqueue(&t, &mut e, sleeper, false);
        assert!(queue.preempts(&t, &mut e, sleeper));
        assert_eq!(queue.switch(&t, &mut e), sleeper);
        // The credit for sleeping is bounded by half a latency.
        let behind = e[other].vruntime - e[sleeper].vruntime;
        assert_eq!(behind, 9 * MS as i64);
    }

    #[test]
    fn cfs_follows_a_directed_yield_within_the_wakeup_granularity_only() {
        let t = tunables(Kernel::V6_1);
        for (ahead_ms, follows) in [(2, true), (4, false)] {
            let (mut queue, mut e) = queue(&t, &[1024; 3]);
            let [left, target] = [queue.waiting[0], queue.waiting[1]];
            e[target].vruntime = e[left].vruntime + (ahead_ms * MS) as i64;
            queue.ran(&t, &mut e, MS);
            queue.set_next(target);
            let chosen = queue.switch(&t, &mut e);
            assert_eq!(chosen, if follows { target } else { left }, "{ahead_ms} ms");
        }
    }

    #[test]
    fn cfs_runs_the_sleeper_that_interrupts_before_one_further_behind() {
        let t = tunables(Kernel::V6_1);
        let (mut queue, mut e) = queue(&t, &[1024; 3]);
        let sleeper = queue.current;
        queue.dequeue_current(&t, &mut e);
        queue.switch(&t, &mut e);
        queue.ran(&t, &mut e, 20 * MS);
        queue.enqueue(&t, &mut e, sleeper, false);
        let other = queue.waiting[0];
        e[sleeper].vruntime = e[other].vruntime + MS as i64;
        assert!(queue.preempts(&t, &mut e, sleeper));
        queue.prefer_woken(&t, sleeper);
        assert_eq!(queue.switch(&t, &mut e), sleeper);
    }

    #[test]
    fn who_yields_and_goes_on_is_skipped_once_more_where_buddies_are_kept() {
        for (kernel, skipped) in [(Kernel::V3_19, false), (Kernel::V6_1, true)] {
            let t = tunables(kernel);
            let (mut queue, mut e) = queue(&t, &[1024; 2]);
            let (yielder, other) = (queue.current, queue.waiting[0]);
            e[other].vruntime += 5 * MS as i64;
            queue.yield_current(&t, &mut e);
            assert_eq!(queue.switch(&t, &mut e), yielder, "the other is too far ahead");
            e[other].vruntime -= 4 * MS as i64;
            assert_eq!(queue.switch(&t, &mut e) == other, skipped, "{kernel:?}");
        }
    }

    #[test]
    fn eevdf_follows_a_directed_yield_to_the_eligible_only() {
        let t = tunables(Kernel::V6_12);
        for (ahead_ms, follows) in [(-1, true), (8, false)] {
            let (mut queue, mut e) = queue(&t, &[1024; 3]);
            let target = queue.waiting[1];
            e[target].vruntime += ahead_ms * MS as i64;
            queue.set_next(target);
            assert_eq!(queue.switch(&t, &mut e) == target, follows, "{ahead_ms} ms");
        }
    }

    #[test]
    fn a_yield_lets_the_next_in_line_run_but_eevdfs_not_out_of_a_group() {
        for (kernel, alone, leaves) in [
            (Kernel::V6_1, false, true),
            (Kernel::V6_1, true, true),
            (Kernel::V6_12, false, true),
            (Kernel::V6_12, true, false),
        ] {
            let t = Tunables::new(&Host::lab(4, kernel), alone);
            let (mut queue, mut e) = queue(&t, &[1024; 2]);
            let yielder = queue.current;
            queue.yield_current(&t, &mut e);
            assert_eq!(queue.switch(&t, &mut e) != yielder, leaves, "{kernel:?} {alone}");
        }
    }

    #[test]
    fn eevdf_runs_to_parity() {
        let t = tunables(Kernel::V6_12);
        let (mut queue, mut e) = queue(&t, &[1024; 2]);
        let first = queue.current;
        // New tasks start with half a slice; until its end nobody takes its place.
        assert!(!queue.ran(&t, &mut e, MS));
        assert!(queue.ran(&t, &mut e, MS));
        assert_ne!(queue.switch(&t, &mut e), first);
    }

    #[test]
    fn eevdf_ends_the_run_of_who_is_ineligible_and_not_protected() {
        let t = tunables(Kernel::V6_12);
        let (mut queue, mut e) = queue(&t, &[1024; 2]);
        let current = queue.current;
        // Within its slice it runs to parity, ahead of its share or not.
        assert!(!queue.ran(&t, &mut e, MS / 2));
        e[current].deadline += 2 * MS as i64;
        assert!(queue.ran(&t, &mut e, MS / 2), "its deadline is not the one it came with");
        queue.waiting.clear();
        assert!(!queue.ran(&t, &mut e, MS / 2), "nobody is owed anything");
    }

    #[test]
    fn who_is_taken_to_another_queue_keeps_its_place() {
        for kernel in [Kernel::V6_1, Kernel::V6_12] {
            let t = tunables(kernel);
            let (mut from, mut e) = queue(&t, &[1024; 3]);
            let mut to = RunQueue::new(1);
            let moved = from.waiting[0];
            from.take(&t, &mut e, moved);
            to.give(&t, &mut e, moved);
            assert!(!from.waiting.contains(&moved) && from.tasks() == 2);
            assert_eq!(to.switch(&t, &mut e), moved);
        }
    }
}
