// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab agree`: repeats measured runs on machine `sim` with several seeds, and reports how well
//! the two agree: arms of a host that measures exits, or locks on machine `threads`. Writes Markdown to
//! standard output.

mod bands;
mod count;
mod known;
mod locks;
mod measured;
mod own;
mod page;
mod row;
mod scores;

use crate::exit::Usage;
use crate::out;
use anyhow::Context;
use count::{Job, Times};
use rayon::prelude::*;
use row::{Figures, Key, Kind, Pair};
use std::collections::BTreeMap;
use std::path::PathBuf;
use unspin_report::read_files;
use unspin_sim::simulate;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Result files of measured runs (results.jsonl).
    #[arg(value_name = "FILE", required_unless_present_any = ["held_out", "known"])]
    files: Vec<PathBuf>,
    /// Result files of held-out scenarios, to which the simulator was not fitted; their scores come
    /// first.
    #[arg(long, value_name = "FILE")]
    held_out: Vec<PathBuf>,
    /// Files of measured ratios of scenarios of this project, in the format of results/known.jsonl;
    /// their scores are listed separately.
    #[arg(long, value_name = "FILE")]
    known: Vec<PathBuf>,
    /// Number of seeds to simulate each measured run with.
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    /// Simulate each measured arm in N worlds with different costs of the model, instead of with seeds, and
    /// compare bands.
    #[arg(long, value_name = "N", conflicts_with = "seeds", value_parser = clap::value_parser!(u32).range(10..=i64::from(unspin_worlds::SAMPLES_MAX)))]
    worlds: Option<u32>,
    /// Print the scores of all arms as one line of JSON.
    #[arg(long)]
    json: bool,
}

impl Args {
    fn times(&self) -> Times {
        Times { seeds: self.seeds, worlds: self.worlds }
    }
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut pairs: BTreeMap<Key, Pair> = BTreeMap::new();
    let (mut jobs, times) = (Vec::new(), args.times());
    for (kind, files) in [(Kind::HeldOut, &args.held_out), (Kind::Given, &args.files)] {
        let input = read_files(files).map_err(|e| Usage(e.to_string()))?;
        for notice in &input.notices {
            say!("note: {notice}");
        }
        jobs.extend(measured::jobs(times, kind, &input.streams, &mut pairs)?);
    }
    for file in &args.known {
        jobs.extend(known::jobs(times, file, &mut pairs)?);
    }
    if jobs.is_empty() {
        return Err(Usage(
            "no runs to simulate: the files are not results of `unspin-lab bench`, or have no runs"
                .to_string(),
        )
        .into());
    }
    if args.worlds.is_some() {
        bands::say_time(&jobs)?;
    }
    for (job, figures) in simulate_all(&jobs)? {
        let pair = pairs.entry(job.key.clone()).or_default();
        pair.simulated.push(figures);
        pair.worlds.insert(job.world, figures.units_per_s);
        pair.errors.extend(job.error.map(|at| (job.world, at)));
    }
    let (locks, arms): (BTreeMap<_, _>, BTreeMap<_, _>) =
        pairs.into_iter().partition(|(key, _)| key.threads);
    if args.json {
        return out::json(&scores::document(&arms, args.worlds));
    }
    let mut text = String::new();
    if !arms.is_empty() {
        text += &page::page(&arms, args.worlds, &times.said());
    }
    if !locks.is_empty() {
        text += if text.is_empty() { "" } else { "\n" };
        text += &locks::section(&locks, args.seeds);
    }
    out::print(&text)
}

fn simulate_all(jobs: &[Job]) -> anyhow::Result<Vec<(&Job, Figures)>> {
    let one = |job: &Job| -> anyhow::Result<Figures> {
        let Job { host, run, key, .. } = job;
        let what = || format!("{} on kernel {}", run.profile, key.kernel);
        Ok(measured::figures(&simulate(host, run).with_context(what)?.result))
    };
    jobs.par_iter().map(|job| Ok((job, one(job)?))).collect()
}
