// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that end a command properly.

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use unspin_agent::is_ignored;

/// What the first such signal sets. The second one ends the program at once.
pub fn stop() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| register(signal, Arc::clone(&stop)))
            .context("cannot take signals")?;
    }
    Ok(stop)
}

/// As [`stop`], and SIGHUP sets it unless it is ignored. A lost terminal may send that twice, by itself
/// and by its shell.
pub fn stop_or_lost_terminal() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = stop()?;
    if !is_ignored(SIGHUP) {
        register(SIGHUP, Arc::clone(&stop)).context("cannot take signals")?;
    }
    Ok(stop)
}
