// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Rust's runtime changes before main(), and a program must find as this process found it: it ignores
//! SIGPIPE, and opens /dev/null in the place of closed standard descriptors. `exec()` of the standard library
//! sets SIGPIPE to the default.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

static SIGPIPE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
/// Whether descriptors 0, 1 and 2 were closed.
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

extern "C" fn remember() {
    // SAFETY: `action` is written before it is read; no handler is installed, no descriptor changed.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) == 0 {
            SIGPIPE.store(action.sa_sigaction, Ordering::Relaxed);
        }
        for (fd, closed) in (0..).zip(&CLOSED) {
            closed.store(libc::fcntl(fd, libc::F_GETFD) < 0, Ordering::Relaxed);
        }
    }
}

/// Called before the runtime.
#[used]
#[link_section = ".init_array"]
static REMEMBER: extern "C" fn() = remember;

/// The program that `command` executes finds them as they were.
pub fn restore(command: &mut Command) {
    // SAFETY: signal() and close() may be called between fork() and exec(). The disposition is one that exec()
    // keeps; the descriptors are the runtime's, and nothing uses them any more.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGPIPE, SIGPIPE.load(Ordering::Relaxed));
            for (fd, closed) in (0..).zip(&CLOSED) {
                if closed.load(Ordering::Relaxed) {
                    libc::close(fd);
                }
            }
            Ok(())
        });
    }
}
