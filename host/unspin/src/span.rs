// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a command measures, and what ends it earlier.

use anyhow::{bail, Context};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;
use std::time::{Duration, Instant};
pub use unspin_cli::seconds::seconds;

/// Longest delay of the reaction to a signal.
const LOOK: Duration = Duration::from_millis(50);

/// A flag that becomes true when a signal that ends commands arrives. Such signals no longer end
/// the process.
pub fn stopped_by_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot take signals")?;
    }
    Ok(stop)
}

/// Receives these signals, which no longer end the process.
pub fn signals() -> anyhow::Result<Receiver<i32>> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot take signals")?;
    let (send, receive) = channel();
    std::thread::spawn(move || signals.forever().all(|signal| send.send(signal).is_ok()));
    Ok(receive)
}

/// `stop` becomes true when the parent closes this process's standard input.
pub fn end_with_input(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stop.store(true, Ordering::Relaxed);
    });
}

/// Waits for `time`, and passes the elapsed time to `at`. Fails if `stop` becomes true.
pub fn wait(time: Duration, stop: &AtomicBool, at: &mut dyn FnMut(Duration)) -> anyhow::Result<()> {
    let start = Instant::now();
    while start.elapsed() < time {
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        at(start.elapsed());
        std::thread::sleep(LOOK.min(time.saturating_sub(start.elapsed())));
    }
    Ok(())
}
