// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workload of a thread: a small program of steps.

use serde::{Deserialize, Serialize};

/// A workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub name: String,
    /// Over 5 % inefficiency at a fixed window of 512 cycles (the paper's rule, section 4.2).
    pub spin_intensive: bool,
    pub program: Vec<Step>,
    /// The source of its numbers.
    pub calibration: Option<Calibration>,
}

/// The source of a profile's numbers. It has no effect on runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    pub date: String,
    /// Ids of the papers' claims to which it was fitted; empty if it was fitted to none.
    pub entries: Vec<String>,
    /// What was tried, and what was chosen.
    pub how: String,
    /// The hash of the program that this record belongs to, as `fingerprint()` computes it.
    pub sha256: String,
}

/// One step of a thread's program; one pass over all of them is one unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub op: Op,
    pub dist: Dist,
    /// Which lock (`lock`, `unlock`).
    #[serde(default)]
    pub lock: u32,
    /// Probability of the step, 0..=1000. If a `lock` is not taken, execution continues after its
    /// `unlock`.
    pub permille: u32,
}

impl Step {
    /// A step of constant length that is never left out, on lock 0.
    pub const fn new(op: Op, iterations: u32) -> Step {
        Step { op, dist: Dist::Const { iterations }, lock: 0, permille: 1000 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    Compute,
    Lock,
    Critical,
    Unlock,
    /// All vCPUs of the VM wait for each other: they spin for a drawn number of PAUSEs, then halt
    /// (0: at once).
    Barrier,
    /// Sleep (HLT) until a `wake` or until that many timer cycles passed.
    Block,
    /// Wake the next vCPU if it sleeps.
    Wake,
    /// As `barrier`, with waiters that spin with PAUSE.
    SpinBarrier,
    /// Interrupts every sibling that does not sleep, as for a TLB flush, and waits for all answers.
    /// With a length (machine `sim` only) one after the other, and each sibling handles its
    /// interrupt for that long before it answers.
    Shootdown,
    /// The same in kernels whose idle CPUs keep the last program's memory (lazy TLB, Linux before
    /// 4.15): vCPUs that fell asleep since they were last interrupted are woken to answer, too.
    ShootdownLazy,
    // From here on machine `sim` only.
    /// As `spin-barrier`, with spinning in user space (CPL 3), which no loop detector sees.
    UserBarrier,
    /// As `barrier`, but made of a condition variable: sleepers wake each other one by one.
    CondBarrier,
    /// A lock whose waiters sleep.
    Mutex,
    /// The same lock, taken by any number of readers at once, as a reader-writer semaphore.
    MutexRead,
    MutexUnlock,
    /// Work that only the first thread does; the others skip it.
    ComputeFirst,
    /// Work of one thread, another one in each unit: round-robin.
    ComputeRotating,
    /// Work of one thread for 256 units, then of the next: the program goes through phases.
    ComputeMoving,
    /// The sequential section of fork and join: all arrive and sleep, the first thread does the
    /// work, then all continue.
    SerialFirst,
    /// The same, with the work of another thread in each unit.
    SerialRotating,
    /// Reads that many cache lines the previous vCPU wrote.
    Share,
    /// Chooses a socket, and sleeps until it has room (its buffer holds this many messages), or, in
    /// a receiver, a message. Threads form groups as in hackbench: 20 send to each of 20.
    SocketWait,
    /// Takes the spin-lock of that socket.
    SocketLock,
    /// Releases it. The message is queued or taken, and a thread that waited for that is woken.
    SocketUnlock,
}

/// What a thread waits for, apart from spin-locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    No,
    /// It sleeps, or waits for its siblings' vCPUs.
    Asleep,
    /// For other threads: all of them, or one that sends or receives messages.
    ForThreads,
}

impl Op {
    /// What a thread waits for in this step.
    pub const fn waits(self) -> Waits {
        match self {
            Op::Block | Op::Mutex | Op::MutexRead | Op::Shootdown | Op::ShootdownLazy => {
                Waits::Asleep
            }
            Op::Barrier
            | Op::SpinBarrier
            | Op::UserBarrier
            | Op::CondBarrier
            | Op::SerialFirst
            | Op::SerialRotating
            | Op::SocketWait => Waits::ForThreads,
            Op::Compute
            | Op::Lock
            | Op::Critical
            | Op::Unlock
            | Op::Wake
            | Op::MutexUnlock
            | Op::ComputeFirst
            | Op::ComputeRotating
            | Op::ComputeMoving
            | Op::Share
            | Op::SocketLock
            | Op::SocketUnlock => Waits::No,
        }
    }
}

/// Distribution of a length in loop iterations (timer cycles for `block`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dist {
    Const {
        iterations: u32,
    },
    Uniform {
        min: u32,
        max: u32,
    },
    /// Exponential, cut off at `max` (0: at 16 times the mean).
    Exp {
        mean: u32,
        max: u32,
    },
}

impl Dist {
    /// The same distribution with other lengths.
    pub fn map(self, length: impl Fn(u32) -> u32) -> Dist {
        match self {
            Dist::Const { iterations } => Dist::Const { iterations: length(iterations) },
            Dist::Uniform { min, max } => Dist::Uniform { min: length(min), max: length(max) },
            Dist::Exp { mean, max } => Dist::Exp { mean: length(mean), max: length(max) },
        }
    }
}
