// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab replay`: repeats every decision in a trace of the module, with the same policies in
//! user space. Each result must be the same.

use crate::exit::{said, unread, Usage};
use crate::out;
use anyhow::bail;
use std::path::PathBuf;
use unspin_replay::{replay, Tally};
use unspin_report::read_str;
use unspin_text::fit::{terminal_width, wrap_lines};
use unspin_text::{read_file, shown, RESULTS_MAX};

/// Differences shown one by one.
const SHOWN_MAX: usize = 10;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace files: text of the tracepoints unspin:unspin_pick and unspin_epoch, or results.jsonl of a
    /// scenario with trace.picks.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut tally = Tally::default();
    for path in &args.traces {
        let bytes = read_file(path, RESULTS_MAX).map_err(unread)?;
        let text = String::from_utf8_lossy(&bytes);
        let at = |e: anyhow::Error| Usage(format!("{}: {}", shown(path), said(&e)));
        if text.starts_with('{') {
            let input = read_str(path, &text);
            for n in &input.notices {
                say!("note: {n}");
            }
            for r in input.streams.iter().flat_map(|s| &s.runs) {
                replay(r.trace.iter().map(String::as_str), &mut tally).map_err(at)?;
            }
        } else {
            replay(text.lines(), &mut tally).map_err(at)?;
        }
    }
    for d in tally.different.iter().take(SHOWN_MAX) {
        say!("{d}");
    }
    if tally.picks + tally.epochs == 0 {
        return Err(Usage("the trace has no decisions of the module".to_string()).into());
    }
    let summary = format!(
        "{} picks and {} epochs repeated ({} epochs in part, because the start of their round is \
         not in the trace), {} differ\n",
        tally.picks,
        tally.epochs,
        tally.partly,
        tally.different.len()
    );
    let printed = out::print(&wrap_lines(&summary, terminal_width()));
    // The exit code does not depend on who reads the output.
    if !tally.different.is_empty() {
        bail!("decisions of the module and of the policies in user space differ");
    }
    printed
}
