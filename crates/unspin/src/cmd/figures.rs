// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin figures`: makes the papers' figures again on the simulator and says how far they agree.

use crate::exit::Usage;
use crate::{load, out};
use anyhow::{bail, Context};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rayon::prelude::*;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unspin_figures::{make, page, select, Claim, Claims, Ctx, Entry, Kind, Reasons, Step, Summary};
use unspin_report::write_atomic;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Entries of figures/targets.toml; all of them if none is given.
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Where CSV, SVG and summary.json go.
    #[arg(long, value_name = "DIR", default_value = "out/figures")]
    out: PathBuf,
    /// Write the page here [default: docs/reproduction.md of the project, where all entries are
    /// made].
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// How often to repeat every point with further seeds, instead of what its scenario says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
    /// List the entries and their kinds, make none.
    #[arg(long)]
    list: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let root = load::root("figures/targets.toml")?;
    let usage = |e: unspin_figures::Error| Usage(e.to_string());
    let claims = Claims::read(&root.join("figures/targets.toml")).map_err(usage)?;
    let reasons = Reasons::read(&root.join("figures/reasons"), &claims).map_err(usage)?;
    let chosen: Vec<&Claim> = select(&claims, &args.ids).map_err(usage)?;
    if args.list {
        let line = |c: &&Claim| format!("{:9}  {}\n", c.kind.name(), c.id);
        return out::print(&chosen.iter().map(line).collect::<String>());
    }
    let chosen: Vec<&Claim> = chosen.into_iter().filter(|c| c.kind != Kind::Define).collect();
    if chosen.is_empty() {
        return Err(Usage("definitions give nothing to compare; name others".to_string()).into());
    }
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make {}", args.out.display()))?;
    let entries = all(args, &root, &chosen)?;
    for e in &entries {
        write(&args.out, &format!("{}.csv", e.claim.id), &e.csv())?;
        write(&args.out, &format!("{}.svg", e.claim.id), &e.svg())?;
    }
    let asked: Vec<String> = chosen.iter().map(|c| c.id.clone()).collect();
    let summary = Summary::new(&entries, env!("CARGO_PKG_VERSION"), &asked, None);
    if let Err(wrong) = summary.check() {
        bail!("the summary contradicts itself: {wrong}");
    }
    let text = serde_json::to_string_pretty(&summary)? + "\n";
    write(&args.out, "summary.json", &text)?;
    let docs = root.join("docs");
    let page_file = args
        .page
        .clone()
        .or_else(|| (args.ids.is_empty() && docs.is_dir()).then(|| docs.join("reproduction.md")));
    if let Some(file) = &page_file {
        write_atomic(file, page(&claims, &summary, &reasons).as_bytes())?;
        eprintln!("page: {}", file.display());
    }
    if args.json {
        return out::json(&summary);
    }
    out::print(&table(&summary))
}

fn write(dir: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    Ok(write_atomic(&dir.join(name), text.as_bytes())?)
}

/// Makes the entries, on all cores, in the order given.
fn all(args: &Args, root: &Path, chosen: &[&Claim]) -> anyhow::Result<Vec<Entry>> {
    let bar = bar(chosen.len() as u64, args.quiet);
    let shown = bar.clone();
    let (runs, last) = (AtomicU64::new(0), AtomicU64::new(0));
    let (since, quiet) = (Instant::now(), args.quiet);
    let ctx = Ctx::new(root, args.repeats, move |step| {
        match step {
            Step::Run => {
                runs.fetch_add(1, Ordering::Relaxed);
            }
            Step::Entry(_) => shown.inc(1),
        }
        let made = runs.load(Ordering::Relaxed);
        shown.set_message(format!("{made} runs"));
        // Without a terminal a line is written twice a minute.
        let half_minutes = since.elapsed().as_secs() / 30;
        if shown.is_hidden() && !quiet && last.swap(half_minutes, Ordering::Relaxed) < half_minutes
        {
            let (done, of) = (shown.position(), shown.length().unwrap_or(0));
            eprintln!("{done} of {of} entries, {made} runs, {} s", since.elapsed().as_secs());
        }
    });
    let entries = chosen.par_iter().map(|claim| {
        let entry = make(&ctx, claim).with_context(|| claim.id.clone());
        ctx.entry_made(&claim.id);
        entry
    });
    let entries = entries.collect::<anyhow::Result<Vec<Entry>>>();
    bar.finish_and_clear();
    entries
}

fn bar(length: u64, quiet: bool) -> ProgressBar {
    let on_terminal = std::io::stderr().is_terminal() && !quiet;
    let target =
        if on_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} entries  {elapsed}  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    if on_terminal {
        bar.enable_steady_tick(Duration::from_millis(500));
    }
    bar
}

fn table(summary: &Summary) -> String {
    let mut text = "entries of the papers, ours simulated, nothing measured\n".to_string();
    for e in &summary.entries {
        let rows = || summary.rows.iter().filter(|r| r.entry == e.id);
        let within = rows().filter(|r| r.within).count();
        let verdict = match (e.reproduced, e.within, e.direction_right) {
            (false, ..) => "no experiment yet",
            (true, true, _) => "agrees",
            (true, false, true) => "differs, direction right",
            (true, false, false) => "differs",
        };
        let kind = e.kind.name();
        text += &format!(
            "{:44} {kind:9} {within:>2} of {:<2} values  {verdict}\n",
            e.id,
            rows().count()
        );
    }
    text + &format!(
        "{} predicted, {} within tolerance, {} with the right direction\n",
        summary.predicted, summary.within, summary.direction_right
    )
}
