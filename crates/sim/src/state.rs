// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the model knows of vCPUs and VMs, and where a vCPU's time goes.

use crate::blocking::Mutex;
use crate::engine::{PcpuId, Rng, ThreadId, VcpuId, VmId};
use crate::lock::{Stalls, Wait};
use crate::socket::Socket;
use crate::thread::Scheduler;
use std::collections::VecDeque;
use unspin_policy::kvm_stock::{Search, Vcpu as StockVcpu};
use unspin_policy::{aple, hvs};
use unspin_scenario::result::{EpochSample, ModuleStats};

/// Where a vCPU's time goes; every nanosecond is in exactly one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// The guest works: steps of its program and the lock operations between them.
    Useful = 0,
    /// It waits spinning, and whoever it waits for is on a pCPU.
    SpinHolderRunning = 1,
    /// It waits spinning for somebody who is not on a pCPU.
    SpinHolderPreempted = 2,
    /// The host switches to it.
    Switch = 3,
    /// The host handles an exit of it, or an interrupt in its time.
    Exit = 4,
    /// It sleeps, or has not started.
    Halted = 5,
    /// It wants a pCPU and has none.
    Waiting = 6,
}

/// What exits and switches are for (NJIT 2018, chapter 2), as far as it is one of its factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// A vCPU had nothing to do: halting, waking.
    Idle = 0,
    /// A vCPU was stopped spinning: pause-loop exits.
    Spin = 1,
    /// A sibling's interrupt, sent or received.
    Ipi = 2,
    /// It came to another last-level cache.
    Migration = 3,
    /// Ticks, and preemption by others.
    Other = 4,
}

/// Causes that are told apart; the rest is what remains.
pub const CAUSES: usize = 4;

pub const CLASSES: usize = 7;
/// Classes in which a vCPU is on a pCPU come first.
pub const ON_CPU_CLASSES: usize = 5;

/// Whether a vCPU is on a pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not started, or asleep in HLT.
    Halted,
    Ready,
    Running,
}

/// What a vCPU does once the host lets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Works for `remaining_ns`, then goes on with its program.
    Work,
    /// Waits for its lock, spinning.
    SpinLock,
    /// Waits at the barrier, spinning for `remaining_ns` at most.
    SpinBarrier,
    /// Is about to halt: at a barrier, or in a block.
    HaltBarrier,
    HaltBlock,
    /// Is about to halt, waiting for its lock, or does so.
    HaltLock,
    /// Waits spinning for answers to its interrupts.
    SpinAck,
    /// Sends its interrupts, one after the other.
    SendIpis,
    /// Has nothing to do, and polls for something.
    Poll,
}

#[derive(Debug, Clone)]
pub struct Vcpu {
    pub state: State,
    pub doing: Doing,
    /// The step at `pc` was drawn as taken already.
    pub taken: bool,
    /// Has arrived at the barrier whose phase is open for arrivals.
    pub arrived: bool,
    /// A PLE exit of it is being handled.
    pub in_ple_exit: bool,
    /// Whom that exit yields to is not decided yet: it is when the host time before that is spent.
    pub undecided: bool,
    /// Its pCPU schedules before it goes back to its guest.
    pub need_resched: bool,
    /// Its last PLE exit found no sibling without a pCPU.
    pub complete: bool,
    /// It has got its lock while it was off its pCPU, and has not noticed yet.
    pub notice_lock: bool,
    pub pinned: bool,
    pub pick_pending: bool,
    pub pc: u32,
    pub pcpu: PcpuId,
    pub vm: VmId,
    /// Number within its VM.
    pub index: u32,
    /// For a lock.
    pub wait: Wait,
    /// Bit per lock number it holds or is next for.
    pub owned: u128,
    /// KVM's window for it, cycles, and when a loop begun at 0 is stopped by it.
    pub window_cycles: u32,
    pub window_ns: u64,
    /// Time it was last accounted to.
    pub since_ns: u64,
    pub remaining_ns: u64,
    /// Host time it pays before its guest goes on.
    pub switch_ns: u64,
    pub exit_ns: u64,
    /// Length of the pause loop since the last entry.
    pub spun_ns: u64,
    /// What the clock of those it waits for showed when it was last accounted to.
    pub off_mark_ns: u64,
    pub rng: Rng,
    pub search: Option<Search>,
    pub pick_switches: u64,
    pub pick_pcpu: PcpuId,
    pub unreported_exits: u32,
    pub units: u64,
    pub acquisitions: u64,
    pub time_ns: [u64; CLASSES],
    /// The thread it runs, of all; [`NONE`](crate::sched::NONE): none.
    pub thread: ThreadId,
    /// Units its thread has done.
    pub passes: u64,
    /// It spins in user space.
    pub user: bool,
    /// KVM polls for its wake-up.
    pub halt_polls: bool,
    /// Siblings wait for its answer.
    pub owes_acks: bool,
    /// Waits at a barrier whose sleepers wake each other; was among them, and wakes the next.
    pub in_turn: bool,
    pub wakes_next: bool,
    /// When its thread falls asleep at the barrier it waits at while the vCPU polls, ns; `u64::MAX`:
    /// never.
    pub asleep_from_ns: u64,
    /// The program's memory is (still) that of its CPU: interrupts to all that use it are for it.
    pub in_mask: bool,
    /// Answers it waits for.
    pub acks_missing: u32,
    /// Whom it interrupts next, where it does so in turn.
    pub next_sibling: u32,
    /// Of `remaining_ns`, for data from another last-level cache.
    pub cache_ns: u64,
    /// Of `exit_ns`, by cause; the rest is for others.
    pub owed_ns: [u64; CAUSES],
    pub switch_cause: Cause,
    /// Why it is off its pCPU.
    pub off_cause: Cause,
    /// Of its time as a switch or exit, by cause.
    pub cause_ns: [u64; CAUSES],
    /// Of its time spinning, that in user space.
    pub user_spin_ns: u64,
    /// Of its useful time, that for data from another last-level cache.
    pub far_ns: u64,
}

impl Vcpu {
    pub fn new(vm: VmId, index: u32, pcpu: PcpuId, pinned: bool, rng: Rng) -> Vcpu {
        Vcpu {
            state: State::Halted,
            doing: Doing::Work,
            taken: false,
            arrived: false,
            in_ple_exit: false,
            undecided: false,
            need_resched: false,
            complete: false,
            notice_lock: false,
            pinned,
            pick_pending: false,
            pc: 0,
            pcpu,
            vm,
            index,
            wait: Wait::NONE,
            owned: 0,
            window_cycles: 0,
            window_ns: 0,
            since_ns: 0,
            remaining_ns: 0,
            switch_ns: 0,
            exit_ns: 0,
            spun_ns: 0,
            off_mark_ns: 0,
            rng,
            search: None,
            pick_switches: 0,
            pick_pcpu: PcpuId::NONE,
            unreported_exits: 0,
            units: 0,
            acquisitions: 0,
            time_ns: [0; CLASSES],
            thread: ThreadId::NONE,
            passes: 0,
            user: false,
            halt_polls: false,
            owes_acks: false,
            in_turn: false,
            wakes_next: false,
            asleep_from_ns: u64::MAX,
            in_mask: false,
            acks_missing: 0,
            next_sibling: 0,
            cache_ns: 0,
            owed_ns: [0; CAUSES],
            switch_cause: Cause::Other,
            off_cause: Cause::Other,
            cause_ns: [0; CAUSES],
            user_spin_ns: 0,
            far_ns: 0,
        }
    }

    /// Time on a pCPU so far, ns, as of the last accounting.
    pub fn cpu_ns(&self) -> u64 {
        self.time_ns[..ON_CPU_CLASSES].iter().sum()
    }

    /// Spends that much of `exit_ns`.
    pub fn pay_exit(&mut self, ns: u64) {
        self.exit_ns -= ns;
        self.time_ns[Class::Exit as usize] += ns;
        let mut left = ns;
        for (owed, paid) in self.owed_ns.iter_mut().zip(&mut self.cause_ns) {
            let now = left.min(*owed);
            *owed -= now;
            *paid += now;
            left -= now;
        }
    }

    pub fn host_ns(&self) -> u64 {
        self.switch_ns + self.exit_ns
    }

    /// Whether it answers siblings' interrupts once it is in its guest: not where it has a spin-lock
    /// or waits for one, which it does with interrupts off (spin_lock_irqsave()).
    pub fn answers_next(&self) -> bool {
        self.owes_acks && self.owned == 0 && self.doing != Doing::SpinLock
    }

    /// Whether the host has something to do with it once its host time is spent.
    pub fn is_handled(&self) -> bool {
        self.undecided || self.need_resched
    }
}

/// How long somebody that others wait for has been off its pCPU: a clock that runs only then.
#[derive(Debug, Clone, Copy, Default)]
pub struct OffClock {
    sum_ns: u64,
    since_ns: u64,
    runs: bool,
}

impl OffClock {
    pub fn at(&self, now_ns: u64) -> u64 {
        self.sum_ns + if self.runs { now_ns - self.since_ns } else { 0 }
    }

    pub fn set(&mut self, runs: bool, now_ns: u64) {
        if runs != self.runs {
            self.sum_ns = self.at(now_ns);
            self.since_ns = now_ns;
            self.runs = runs;
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Barrier {
    pub arrived: u32,
    /// Waiters that have halted or are about to.
    pub sleepers: u32,
    /// Who sleeps on though it is open, in the order in which they wake each other.
    pub turns: VecDeque<VcpuId>,
    /// All have arrived at a sequential section, and whose turn it is works.
    pub serial: bool,
    /// vCPUs that have not arrived and are off their pCPUs; the clock runs while there are any.
    pub missing_off: u32,
    pub off: OffClock,
}

/// The module's view of one VM.
#[derive(Debug, Clone)]
pub struct Module {
    /// Mode `off` counts nothing.
    pub counts: bool,
    pub window_on: bool,
    /// Who owes the spinner an answer to an interrupt comes before any selection.
    pub ipi_aware: bool,
    /// So does who has the spinner's lock, or is next for it.
    pub queue_aware: bool,
    /// Its selection, or KVM's.
    pub select: Option<hvs::Flags>,
    pub params: aple::Params,
    pub aple: aple::State,
    pub window_cycles: u32,
    pub report_batch: u32,
    pub epoch_exits: u32,
    pub epoch_min_until_ns: u64,
    pub epoch_base: aple::Epoch,
    pub last_ppm: u64,
    pub stats: ModuleStats,
}

#[derive(Debug, Clone)]
pub struct Vm {
    /// Its vCPUs are `first.and_next(vcpus)` of all.
    pub first: VcpuId,
    pub vcpus: u32,
    /// Its program is steps `program..program_end` of all.
    pub program: u32,
    pub program_end: u32,
    /// Its threads are `first_thread..first_thread + threads` of all.
    pub first_thread: ThreadId,
    pub threads: u32,
    /// Only where there are not as many threads as vCPUs.
    pub scheduler: Option<Scheduler>,
    /// Period of its kernel's timer; 0: none.
    pub tick_ns: u64,
    /// None where its program takes none.
    pub mutexes: Vec<Mutex>,
    /// None where its threads send no messages.
    pub sockets: Vec<Socket>,
    /// Of each vCPU, the siblings that wait for its answer; none where there are no shootdowns.
    pub acks: Vec<Vec<u32>>,
    /// Siblings are interrupted in turn, and answer when they have handled it, not as soon as they run.
    pub in_turn: bool,
    /// Exits for accesses to an APIC.
    pub apic_exits: u64,
    /// A processor loop detector watches it.
    pub ple: bool,
    /// It runs at CPL 3.
    pub user_mode: bool,
    pub last_boosted: u32,
    pub stock: Vec<StockVcpu>,
    pub slots: Vec<hvs::Slot>,
    pub barrier: Barrier,
    pub module: Module,
    pub epochs: Vec<EpochSample>,
    pub wait_hist: Vec<u64>,
    pub max_wait_cycles: u64,
    pub stalls: Stalls,
    /// Times a waiter for a lock halted.
    pub lock_halts: u64,
}

/// A guess before anything was learned: half a tick of a guest that halts in a lock, whose timer
/// is set.
const IDLE_GUESS_NS: u64 = 2_000_000;

#[derive(Debug, Clone, Copy)]
pub struct Pcpu {
    pub idle: bool,
    /// The scheduler's times are right up to here.
    pub billed_ns: u64,
    pub switches: u64,
    pub idle_since_ns: u64,
    pub idle_ns: u64,
    /// How long the kernel expects it to idle.
    pub idle_guess_ns: u64,
    /// It last balanced, and does again from then on (`balance`).
    pub balanced_ns: u64,
    pub balance_ns: u64,
}

impl Pcpu {
    /// Nobody has run here.
    pub const NEW: Pcpu = Pcpu {
        idle: true,
        billed_ns: 0,
        switches: 0,
        idle_since_ns: 0,
        idle_ns: 0,
        idle_guess_ns: IDLE_GUESS_NS,
        balanced_ns: 0,
        balance_ns: 0,
    };
}

impl Pcpu {
    /// It has idled for `ns`: what was expected, which is the mean of what was, an older time
    /// counting 7/8 of the next (DECAY of Linux's menu governor).
    pub fn has_idled(&mut self, ns: u64) -> u64 {
        let guess_ns = self.idle_guess_ns;
        self.idle_guess_ns = guess_ns - guess_ns / 8 + ns / 8;
        guess_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_off_clock_runs_only_while_it_is_told_to() {
        let mut clock = OffClock::default();
        assert_eq!(clock.at(10), 0);
        clock.set(true, 10);
        clock.set(true, 12);
        assert_eq!(clock.at(15), 5);
        clock.set(false, 20);
        assert_eq!(clock.at(99), 10);
    }
}
