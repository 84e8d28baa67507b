// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks a plan's program and turns it into the guest's steps.

use unspin_scenario::plan::{Dist, LockKind, Op, Step};

use crate as abi;

/// A program that no guest can run, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("program: {0}")]
pub struct ProgramError(pub String);

/// Limit of an exponential distribution without a limit of its own, in means.
const EXP_CUT_MEANS: u32 = 16;

/// Compiles `program` for a guest at `cpl`. Refuses programs that could not run to their end: a
/// lock that is never released, a barrier inside a critical section, HLT at CPL 3.
pub fn compile(program: &[Step], cpl: u8) -> Result<Vec<abi::Step>, ProgramError> {
    if program.is_empty() || program.len() > abi::STEPS_MAX {
        return Err(ProgramError(format!(
            "has {} steps; a program has 1 to {}",
            program.len(),
            abi::STEPS_MAX
        )));
    }
    if cpl != 0 && cpl != 3 {
        return Err(ProgramError(format!("cpl is {cpl}; the guest spins at 0 or 3")));
    }
    let mut held: Vec<u32> = Vec::new();
    let mut steps = Vec::with_capacity(program.len());
    for (index, step) in program.iter().enumerate() {
        check(step, &mut held, cpl).map_err(|e| ProgramError(format!("step {index}: {e}")))?;
        let (dist, a, b) = bounds(step.dist);
        steps.push(abi::Step {
            op: op(step.op).ok_or_else(|| {
                ProgramError(format!("step {index}: only machine sim does {:?} steps", step.op))
            })?,
            dist,
            a,
            b,
            lock: step.lock,
            permille: step.permille,
            skip: skip(program, index)?,
            pad: 0,
        });
    }
    match held.last() {
        Some(lock) => Err(ProgramError(format!("lock {lock} is never released"))),
        None => Ok(steps),
    }
}

/// The guest's number of a lock: `enum guest_lock_kind` has the same order.
pub fn lock_kind(lock: LockKind) -> u32 {
    lock as u32
}

/// Tracks the locks that are held up to `step`. Locks nest only in ascending order, so no two vCPUs
/// can wait for each other.
fn check(step: &Step, held: &mut Vec<u32>, cpl: u8) -> Result<(), String> {
    if step.permille > 1000 {
        return Err(format!("permille is {}; at most 1000", step.permille));
    }
    if let Dist::Uniform { min, max } = step.dist {
        if min > max {
            return Err(format!("uniform from {min} to {max}: min exceeds max"));
        }
    }
    match step.op {
        Op::Lock => {
            if step.lock as usize >= abi::LOCKS_MAX {
                return Err(format!("lock {}; locks are 0 to {}", step.lock, abi::LOCKS_MAX - 1));
            }
            if let Some(&inner) = held.last().filter(|&&inner| inner >= step.lock) {
                return Err(format!(
                    "takes lock {} while holding {inner}; nested locks must ascend",
                    step.lock
                ));
            }
            held.push(step.lock);
        }
        Op::Unlock => {
            if held.pop() != Some(step.lock) {
                return Err(format!("unlocks {}, which is not the lock taken last", step.lock));
            }
            if step.permille != 1000 {
                return Err("an unlock must always be taken; put the chance on its lock".into());
            }
        }
        Op::Critical if held.is_empty() => return Err("critical step outside a lock".into()),
        Op::Barrier | Op::SpinBarrier if !held.is_empty() => {
            return Err("barrier while holding a lock: the others could never arrive".into());
        }
        Op::Shootdown | Op::ShootdownLazy if !held.is_empty() => {
            return Err(
                "shootdown while holding a lock: the others would spin until it ends".into()
            );
        }
        Op::Shootdown | Op::ShootdownLazy if step.dist != (Dist::Const { iterations: 0 }) => {
            return Err(
                "shootdown with iterations: only machine sim interrupts one sibling after the other; \
                 leave iterations out"
                    .into(),
            );
        }
        Op::Barrier | Op::Block | Op::Wake | Op::Shootdown | Op::ShootdownLazy if cpl == 3 => {
            return Err(
                "barrier, block, wake and shootdown need HLT and interrupts, which CPL 3 has not; \
                 use cpl = 0, or spin-barrier for a barrier"
                    .into(),
            );
        }
        _ => {}
    }
    Ok(())
}

/// The step that follows if step `index` is not taken.
fn skip(program: &[Step], index: usize) -> Result<u32, ProgramError> {
    let step = &program[index];
    if step.op != Op::Lock {
        return Ok(index as u32 + 1);
    }
    program[index..]
        .iter()
        .position(|s| s.op == Op::Unlock && s.lock == step.lock)
        .map(|distance| (index + distance) as u32 + 1)
        .ok_or_else(|| ProgramError(format!("step {index}: lock {} is never released", step.lock)))
}

fn op(op: Op) -> Option<u32> {
    Some(match op {
        Op::Compute => abi::OP_COMPUTE,
        Op::Lock => abi::OP_LOCK,
        Op::Critical => abi::OP_CRITICAL,
        Op::Unlock => abi::OP_UNLOCK,
        Op::Barrier => abi::OP_BARRIER,
        Op::Block => abi::OP_BLOCK,
        Op::Wake => abi::OP_WAKE,
        Op::SpinBarrier => abi::OP_SPIN_BARRIER,
        Op::Shootdown => abi::OP_SHOOTDOWN,
        Op::ShootdownLazy => abi::OP_SHOOTDOWN_LAZY,
        Op::ComputeFirst => abi::OP_COMPUTE_FIRST,
        Op::ComputeRotating => abi::OP_COMPUTE_ROTATING,
        Op::ComputeMoving => abi::OP_COMPUTE_MOVING,
        _ => return None,
    })
}

fn bounds(dist: Dist) -> (u32, u32, u32) {
    match dist {
        Dist::Const { iterations } => (abi::DIST_CONST, iterations, iterations),
        Dist::Uniform { min, max } => (abi::DIST_UNIFORM, min, max),
        Dist::Exp { mean, max: 0 } => (abi::DIST_EXP, mean, mean.saturating_mul(EXP_CUT_MEANS)),
        Dist::Exp { mean, max } => (abi::DIST_EXP, mean, max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(op: Op, lock: u32) -> Step {
        Step { op, dist: Dist::Const { iterations: 5 }, lock, permille: 1000 }
    }

    fn refused(program: &[Step], cpl: u8, why: &str) {
        let error = compile(program, cpl).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn a_skipped_lock_goes_on_after_its_unlock() {
        let program = [
            step(Op::Lock, 0),
            step(Op::Lock, 1),
            step(Op::Critical, 0),
            step(Op::Unlock, 1),
            step(Op::Unlock, 0),
            step(Op::Compute, 0),
        ];
        let skips: Vec<u32> = compile(&program, 0).unwrap().iter().map(|s| s.skip).collect();
        assert_eq!(skips, [5, 4, 3, 4, 5, 6]);
    }

    #[test]
    fn exponential_lengths_are_cut() {
        let dist = |mean, max| Step { dist: Dist::Exp { mean, max }, ..step(Op::Compute, 0) };
        let steps = compile(&[dist(10, 0), dist(10, 30), dist(u32::MAX, 0)], 0).unwrap();
        let cuts: Vec<u32> = steps.iter().map(|s| s.b).collect();
        assert_eq!(cuts, [160, 30, u32::MAX]);
    }

    #[test]
    fn programs_that_cannot_end_are_refused() {
        refused(&[], 0, "0 steps");
        refused(&[step(Op::Compute, 0); 33], 0, "33 steps");
        refused(&[step(Op::Compute, 0)], 1, "cpl is 1");
        refused(&[step(Op::Lock, 0)], 0, "never released");
        refused(&[step(Op::Unlock, 0)], 0, "not the lock taken last");
        refused(&[step(Op::Critical, 0)], 0, "outside a lock");
        refused(&[step(Op::Lock, 16), step(Op::Unlock, 16)], 0, "locks are 0 to 15");
        for outer in [0, 1] {
            let nested = [(Op::Lock, outer), (Op::Lock, 0), (Op::Unlock, 0), (Op::Unlock, outer)];
            refused(&nested.map(|(op, lock)| step(op, lock)), 0, "must ascend");
        }
        let barrier = [step(Op::Lock, 0), step(Op::SpinBarrier, 0), step(Op::Unlock, 0)];
        refused(&barrier, 0, "never arrive");
        for op in [Op::Shootdown, Op::ShootdownLazy] {
            let none = Dist::Const { iterations: 0 };
            let asks = |dist| Step { dist, ..step(op, 0) };
            let locked = [step(Op::Lock, 0), asks(none), step(Op::Unlock, 0)];
            refused(&locked, 0, "would spin");
            refused(&[asks(Dist::Const { iterations: 5 })], 0, "only machine sim");
            refused(&[asks(Dist::Exp { mean: 5, max: 0 })], 0, "only machine sim");
            refused(&[asks(none)], 3, "CPL 3");
            assert!(compile(&[asks(none)], 0).is_ok());
        }
        refused(&[Step { permille: 1001, ..step(Op::Compute, 0) }], 0, "at most 1000");
        let chance = Step { permille: 500, ..step(Op::Unlock, 0) };
        refused(&[step(Op::Lock, 0), chance], 0, "always be taken");
        let reversed = Step { dist: Dist::Uniform { min: 2, max: 1 }, ..step(Op::Compute, 0) };
        refused(&[reversed], 0, "min exceeds max");
    }

    #[test]
    fn nothing_halts_at_cpl_3() {
        for op in [Op::Barrier, Op::Block, Op::Wake] {
            assert!(compile(&[step(op, 0)], 0).is_ok());
            refused(&[step(op, 0)], 3, "CPL 3");
        }
        assert!(compile(&[step(Op::SpinBarrier, 0)], 3).is_ok());
    }
}
