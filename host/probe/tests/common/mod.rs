// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs in this computer's kernel, and threads for them.

use std::time::{Duration, Instant};
use unspin_probe::{Error, Probe, Thread};

/// `None`, and a message, if this computer cannot have the programs.
pub fn loaded(probe: Result<Probe, Error>) -> Option<Probe> {
    match probe {
        Ok(probe) => Some(probe),
        Err(e) if e.is_of_this_computer() && !matches!(e, Error::Verifier { .. }) => {
            println!("SKIPPED: BPF programs in this computer's kernel: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

pub fn this_thread() -> Thread {
    // SAFETY: it has no arguments and cannot fail.
    Thread { tid: unsafe { libc::gettid() } as u32, pid: std::process::id() }
}

pub fn computes(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
