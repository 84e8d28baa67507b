// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a guest: its vCPUs, threads and VMs. Locks and the other things that threads wait
//! for are in `lock/state.rs` and `sync/state.rs`.

use super::lock::{Lock, Stalls, Wait};
use super::program::Instruction;
use super::sync::{Barrier, Mutex, Socket};
use crate::engine::{LockId, Rng, Table, ThreadId, VcpuId, VmId};
use std::collections::VecDeque;
use unspin_policy::vcrd;
use unspin_scenario::result;

/// What a vCPU does while the host lets it run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Works for `remaining_ns`, then continues with its program.
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
    /// Has nothing to do, and polls.
    Poll,
}

impl Doing {
    /// Whether it halts, or is about to.
    #[inline]
    pub fn halts(self) -> bool {
        match self {
            Doing::HaltBarrier | Doing::HaltBlock | Doing::HaltLock => true,
            Doing::Work
            | Doing::SpinLock
            | Doing::SpinBarrier
            | Doing::SpinAck
            | Doing::SendIpis
            | Doing::Poll => false,
        }
    }
}

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadState {
    /// On its vCPU, which may be off its pCPU.
    Running,
    /// Waits for a vCPU.
    Ready,
    Asleep,
}

#[derive(Debug, Clone)]
pub struct Thread {
    pub vm: VmId,
    /// Number within its VM.
    pub index: u32,
    /// vCPU it is or last was on.
    pub home: VcpuId,
    pub state: ThreadState,
    /// In a `block` step: others may wake it.
    pub in_block: bool,
    /// The due time of the timer of its pass's first block; 0: there was none.
    pub due_ns: u64,
    /// Its state while it is not on a vCPU.
    pub away: Context,
}

/// State of the thread that a vCPU runs.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    pub doing: Doing,
    pub taken: bool,
    pub arrived: bool,
    pub user: bool,
    pub pc: u32,
    pub remaining_ns: u64,
    pub cache_ns: u64,
    pub passes: u64,
    pub rng: Rng,
}

impl Context {
    /// A thread at the step `pc`, which has yet to begin it.
    pub fn new(pc: u32, rng: Rng) -> Context {
        Context {
            doing: Doing::Work,
            taken: false,
            arrived: false,
            user: false,
            pc,
            remaining_ns: 0,
            cache_ns: 0,
            passes: 0,
            rng,
        }
    }
}

/// A VM's threads, if there are more or fewer than vCPUs.
#[derive(Debug, Clone, Default)]
pub struct Scheduler {
    /// The threads that want each vCPU.
    pub ready: Vec<VecDeque<ThreadId>>,
    /// vCPUs that want a pCPU and have none.
    pub off: u32,
}

/// The guest's state of a vCPU.
#[derive(Debug, Clone)]
pub struct Cpu {
    /// The thread that it runs, numbered over all VMs; [`ThreadId::NONE`]: none.
    pub thread: ThreadId,
    /// The state of that thread.
    pub run: Context,
    /// For a lock.
    pub wait: Wait,
    /// A bit per lock that it holds or is next for.
    pub owned: u128,
    /// It has got its lock while it had no pCPU, and has not noticed yet.
    pub notice_lock: bool,
    /// The clock of the vCPUs it waits for, at the last accounting.
    pub off_mark_ns: u64,
    pub units: u64,
    pub acquisitions: u64,
    /// Siblings wait for its answer.
    pub owes_acks: bool,
    /// Answers it waits for.
    pub acks_missing: u32,
    /// The sibling that it interrupts next, if it does so one after the other.
    pub next_sibling: u32,
    /// The program's memory is (still) loaded on its CPU, so it gets interrupts to all users of
    /// that memory.
    pub in_mask: bool,
    /// It was among the sleepers of a barrier that wake each other, and wakes the next.
    pub wakes_each_other: bool,
    pub wakes_next: bool,
    /// The time at which its thread falls asleep at the barrier while the vCPU polls, ns;
    /// `u64::MAX`: never.
    pub asleep_from_ns: u64,
}

impl Cpu {
    pub fn new(pc: u32, rng: Rng) -> Cpu {
        Cpu {
            thread: ThreadId::NONE,
            run: Context::new(pc, rng),
            wait: Wait::default(),
            owned: 0,
            notice_lock: false,
            off_mark_ns: 0,
            units: 0,
            acquisitions: 0,
            owes_acks: false,
            acks_missing: 0,
            next_sibling: 0,
            in_mask: false,
            wakes_each_other: false,
            wakes_next: false,
            asleep_from_ns: u64::MAX,
        }
    }

    /// Whether it answers siblings' interrupts once it is in its guest. Not while it holds or waits
    /// for a spin-lock, because it does so with interrupts off (spin_lock_irqsave()).
    #[inline]
    pub fn answers_next(&self) -> bool {
        self.owes_acks && self.owned == 0 && self.run.doing != Doing::SpinLock
    }
}

/// One VM's guest.
#[derive(Debug, Clone)]
pub struct Vm {
    /// Its program is steps `program..program_end` of all.
    pub program: u32,
    pub program_end: u32,
    /// Its threads are `first_thread..first_thread + threads` of all.
    pub first_thread: ThreadId,
    pub threads: u32,
    /// Only if the number of threads differs from the number of vCPUs.
    pub scheduler: Option<Scheduler>,
    /// Period of its kernel's timer; 0: none.
    pub tick_ns: u64,
    /// Empty if its program uses none.
    pub mutexes: Vec<Mutex>,
    /// Empty if its threads send no messages.
    pub sockets: Vec<Socket>,
    /// For each vCPU, the siblings that wait for its answer; empty without shootdowns.
    pub acks: Vec<Vec<u32>>,
    /// Siblings are interrupted one after the other, and answer when they have handled the interrupt,
    /// not as soon as they run.
    pub handles_ipis: bool,
    pub barrier: Barrier,
    pub wait_hist: Vec<u64>,
    pub max_wait_cycles: u64,
    /// Durations of passes that began with a timer; `None` if its program does not begin with such
    /// a block.
    pub responses: Option<result::Responses>,
    pub stalls: Stalls,
    /// Waits by the number of iterations that they reached, if counted.
    pub turns: Option<result::Stalls>,
    /// Times a waiter for a lock halted.
    pub lock_halts: u64,
    /// Times a vCPU without anything to do halted.
    pub idle_halts: u64,
    /// Hypercalls that kick a halted vCPU.
    pub kicks: u64,
}

pub struct Guest {
    pub cpus: Table<VcpuId, Cpu>,
    /// The threads of all VMs; a vCPU's own if there are as many.
    pub threads: Table<ThreadId, Thread>,
    pub vms: Table<VmId, Vm>,
    pub locks: Table<LockId, Lock>,
    pub locks_per_vm: u32,
    pub steps: Vec<Instruction>,
    /// Chooses which of the vCPUs that may have a lock gets it.
    pub tas_rng: Rng,
    /// Bucket of a wait for a free lock.
    pub lock_bucket: usize,
    /// Locks' budgets are multiplied by this quotient.
    pub lock_time: (u64, u64),
    /// A wait that spins longer than this counts as a stall; `u64::MAX`: none does.
    pub stall_ns: u64,
    /// Waits are counted by iterations of their loop, as in the guest's image that counts them.
    pub counts_turns: bool,
    /// The guest reports waits for a lock above this; `u64::MAX`: none.
    pub report_ns: u64,
    /// Whether waits are watched for one of these.
    pub watches_waits: bool,
    /// ASMan's Monitoring Module, if guests have it.
    pub monitor: Option<vcrd::Params>,
    /// Whether wake-ups are reported with their wakers.
    pub tells_wakers: bool,
}
