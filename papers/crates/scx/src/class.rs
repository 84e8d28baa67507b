// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduling class of a thread, and the CPUs on which it may run.

use std::io;

/// Of include/uapi/linux/sched.h.
const SCHED_EXT: i32 = 7;

/// Gives a thread to the loaded scheduler.
pub fn set_ext(tid: u32) -> io::Result<()> {
    set(tid, SCHED_EXT)
}

/// Returns the thread to the class SCHED_OTHER. Does nothing if it has ended.
pub fn set_normal(tid: u32) {
    let _ = set(tid, libc::SCHED_OTHER);
}

fn set(tid: u32, policy: i32) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: `param` is valid.
    match unsafe { libc::sched_setscheduler(tid as libc::pid_t, policy, &param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The CPUs on which a thread may run, of the first `count`.
pub fn affinity(tid: u32, count: u32) -> io::Result<Vec<u32>> {
    // SAFETY: plain data, and the kernel writes no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = std::mem::size_of::<libc::cpu_set_t>();
        if libc::sched_getaffinity(tid as libc::pid_t, size, &mut set) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((0..count).filter(|&cpu| libc::CPU_ISSET(cpu as usize, &set)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_may_run_somewhere() {
        assert!(!affinity(0, 1024).unwrap().is_empty());
        assert!(affinity(0, 0).unwrap().is_empty());
        assert!(affinity(4_194_305, 8).is_err());
    }
}
