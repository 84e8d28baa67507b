// SPDX-License-Identifier: MIT OR Apache-2.0
//! The progress of a plan. Lengths of runs are known in the machine's time; how long a second of it
//! takes is learnt from finished runs.

use indicatif::ProgressBar;
use std::collections::HashMap;
use std::io::IsTerminal;
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
            is_hidden: hidden,
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
        self.bar.set_message(printable(text));
        if !self.on_terminal && !self.is_hidden {
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
            None => "time left unknown".to_string(),
        };
        let text = if text.is_empty() { left } else { format!("{left}  {text}") };
        self.bar.set_message(printable(&text));
        if !self.on_terminal && !self.is_hidden && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            let percent = 100 * self.done_ms / self.total_ms.max(1);
            say!("{percent} % ({} runs done), {text}", self.runs);
        }
    }

    /// Time for the rest, at the pace so far; unknown before the first run ends.
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
