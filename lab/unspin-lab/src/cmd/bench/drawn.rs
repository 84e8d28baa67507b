// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab bench --worlds`: the worlds to simulate, how long they take, and their boots.

use super::Bench;
use crate::boots::Boot;
use crate::exit::{unread, Usage};
use crate::load::Loaded;
use crate::machine::sim;
use crate::worlds::time::{self, length_ms};
use crate::worlds::{Design, Inputs, Source};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use unspin_scenario::plan::{Plan, Run};
use unspin_scenario::result::{World, WorldDesign};
use unspin_sim::{simulate, Host};
use unspin_text::{read_text, shown};
use unspin_worlds as stat;

/// Time for which runs are timed before the total time is reported.
const PILOT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Default, clap::Args)]
pub struct WorldArgs {
    /// Also simulate N worlds, and show the range of each arm over them (machine sim). Each world draws
    /// new values for what the scenario leaves unknown. A larger N extends the same list of worlds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=i64::from(stat::SAMPLES_MAX)))]
    pub worlds: Option<u32>,
    /// Read the worlds from a CSV file, instead of drawing N. The file has a column per input, with values
    /// from 0 to 1.
    #[arg(long, value_name = "FILE", conflicts_with = "worlds")]
    pub design: Option<PathBuf>,
    /// Vary only this input and chance (the seeds); may be repeated.
    #[arg(long = "input", value_name = "NAME", value_delimiter = ',')]
    pub inputs: Vec<String>,
}

impl WorldArgs {
    pub fn is_asked(&self) -> bool {
        self.worlds.is_some() || self.design.is_some()
    }
}

/// The worlds that a bench simulates for one scenario.
pub struct Drawn<'a> {
    bench: &'a Bench<'a>,
    source: Source<'a>,
    /// Hash of the code that runs the boots.
    image: &'a str,
}

impl<'a> Drawn<'a> {
    pub fn new(bench: &'a Bench, inputs: &'a Inputs, image: &'a str) -> Drawn<'a> {
        let Bench { args, loaded, plan: usual, .. } = bench;
        let source = Source { loaded, inputs, usual, select: &args.select };
        Drawn { bench, source, image }
    }

    /// The worlds to simulate.
    pub fn design(&self) -> anyhow::Result<Design> {
        let (inputs, seed) = (self.source.inputs, self.source.loaded.scenario.seed);
        let n = inputs.all.len();
        if let Some(file) = &self.bench.args.worlds.design {
            let text = read_text(file).map_err(unread)?;
            let read = stat::Design::read(&text, &inputs.names())
                .map_err(|e| Usage(format!("{}: {e}", shown(file))))?;
            return Ok(Design { design: WorldDesign::Given, points: read.points });
        }
        let worlds = self.bench.args.worlds.worlds.unwrap_or(0);
        let points = (0..worlds).map(|i| stat::point(i, n, seed)).collect();
        Ok(Design { design: WorldDesign::Sample, points })
    }

    /// The boots of this computer's share of the design's worlds.
    pub fn boots(&self, design: &Design) -> anyhow::Result<Vec<Boot>> {
        let mut boots = Vec::new();
        for name in &self.bench.kernels() {
            let kernel = sim::kernel(name)?;
            let mine =
                |i: &usize| self.bench.args.shard.is_none_or(|s| *i as u32 % s.of == s.index - 1);
            for index in (0..design.points.len()).filter(mine) {
                let (world, plan) = self.source.world(design, index, kernel);
                boots.push(self.boot(world, plan, name));
            }
        }
        Ok(boots)
    }

    fn boot(&self, world: World, plan: Result<Plan, String>, kernel: &str) -> Boot {
        let (plan, refusal) = match plan {
            Ok(plan) => (plan, None),
            Err(why) => {
                let runs: Vec<Run> = self.source.runs().into_iter().cloned().collect();
                (Plan { runs, ..self.source.usual.clone() }, Some(why))
            }
        };
        let of_world =
            Plan { title: format!("{:?} {}", world.design, world.index), ..plan.clone() };
        let mut boot = Boot::new("sim", kernel, &of_world, self.image, &self.bench.boots_dir());
        boot.plan = plan;
        boot.world = Some(world);
        boot.refusal = refusal;
        boot
    }

    /// Reports how long this computer's share of the design's worlds takes, before they are
    /// simulated.
    ///
    /// # Errors
    /// The time is more than a day.
    pub fn say_time(&self, design: &Design) -> anyhow::Result<()> {
        let (jobs, shares) =
            (self.bench.jobs(), self.bench.args.shard.map_or(1, |s| s.of as usize));
        let worlds = (design.points.len() / shares).max(1) * self.bench.kernels().len();
        let runs = self.source.runs();
        let takes = self.one_world(&runs)?.as_secs_f64() * worlds as f64 / jobs as f64;
        let what = format!("{worlds} worlds of {} runs", runs.len());
        let less = "use fewer worlds, a shorter window_ms, or --shard I/N on N computers";
        Ok(time::say(&what, takes, jobs, less)?)
    }

    /// Time for the runs of the usual world on one CPU, extrapolated from those that finish soon.
    fn one_world(&self, runs: &[&Run]) -> anyhow::Result<Duration> {
        let (since, mut timed_ms) = (Instant::now(), 0);
        let kernels = self.bench.kernels();
        let kernel = kernels.first().map_or("6.12", String::as_str);
        let host = Host::of_plan(self.source.usual, sim::kernel(kernel)?);
        for run in runs {
            // Impossible runs are counted when the world is made.
            let _ = simulate(&host, run);
            timed_ms += length_ms(run);
            if since.elapsed() > PILOT {
                break;
            }
        }
        let all_ms: u64 = runs.iter().map(|r| length_ms(r)).sum();
        Ok(since.elapsed().mul_f64(all_ms as f64 / timed_ms.max(1) as f64))
    }
}

/// The note for a scenario with ranges that is run without worlds.
pub fn say_usual(l: &Loaded) {
    for (name, unknown) in l.unknown() {
        let usual = &unknown.usual;
        say!(
            "note: {name} is unknown; this run uses {usual}. --machine sim --worlds N draws values"
        );
    }
}
