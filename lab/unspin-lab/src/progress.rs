// SPDX-License-Identifier: MIT OR Apache-2.0
//! The progress of a plan. Lengths of runs are known in the machine's time; finished runs show how
//! long a second of it takes.

use crate::worlds::time::length_ms;
use indicatif::ProgressBar;
use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unspin_cli::progress::{bar, human, LINE_EVERY};
use unspin_scenario::plan::Plan;
use unspin_scenario::result::Record;
use unspin_text::printable;

pub struct Progress {
    bar: ProgressBar,
    is_hidden: bool,
    on_terminal: bool,
    length_ms: HashMap<u32, u64>,
    done_ms: u64,
    total_ms: u64,
    runs: u64,
    /// Start of the first run. The time before it is booting, and does not predict the duration of
    /// runs.
    since: Option<Instant>,
    /// Length of runs of an earlier, resumed bench.
    skipped_ms: u64,
    last_line: Instant,
}

fn lengths_ms(plan: &Plan) -> impl Iterator<Item = (u32, u64)> + '_ {
    plan.runs.iter().map(|r| (r.id, length_ms(r)))
}

impl Progress {
    /// Progress of runs on `kernels` kernels each. Hidden progress is counted but not shown.
    pub fn new(plans: &[&Plan], hidden: bool) -> Progress {
        let total_ms = plans.iter().flat_map(|p| lengths_ms(p)).map(|(_, ms)| ms).sum();
        let on_terminal = std::io::stderr().is_terminal() && !hidden;
        let bar = bar(total_ms, on_terminal);
        Progress {
            bar,
            is_hidden: hidden,
            on_terminal,
            length_ms: plans.iter().flat_map(|p| lengths_ms(p)).collect(),
            done_ms: 0,
            total_ms,
            runs: 0,
            since: None,
            skipped_ms: 0,
            last_line: Instant::now(),
        }
    }

    /// Counts a plan whose results already exist.
    pub fn skip(&mut self, plan: &Plan) {
        let ms: u64 = lengths_ms(plan).map(|(_, ms)| ms).sum();
        self.skipped_ms += ms;
        self.done_ms += ms;
        self.bar.set_position(self.done_ms);
    }

    pub fn say(&mut self, text: &str) {
        self.bar.set_message(printable(text));
        if !self.on_terminal && !self.is_hidden {
            say!("{text}");
        }
    }

    /// Prints a line that stays.
    pub fn log(&self, text: &str) {
        self.bar.suspend(|| say!("{text}"));
    }

    pub fn record(&mut self, r: &Record) {
        let id = match r {
            Record::Run(r) => r.run.id,
            Record::Failed { id, .. } => *id,
            Record::Progress(p) => {
                self.since.get_or_insert_with(Instant::now);
                self.show(&p.text);
                return;
            }
            Record::Begin(_) | Record::Log { .. } | Record::End { .. } => return,
        };
        self.since.get_or_insert_with(Instant::now);
        self.runs += 1;
        self.done_ms += self.length_ms.get(&id).copied().unwrap_or(0);
        self.bar.set_position(self.done_ms.min(self.total_ms));
        self.show("");
    }

    fn show(&mut self, text: &str) {
        let left = left_text(self.left());
        let text = if text.is_empty() { left } else { format!("{left}  {text}") };
        self.bar.set_message(printable(&text));
        if !self.on_terminal && !self.is_hidden && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            let percent = 100 * self.done_ms / self.total_ms.max(1);
            say!("{percent} % ({} runs done), {text}", self.runs);
        }
    }

    /// Time for the rest at the pace so far; `None` before the first run ends.
    fn left(&self) -> Option<Duration> {
        let made = self.done_ms - self.skipped_ms;
        let rest = self.total_ms.saturating_sub(self.done_ms);
        left(self.since?.elapsed(), made, rest)
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Time for `rest` at the pace of `made` in `spent`; `None` if nothing was made.
fn left(spent: Duration, made: u64, rest: u64) -> Option<Duration> {
    (made > 0).then(|| spent.mul_f64(rest as f64 / made as f64))
}

fn left_text(left: Option<Duration>) -> String {
    left.map_or("time left unknown".to_string(), |left| format!("about {} left", human(left)))
}

/// Progress of a number of items of unknown length.
pub struct Counted {
    bar: ProgressBar,
    what: &'static str,
    on_terminal: bool,
    is_hidden: bool,
    since: Instant,
    /// Number of lines that were written without a terminal.
    lines: AtomicU64,
}

impl Counted {
    /// Hidden progress is counted but not shown.
    pub fn new(total: u64, what: &'static str, is_hidden: bool) -> Counted {
        let on_terminal = std::io::stderr().is_terminal() && !is_hidden;
        let bar = bar(total, on_terminal);
        let (since, lines) = (Instant::now(), AtomicU64::new(0));
        Counted { bar, what, on_terminal, is_hidden, since, lines }
    }

    /// Counts an item, or a part of one.
    pub fn step(&self, is_whole: bool, note: &str) {
        self.bar.inc(u64::from(is_whole));
        let spent = self.since.elapsed();
        let text = self.text(spent, note);
        self.bar.set_message(text.clone());
        let due = spent.as_secs() / LINE_EVERY.as_secs();
        let is_due = self.lines.fetch_max(due, Ordering::Relaxed) < due;
        if is_due && !self.on_terminal && !self.is_hidden {
            say!("{text}");
        }
    }

    fn text(&self, spent: Duration, note: &str) -> String {
        let (done, total) = (self.bar.position(), self.bar.length().unwrap_or(0));
        let left = left_text(left(spent, done, total.saturating_sub(done)));
        format!("{left}  {done} of {total} {}, {note}", self.what)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_known_from_the_first_on() {
        let progress = Counted::new(4, "entries", true);
        let text = |s: u64| progress.text(Duration::from_secs(s), "3 runs");
        assert_eq!(text(10), "time left unknown  0 of 4 entries, 3 runs");
        progress.step(false, "");
        assert!(text(10).starts_with("time left unknown"));
        progress.step(true, "");
        assert_eq!(text(10), "about 30 s left  1 of 4 entries, 3 runs");
    }
}
