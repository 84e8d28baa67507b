// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles: what a thread of a workload does, as a small program of steps.

use crate::plan::{Dist, Op, Step};
use crate::problem::Problems;
use crate::reader::{Reader, Table, Value};

/// Sizes the guest is built for (guest/abi.h).
pub(crate) const STEPS_MAX: usize = 32;
const LOCKS_MAX: u32 = 16;
/// A socket's lock, where locks are told apart.
const SOCKET_LOCK: u32 = LOCKS_MAX;
/// Longest single length, loop iterations (timer cycles for `block`).
const ITERATIONS_MAX: u32 = 1_000_000_000;

/// A workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub name: String,
    /// Over 5 % inefficiency at a fixed window of 512 cycles (the paper's rule, section 4.2).
    pub spin_intensive: bool,
    pub program: Vec<Step>,
}

const OPS: &[(&str, Op)] = &[
    ("compute", Op::Compute),
    ("lock", Op::Lock),
    ("critical", Op::Critical),
    ("unlock", Op::Unlock),
    ("barrier", Op::Barrier),
    ("block", Op::Block),
    ("wake", Op::Wake),
    ("spin-barrier", Op::SpinBarrier),
    ("user-barrier", Op::UserBarrier),
    ("cond-barrier", Op::CondBarrier),
    ("mutex", Op::Mutex),
    ("mutex-unlock", Op::MutexUnlock),
    ("compute-first", Op::ComputeFirst),
    ("compute-turn", Op::ComputeTurn),
    ("serial-first", Op::SerialFirst),
    ("serial-turn", Op::SerialTurn),
    ("shootdown", Op::Shootdown),
    ("shootdown-lazy", Op::ShootdownLazy),
    ("share", Op::Share),
    ("socket-wait", Op::SocketWait),
    ("socket-lock", Op::SocketLock),
    ("socket-unlock", Op::SocketUnlock),
];

/// Reads a profile. `file` is what errors call it; `name` what the scenario does.
pub fn parse_profile(file: &str, name: &str, text: &str) -> Result<Profile, Problems> {
    let reader = Reader::new(file, text);
    let doc = reader.parse();
    let top = Table::top(&reader, &doc);
    let profile = read_profile(&top, name);
    reader.finish(profile)
}

fn read_profile(top: &Table, expected_name: &str) -> Option<Profile> {
    top.only(&["name", "spin_intensive", "step"]);
    let name = top.need("name", "the file's name without .toml").and_then(|v| {
        let s = v.str("a string")?;
        if s != expected_name {
            v.problem(format!("{s:?} is not the file's name"), format!("{expected_name:?}"));
        }
        Some(s.to_string())
    });
    let spin_intensive = top.need("spin_intensive", "true or false").and_then(|v| v.bool());
    let steps = top.need("step", "[[step]] tables").and_then(|v| {
        let all = v.array("[[step]] tables")?;
        if all.is_empty() || all.len() > STEPS_MAX {
            v.problem(format!("{} steps", all.len()), format!("1 to {STEPS_MAX} steps"));
        }
        Some(all)
    })?;
    let read: Vec<Option<Step>> = steps.iter().map(read_step).collect();
    let whole: Vec<Step> = read.iter().copied().flatten().collect();
    if whole.len() == steps.len() {
        check_program(&whole, &steps);
    }
    Some(Profile { name: name?, spin_intensive: spin_intensive?, program: whole })
}

fn read_step(v: &Value) -> Option<Step> {
    let t = v.table("a [[step]] table")?;
    t.only(&["op", "lock", "iterations", "chance"]);
    let op = t.need("op", "what the step does")?.choice(OPS)?;
    let alone = matches!(op, Op::ComputeFirst | Op::ComputeTurn);
    let work = alone || matches!(op, Op::Compute | Op::Critical | Op::Share);
    let serial = matches!(op, Op::SerialFirst | Op::SerialTurn);
    let has_length = work || serial || matches!(op, Op::Block | Op::SocketWait);
    let has_lock = matches!(op, Op::Lock | Op::Unlock | Op::Mutex | Op::MutexUnlock);
    let shootdown = matches!(op, Op::Shootdown | Op::ShootdownLazy);
    let others = shootdown || matches!(op, Op::Lock | Op::Mutex | Op::Block | Op::Wake);
    let may_skip = work || others;
    let name = OPS.iter().find(|(_, o)| *o == op).map_or("", |(n, _)| n);

    let may_have_length =
        shootdown || matches!(op, Op::Barrier | Op::UserBarrier | Op::CondBarrier);
    let dist = if has_length || (may_have_length && t.get("iterations").is_some()) {
        read_dist(&t.need("iterations", DIST_FORMS)?)?
    } else {
        if let Some(v) = t.get("iterations") {
            v.problem(format!("a {name} step has no length"), "no iterations here");
        }
        Dist::Const { iterations: 0 }
    };
    let lock = match t.get("lock") {
        Some(v) if has_lock => v.u32(0..=LOCKS_MAX - 1, " (which lock)")?,
        Some(v) => {
            v.problem(
                format!("a {name} step takes no lock"),
                "only in lock and unlock steps, mutex and mutex-unlock",
            );
            0
        }
        None => 0,
    };
    let permille = match t.get("chance") {
        Some(v) if may_skip => read_chance(&v)?,
        Some(v) => {
            let why = match op {
                Op::Unlock | Op::MutexUnlock => {
                    "an unlock goes with its lock; give the lock the chance"
                }
                Op::SocketWait | Op::SocketUnlock => "a message is always waited for and moved",
                _ => "all vCPUs must reach a barrier, or they wait forever",
            };
            v.problem(why, "no chance here");
            1000
        }
        None => 1000,
    };
    Some(Step { op, dist, lock, permille })
}

fn read_chance(v: &Value) -> Option<u32> {
    let allowed = "a fraction over 0, at most 1, in steps of 0.001";
    let x = v.number(allowed)?;
    let permille = (x * 1000.0).round();
    if !(1.0..=1000.0).contains(&permille) || (x * 1000.0 - permille).abs() > 1e-6 {
        v.problem(format!("a chance of {x}"), allowed);
        return None;
    }
    Some(permille as u32)
}

const DIST_FORMS: &str =
    "N, { uniform = [least, most] }, { exp_mean = N } or { exp_mean = N, max = N }";

fn read_dist(v: &Value) -> Option<Dist> {
    if !v.is_table() {
        if v.is_str() || v.is_array() {
            v.problem("not a length", DIST_FORMS);
            return None;
        }
        return Some(Dist::Const { iterations: v.u32(1..=ITERATIONS_MAX, " (or a table)")? });
    }
    let t = v.table(DIST_FORMS)?;
    t.only(&["uniform", "exp_mean", "max"]);
    match (t.get("uniform"), t.get("exp_mean"), t.get("max")) {
        (Some(u), None, None) => {
            let ends = u.array("[least, most]")?;
            if ends.len() != 2 {
                u.problem(format!("{} numbers", ends.len()), "[least, most]");
                return None;
            }
            let min = ends[0].u32(0..=ITERATIONS_MAX, "")?;
            let max = ends[1].u32(1..=ITERATIONS_MAX, "")?;
            if min > max {
                u.problem(format!("{min} is more than {max}"), "[least, most]");
                return None;
            }
            Some(Dist::Uniform { min, max })
        }
        (None, Some(m), cut) => {
            let mean = m.u32(1..=ITERATIONS_MAX, "")?;
            let max = match cut {
                Some(c) => c.u32(mean..=ITERATIONS_MAX, " (the mean, or more)")?,
                None => 0,
            };
            Some(Dist::Exp { mean, max })
        }
        _ => {
            v.problem("not one distribution", DIST_FORMS);
            None
        }
    }
}

/// Locks pair and nest, nothing that waits for another vCPU is done inside one, and no two orders
/// of nesting can wait for each other.
fn check_program(program: &[Step], at: &[Value]) {
    let mut held: Vec<(u32, usize)> = Vec::new();
    let lock_of = |s: &Step| match s.op {
        Op::SocketLock | Op::SocketUnlock => SOCKET_LOCK,
        _ => s.lock,
    };
    let name = |lock: u32| match lock {
        SOCKET_LOCK => "the socket's lock".to_string(),
        _ => format!("lock {lock}"),
    };
    check_mutexes(program, at);
    check_sockets(program, at);
    let mut order: Vec<(u32, u32)> = Vec::new();
    for (i, s) in program.iter().enumerate() {
        match s.op {
            Op::Lock | Op::SocketLock => {
                let lock = lock_of(s);
                if held.iter().any(|(l, _)| *l == lock) {
                    at[i].problem(
                        format!("{} is already held here: the vCPU waits for itself", name(lock)),
                        "a lock that is free",
                    );
                }
                order.extend(held.iter().map(|(l, _)| (*l, lock)));
                held.push((lock, i));
            }
            Op::Unlock | Op::SocketUnlock => match held.pop() {
                Some((l, _)) if l == lock_of(s) => {}
                Some((l, j)) => {
                    at[i].problem(
                        format!(
                            "unlocks {}, but {} (step {j}) was taken last",
                            name(lock_of(s)),
                            name(l)
                        ),
                        "locks are released in the reverse order",
                    );
                    held.retain(|(h, _)| *h != lock_of(s));
                }
                None => {
                    at[i].problem(format!("{} is not held here", name(lock_of(s))), "a held lock");
                }
            },
            Op::Critical if held.is_empty() => {
                at[i].problem("outside any lock", "between lock and unlock; outside use compute");
            }
            Op::Barrier
            | Op::SpinBarrier
            | Op::UserBarrier
            | Op::CondBarrier
            | Op::Block
            | Op::Mutex
            | Op::SerialFirst
            | Op::SerialTurn
            | Op::Shootdown
            | Op::ShootdownLazy
            | Op::SocketWait
                if !held.is_empty() =>
            {
                at[i].problem(
                    "waits while holding a lock: others would spin until it ends, or forever",
                    "barriers, block, mutex and shootdown outside locks",
                );
            }
            _ => {}
        }
    }
    for (lock, i) in held {
        at[i].problem(format!("{} is never released", name(lock)), "an unlock step after it");
    }
    if let Some((a, b)) = order.iter().find(|(a, b)| a != b && reaches(&order, *b, *a)) {
        at[0].problem(
            format!(
                "{} and {} are taken in both orders: two vCPUs can wait for each other forever",
                name(*a),
                name(*b)
            ),
            "one order for all nested locks",
        );
    }
}

/// At most a message a pass, and who moves it has waited for it.
fn check_sockets(program: &[Step], at: &[Value]) {
    const OPS: [Op; 3] = [Op::SocketWait, Op::SocketLock, Op::SocketUnlock];
    let all: Vec<usize> = (0..program.len()).filter(|i| OPS.contains(&program[*i].op)).collect();
    if let Some(first) = all.first().filter(|_| all.iter().map(|i| program[*i].op).ne(OPS)) {
        at[*first].problem(
            "a message is moved once a pass, waited for first",
            "one socket-wait, one socket-lock, one socket-unlock, in this order",
        );
    }
    let Some(wait) = all.iter().copied().find(|i| program[*i].op == Op::SocketWait) else { return };
    if !matches!(program[wait].dist, Dist::Const { iterations: 1.. }) {
        at[wait].problem(
            "how many messages a socket holds is drawn, or none",
            "iterations = N, the number that a socket holds",
        );
    }
    if let Some(i) = (0..program.len()).find(|i| waits_for_all(program[*i].op)) {
        at[i].problem(
            "waits for all threads beside messages: who waits for a message never comes",
            "no barrier, serial-first or serial-turn in a program of messages",
        );
    }
}

/// Whether nobody goes on before all threads have come.
fn waits_for_all(op: Op) -> bool {
    matches!(
        op,
        Op::Barrier
            | Op::SpinBarrier
            | Op::UserBarrier
            | Op::CondBarrier
            | Op::SerialFirst
            | Op::SerialTurn
    )
}

/// One mutex at a time, and nothing that waits for all threads while one is held.
fn check_mutexes(program: &[Step], at: &[Value]) {
    let mut held: Option<(u32, usize)> = None;
    for (i, s) in program.iter().enumerate() {
        match (s.op, held) {
            (Op::Mutex, None) => held = Some((s.lock, i)),
            (Op::Mutex, Some((other, _))) => {
                at[i].problem(format!("mutex {other} is held here"), "one mutex at a time");
            }
            (Op::MutexUnlock, Some((lock, _))) if lock == s.lock => held = None,
            (Op::MutexUnlock, _) => {
                at[i].problem(format!("mutex {} is not held here", s.lock), "a held mutex");
            }
            (op, Some(_)) if op == Op::SocketWait || waits_for_all(op) => {
                at[i].problem(
                    "waits for other threads while holding a mutex",
                    "barriers, serial-first, serial-turn and socket-wait outside mutexes",
                );
            }
            _ => {}
        }
    }
    if let Some((lock, i)) = held {
        at[i].problem(format!("mutex {lock} is never released"), "a mutex-unlock step after it");
    }
}

fn reaches(order: &[(u32, u32)], from: u32, to: u32) -> bool {
    let mut seen = vec![from];
    let mut i = 0;
    while i < seen.len() {
        if seen[i] == to {
            return true;
        }
        for (a, b) in order {
            if *a == seen[i] && !seen.contains(b) {
                seen.push(*b);
            }
        }
        i += 1;
    }
    false
}
