// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPUs on which a thread may run.

use std::io;

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
