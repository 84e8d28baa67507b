// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduling policy of a thread: nice value, slice and SCHED_RESET_ON_FORK stay when it changes.

use crate::slice::{get, result};
use std::io;

/// Threads for a scheduler of sched_ext. While none is loaded, they are scheduled as `SCHED_OTHER`.
pub const EXT: i32 = 7;
/// Of sched_getattr(2).
const SCHED_FLAG_RESET_ON_FORK: u64 = 1;

/// That of a thread: a `SCHED_` number of sched(7).
///
/// # Errors
/// As sched_getattr(2): the thread has ended, for example.
pub fn of(tid: u32) -> io::Result<i32> {
    Ok(get(tid)?.policy as i32)
}

/// Sets it, and nothing else. `SCHED_OTHER`, `SCHED_BATCH` and [`EXT`] have the same parameters; threads of other
/// policies are refused, because theirs would be lost.
///
/// # Errors
/// As sched_setscheduler(2): no permission, for example. `InvalidInput` for another policy.
pub fn set(tid: u32, policy: i32) -> io::Result<()> {
    let is = get(tid)?;
    let is_alike = |policy| matches!(policy, libc::SCHED_OTHER | libc::SCHED_BATCH | EXT);
    if !is_alike(policy) || !is_alike(is.policy as i32) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // sched_setattr(2) would also make the slice that it reads the thread's own.
    let keeps =
        if is.flags & SCHED_FLAG_RESET_ON_FORK != 0 { libc::SCHED_RESET_ON_FORK } else { 0 };
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: `priority` is valid.
    result(unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, tid, policy | keeps, &raw const priority)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_what_was_set_and_nice_values_stay() {
        // SAFETY: it has no arguments and cannot fail.
        let me = unsafe { libc::gettid() } as u32;
        let (was, nice) = (of(me).unwrap(), get(me).unwrap());
        assert_eq!(was, libc::SCHED_OTHER);
        set(me, libc::SCHED_BATCH).unwrap();
        assert_eq!(of(me).unwrap(), libc::SCHED_BATCH);
        set(me, was).unwrap();
        assert_eq!(format!("{:?}", get(me).unwrap()), format!("{nice:?}"));
    }

    #[test]
    fn real_time_is_refused_and_who_is_not_there() {
        // SAFETY: it has no arguments and cannot fail.
        let me = unsafe { libc::gettid() } as u32;
        assert_eq!(set(me, libc::SCHED_FIFO).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(of(u32::MAX >> 1).is_err());
    }
}
