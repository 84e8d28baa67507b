// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGINT, SIGTERM and SIGHUP (a lost terminal) end the plan in order: VMs are stopped, module and
//! scheduler are restored.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;

static WANTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: i32) {
    WANTED.store(true, Ordering::Relaxed);
}

/// Whether the parent made this process ignore a signal, as nohup does for SIGHUP. Then it must
/// stay ignored.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: only asks; the structure outlives the call.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Without SA_RESTART, so that waits return and check for it.
pub(crate) fn install() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        if signal == libc::SIGHUP && is_ignored(signal) {
            continue;
        }
        // SAFETY: the handler only stores to an atomic.
        unsafe {
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
