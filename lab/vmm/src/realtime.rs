// SPDX-License-Identifier: MIT OR Apache-2.0
//! SCHED_FIFO and its priorities. The measuring thread uses it during the measuring time: it sleeps
//! nearly all the time, and must not wait behind spinning vCPUs when it wakes up to read.

use std::io;

/// The measuring thread.
const MEASURE_PRIORITY: i32 = 2;

/// Keeps the calling thread under SCHED_FIFO until dropped.
pub struct Realtime;

impl Realtime {
    /// Without the permission for SCHED_FIFO everything works, but later.
    pub fn enter() -> Realtime {
        let _ = set(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, MEASURE_PRIORITY);
        Realtime
    }
}

impl Drop for Realtime {
    fn drop(&mut self) {
        let _ = set(0, libc::SCHED_OTHER, 0);
    }
}

/// Makes a thread SCHED_FIFO; 0 is the calling one.
pub fn set_fifo(tid: i32, priority: i32) -> io::Result<()> {
    set(tid, libc::SCHED_FIFO, priority)
}

/// Makes a thread SCHED_OTHER, and keeps its nice value.
pub fn set_normal(tid: i32) -> io::Result<()> {
    set(tid, libc::SCHED_OTHER, 0)
}

fn set(tid: i32, policy: i32, priority: i32) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: `param` is valid.
    match unsafe { libc::sched_setscheduler(tid, policy, &param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
