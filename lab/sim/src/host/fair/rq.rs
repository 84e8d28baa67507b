// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of one pCPU: where a vCPU is picked.

use super::entity::{scaled, Entity};
use super::tunables::Tunables;
use crate::engine::{PcpuId, Table, VcpuId};

/// No vCPU.
pub const NONE: VcpuId = VcpuId::NONE;
/// Below this many tasks CFS shares one latency among them (sched_nr_latency).
const CFS_LATENCY_TASKS: u64 = 8;

/// The pCPUs' queues.
pub type Queues = Table<PcpuId, RunQueue>;

/// One pCPU's queue: the task that runs and those that wait.
#[derive(Debug, Clone, Default)]
pub struct RunQueue {
    pub current: VcpuId,
    /// In order of arrival. The order decides only ties.
    pub waiting: Vec<VcpuId>,
    min_vruntime: i64,
    next: VcpuId,
    skip: VcpuId,
}

impl RunQueue {
    pub fn new(capacity: usize) -> RunQueue {
        RunQueue { waiting: Vec::with_capacity(capacity), ..RunQueue::default() }
    }

    /// Number of tasks that run or want to.
    pub fn tasks(&self) -> usize {
        self.waiting.len() + usize::from(self.current != NONE)
    }

    /// The running task ran for `ns`. Returns whether its slice is over (EEVDF; CFS checks at
    /// ticks).
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
        // did_preempt_short(): a task that runs on after its slice, or after a yield, gives way to
        // those that are owed time.
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

    /// EEVDF: the virtual time at which all have had their shares.
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
            // A task that ran ahead stays queued until it is eligible, so that it wakes without
            // lag.
            e[i].vlag = lag.clamp(0, limit);
        }
        self.forget(i);
        self.current = NONE;
        self.update_min(e);
    }

    /// Removes a waiting task, which goes to another queue. Its virtual times become relative.
    pub fn take(&mut self, t: &Tunables, e: &mut Table<VcpuId, Entity>, i: VcpuId) {
        if t.eevdf {
            e[i].vlag = self.average_vruntime(e) - e[i].vruntime;
        } else {
            e[i].vruntime -= self.min_vruntime;
        }
        self.waiting.retain(|&w| w != i);
        self.forget(i);
    }

    /// Inserts a task from another queue.
    pub fn give(&mut self, t: &Tunables, e: &mut Table<VcpuId, Entity>, i: VcpuId) {
        if t.eevdf {
            self.enqueue(t, e, i, false);
        } else {
            e[i].vruntime += self.min_vruntime;
            self.waiting.push(i);
        }
    }

    /// The running task waits again, and will go to another queue.
    pub fn put_back(&mut self) {
        let current = std::mem::replace(&mut self.current, NONE);
        if current != NONE {
            self.waiting.push(current);
        }
    }

    /// A sleeping task of `from` will wake up in this queue.
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

    /// Sets the weight of `i`, which is in this queue. CFS leaves its virtual time as it is. EEVDF
    /// keeps its lag, and what is left of its slice in real time.
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
            // PREEMPT_SHORT: a task with a shorter slice does not wait for parity.
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

    /// schedule(): chooses the next task and makes it current; the former one waits again. [`NONE`]
    /// if none wants to run.
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
        // wakeup_gran() of the task that is passed over: its own if it has one.
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
        // One is always eligible, except for rounding.
        best.or_else(|| self.all().min_by_key(|&i| e[i].vruntime)).unwrap_or(NONE)
    }
}
