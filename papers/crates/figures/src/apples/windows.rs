// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures 11 and 12: where the windows of stock KVM and of APLE settle (section 4.3).

use super::{selection, SCENARIO};
use crate::ctx::{mean, Change, Runs};
use crate::within::Rule;
use crate::{Ctx, Entry, Error};
use std::sync::Arc;
use unspin_sim::{Kernel, Simulated};

/// APLE from 4 initial windows, for 300 rounds and more.
const ENDS: &str = "papers/apples/scenarios/apples-ends.toml";
const EBIZZY: &str = "apples-ebizzy";
/// T0, and the windows that are tried besides it (section 4.1 and the ends of its range).
const T0: &str = "aple-8192";
const FROM: [&str; 4] = ["aple-4096", T0, "aple-16384", "aple-32768"];
/// Tu and the step (section 4.1). A window within a step of Tu is at the bound.
const BOUND_CYCLES: u64 = 32_768;
const STEP_CYCLES: u64 = 1024;
/// A window that is at the bound in more of the last epochs than this ends there.
const AT_BOUND: f64 = 0.1;

/// Draws the windows of the first VM's epochs, with their times.
fn draw(e: &mut Entry, name: &str, run: &Simulated) {
    e.axes("ms", "window, cycles");
    let first: Vec<_> = run.result.epochs.iter().filter(|s| s.vm == 0).collect();
    let every = first.len().div_ceil(400).max(1);
    let points = first.iter().step_by(every);
    e.series(name, points.map(|s| (s.at_ns as f64 / 1e6, s.window_cycles as f64)));
}

/// Mean window of ebizzy's epochs under stock KVM, two VMs, all repeats.
pub(super) fn fig11(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let mut setups = ctx.setups(SCENARIO, Kernel::V3_19, &selection(&["ebizzy"], &["stock"], 2))?;
    for s in &mut setups {
        s.run.trace_epochs = true;
    }
    let made = ctx.simulate(&setups)?;
    draw(e, "stock", &made[0]);
    let epochs = made.iter().flat_map(|s| &s.result.epochs);
    e.count("settles_near", mean(epochs.map(|s| s.window_cycles as f64)), None);
    Ok(())
}

/// Long runs of ebizzy, and where the windows end.
struct Ends {
    runs: Runs,
}

impl Ends {
    fn new(ctx: &Ctx, arms: &[&str], change: Change) -> Result<Ends, Error> {
        let mut setups = ctx.setups(ENDS, Kernel::V3_19, &selection(&["ebizzy"], arms, 2))?;
        setups.retain(|s| s.run.arm.name == "stock" || arms.contains(&&*s.run.arm.name));
        setups.iter_mut().for_each(change);
        Ok(Ends { runs: Runs { all: ctx.simulate(&setups)? } })
    }

    fn of<'a>(&'a self, arm: &'a str) -> impl Iterator<Item = &'a Arc<Simulated>> {
        self.runs.all.iter().filter(move |s| s.result.run.arm.name == arm)
    }

    /// The windows of the last third of each VM's epochs.
    fn last(&self, arm: &str) -> Vec<u64> {
        let mut all = Vec::new();
        for run in self.of(arm) {
            for vm in 0..run.result.vm.len() as u32 {
                let epochs = run.result.epochs.iter().filter(|s| s.vm == vm);
                let windows: Vec<u64> = epochs.map(|s| s.window_cycles).collect();
                all.extend(&windows[2 * windows.len() / 3..]);
            }
        }
        all
    }

    fn end(&self, arm: &str) -> f64 {
        mean(self.last(arm).into_iter().map(|w| w as f64))
    }

    /// The share of the last epochs whose window is at the bound.
    fn at_bound(&self, arm: &str) -> f64 {
        mean(self.last(arm).into_iter().map(|w| f64::from(w + STEP_CYCLES >= BOUND_CYCLES)))
    }

    /// The fewest rounds of any VM.
    fn rounds(&self, arm: &str) -> u64 {
        let vms = self.of(arm).flat_map(|s| &s.result.vm);
        vms.filter_map(|v| Some(v.module.as_ref()?.rounds_total)).min().unwrap_or(0)
    }

    fn against_stock(&self, arm: &str) -> f64 {
        self.runs.performance(EBIZZY, 2, arm, "stock")
    }

    /// PLE exits per unit of work against stock's: the paper counts epochs for the same work.
    fn exits_against_stock(&self, arm: &str) -> f64 {
        self.exits_per_unit(arm) / self.exits_per_unit("stock")
    }

    fn exits_per_unit(&self, arm: &str) -> f64 {
        mean(self.runs.of(EBIZZY, 2, arm).map(|r| {
            let exits: u64 = r.vm.iter().filter_map(|v| Some(v.module.as_ref()?.ple_exits)).sum();
            let units: u64 = r.vm.iter().flat_map(|v| &v.units).sum();
            exits as f64 / units as f64
        }))
    }

    /// End, share at the bound, throughput and rounds of each initial window.
    fn text(&self) -> String {
        let one = |arm: &&str| {
            format!(
                "{arm}: {:.0}, {:.0} % of the last third at the bound, {:.3} of stock, {} rounds or more",
                self.end(arm),
                100.0 * self.at_bound(arm),
                self.against_stock(arm),
                self.rounds(arm)
            )
        };
        FROM.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

/// APLE's window in the last third of a run of 8 s, from 4 initial windows.
pub(super) fn fig12(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let ends = Ends::new(ctx, &FROM, |_| ())?;
    if let (Some(aple), Some(stock)) = (ends.of(T0).next(), ends.of("stock").next()) {
        draw(e, "aple", aple);
        draw(e, "stock", stock);
    }
    e.count("settles_near", ends.end(T0), Some(ends.end("stock")));
    e.ratio("epochs_vs_stock", ends.exits_against_stock(T0));
    let (low, high) = (ends.end(FROM[0]), ends.end(FROM[3]));
    let below = FROM.iter().all(|arm| ends.at_bound(arm) <= AT_BOUND);
    let alike = Rule::SIMILAR.allows(low / high);
    e.condition("ends alike from 4096 and 32768, below the bound", alike && below, ends.text());
    let counted = Ends::new(ctx, &FROM, |s| s.wastes_switched_out = true)?;
    e.note(format!(
        "With the paper's measure, which counts the time for which a vCPU is switched out in an exit \
         (the module leaves it out): {}",
        counted.text()
    ));
    Ok(())
}
