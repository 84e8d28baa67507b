// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that end with the thread that starts them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The child of `command` receives `signal` when this thread ends before it, for example by kill -9. So this thread
/// has to wait for the child. The child is not started if the thread's process has ended by then.
pub fn ends_with_this_thread(command: &mut Command, signal: i32) -> &mut Command {
    let parent = std::process::id();
    let ask = move || {
        // SAFETY: both calls allocate no memory, and may be made between fork and exec.
        let is_set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) } == 0;
        if !is_set {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above.
        match u32::try_from(unsafe { libc::getppid() }) {
            Ok(now) if now == parent => Ok(()),
            _ => Err(io::ErrorKind::Interrupted.into()),
        }
    };
    // SAFETY: `ask` neither allocates nor locks.
    unsafe { command.pre_exec(ask) }
}
