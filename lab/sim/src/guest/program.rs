// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model's programs: the guest's own steps, and steps that only the model supports.

use crate::engine::Rng;
use unspin_guest_abi::{self as abi, ProgramError};
use unspin_scenario::plan::{self, Dist, Op, Waits};

/// A length that is drawn each time its step is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draw {
    Const(u32),
    Uniform { min: u32, max: u32 },
    Exp { mean: u32, max: u32 },
}

impl Draw {
    #[inline]
    pub fn from(&self, rng: &mut Rng) -> u32 {
        match *self {
            Draw::Const(length) => length,
            Draw::Uniform { min, max } => rng.uniform(min, max),
            Draw::Exp { mean, max } => rng.exp(mean, max),
        }
    }

    fn of(step: &abi::Step) -> Draw {
        match step.dist {
            abi::DIST_UNIFORM => Draw::Uniform { min: step.a, max: step.b },
            abi::DIST_EXP => Draw::Exp { mean: step.a, max: step.b },
            _ => Draw::Const(step.a),
        }
    }
}

/// The thread that performs a step for one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OneThread {
    First,
    /// Another one in each pass.
    Rotating,
    /// Another one after [`abi::UNITS_PER_MOVE`] passes.
    Moving,
}

/// How threads at a barrier wait until all have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meet {
    /// Spins for this many pauses, then sleeps.
    Sleep { pauses: Draw },
    /// Spinning, without end.
    Spin,
    /// Spins in user space; for this many pauses, if limited.
    User { pauses: Option<Draw> },
    /// Asleep at a condition variable, after spinning, in user space if `user`. The sleepers wake
    /// each other one by one.
    Cond { pauses: Draw, user: bool },
}

/// Steps that only take time, and that other vCPUs do not notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// This many iterations (`compute`, and `critical` while it has a lock).
    Iterations(Draw),
    /// The same, if this thread is the one that performs it.
    OfOneThread(OneThread, Draw),
    /// Reads this many cache lines that a sibling wrote.
    Share(Draw),
}

/// Steps that others notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Lock(u32),
    Unlock(u32),
    Mutex(u32),
    MutexRead(u32),
    MutexUnlock(u32),
    /// Wakes the next thread, if that sleeps in a `block`.
    Wake,
    /// Sleeps until the timer fires, or without a timer until it is woken.
    Block {
        ns: Draw,
        has_timer: bool,
    },
    Barrier(Meet),
    /// Joins and sleeps, while one thread works.
    Serial(OneThread, Draw),
    /// Waits for room in its socket, or for a message.
    SocketWait {
        capacity: u32,
    },
    SocketLock,
    SocketUnlock {
        capacity: u32,
    },
    /// Interrupts its siblings and waits for their answers. `lazy`: including those that sleep and
    /// still have the program's memory. `handler`: iterations of their handler.
    Shootdown {
        lazy: bool,
        handler: Draw,
    },
}

/// The next step of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Work(Work),
    Act(Act),
}

/// A step of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    pub step: Step,
    /// The number of passes in a thousand in which it is taken.
    pub permille: u32,
    /// The step that follows if it is not taken.
    pub skip: u32,
}

/// A step of the guest that takes the place of a step of the model, for the check of the guest's
/// rules.
fn stand_in(op: Op) -> Op {
    match op {
        Op::UserBarrier => Op::SpinBarrier,
        Op::CondBarrier | Op::SerialFirst | Op::SerialRotating => Op::Barrier,
        Op::Mutex | Op::MutexRead | Op::SocketWait => Op::Block,
        Op::MutexUnlock | Op::Shootdown | Op::ShootdownLazy => Op::Wake,
        Op::ComputeFirst | Op::ComputeRotating | Op::ComputeMoving | Op::Share => Op::Compute,
        Op::SocketLock => Op::Lock,
        Op::SocketUnlock => Op::Unlock,
        Op::Compute
        | Op::Lock
        | Op::Critical
        | Op::Unlock
        | Op::Barrier
        | Op::Block
        | Op::Wake
        | Op::SpinBarrier => op,
    }
}

/// A checked step of this kind, with the bounds of `step`.
fn step_of(op: Op, step: &abi::Step, capacity: u32) -> Step {
    let draw = Draw::of(step);
    let act = match op {
        Op::Compute | Op::Critical => return Step::Work(Work::Iterations(draw)),
        Op::ComputeFirst => return Step::Work(Work::OfOneThread(OneThread::First, draw)),
        Op::ComputeRotating => return Step::Work(Work::OfOneThread(OneThread::Rotating, draw)),
        Op::ComputeMoving => return Step::Work(Work::OfOneThread(OneThread::Moving, draw)),
        Op::Share => return Step::Work(Work::Share(draw)),
        Op::Lock => Act::Lock(step.lock),
        Op::Unlock => Act::Unlock(step.lock),
        Op::Mutex => Act::Mutex(step.lock),
        Op::MutexRead => Act::MutexRead(step.lock),
        Op::MutexUnlock => Act::MutexUnlock(step.lock),
        Op::Wake => Act::Wake,
        Op::Block => Act::Block { ns: draw, has_timer: step.b != 0 },
        Op::Barrier => Act::Barrier(Meet::Sleep { pauses: draw }),
        Op::SpinBarrier => Act::Barrier(Meet::Spin),
        // Without a length, a thread that spins in user space never goes to sleep.
        Op::UserBarrier => Act::Barrier(Meet::User { pauses: (step.b > 0).then_some(draw) }),
        Op::CondBarrier => Act::Barrier(Meet::Cond { pauses: draw, user: step.b > 0 }),
        Op::SerialFirst => Act::Serial(OneThread::First, draw),
        Op::SerialRotating => Act::Serial(OneThread::Rotating, draw),
        Op::SocketWait => Act::SocketWait { capacity },
        Op::SocketLock => Act::SocketLock,
        Op::SocketUnlock => Act::SocketUnlock { capacity },
        Op::Shootdown => Act::Shootdown { lazy: false, handler: draw },
        Op::ShootdownLazy => Act::Shootdown { lazy: true, handler: draw },
    };
    Step::Act(act)
}

/// Checks a program as the guest does, and the model's own steps in it.
///
/// # Errors
/// A program that could not run to its end, for example with a mutex that is never released.
pub fn compile(program: &[plan::Step], cpl: u8) -> Result<Vec<Instruction>, ProgramError> {
    check_mutexes(program).map_err(ProgramError)?;
    let stand_ins: Vec<plan::Step> =
        program.iter().map(|s| plan::Step { op: stand_in(s.op), ..*s }).collect();
    let steps = abi::compile(&stand_ins, cpl)?;
    let capacity = capacity(program)?;
    let instructions = program.iter().zip(&steps).enumerate().map(|(index, (own, step))| {
        let is_mutex = matches!(own.op, Op::Mutex | Op::MutexRead);
        let skip = if is_mutex { after_unlock(program, index) } else { step.skip };
        Instruction { step: step_of(own.op, step, capacity), permille: step.permille, skip }
    });
    Ok(instructions.collect())
}

/// The step that follows if a program does not take the mutex of step `index`.
fn after_unlock(program: &[plan::Step], index: usize) -> u32 {
    let lock = program[index].lock;
    let unlocks = |s: &plan::Step| s.op == Op::MutexUnlock && s.lock == lock;
    let distance = program[index..].iter().position(unlocks).unwrap_or(0);
    (index + distance) as u32 + 1
}

/// Number of messages that a socket holds, from the program's `socket-wait`; 0 without sockets.
fn capacity(program: &[plan::Step]) -> Result<u32, ProgramError> {
    const OPS: [Op; 3] = [Op::SocketWait, Op::SocketLock, Op::SocketUnlock];
    let all: Vec<&plan::Step> = program.iter().filter(|s| OPS.contains(&s.op)).collect();
    let Some(first) = all.first() else { return Ok(0) };
    let once = all.iter().map(|s| s.op).eq(OPS) && all.iter().all(|s| s.permille == 1000);
    if let (true, Dist::Const { iterations: holds @ 1.. }) = (once, first.dist) {
        return Ok(holds);
    }
    Err(ProgramError(
        "a message is one socket-wait, with the number that a socket holds, one socket-lock \
         and one socket-unlock, always taken"
            .into(),
    ))
}

/// One mutex at a time, released, outside spin-locks, and no barrier while it is held.
fn check_mutexes(program: &[plan::Step]) -> Result<(), String> {
    let (mut held, mut spin_locks) = (None, 0);
    for (index, step) in program.iter().enumerate() {
        let takes = matches!(step.op, Op::Mutex | Op::MutexRead);
        let gives = step.op == Op::MutexUnlock;
        spin_locks += i32::from(step.op == Op::Lock) - i32::from(step.op == Op::Unlock);
        let wrong = if (takes || gives) && step.lock as usize >= abi::LOCKS_MAX {
            "mutexes are 0 to 15"
        } else if spin_locks > 0 && step.op.waits() == Waits::Asleep {
            "sleeps or waits for all while holding a spin-lock"
        } else if takes && held.is_some() {
            "a mutex while holding another"
        } else if gives && held != Some(step.lock) {
            "the mutex is not held"
        } else if gives && step.permille != 1000 {
            "an unlock must always be taken; put the chance on its mutex"
        } else if held.is_some() && step.op.waits() == Waits::ForThreads {
            "waits for others while holding a mutex: they could never come"
        } else {
            held = if takes { Some(step.lock) } else { held.filter(|_| !gives) };
            continue;
        };
        return Err(format!("step {index}: {wrong}"));
    }
    held.map_or(Ok(()), |lock| Err(format!("mutex {lock} is never released")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(op: Op) -> plan::Step {
        plan::Step { op, dist: Dist::Const { iterations: 5 }, lock: 1, permille: 1000 }
    }

    #[test]
    fn a_mutex_not_taken_goes_on_after_its_unlock() {
        let program = [Op::Compute, Op::Mutex, Op::Share, Op::MutexUnlock, Op::Compute].map(step);
        let steps = compile(&program, 0).unwrap();
        let five = Draw::Const(5);
        let expected = [
            Step::Work(Work::Iterations(five)),
            Step::Act(Act::Mutex(1)),
            Step::Work(Work::Share(five)),
            Step::Act(Act::MutexUnlock(1)),
            Step::Work(Work::Iterations(five)),
        ];
        assert_eq!(steps.iter().map(|s| s.step).collect::<Vec<_>>(), expected);
        assert_eq!(steps[1].skip, 4);
    }

    #[test]
    fn programs_that_cannot_end_are_refused() {
        let refused = |ops: &[Op], why: &str| {
            let program: Vec<plan::Step> = ops.iter().map(|op| step(*op)).collect();
            let error = compile(&program, 0).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(&[Op::Mutex], "never released");
        refused(&[Op::MutexUnlock], "not held");
        refused(&[Op::Mutex, Op::Mutex], "holding another");
        refused(&[Op::MutexRead], "never released");
        refused(&[Op::MutexRead, Op::Mutex, Op::MutexUnlock], "holding another");
        refused(&[Op::Lock, Op::MutexRead, Op::MutexUnlock, Op::Unlock], "spin-lock");
        refused(&[Op::Mutex, Op::UserBarrier, Op::MutexUnlock], "waits for others");
        refused(&[Op::Mutex, Op::SerialRotating, Op::MutexUnlock], "waits for others");
        refused(&[Op::Mutex, Op::SocketWait, Op::MutexUnlock], "waits for others");
        refused(&[Op::Lock, Op::Mutex, Op::MutexUnlock, Op::Unlock], "spin-lock");
        refused(&[Op::Lock, Op::Shootdown, Op::Unlock], "spin-lock");
        let twice = [plan::Step { permille: 500, ..step(Op::MutexUnlock) }];
        let error = compile(&[step(Op::Mutex), twice[0]], 0).unwrap_err();
        assert!(error.to_string().contains("always be taken"));
    }
}
