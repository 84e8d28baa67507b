// SPDX-License-Identifier: MIT OR Apache-2.0
//! While a window is open whoever measures runs SCHED_FIFO: it sleeps nearly all of that time, and
//! must not wait behind spinning vCPUs when it wakes to read.

/// The calling thread under SCHED_FIFO, until this is dropped.
pub struct Realtime;

impl Realtime {
    /// Without the right to it everything works, later.
    pub fn enter() -> Realtime {
        set(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
        Realtime
    }
}

impl Drop for Realtime {
    fn drop(&mut self) {
        set(libc::SCHED_OTHER, 0);
    }
}

fn set(policy: i32, priority: i32) {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: `param` is valid; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &param) };
}
