// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab bench --worlds`: which worlds are made, what they take, and their boots.

use crate::boots::Boot;
use crate::exit::Usage;
use crate::load::{Loaded, Select};
use crate::machine::sim;
use crate::share::Share;
use crate::worlds::time::{self, length_ms};
use crate::worlds::{Design, Inputs, Source};
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use unspin_report::Document;
use unspin_scenario::plan::{Plan, Run};
use unspin_scenario::result::{World, WorldDesign};
use unspin_sim::{simulate, Host};
use unspin_worlds as stat;

/// Screening: trajectories, and the most inputs that shares are computed of.
const TRAJECTORIES: usize = 10;
const SHARES_MAX: usize = 8;
/// Runs are timed for so long before the time of all is said.
const PILOT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Default, clap::Args)]
pub struct WorldArgs {
    /// Also simulate N worlds, and show the range of each arm over them (machine sim). Each world draws
    /// new values for what the scenario leaves unknown. A larger N extends the same list of worlds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=i64::from(stat::SAMPLES_MAX)))]
    pub worlds: Option<u32>,
    /// Also compute each input's share of the variance, with a design of N rows: N worlds per input, and
    /// 2 N more. If there are more than 8 inputs, a screening first selects 8.
    #[arg(long, value_name = "N", requires = "worlds", value_parser = clap::value_parser!(u32).range(4..=i64::from(stat::SAMPLES_MAX)))]
    pub decides: Option<u32>,
    /// Instead of N worlds: read the worlds from a CSV file with a column per input and values from 0 to
    /// 1.
    #[arg(long, value_name = "FILE", conflicts_with = "worlds")]
    pub design: Option<PathBuf>,
    /// Vary only this input, besides chance; may be repeated.
    #[arg(long = "input", value_name = "NAME", value_delimiter = ',')]
    pub inputs: Vec<String>,
}

impl WorldArgs {
    pub fn is_asked(&self) -> bool {
        self.worlds.is_some() || self.design.is_some()
    }
}

/// The worlds that a bench makes of one scenario.
pub struct Drawn<'a> {
    args: &'a WorldArgs,
    source: Source<'a>,
    shard: Option<Share>,
}

/// Where boots of worlds go, and what they are made by.
pub struct Place<'a> {
    pub kernels: &'a [String],
    pub image: &'a str,
    pub dir: &'a Path,
}

impl<'a> Drawn<'a> {
    /// # Errors
    /// Inputs that there are not, and what cannot be shared out.
    pub fn new(
        args: &'a WorldArgs,
        (loaded, usual, inputs): (&'a Loaded, &'a Plan, &'a Inputs),
        select: &'a Select,
        shard: Option<Share>,
    ) -> Result<Drawn<'a>, Usage> {
        let source = Source { loaded, inputs, usual, select };
        let drawn = Drawn { args, source, shard };
        if drawn.needs_screening() && shard.is_some() {
            let n = inputs.of_runs().len();
            return Err(Usage(format!(
                "--decides: the screening of {n} inputs needs all worlds on one computer; select \
                 at most {SHARES_MAX} with --input, or omit --shard"
            )));
        }
        Ok(drawn)
    }

    /// Shares are asked of more inputs than they are computed of.
    pub fn needs_screening(&self) -> bool {
        self.args.decides.is_some() && self.source.inputs.of_runs().len() > SHARES_MAX
    }

    /// What is known before anything is made.
    pub fn designs(&self) -> anyhow::Result<Vec<Design>> {
        let (inputs, seed) = (self.source.inputs, self.source.loaded.scenario.seed);
        let n = inputs.all.len();
        if let Some(file) = &self.args.design {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let read = stat::Design::read(&text, &inputs.names())
                .map_err(|e| Usage(format!("{}: {e}", file.display())))?;
            return Ok(vec![Design { design: WorldDesign::Given, points: read.points }]);
        }
        let worlds = self.args.worlds.unwrap_or(0);
        let points = (0..worlds).map(|i| stat::point(i, n, seed)).collect();
        let mut designs = vec![Design { design: WorldDesign::Sample, points }];
        match self.args.decides {
            Some(_) if self.needs_screening() => designs.push(self.screening()),
            Some(rows) => designs.push(self.shares(rows, &inputs.of_runs())),
            None => {}
        }
        Ok(designs)
    }

    fn screening(&self) -> Design {
        let (inputs, seed) = (self.source.inputs, self.source.loaded.scenario.seed);
        let varied = inputs.of_runs();
        let steps = varied.len() + 1;
        let chance = |at: usize| stat::point((at / steps) as u32, 1, !seed)[0];
        let points = stat::trajectories(TRAJECTORIES, varied.len(), seed);
        let points = points.iter().enumerate().map(|(i, p)| self.whole(&varied, p, chance(i)));
        Design { design: WorldDesign::Screening, points: points.collect() }
    }

    /// Chance is one of the design's inputs.
    fn shares(&self, rows: u32, varied: &[usize]) -> Design {
        let points = stat::sobol_design(rows, varied.len() + 1, self.source.loaded.scenario.seed);
        let whole = |p: &Vec<f64>| self.whole(varied, p, p[varied.len()]);
        Design { design: WorldDesign::Shares, points: points.iter().map(whole).collect() }
    }

    /// Places of all inputs: those that a design varies, chance, the others as usual.
    fn whole(&self, varied: &[usize], places: &[f64], chance: f64) -> Vec<f64> {
        let inputs = self.source.inputs;
        let mut all: Vec<f64> = (0..inputs.all.len()).map(|i| inputs.usual(i)).collect();
        for (input, place) in varied.iter().zip(places) {
            all[*input] = *place;
        }
        if let Some(last) = all.last_mut() {
            *last = chance;
        }
        all
    }

    /// Once screening is made: the design of shares of the inputs that did most in any comparison, and
    /// the names of the others.
    pub fn chosen(&self, docs: &[Document]) -> (Design, Vec<String>) {
        let inputs = self.source.inputs;
        let most = |i: usize| {
            let rows = docs.iter().flat_map(|d| &d.summary.arms).filter_map(|r| r.bands.as_ref());
            let of_input = |b: &unspin_report::Bands| {
                let s = b.screened.iter().find(|s| s.input == inputs.all[i].name)?;
                Some(s.effect.mu_star)
            };
            rows.filter_map(of_input).fold(0.0, f64::max)
        };
        let mut by_effect = inputs.of_runs();
        by_effect.sort_by(|a, b| most(*b).total_cmp(&most(*a)));
        let (chosen, others) = by_effect.split_at(SHARES_MAX.min(by_effect.len()));
        let mut chosen = chosen.to_vec();
        chosen.sort_unstable();
        let others = others.iter().map(|i| inputs.all[*i].name.clone()).collect();
        (self.shares(self.args.decides.unwrap_or(0), &chosen), others)
    }

    /// The boots of this computer's share of the designs' worlds.
    pub fn boots(&self, designs: &[Design], place: &Place) -> anyhow::Result<Vec<Boot>> {
        let mut boots = Vec::new();
        for name in place.kernels {
            let kernel = sim::kernel(name)?;
            for d in designs {
                let mine = |i: &usize| self.shard.is_none_or(|s| *i as u32 % s.of == s.index - 1);
                for index in (0..d.points.len()).filter(mine) {
                    let (world, plan) = self.source.world(d, index, kernel);
                    boots.push(self.boot(world, plan, name, place));
                }
            }
        }
        Ok(boots)
    }

    fn boot(&self, world: World, plan: Result<Plan, String>, kernel: &str, place: &Place) -> Boot {
        let (plan, refusal) = match plan {
            Ok(plan) => (plan, None),
            Err(why) => {
                let runs: Vec<Run> = self.source.runs().into_iter().cloned().collect();
                (Plan { runs, ..self.source.usual.clone() }, Some(why))
            }
        };
        let of_world =
            Plan { title: format!("{:?} {}", world.design, world.index), ..plan.clone() };
        let mut boot = Boot::new("sim", kernel, &of_world, place.image, place.dir);
        boot.plan = plan;
        boot.world = Some(world);
        boot.refusal = refusal;
        boot
    }

    /// Says what this computer's share of the designs' worlds takes, before they are made.
    ///
    /// # Errors
    /// More than a day.
    pub fn say_time(&self, designs: &[Design], place: &Place, jobs: usize) -> anyhow::Result<()> {
        let all: usize = designs.iter().map(|d| d.points.len()).sum();
        let worlds = (all / self.shard.map_or(1, |s| s.of as usize)).max(1) * place.kernels.len();
        let runs = self.source.runs();
        let takes = self.one_world(&runs, place)?.as_secs_f64() * worlds as f64 / jobs as f64;
        let what = format!("{worlds} worlds of {} runs", runs.len());
        let less = "use fewer worlds, shorter windows, or --shard I/N on N computers";
        Ok(time::say(&what, takes, jobs, less)?)
    }

    /// What the runs of the usual world take on one CPU, from as many of them as are soon made.
    fn one_world(&self, runs: &[&Run], place: &Place) -> anyhow::Result<Duration> {
        let (since, mut timed_ms) = (Instant::now(), 0);
        let kernel = place.kernels.first().map_or("6.12", String::as_str);
        let host = Host::of_plan(self.source.usual, sim::kernel(kernel)?);
        for run in runs {
            // What cannot be simulated is counted when the world is made.
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

/// What a scenario with ranges is told that is run without worlds.
pub fn say_usual(l: &Loaded) {
    for (name, unknown) in l.unknown() {
        let usual = &unknown.usual;
        say!("note: {name} is unknown; this run uses {usual}. --machine sim --worlds N draws it");
    }
}
