// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab replay`: repeats every decision in a trace of the module or of `unspin schedule`, with the
//! same policies in user space. Each result must be the same.

use crate::exit::{said, unread, Usage};
use crate::out;
use anyhow::bail;
use std::path::PathBuf;
use unspin_replay::{replay, schedule, Tally};
use unspin_report::read_str;
use unspin_text::fit::{terminal_width, wrap_lines};
use unspin_text::{read_file, shown, RESULTS_MAX};

/// Differences shown one by one.
const SHOWN_MAX: usize = 10;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace files: text of the tracepoints unspin:unspin_pick and unspin_epoch, or results.jsonl of a
    /// scenario with trace.picks; or what `unspin schedule --trace` wrote.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let (mut tally, mut scheduled) = (Tally::default(), schedule::Tally::default());
    for path in &args.traces {
        let bytes = read_file(path, RESULTS_MAX).map_err(unread)?;
        let text = String::from_utf8_lossy(&bytes);
        let at = |e: anyhow::Error| Usage(format!("{}: {}", shown(path), said(&e)));
        if schedule::is_trace(&text) {
            schedule::replay(&text, &mut scheduled).map_err(at)?;
        } else if text.starts_with('{') {
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
    if let Some(first) = &scheduled.first {
        say!("{first}");
    }
    let (of_module, of_scheduler) = (tally.picks + tally.epochs, scheduled.decisions());
    if of_module + of_scheduler == 0 {
        return Err(Usage(
            "the trace has no decisions of the module, nor of unspin schedule".into(),
        )
        .into());
    }
    let mut summary = String::new();
    if of_module > 0 {
        summary += &format!(
            "{} picks and {} epochs repeated ({} epochs in part, because the start of their round is \
             not in the trace), {} differ\n",
            tally.picks,
            tally.epochs,
            tally.partly,
            tally.different.len()
        );
    }
    if of_scheduler > 0 {
        summary += &format!("{scheduled}\n");
    }
    let printed = out::print(&wrap_lines(&summary, terminal_width()));
    // The exit code does not depend on who reads the output.
    if !tally.different.is_empty() {
        bail!("decisions of the module and of the policies in user space differ");
    }
    if scheduled.different > 0 {
        bail!("decisions of the scheduler and of its functions in user space differ");
    }
    printed
}
