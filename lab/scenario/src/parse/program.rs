// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that a program can run to its end.

use crate::schema::limits::LOCKS_MAX;
use crate::schema::program::{Dist, Op, Step, Waits};
use unspin_text::Value;

/// The number of a socket's lock in this file.
const SOCKET_LOCK: u32 = LOCKS_MAX;

/// Locks come in pairs and nest in ascending order, so that no two vCPUs can wait for each other.
/// Inside a lock no step waits for another vCPU.
pub(crate) fn check_program(program: &[Step], at: &[Value]) {
    check_mutexes(program, at);
    check_sockets(program, at);
    let mut locks = Locks::default();
    for (i, (step, at)) in program.iter().zip(at).enumerate() {
        locks.follow(i, step, at);
    }
    for (lock, i) in &locks.held {
        at[*i].problem(format!("{} is never released", name(*lock)), "an unlock step after it");
    }
}

fn lock_of(s: &Step) -> u32 {
    match s.op {
        Op::SocketLock | Op::SocketUnlock => SOCKET_LOCK,
        _ => s.lock,
    }
}

fn name(lock: u32) -> String {
    match lock {
        SOCKET_LOCK => "the socket's lock".to_string(),
        _ => format!("lock {lock}"),
    }
}

/// The state of spin-locks along a program.
#[derive(Default)]
struct Locks {
    /// The locks that are held, with the steps that took them, in order.
    held: Vec<(u32, usize)>,
}

impl Locks {
    /// Follows step number `i`, and records its errors.
    fn follow(&mut self, i: usize, s: &Step, at: &Value) {
        match s.op {
            Op::Lock | Op::SocketLock => self.take(i, lock_of(s), at),
            Op::Unlock | Op::SocketUnlock => self.release(lock_of(s), at),
            Op::Critical if self.held.is_empty() => {
                at.problem("outside any lock", "between lock and unlock; outside use compute");
            }
            op if op.waits() != Waits::No && !self.held.is_empty() => at.problem(
                "waits while holding a lock: other vCPUs would spin until the wait ends, or \
                 forever",
                "barriers, block, mutex and shootdown outside locks",
            ),
            _ => {}
        }
    }

    fn take(&mut self, i: usize, lock: u32, at: &Value) {
        if self.held.iter().any(|(l, _)| *l == lock) {
            at.problem(
                format!("{} is already held here: the vCPU waits for itself", name(lock)),
                "a lock that is free",
            );
        } else if let Some((outer, _)) = self.held.iter().find(|(outer, _)| *outer > lock) {
            at.problem(
                format!("takes {} while holding {}", name(lock), name(*outer)),
                "nested locks in ascending order, the socket's lock last",
            );
        }
        self.held.push((lock, i));
    }

    fn release(&mut self, lock: u32, at: &Value) {
        match self.held.pop() {
            Some((last, _)) if last == lock => {}
            Some((last, i)) => {
                at.problem(
                    format!("unlocks {}, but {} (step {i}) was taken last", name(lock), name(last)),
                    "locks are released in the reverse order",
                );
                self.held.retain(|(held, _)| *held != lock);
            }
            None => at.problem(format!("{} is not held here", name(lock)), "a held lock"),
        }
    }
}

/// At most one message per pass, and only a thread that has waited for it moves it.
fn check_sockets(program: &[Step], at: &[Value]) {
    const OPS: [Op; 3] = [Op::SocketWait, Op::SocketLock, Op::SocketUnlock];
    let all: Vec<usize> = (0..program.len()).filter(|i| OPS.contains(&program[*i].op)).collect();
    if let Some(first) = all.first().filter(|_| all.iter().map(|i| program[*i].op).ne(OPS)) {
        at[*first].problem(
            "a pass must move exactly one message, and wait for it first",
            "one socket-wait, one socket-lock, one socket-unlock, in this order",
        );
    }
    let Some(wait) = all.iter().copied().find(|i| program[*i].op == Op::SocketWait) else { return };
    if !matches!(program[wait].dist, Dist::Const { iterations: 1.. }) {
        at[wait].problem(
            "the capacity of a socket is random, or missing",
            "iterations = N, the capacity of the socket",
        );
    }
    let for_all = |s: &Step| s.op.waits() == Waits::ForThreads && s.op != Op::SocketWait;
    if let Some(i) = program.iter().position(for_all) {
        at[i].problem(
            "waits for all threads in a program with messages: a thread that waits for a message \
             never arrives",
            "no barrier, serial-first or serial-rotating in a program of messages",
        );
    }
}

/// At most one mutex at a time, and no step that waits for other threads while one is held.
fn check_mutexes(program: &[Step], at: &[Value]) {
    let mut held: Option<(u32, usize)> = None;
    for (i, s) in program.iter().enumerate() {
        match (s.op, held) {
            (Op::Mutex | Op::MutexRead, None) => held = Some((s.lock, i)),
            (Op::Mutex | Op::MutexRead, Some((other, _))) => {
                at[i].problem(format!("mutex {other} is held here"), "one mutex at a time");
            }
            (Op::MutexUnlock, Some((lock, _))) if lock == s.lock => held = None,
            (Op::MutexUnlock, _) => {
                at[i].problem(format!("mutex {} is not held here", s.lock), "a held mutex");
            }
            (op, Some(_)) if op.waits() == Waits::ForThreads => {
                at[i].problem(
                    "waits for other threads while holding a mutex",
                    "barriers, serial-first, serial-rotating and socket-wait outside mutexes",
                );
            }
            _ => {}
        }
    }
    if let Some((lock, i)) = held {
        at[i].problem(format!("mutex {lock} is never released"), "a mutex-unlock step after it");
    }
}
