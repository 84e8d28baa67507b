// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab figures`: reproduces the papers' figures on the simulator, and reports how well they
//! agree.

use crate::exit::{unread, Usage};
use crate::progress::Counted;
use crate::share::Share;
use crate::{load, out};
use anyhow::{bail, Context};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use unspin_figures::{make, page, select, Claim, Claims, Ctx, Entry, Kind, Reasons, Step, Summary};
use unspin_text::fit::{self, Column};
use unspin_text::{read_text, shown, sweep, write_atomic};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Ids of claims of the papers (see --list) [default: all].
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Directory for CSV, SVG and summary.json.
    #[arg(long, value_name = "DIR", default_value = "out/figures")]
    out: PathBuf,
    /// Write the page to this file [default: reproduction.md in --out, if all entries are selected].
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Number of repeats of every point, each with another seed, instead of the scenario's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
    /// Run only share I of N of the entries, to divide them among N computers; --merge combines them.
    #[arg(long, value_name = "I/N", value_parser = Share::parse)]
    shard: Option<Share>,
    /// Simulate nothing, and combine the shares in these directories (their --out).
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with_all = ["ids", "shard"])]
    merge: Vec<PathBuf>,
    /// Simulated runs to run in parallel [default: number of CPUs].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
    /// List the entries and their kinds, and simulate nothing.
    #[arg(long)]
    list: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    /// Print only the result (to standard output) and errors.
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let threads = args.jobs.map_or(0, usize::from);
    rayon::ThreadPoolBuilder::new().num_threads(threads).build()?.install(|| run_here(args))
}

fn run_here(args: &Args) -> anyhow::Result<()> {
    let root = load::root("papers/apples/claims.toml")?;
    let usage = |e: unspin_figures::Error| Usage(e.to_string());
    let claims = Claims::read(&root).map_err(usage)?;
    let reasons = Reasons::read(&root, &claims).map_err(usage)?;
    let chosen: Vec<&Claim> = select(&claims, &args.ids).map_err(usage)?;
    if args.list {
        let line = |c: &&Claim| format!("{:9}  {}\n", c.kind.name(), c.id);
        return out::print(&chosen.iter().map(line).collect::<String>());
    }
    let chosen: Vec<&Claim> = chosen.into_iter().filter(|c| c.kind != Kind::Define).collect();
    if chosen.is_empty() {
        return Err(
            Usage("definitions have no values to compare; name other entries".to_string()).into()
        );
    }
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make {}", shown(&args.out)))?;
    sweep(&args.out);
    let summary = if args.merge.is_empty() { fresh(args, &root, &chosen)? } else { merged(args)? };
    if let Err(wrong) = summary.check() {
        bail!("the summary contradicts itself: {wrong}");
    }
    let text = serde_json::to_string_pretty(&summary)? + "\n";
    write(&args.out, SUMMARY, &text)?;
    let whole = summary.shard.is_none() && summary.entries.len() == measured(&claims).count();
    let usual = whole.then(|| args.out.join("reproduction.md"));
    if let Some(file) = args.page.clone().or(usual) {
        let text = page(&claims, &summary, &reasons);
        write_atomic(&file, text.as_bytes())?;
        if !args.quiet {
            say!("page: {}", shown(&file));
        }
    }
    for key in reasons.idle(&summary) {
        say!(
            "papers/*/reasons.toml: {key:?} does not explain a value outside its tolerance; \
              delete it"
        );
    }
    if args.json {
        return out::json(&summary);
    }
    out::print(&table(&summary, fit::terminal_width()))
}

const SUMMARY: &str = "summary.json";
/// Entries with values to compare.
fn measured(claims: &Claims) -> impl Iterator<Item = &Claim> {
    claims.all.iter().filter(|c| c.kind != Kind::Define)
}

/// Makes the entries, or this computer's share of them, with a table and a picture for each.
fn fresh(args: &Args, root: &Path, chosen: &[&Claim]) -> anyhow::Result<Summary> {
    let asked: Vec<String> = chosen.iter().map(|c| c.id.clone()).collect();
    let (skip, of) = args.shard.map_or((0, 1), |s| (s.index as usize - 1, s.of as usize));
    let ours: Vec<&Claim> = chosen.iter().copied().skip(skip).step_by(of).collect();
    let entries = all(args, root, &ours)?;
    for e in &entries {
        write(&args.out, &format!("{}.csv", e.claim.id), &e.csv())?;
        write(&args.out, &format!("{}.svg", e.claim.id), &e.svg())?;
    }
    let shard = args.shard.map(|s| format!("{}/{}", s.index, s.of));
    Ok(Summary::new(&entries, env!("CARGO_PKG_VERSION"), &asked, shard))
}

/// Combines shares from other computers, with their tables and pictures.
fn merged(args: &Args) -> anyhow::Result<Summary> {
    let mut shards = Vec::new();
    for dir in &args.merge {
        let file = dir.join(SUMMARY);
        let text = read_text(&file).map_err(unread)?;
        let summary: Summary = serde_json::from_str(&text)
            .map_err(|e| Usage(format!("{}: not a summary of figures: {e}", shown(&file))))?;
        shards.push(summary);
    }
    let merged = Summary::merge(&shards).map_err(Usage)?;
    for (dir, summary) in args.merge.iter().zip(&shards) {
        for e in &summary.entries {
            for name in [format!("{}.csv", e.id), format!("{}.svg", e.id)] {
                let from = dir.join(&name);
                let text = read_text(&from).map_err(unread)?;
                write(&args.out, &name, &text)?;
            }
        }
    }
    Ok(merged)
}

fn write(dir: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    Ok(write_atomic(&dir.join(name), text.as_bytes())?)
}

/// Makes the entries on all cores. Returns them in the order of `chosen`.
fn all(args: &Args, root: &Path, chosen: &[&Claim]) -> anyhow::Result<Vec<Entry>> {
    let progress = Counted::new(chosen.len() as u64, "entries", args.quiet);
    let runs = AtomicU64::new(0);
    let ctx = Ctx::new(root, args.repeats, move |step| {
        let made = match step {
            Step::Run => runs.fetch_add(1, Ordering::Relaxed) + 1,
            Step::Entry(_) => runs.load(Ordering::Relaxed),
        };
        progress.step(matches!(step, Step::Entry(_)), &format!("{made} runs"));
    });
    let entries = chosen.par_iter().map(|claim| {
        let entry = make(&ctx, claim).with_context(|| claim.id.clone());
        ctx.entry_made(&claim.id);
        entry
    });
    entries.collect()
}

fn table(summary: &Summary, width: usize) -> String {
    let head = "values of the papers against the simulator (no measurements)";
    let (mut text, mut lines) = (fit::wrap_lines(head, width), Vec::new());
    for e in &summary.entries {
        let rows = || summary.rows.iter().filter(|r| r.entry == e.id);
        let within = rows().filter(|r| r.within).count();
        let verdict = match (e.reproduced, e.within, e.direction_right) {
            (false, ..) => "no experiment yet",
            (true, true, _) => "agrees",
            (true, false, true) => "differs, right direction",
            (true, false, false) => "differs",
        };
        let kind = e.kind.name();
        let values = format!("{within} of {}", rows().count());
        lines.push(vec![e.id.clone(), kind.to_string(), values, verdict.to_string()]);
    }
    let columns = [
        Column::text("entry", 0),
        Column::text("kind", 3),
        Column::number("values", 2),
        Column::text("verdict", 1),
    ];
    text += &fit::table(&columns, &lines, width);
    text + &fit::wrap_lines(
        &format!(
            "{} predicted, {} within tolerance, {} with the right direction",
            summary.predicted, summary.within, summary.direction_right
        ),
        width,
    )
}
