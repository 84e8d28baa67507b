// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a plan is. Lengths of runs are known in the machine's time; what a second of it takes
//! is learnt from the runs already made. And how much of a time has passed.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use unspin_scenario::plan::Plan;
use unspin_scenario::result::Record;

/// Without a terminal a line is written this often.
const LINE_EVERY: Duration = Duration::from_secs(30);
/// What is over sooner needs no bar.
const BAR_FROM: Duration = Duration::from_secs(2);

pub struct Progress {
    bar: ProgressBar,
    on_terminal: bool,
    length_ms: HashMap<u32, u64>,
    done_ms: u64,
    total_ms: u64,
    runs: u64,
    /// When the first run began: time before it is booting, and says nothing of runs.
    since: Option<Instant>,
    /// Of runs made before (resumed), not by this program.
    skipped_ms: u64,
    last_line: Instant,
}

fn length_ms(plan: &Plan) -> impl Iterator<Item = (u32, u64)> + '_ {
    plan.runs.iter().map(|r| (r.id, r.stagger_ms + r.warmup_ms + r.window_ms))
}

impl Progress {
    /// For runs on `kernels` kernels each. Hidden progress is counted but not shown.
    pub fn new(plans: &[&Plan], hidden: bool) -> Progress {
        let total_ms = plans.iter().flat_map(|p| length_ms(p)).map(|(_, ms)| ms).sum();
        let on_terminal = std::io::stderr().is_terminal() && !hidden;
        let bar = bar(total_ms, on_terminal);
        Progress {
            bar,
            on_terminal,
            length_ms: plans.iter().flat_map(|p| length_ms(p)).collect(),
            done_ms: 0,
            total_ms,
            runs: 0,
            since: None,
            skipped_ms: 0,
            last_line: Instant::now(),
        }
    }

    /// A plan whose results are there already.
    pub fn skip(&mut self, plan: &Plan) {
        let ms: u64 = length_ms(plan).map(|(_, ms)| ms).sum();
        self.skipped_ms += ms;
        self.done_ms += ms;
        self.bar.set_position(self.done_ms);
    }

    pub fn say(&mut self, text: &str) {
        self.bar.set_message(text.to_string());
        if !self.on_terminal {
            say!("{text}");
        }
    }

    /// A line that stays.
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
        let left = match self.left() {
            Some(d) => format!("about {} left", human(d)),
            None => "time left not known yet".to_string(),
        };
        let text = if text.is_empty() { left } else { format!("{left}  {text}") };
        self.bar.set_message(text.clone());
        if !self.on_terminal && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            let percent = 100 * self.done_ms / self.total_ms.max(1);
            say!("{percent} % ({} runs made), {text}", self.runs);
        }
    }

    /// Time the rest will take at the pace of what was made; unknown before the first run's end.
    fn left(&self) -> Option<Duration> {
        let made = self.done_ms - self.skipped_ms;
        let spent = self.since?.elapsed();
        (made > 0).then(|| {
            let rest = self.total_ms.saturating_sub(self.done_ms) as f64;
            spent.mul_f64(rest / made as f64)
        })
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn bar(total_ms: u64, shown: bool) -> ProgressBar {
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(total_ms), target);
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {elapsed}  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    if shown {
        bar.enable_steady_tick(Duration::from_millis(500));
    }
    bar
}

/// How much of a time that is known beforehand has passed; dropped, the bar goes.
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
