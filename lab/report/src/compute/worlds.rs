// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes bands, inputs that decide, and orders of arms from the same runs in many worlds.

use crate::compute::measures::{throughput, Over};
use crate::read::dedupe::point_of;
use crate::read::input::Stream;
use crate::summary::Point;
use crate::worlds::{Bands, Decides, InputRow, OrderRow, PairRow, Reason, WorldsMade};
use std::collections::BTreeMap;
use unspin_scenario::plan::Run;
use unspin_scenario::result::{Begin, ModelError, RunResult, World, WorldDesign};
use unspin_worlds as stat;
use unspin_worlds::Band;

/// Seed of the resampling that computes intervals.
const SEED: u64 = 16;
pub(crate) const DESIGNS: [WorldDesign; 2] = [WorldDesign::Sample, WorldDesign::Given];

/// A world and its runs.
pub(crate) struct Seen<'a> {
    pub world: &'a World,
    runs: BTreeMap<u32, &'a RunResult>,
    failed: &'a [(u32, String)],
}

/// The worlds of one document.
pub(crate) struct Worlds<'a> {
    pub designs: BTreeMap<WorldDesign, BTreeMap<u32, Seen<'a>>>,
}

impl<'a> Worlds<'a> {
    /// The streams that belong to the plan of `usual`. Missing ones are recorded as notices.
    pub(crate) fn of(usual: &Begin, streams: &'a [Stream], notices: &mut Vec<String>) -> Self {
        let mut designs: BTreeMap<WorldDesign, BTreeMap<u32, Seen>> = BTreeMap::new();
        for s in streams {
            let Some(world) = &s.begin.world else { continue };
            let is_of_it = (&world.usual_hash, &s.begin.machine, &s.begin.kernel)
                == (&usual.scenario_hash, &usual.machine, &usual.kernel);
            if is_of_it && s.ended {
                let runs = s.runs.iter().map(|r| (r.run.id, r)).collect();
                let seen = Seen { world, runs, failed: &s.failed };
                let worlds = designs.entry(world.design).or_default();
                // All worlds of one design have the same inputs. Others were written by another
                // program.
                let inputs =
                    worlds.values().next().map_or(world.inputs.len(), |w| w.world.inputs.len());
                if inputs == world.inputs.len() {
                    worlds.entry(world.index).or_insert(seen);
                }
            }
        }
        for (design, worlds) in &designs {
            let of = worlds.values().map(|w| w.world.of).max().unwrap_or(0);
            let missing = (of as usize).saturating_sub(worlds.len());
            if missing > 0 {
                notices.push(format!(
                    "{} on {}: {} of {of} worlds ({}) are here and count; {missing} are missing: \
                     a shard, or a bench cut off, which `unspin-lab bench --resume` goes on with",
                    usual.scenario,
                    usual.kernel,
                    worlds.len(),
                    name(*design),
                ));
            }
        }
        Worlds { designs }
    }

    /// The bands of the arm whose runs are `of`, against the baseline's.
    pub(crate) fn bands(
        &self,
        of: &[&RunResult],
        base: &[&RunResult],
        over: Over,
    ) -> Option<Bands> {
        let arm = of.iter().min_by_key(|r| r.run.repeat)?;
        let base = base.iter().find(|b| b.run.repeat == arm.run.repeat)?;
        let ids = (arm.run.id, base.run.id);
        let plain = self.plain()?;
        let (points, outcomes) = drawn(plain.values(), ids, over);
        let band = Band::of(&outcomes)?;
        let is_baseline = ids.0 == ids.1;
        let whole = over.vm.is_none() && !is_baseline;
        Some(Bands {
            band: rounded(band),
            decides: if whole { self.decides(&points, &outcomes, band) } else { vec![] },
        })
    }

    /// What bands are from.
    fn plain(&self) -> Option<&BTreeMap<u32, Seen<'a>>> {
        let of = |design| self.designs.get(&design);
        of(WorldDesign::Sample).or_else(|| of(WorldDesign::Given))
    }

    fn decides(&self, points: &[Vec<f64>], outcomes: &[f64], band: Band) -> Vec<Decides> {
        let names = self.plain().map(names).unwrap_or_default();
        let mut all: Vec<Decides> = names
            .into_iter()
            .zip(stat::shares(points, outcomes, SEED))
            .map(|(input, share)| {
                let (low, high) = band.shrunk(share.width_left());
                let unknowable = [World::CHANCE, World::MODEL_ERROR].contains(&input.as_str());
                Decides { input, share, band_if_known: (!unknowable).then_some([low, high]) }
            })
            .collect();
        all.sort_by(|a, b| b.share.share.total_cmp(&a.share.share));
        all
    }

    /// What was simulated, per design.
    pub(crate) fn made(&self) -> Vec<WorldsMade> {
        let there = DESIGNS.iter().filter_map(|d| Some((*d, self.designs.get(d)?)));
        there.map(|(design, worlds)| made(design, worlds)).collect()
    }

    /// The orders of arms, point by point.
    pub(crate) fn orders(&self, points: &[Point], runs: &[&RunResult]) -> Vec<OrderRow> {
        let Some(worlds) = self.plain() else { return Vec::new() };
        points.iter().filter_map(|p| order_at(p, runs, worlds)).collect()
    }
}

pub(crate) fn name(design: WorldDesign) -> &'static str {
    match design {
        WorldDesign::Sample => "sample",
        WorldDesign::Given => "given",
    }
}

/// Four digits after the point, as figures of summaries have.
fn rounded(b: Band) -> Band {
    let round = crate::stat::round;
    Band {
        p05: round(b.p05),
        p25: round(b.p25),
        p50: round(b.p50),
        p75: round(b.p75),
        p95: round(b.p95),
        ..b
    }
}

/// Logarithm of the arm's throughput over the baseline's, with the model's error; `None` if one of
/// them was not simulated or did nothing.
pub(crate) fn outcome(w: &Seen, (arm, base): (u32, u32), over: Over) -> Option<f64> {
    let of =
        |id| w.runs.get(&id).map(|r| throughput(r, over)).filter(|t| *t > 0.0 && t.is_finite());
    let ratio = (of(arm)? / of(base)?).ln();
    if arm == base {
        return Some(ratio);
    }
    let run = &w.runs.get(&arm)?.run;
    let error = w.world.error.and_then(|error| {
        let input = w.world.inputs.iter().find(|i| i.name == World::MODEL_ERROR)?;
        Some(off(&error, run, ratio, input.at))
    });
    Some(ratio + error.unwrap_or(0.0))
}

/// The model's error in `outcome`, the logarithm of a run's ratio, if the error is at the place
/// `at` of its range, 0 to 1.
pub fn off(error: &ModelError, run: &Run, outcome: f64, at: f64) -> f64 {
    error.deviation(run, outcome) * stat::normal_quantile(at)
}

/// Coordinates and outcomes of the worlds that have one.
fn drawn<'w, 'a: 'w>(
    worlds: impl Iterator<Item = &'w Seen<'a>>,
    ids: (u32, u32),
    over: Over,
) -> (Vec<Vec<f64>>, Vec<f64>) {
    let point = |w: &Seen| w.world.inputs.iter().map(|i| i.at).collect();
    worlds.filter_map(|w| Some((point(w), outcome(w, ids, over)?))).unzip()
}

fn names(worlds: &BTreeMap<u32, Seen>) -> Vec<String> {
    let first = worlds.values().next();
    first.map_or(Vec::new(), |w| w.world.inputs.iter().map(|i| i.name.clone()).collect())
}

fn made(design: WorldDesign, worlds: &BTreeMap<u32, Seen>) -> WorldsMade {
    let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
    let impossible: Vec<&Seen> = worlds.values().filter(|w| !w.failed.is_empty()).collect();
    for w in &impossible {
        // The error is the same for all runs, or the first one is enough.
        let error = w.failed[0].1.as_str();
        let error = error
            .split_once(": ")
            .filter(|(run, _)| run.starts_with("run "))
            .map_or(error, |e| e.1);
        *reasons.entry(error).or_default() += 1;
    }
    let inputs = worlds.values().next().map_or(0, |w| w.world.inputs.len());
    let row = |i: usize| {
        let all = worlds.values().filter_map(|w| w.world.inputs.get(i));
        let least = all.clone().min_by(|a, b| a.at.total_cmp(&b.at))?;
        let most = all.max_by(|a, b| a.at.total_cmp(&b.at))?;
        Some(InputRow {
            name: least.name.clone(),
            from: least.value.clone(),
            to: most.value.clone(),
            source: least.source.clone(),
        })
    };
    WorldsMade {
        design,
        of: worlds.values().map(|w| w.world.of).max().unwrap_or(0),
        made: worlds.len() as u32,
        impossible: impossible.len() as u32,
        reasons: reasons
            .into_iter()
            .map(|(error, worlds)| Reason { error: error.to_string(), worlds })
            .collect(),
        inputs: (0..inputs).filter_map(row).collect(),
    }
}

/// The runs of the first repeat at a point, and the id of the baseline's.
pub(crate) fn first_repeat<'a>(
    p: &Point,
    runs: &[&'a RunResult],
) -> Option<(Vec<&'a RunResult>, u32)> {
    let here = || runs.iter().filter(|r| !r.run.alone && point_of(r) == *p);
    let repeat = here().map(|r| r.run.repeat).min()?;
    let first: Vec<&RunResult> = here().filter(|r| r.run.repeat == repeat).copied().collect();
    let base = first.iter().find(|r| r.run.arm.name == r.run.baseline)?.run.id;
    Some((first, base))
}

fn order_at(p: &Point, runs: &[&RunResult], worlds: &BTreeMap<u32, Seen>) -> Option<OrderRow> {
    let (first, base) = first_repeat(p, runs)?;
    if first.len() < 2 {
        return None;
    }
    let of_world = |w: &Seen| -> Option<Vec<f64>> {
        first.iter().map(|r| outcome(w, (r.run.id, base), Over::ALL)).collect()
    };
    let outcomes: Vec<Vec<f64>> = worlds.values().filter_map(of_world).collect();
    let order = stat::order(&outcomes)?;
    let named = |i: usize| first[i].run.arm.name.clone();
    Some(OrderRow {
        at: p.clone(),
        order: order.best_first.iter().map(|i| named(*i)).collect(),
        probability: order.probability,
        pairs: order
            .pairs
            .iter()
            .map(|p| PairRow {
                better: named(p.better),
                worse: named(p.worse),
                probability: p.probability,
            })
            .collect(),
    })
}
