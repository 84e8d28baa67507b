// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps, each with its name, arguments, supporting machines, and meaning.

use crate::schema::key::Machines;
use crate::schema::names::Named;
use crate::schema::program::Op;

/// Whether a step has a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    No,
    May,
    Must,
}

/// Whether a step may have a chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chance {
    May,
    /// It may not, for this reason.
    No(&'static str),
}

/// One kind of step.
#[derive(Debug)]
pub(crate) struct Kind {
    pub name: &'static str,
    pub op: Op,
    pub length: Length,
    pub lock: bool,
    pub chance: Chance,
    pub machines: Machines,
    pub help: &'static str,
}

const TOGETHER: Chance = Chance::No("all vCPUs must reach a barrier, or they wait forever");
const WITH_LOCK: Chance = Chance::No("an unlock goes with its lock; give the lock the chance");
const MESSAGE: Chance = Chance::No("a message is always waited for and moved");

impl Kind {
    const fn new(name: &'static str, op: Op, length: Length, chance: Chance) -> Kind {
        Kind { name, op, length, lock: false, chance, machines: Machines::All, help: "" }
    }

    /// The step is about one of 16 locks.
    const fn of_a_lock(self) -> Kind {
        Kind { lock: true, ..self }
    }

    const fn on(self, machines: Machines) -> Kind {
        Kind { machines, ..self }
    }

    const fn help(self, help: &'static str) -> Kind {
        Kind { help, ..self }
    }
}

use Chance::May as Maybe;
use Length::{May, Must, No};

pub(crate) const KINDS: &[Kind] = &[
    Kind::new("compute", Op::Compute, Must, Maybe).help("works"),
    Kind::new("lock", Op::Lock, No, Maybe)
        .of_a_lock()
        .help("takes a spin lock; locks nest, in the ascending order of their numbers"),
    Kind::new("critical", Op::Critical, Must, Maybe).help("works inside a lock"),
    Kind::new("unlock", Op::Unlock, No, WITH_LOCK)
        .of_a_lock()
        .help("releases it; the lock taken last is released first"),
    Kind::new("barrier", Op::Barrier, May, TOGETHER)
        .help("waits for all threads, asleep; with a length, first spins for that many PAUSEs"),
    Kind::new("block", Op::Block, Must, Maybe)
        .help("sleeps until a wake-up, or for that many timer cycles"),
    Kind::new("wake", Op::Wake, No, Maybe).help("wakes the next vCPU"),
    Kind::new("spin-barrier", Op::SpinBarrier, No, TOGETHER).help("waits for all threads, spinning"),
    Kind::new("user-barrier", Op::UserBarrier, May, TOGETHER).on(Machines::Sim).help(
        "waits for all threads, spinning in user space, where PLE sees nothing; with a length for \
         that many PAUSEs, then asleep",
    ),
    Kind::new("cond-barrier", Op::CondBarrier, May, TOGETHER).on(Machines::Sim).help(
        "a barrier made of a condition variable, whose sleepers wake each other one by one; with a \
         length, waiters first spin for that many PAUSEs in user space, as in PARSEC's barrier",
    ),
    Kind::new("mutex", Op::Mutex, No, Maybe)
        .of_a_lock()
        .on(Machines::Sim)
        .help("takes a lock whose waiters sleep; one thread at a time holds it"),
    Kind::new("mutex-read", Op::MutexRead, No, Maybe)
        .of_a_lock()
        .on(Machines::Sim)
        .help("takes the same lock shared with other readers, as down_read() does"),
    Kind::new("mutex-unlock", Op::MutexUnlock, No, WITH_LOCK)
        .of_a_lock()
        .on(Machines::Sim)
        .help("releases it"),
    Kind::new("compute-first", Op::ComputeFirst, Must, Maybe)
        .on(Machines::Hypervisors)
        .help("work of the first thread only; the others skip it"),
    Kind::new("compute-rotating", Op::ComputeRotating, Must, Maybe)
        .on(Machines::Hypervisors)
        .help("work of one thread, another one in each unit"),
    Kind::new("compute-moving", Op::ComputeMoving, Must, Maybe)
        .on(Machines::Hypervisors)
        .help("work of one thread, the next one after each 256 units (phases)"),
    Kind::new("serial-first", Op::SerialFirst, Must, TOGETHER).on(Machines::Sim).help(
        "the sequential section of fork and join: all arrive and sleep, the first thread works, \
         then all go on",
    ),
    Kind::new("serial-rotating", Op::SerialRotating, Must, TOGETHER)
        .on(Machines::Sim)
        .help("the same, with another thread in each unit"),
    Kind::new("shootdown", Op::Shootdown, May, Maybe).on(Machines::Hypervisors).help(
        "interrupts all siblings that do not sleep, and waits for their answers with PAUSE, as a \
         kernel that flushes TLBs does; needs cpl = 0; with a length (machine sim only) one after \
         the other, and each handles its interrupt for that long before it answers",
    ),
    Kind::new("shootdown-lazy", Op::ShootdownLazy, May, Maybe).on(Machines::Hypervisors).help(
        "the same, and also interrupts those that sleep, each once in a sleep, as kernels before \
         4.15 do",
    ),
    Kind::new("share", Op::Share, Must, Maybe)
        .on(Machines::Sim)
        .help("reads cache lines that the previous vCPU wrote, as many as its length"),
    Kind::new("socket-wait", Op::SocketWait, Must, MESSAGE).on(Machines::Sim).help(
        "chooses the next socket and sleeps until it has room (in a sender) or a message (in a \
         receiver); the length is the number of messages that a socket holds; threads form \
         hackbench's groups of 40, in which 20 send to each of the other 20 (threads: 40 to 200, a \
         multiple of 40)",
    ),
    Kind::new("socket-lock", Op::SocketLock, No, MESSAGE)
        .on(Machines::Sim)
        .help("takes the spin lock of that socket"),
    Kind::new("socket-unlock", Op::SocketUnlock, No, MESSAGE)
        .on(Machines::Sim)
        .help("releases it: the message is queued, or taken"),
];

impl Kind {
    pub(crate) fn of(op: Op) -> &'static Kind {
        KINDS.iter().find(|kind| kind.op == op).unwrap_or(&KINDS[0])
    }
}

impl Named for Op {
    fn choices() -> Vec<(&'static str, Op)> {
        KINDS.iter().map(|kind| (kind.name, kind.op)).collect()
    }
}
