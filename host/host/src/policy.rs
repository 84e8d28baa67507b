// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduling policy of a thread, as sched_setattr(2) has it: nice value and flags stay when it changes.

use crate::slice::{get, result, Attr};
use std::io;

/// Threads for a scheduler of sched_ext. While none is loaded, they are scheduled as `SCHED_OTHER`.
pub const EXT: i32 = 7;

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
/// As sched_setattr(2): no permission, for example. `InvalidInput` for another policy.
pub fn set(tid: u32, policy: i32) -> io::Result<()> {
    let is = get(tid)?;
    let is_alike = |policy| matches!(policy, libc::SCHED_OTHER | libc::SCHED_BATCH | EXT);
    if !is_alike(policy) || !is_alike(is.policy as i32) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let attr = Attr { size: size_of::<Attr>() as u32, policy: policy as u32, ..is };
    // SAFETY: the kernel reads as many bytes as the structure says it has.
    result(unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attr, 0) })
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
