// SPDX-License-Identifier: MIT OR Apache-2.0
//! SCHED_FIFO, and who has which priority of it. While a window is open whoever measures runs so: it
//! sleeps nearly all of that time, and must not wait behind spinning vCPUs when it wakes to read.

use std::io;

/// vCPUs in their turn, where turns are made by SCHED_FIFO: below whoever measures them.
pub const TURN_PRIORITY: i32 = 1;
/// Whoever measures.
const MEASURE_PRIORITY: i32 = 2;
/// Who begins and ends turns: above all else, so that a turn always ends.
pub const SWITCH_PRIORITY: i32 = 3;

/// The calling thread under SCHED_FIFO, until this is dropped.
pub struct Realtime;

impl Realtime {
    /// Without the right to it everything works, later.
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

/// Makes a thread SCHED_OTHER; its nice value stays what it is.
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
