// SPDX-License-Identifier: MIT OR Apache-2.0
//! The slice of a thread in the fair scheduler (EEVDF), since Linux 6.12. A thread with a shorter slice
//! runs sooner after it wakes up; its total CPU time does not change. `sched_setattr(2)` sets the slice.

use std::io;
use std::path::Path;
use unspin_text::read_kernel_text;

/// The kernel's slice for threads without one of their own, in ns. Needs debugfs.
const BASE: &str = "/sys/kernel/debug/sched/base_slice_ns";

/// The first version of `struct sched_attr` of uapi/linux/sched/types.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attr {
    pub(crate) size: u32,
    pub(crate) policy: u32,
    pub(crate) flags: u64,
    pub(crate) nice: i32,
    pub(crate) priority: u32,
    pub(crate) runtime: u64,
    pub(crate) deadline: u64,
    pub(crate) period: u64,
}

/// The result of a system call that returns 0 or fails.
pub(crate) fn result(status: impl Into<libc::c_long>) -> io::Result<()> {
    match status.into() {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn get(tid: u32) -> io::Result<Attr> {
    let mut attr = Attr::default();
    // SAFETY: the kernel writes as many bytes as it is told there are.
    let status = unsafe {
        libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, size_of::<Attr>() as u32, 0)
    };
    result(status).map(|()| attr)
}

/// The slice of a thread, in ns; 0 if the kernel has none (before 6.12), or the thread is of another
/// class.
///
/// # Errors
/// As sched_getattr(2): the thread has ended, for example.
pub fn of(tid: u32) -> io::Result<u64> {
    let attr = get(tid)?;
    let is_fair = matches!(attr.policy as i32, libc::SCHED_OTHER | libc::SCHED_BATCH);
    Ok(if is_fair { attr.runtime } else { 0 })
}

/// Sets the slice, in ns, and nothing else: class, nice value and flags stay. If `ns` is the kernel's own
/// slice and that is known, removes the thread's own.
///
/// # Errors
/// As sched_setattr(2): no permission, for example.
pub fn set(tid: u32, ns: u64) -> io::Result<()> {
    let base = read_kernel_text(Path::new(BASE)).ok();
    let is_base = base.and_then(|text| text.trim().parse().ok()) == Some(ns);
    let attr =
        Attr { size: size_of::<Attr>() as u32, runtime: if is_base { 0 } else { ns }, ..get(tid)? };
    // SAFETY: the kernel reads as many bytes as the structure says it has.
    result(unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attr, 0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_what_was_set_or_there_is_none() {
        // SAFETY: it has no arguments and cannot fail.
        let me = unsafe { libc::gettid() } as u32;
        let was = of(me).unwrap();
        if was == 0 {
            eprintln!("SKIPPED: this kernel has no slices of threads' own");
            return;
        }
        set(me, 5_000_000).unwrap();
        assert_eq!(of(me).unwrap(), 5_000_000);
        set(me, was).unwrap();
        assert_eq!(of(me).unwrap(), was);
    }

    #[test]
    fn who_is_not_there_has_none() {
        assert!(of(u32::MAX >> 1).is_err() && set(u32::MAX >> 1, 1_000_000).is_err());
    }
}
