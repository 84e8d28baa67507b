// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports how long worlds take, before they are simulated.

use crate::exit::Usage;
use std::time::Duration;
use unspin_cli::progress::human;
use unspin_scenario::plan::Run;
use unspin_text::counted;

/// The longest allowed time of one computer's worlds. For more, divide the worlds among computers,
/// or draw fewer.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Length of a run, in ms of the machine's time.
pub fn length_ms(run: &Run) -> u64 {
    run.stagger_ms + run.warmup_ms + run.window_ms
}

/// Reports that `what` takes this long. `less` is advice for the case that it is too long.
///
/// # Errors
///
/// The time is more than a day.
pub fn say(what: &str, seconds: f64, cpus: usize, less: &str) -> Result<(), Usage> {
    let takes = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let what = format!("{what} take about {} on {}", human(takes), counted(cpus, "CPU"));
    if takes > TIME_MAX {
        return Err(Usage(format!("{what}, which is more than a day: {less}")));
    }
    say!("{what}");
    Ok(())
}
