// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress of an operation with a known duration.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// Interval of lines without a terminal.
pub const LINE_EVERY: Duration = Duration::from_secs(30);
/// Shorter operations have no bar.
const BAR_FROM: Duration = Duration::from_secs(2);

/// A bar of this length on standard error.
pub fn bar(total_ms: u64, shown: bool) -> ProgressBar {
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(total_ms), target);
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {elapsed}  {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    if shown {
        bar.enable_steady_tick(Duration::from_millis(500));
    }
    bar
}

/// Progress of an operation with a known duration. Dropping it removes the bar.
pub struct Passing {
    bar: ProgressBar,
    on_terminal: bool,
    total: Duration,
    last_line: Duration,
}

impl Passing {
    pub fn new(total: Duration, what: &str) -> Passing {
        let on_terminal = std::io::stderr().is_terminal();
        let bar = bar(millis(total), on_terminal && total > BAR_FROM);
        bar.set_message(what.to_string());
        Passing { bar, on_terminal, total, last_line: Duration::ZERO }
    }

    pub fn at(&mut self, passed: Duration) {
        self.bar.set_position(millis(passed));
        let left = self.total.saturating_sub(passed);
        if !self.on_terminal
            && passed.saturating_sub(self.last_line) >= LINE_EVERY
            && !left.is_zero()
        {
            self.last_line = passed;
            say!("{}, {} left", self.bar.message(), human(left));
        }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// A duration for people.
pub fn human(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0..=59 => format!("{s} s"),
        60..=3599 => format!("{} min {:02} s", s / 60, s % 60),
        _ => format!("{} h {:02} min", s / 3600, s / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(human(Duration::from_secs(59)), "59 s");
        assert_eq!(human(Duration::from_secs(61)), "1 min 01 s");
        assert_eq!(human(Duration::from_secs(3720)), "1 h 02 min");
    }
}
