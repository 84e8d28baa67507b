// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGINT, SIGTERM and SIGHUP (a lost terminal) end the plan in order: VMs stopped, module and scheduler as they were.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;

static WANTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: i32) {
    WANTED.store(true, Ordering::Relaxed);
}

/// Without SA_RESTART: waits return, and look. What whoever started this has it ignore (nohup: SIGHUP)
/// stays ignored.
pub(crate) fn install() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, and both structures outlive the calls.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut before);
            if signal == libc::SIGHUP && before.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as extern "C" fn(i32) as usize;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

pub(crate) fn check() -> Result<(), Error> {
    if WANTED.load(Ordering::Relaxed) {
        Err(Error::Interrupted)
    } else {
        Ok(())
    }
}
