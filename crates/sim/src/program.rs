// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model's programs: the guest's own steps, and those that only the model does.

use crate::Error;
use unspin_guest_abi as abi;
use unspin_scenario::plan::{Dist, Op, Step};

// Numbers above the guest's own.
pub const OP_USER_BARRIER: u32 = 100;
pub const OP_MUTEX: u32 = 101;
pub const OP_MUTEX_UNLOCK: u32 = 102;
pub const OP_COMPUTE_FIRST: u32 = 103;
pub const OP_COMPUTE_TURN: u32 = 104;
pub const OP_SHOOTDOWN: u32 = 105;
pub const OP_SHARE: u32 = 106;
pub const OP_SERIAL_FIRST: u32 = 107;
pub const OP_SERIAL_TURN: u32 = 108;
pub const OP_SHOOTDOWN_LAZY: u32 = 109;
pub const OP_SOCKET_WAIT: u32 = 110;
pub const OP_SOCKET_LOCK: u32 = 111;
pub const OP_SOCKET_UNLOCK: u32 = 112;
pub const OP_COND_BARRIER: u32 = 113;

/// The number of a step that only the model does, and what stands for it where the guest's rules
/// are checked.
fn own(op: Op) -> Option<(u32, Op)> {
    Some(match op {
        Op::UserBarrier => (OP_USER_BARRIER, Op::SpinBarrier),
        Op::CondBarrier => (OP_COND_BARRIER, Op::Barrier),
        Op::Mutex => (OP_MUTEX, Op::Block),
        Op::MutexUnlock => (OP_MUTEX_UNLOCK, Op::Wake),
        Op::ComputeFirst => (OP_COMPUTE_FIRST, Op::Compute),
        Op::ComputeTurn => (OP_COMPUTE_TURN, Op::Compute),
        Op::Shootdown => (OP_SHOOTDOWN, Op::Wake),
        Op::ShootdownLazy => (OP_SHOOTDOWN_LAZY, Op::Wake),
        Op::Share => (OP_SHARE, Op::Compute),
        Op::SerialFirst => (OP_SERIAL_FIRST, Op::Barrier),
        Op::SerialTurn => (OP_SERIAL_TURN, Op::Barrier),
        Op::SocketWait => (OP_SOCKET_WAIT, Op::Block),
        Op::SocketLock => (OP_SOCKET_LOCK, Op::Lock),
        Op::SocketUnlock => (OP_SOCKET_UNLOCK, Op::Unlock),
        _ => return None,
    })
}

/// Checks a program as the guest does, and the model's own steps in it.
///
/// # Errors
/// What could not run to its end, such as a mutex never released.
pub fn compile(program: &[Step], cpl: u8) -> Result<Vec<abi::Step>, Error> {
    check_mutexes(program).map_err(|text| Error::Program(abi::ProgramError(text)))?;
    let stand_ins: Vec<Step> = program
        .iter()
        .map(|s| own(s.op).map_or(*s, |(_, stand_in)| Step { op: stand_in, ..*s }))
        .collect();
    let mut steps = abi::compile(&stand_ins, cpl)?;
    for (index, step) in program.iter().enumerate() {
        let Some((number, _)) = own(step.op) else { continue };
        steps[index].op = number;
        if step.op == Op::SocketUnlock {
            steps[index].a = capacity(program)?;
        }
        if step.op == Op::Mutex {
            let unlock = |s: &Step| s.op == Op::MutexUnlock && s.lock == step.lock;
            let distance = program[index..].iter().position(unlock).unwrap_or(0);
            steps[index].skip = (index + distance) as u32 + 1;
        }
    }
    Ok(steps)
}

/// How many messages a socket holds, as the program's `socket-wait` says.
fn capacity(program: &[Step]) -> Result<u32, Error> {
    const OPS: [Op; 3] = [Op::SocketWait, Op::SocketLock, Op::SocketUnlock];
    let all: Vec<&Step> = program.iter().filter(|s| OPS.contains(&s.op)).collect();
    let once = all.iter().map(|s| s.op).eq(OPS) && all.iter().all(|s| s.permille == 1000);
    match all[0].dist {
        Dist::Const { iterations } if once && iterations > 0 => Ok(iterations),
        _ => Err(Error::Program(abi::ProgramError(
            "a message is one socket-wait, with the number that a socket holds, one socket-lock \
             and one socket-unlock, always taken"
                .into(),
        ))),
    }
}

/// One mutex at a time, released, outside spin-locks, and no barrier while it is held.
fn check_mutexes(program: &[Step]) -> Result<(), String> {
    let (mut held, mut spin_locks) = (None, 0);
    for (index, step) in program.iter().enumerate() {
        let wrong = |text: &str| Err(format!("step {index}: {text}"));
        match step.op {
            Op::Mutex | Op::MutexUnlock if step.lock as usize >= abi::LOCKS_MAX => {
                return wrong("mutexes are 0 to 15");
            }
            Op::Lock => spin_locks += 1,
            Op::Unlock => spin_locks -= 1,
            Op::Mutex | Op::Shootdown | Op::ShootdownLazy | Op::Block if spin_locks > 0 => {
                return wrong("sleeps or waits for all while holding a spin-lock");
            }
            Op::Mutex if held.is_some() => return wrong("a mutex while holding another"),
            Op::Mutex => held = Some(step.lock),
            Op::MutexUnlock if held != Some(step.lock) => return wrong("the mutex is not held"),
            Op::MutexUnlock if step.permille != 1000 => {
                return wrong("an unlock must always be taken; put the chance on its mutex");
            }
            Op::MutexUnlock => held = None,
            Op::Barrier
            | Op::SpinBarrier
            | Op::UserBarrier
            | Op::CondBarrier
            | Op::SerialFirst
            | Op::SerialTurn
            | Op::SocketWait
                if held.is_some() =>
            {
                return wrong("waits for others while holding a mutex: they could never come");
            }
            _ => {}
        }
    }
    held.map_or(Ok(()), |lock| Err(format!("mutex {lock} is never released")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(op: Op) -> Step {
        Step { op, dist: Dist::Const { iterations: 5 }, lock: 1, permille: 1000 }
    }

    #[test]
    fn a_mutex_not_taken_goes_on_after_its_unlock() {
        let program = [Op::Compute, Op::Mutex, Op::Share, Op::MutexUnlock, Op::Compute].map(step);
        let steps = compile(&program, 0).unwrap();
        let ops: Vec<u32> = steps.iter().map(|s| s.op).collect();
        assert_eq!(ops, [abi::OP_COMPUTE, OP_MUTEX, OP_SHARE, OP_MUTEX_UNLOCK, abi::OP_COMPUTE]);
        assert_eq!(steps[1].skip, 4);
    }

    #[test]
    fn programs_that_cannot_end_are_refused() {
        let refused = |ops: &[Op], why: &str| {
            let program: Vec<Step> = ops.iter().map(|op| step(*op)).collect();
            let error = compile(&program, 0).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(&[Op::Mutex], "never released");
        refused(&[Op::MutexUnlock], "not held");
        refused(&[Op::Mutex, Op::Mutex], "holding another");
        refused(&[Op::Mutex, Op::UserBarrier, Op::MutexUnlock], "waits for others");
        refused(&[Op::Mutex, Op::SerialTurn, Op::MutexUnlock], "waits for others");
        refused(&[Op::Mutex, Op::SocketWait, Op::MutexUnlock], "waits for others");
        refused(&[Op::Lock, Op::Mutex, Op::MutexUnlock, Op::Unlock], "spin-lock");
        refused(&[Op::Lock, Op::Shootdown, Op::Unlock], "spin-lock");
        let twice = [Step { permille: 500, ..step(Op::MutexUnlock) }];
        let error = compile(&[step(Op::Mutex), twice[0]], 0).unwrap_err();
        assert!(error.to_string().contains("always be taken"));
    }
}
