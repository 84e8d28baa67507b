// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures 13 and 14: HVS and three variants that invert one heuristic each (section 4.4).

use super::{profile, selection, SCENARIO, SEVEN};
use crate::ctx::{mean, Runs};
use crate::within::Rule;
use crate::{Ctx, Entry, Error};
use unspin_scenario::plan::YieldTo;
use unspin_sim::Kernel;
use unspin_uapi::Variant;

/// The paper's HVS and its inversions. docs/suspicions.md has them with the other reading of its lists.
pub(super) fn figure(ctx: &Ctx, e: &mut Entry, arm: &str, window: &str) -> Result<(), Error> {
    let stock = ctx.setups(SCENARIO, Kernel::V3_19, &selection(&SEVEN, &["stock"], 2))?;
    let arms = [
        ("HVS", Variant::PAPER),
        ("CPTH_R", Variant::CPTH_R),
        ("CPTH_L", Variant::CPTH_L),
        ("CCH", Variant::CCH),
    ];
    let stock = Runs { all: ctx.simulate(&stock)? };
    let mut all = Vec::new();
    for (name, variant) in arms {
        let mut setups = ctx.setups(SCENARIO, Kernel::V3_19, &selection(&SEVEN, &[arm], 2))?;
        setups.retain(|s| s.run.arm.name == arm);
        for vm in setups.iter_mut().flat_map(|s| &mut s.vms) {
            vm.arm.yield_to = YieldTo::Module(variant);
        }
        let runs = Runs { all: ctx.simulate(&setups)? };
        let one = |n: &str| {
            runs.units_per_s(&profile(n), 2, arm) / stock.units_per_s(&profile(n), 2, "stock")
        };
        let of = SEVEN.map(one);
        e.performance(name, mean(of));
        e.series(name, SEVEN.iter().zip(of));
        all.push(of);
    }
    let of =
        |variant: usize, n: &str| all[variant][SEVEN.iter().position(|s| *s == n).unwrap_or(0)];
    if arm == "apples" {
        for n in ["dbench", "hackbench"] {
            e.ratio(&format!("CCH_dbench_hackbench_drop: {n}"), of(0, n) / of(3, n));
        }
    } else {
        let means = [0, 1, 2, 3].map(|i: usize| mean(all[i]));
        let best = means.iter().all(|m| Rule::ORDER.allows(means[0] / m));
        let worst = means.iter().all(|m| Rule::ORDER.allows(m / means[2]));
        e.part_holds("order", "HVS best", best, "");
        e.part_holds("order", "CPTH_L worst", worst, "");
        let (hvs, cch) = (of(0, "dbench"), of(3, "dbench"));
        let evidence = format!("HVS {hvs:.3}, CCH {cch:.3}");
        e.holds("dbench", Rule::SIMILAR.allows(hvs / cch), evidence);
    }
    e.axes("", "throughput against stock KVM");
    e.note(format!("Windows: {window}."));
    Ok(())
}
