// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of barriers, mutexes and sockets.

use super::super::lock::{LOCKS, LOCKS_WITH_SOCKETS};
use super::super::off_clock::OffClock;
use crate::engine::{ThreadId, VcpuId};
use std::collections::VecDeque;

#[derive(Debug, Clone, Default)]
pub struct Barrier {
    pub arrived: u32,
    /// Waiters that have halted or are about to.
    pub sleepers: u32,
    /// vCPUs that still sleep although it is open, in the order in which they wake each other.
    pub turns: VecDeque<VcpuId>,
    /// All have arrived at a sequential section, and one thread works.
    pub serial: bool,
    /// vCPUs that have not arrived and have no pCPU. The clock runs while there are any.
    pub missing_off: u32,
    pub off: OffClock,
}

/// A lock whose waiters sleep, as in glibc: a released one may be taken by any thread that comes
/// first, and the longest sleeper is woken to try again. Readers share it, as in a reader-writer
/// semaphore of Linux (rwsem): the readers at the front get it together, and a new reader waits
/// behind a waiting writer.
#[derive(Debug, Clone, Default)]
pub struct Mutex {
    pub(super) owner: ThreadId,
    /// Threads that hold it together.
    pub(super) readers: u32,
    /// Threads that sleep for it, and whether they want to read.
    pub(super) waiters: VecDeque<(ThreadId, bool)>,
    /// How many of the waiters are writers.
    pub(super) writers_waiting: u32,
}

impl Mutex {
    pub fn free(threads: u32) -> Mutex {
        Mutex { waiters: VecDeque::with_capacity(threads as usize), ..Mutex::default() }
    }
}

/// Senders, and receivers, of a group (hackbench.c: num_fds).
pub const FAN: u32 = 20;
/// Threads of a group.
pub const GROUP: u32 = 2 * FAN;
/// Most groups of a VM: a lock for each socket.
pub const GROUPS_MAX: u32 = (LOCKS_WITH_SOCKETS - LOCKS) / FAN;

#[derive(Debug, Clone)]
pub struct Socket {
    /// Messages in its buffer.
    pub(super) queued: u32,
    /// Its receiver, if that sleeps for a message.
    pub(super) reader: ThreadId,
    /// Senders that sleep for room.
    pub(super) writers: Vec<ThreadId>,
}

/// The sockets of this many threads.
pub fn sockets(threads: u32) -> Vec<Socket> {
    let empty =
        || Socket { queued: 0, reader: ThreadId::NONE, writers: Vec::with_capacity(FAN as usize) };
    (0..threads / GROUP * FAN).map(|_| empty()).collect()
}

#[cfg(test)]
impl Socket {
    pub fn queued(&self) -> u32 {
        self.queued
    }

    pub fn reader(&self) -> ThreadId {
        self.reader
    }

    pub fn writers(&self) -> &[ThreadId] {
        &self.writers
    }
}
