// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chapter 5 of J. Shan's dissertation (NJIT 2018): dynamic asymmetric vCPUs on sixteen pCPUs.
//!
//! Of the text's 27 benchmarks ten have their own program, and three programs represent the others
//! of their type (table 4.1), weighted by their number: averages are over 27. Performance is units
//! of work per second, relative to four VMs with the benchmark and symmetric vCPUs (section 5.5.3's
//! first scenario).

use super::average;
use crate::ctx::{mean, Point};
use crate::within::Rule;
use crate::{Ctx, Entry, Error, Experiment};
use unspin_scenario::plan::{Dist, Op, Run, Step, Vm};
use unspin_scenario::Profile;
use unspin_sim::Host;

pub const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "dissertation_ch5_fig1_bodytrack", run: fig1 },
    Experiment { id: "dissertation_ch5_fig3_symmetric", run: fig3_symmetric },
    Experiment { id: "dissertation_ch5_fig3_asymmetric", run: fig3_asymmetric },
    Experiment { id: "dissertation_ch5_fig4", run: fig4 },
    Experiment { id: "dissertation_ch5_fig5_dbt1", run: fig5 },
    Experiment { id: "dissertation_ch5_fig6_7_scaling", run: fig6_7 },
    Experiment { id: "dissertation_ch5_fig8_9_stability", run: fig8_9 },
    Experiment { id: "dissertation_ch5_fig10_breakdown", run: fig10 },
];

const SCENARIO: &str = "papers/dissertation/scenarios/dissertation-asym.toml";
/// Programs, and how many benchmarks each represents: `swaptions` and `barnes` for type 1, `fmm`
/// for the rest of type 4 (cholesky was left out).
const ALL: [(&str, f64); 14] = [
    ("bodytrack", 1.0),
    ("facesim", 1.0),
    ("dedup", 1.0),
    ("streamcluster", 1.0),
    ("fluidanimate", 1.0),
    ("ocean_cp", 1.0),
    ("ocean_ncp", 1.0),
    ("volrend", 1.0),
    ("lu_cb", 1.0),
    ("canneal", 1.0),
    ("swaptions", 1.0),
    ("barnes", 9.0),
    ("fmm", 6.0),
    ("dbt1", 1.0),
];
/// The six programs of sections 5.5.6 to 5.5.8.
const SIX: [&str; 6] = ["bodytrack", "facesim", "dedup", "streamcluster", "ocean_cp", "volrend"];
const HOGS: [&str; 3] = ["matmul"; 3];

impl Point {
    /// The part of the host's CPU time that its VMs used for their own work, without exits and
    /// switches (5.5.4).
    fn utilization(&self, pcpus: u32) -> f64 {
        mean(self.0.iter().map(|s| {
            let spent = s.result.vm.iter().filter_map(|vm| vm.attribution);
            let own: u64 = spent
                .map(|a| a.useful_ns + a.spin_holder_running_ns + a.spin_holder_preempted_ns)
                .sum();
            own as f64 / (f64::from(pcpus) * s.result.window_ns as f64)
        }))
    }
}

/// Chapter 2's profile if it is calibrated with the program's results there.
fn profile(ctx: &Ctx, name: &str) -> Result<Profile, Error> {
    let part = if ["volrend", "dedup"].contains(&name) { "factors" } else { "asym" };
    ctx.profile(&format!("dissertation-{part}-{name}"))
}

/// pCPUs of a VM's vCPUs, all different. The place of a VM's first thread depends on chance, so VM
/// `number` begins at a random pCPU.
fn layout(vcpus: u32, seed: u64, number: usize) -> Vec<u32> {
    let draw = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(13 * number as u32);
    let first = (draw >> 33) as u32 % vcpus;
    (0..vcpus).map(|v| (first + v) % vcpus).collect()
}

/// VMs with these benchmarks, each of `vcpus` vCPUs on as many pCPUs.
fn point(ctx: &Ctx, vms: &[&str], vcpus: u32, arm: &str) -> Result<Point, Error> {
    point_but(ctx, vms, vcpus, arm, &|_, _| {})
}

/// The same with a change.
fn point_but(
    ctx: &Ctx,
    vms: &[&str],
    vcpus: u32,
    arm: &str,
    change: &dyn Fn(&mut Host, &mut Run),
) -> Result<Point, Error> {
    let (mut host, mut run) = ctx.arm(SCENARIO, arm)?;
    host.pcpus = vcpus;
    let usual = run.first().clone();
    run.vms.clear();
    for name in vms {
        let profile = profile(ctx, name)?;
        run.vms.push(Vm { vcpus, program: profile.program, ..usual.clone() });
    }
    change(&mut host, &mut run);
    ctx.point(&host, &run, 6, |run| {
        for (number, vm) in run.vms.iter_mut().enumerate() {
            vm.pin = layout(vcpus, run.seed, number);
        }
    })
}

fn beside<'a>(name: &'a str, others: &[&'a str]) -> Vec<&'a str> {
    std::iter::once(name).chain(others.iter().copied()).collect()
}

/// Performance of the first VM under an arm beside others, relative to the first scenario.
fn performance(ctx: &Ctx, name: &str, others: &[&str], arm: &str) -> Result<f64, Error> {
    let like = vec![name; others.len() + 1];
    let normal = point(ctx, &like, 16, "symmetric")?.units_per_s(0);
    Ok(point(ctx, &beside(name, others), 16, arm)?.units_per_s(0) / normal)
}

fn performances(ctx: &Ctx, arm: &str, beside_hogs: bool) -> Result<Vec<f64>, Error> {
    let of = |name: &&str| {
        let others = if beside_hogs { HOGS } else { [*name; 3] };
        performance(ctx, name, &others, arm)
    };
    ALL.iter().map(|(name, _)| name).map(of).collect()
}

fn names(of: &[(&'static str, f64)]) -> Vec<&'static str> {
    of.iter().map(|(name, _)| *name).collect()
}

fn listed(names: &[&str], values: &[f64]) -> String {
    let each = names.iter().zip(values).map(|(n, v)| format!("{n} {v:.2}"));
    each.collect::<Vec<_>>().join(", ")
}

/// Figure 5.1: bodytrack beside one VM with something else.
fn fig1(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let others: Vec<&str> =
        names(&ALL).into_iter().filter(|n| !["bodytrack", "dbt1"].contains(n)).collect();
    let of = |o: &&str| performance(ctx, "bodytrack", &[*o], "symmetric");
    let slower: Vec<f64> =
        others.iter().map(|o| Ok(1.0 / of(o)? - 1.0)).collect::<Result<_, Error>>()?;
    e.count("slower_beside_others[0]", slower.iter().copied().fold(f64::MAX, f64::min), Some(0.0));
    e.count("slower_beside_others[1]", slower.iter().copied().fold(f64::MIN, f64::max), Some(0.0));
    e.axes("the other VM", "execution time longer by");
    e.series("ours", others.iter().zip(slower));
    Ok(())
}

/// Figure 5.3 without asymmetric vCPUs.
fn fig3_symmetric(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let all = performances(ctx, "symmetric", true)?;
    e.performance("beside_cpu_hogs", average(&ALL, &all));
    let losing: f64 = ALL.iter().zip(&all).filter(|(_, p)| **p < 0.98).map(|((_, t), _)| t).sum();
    e.count("benchmarks_losing_over_2pct", losing, Some(0.0));
    e.setting("of");
    e.note(format!("Each: {}.", listed(&names(&ALL), &all)));
    e.axes("benchmark", "performance");
    e.series("symmetric", names(&ALL).iter().zip(all));
    Ok(())
}

/// Figure 5.3 with asymmetric vCPUs.
fn fig3_asymmetric(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let symmetric = performances(ctx, "symmetric", true)?;
    let all = performances(ctx, "asymmetric", true)?;
    let (was, is) = (average(&ALL, &symmetric), average(&ALL, &all));
    e.performance("beside_cpu_hogs", is);
    e.gain("gain", is / was - 1.0);
    let dedup = ALL.iter().position(|(n, _)| *n == "dedup").unwrap_or(0);
    e.ratio("dedup_ratio", all[dedup] / symmetric[dedup]);
    e.gain("worst_loss", 1.0 - all.iter().copied().fold(f64::MAX, f64::min));
    e.note(format!("With asymmetric vCPUs: {}.", listed(&names(&ALL), &all)));
    e.note(sensitivity(ctx, &symmetric)?);
    e.axes("benchmark", "performance");
    e.series("symmetric", names(&ALL).iter().zip(symmetric));
    e.series("asymmetric", names(&ALL).iter().zip(all));
    Ok(())
}

type Change = (&'static str, fn(&mut Host, &mut Run));

/// Parameters of the asymmetric vCPUs that are not printed, and other choices for them.
const CHANGES: [Change; 6] = [
    ("as chosen", |_, _| ()),
    ("24 ms between decisions", |_, run| run.arm.asym.period_ms = Some(24)),
    ("200 ms", |_, run| run.arm.asym.period_ms = Some(200)),
    ("latencies from 0.25 ms", |host, _| host.asym.latency_min_us = 250),
    ("to 16 ms", |host, _| host.asym.latency_max_us = 16_000),
    ("urgent from 0.25 ms", |host, _| host.asym.urgent_us = 250),
];

fn sensitivity(ctx: &Ctx, symmetric: &[f64]) -> Result<String, Error> {
    let mut shown = Vec::new();
    for (what, change) in CHANGES {
        let mut gains = Vec::new();
        for ((name, _), was) in ALL.iter().zip(symmetric).filter(|((_, t), _)| *t == 1.0) {
            let normal = point(ctx, &[*name; 4], 16, "symmetric")?.units_per_s(0);
            let is =
                point_but(ctx, &beside(name, &HOGS), 16, "asymmetric", &change)?.units_per_s(0);
            gains.push(is / normal / was - 1.0);
        }
        gains.sort_by(f64::total_cmp);
        shown.push(format!("{what} {:.2}", gains[gains.len() / 2]));
    }
    Ok(format!(
        "Sensitivity: median gain of the programs that stand for themselves, by what is not printed: \
         {}.",
        shown.join(", ")
    ))
}

/// Figure 5.4: four VMs with the same.
fn fig4(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    // Here the text omits DBT-1 from its 26 benchmarks.
    let all: Vec<(&str, f64)> = ALL.into_iter().filter(|(n, _)| *n != "dbt1").collect();
    let names = names(&all);
    let mut gains = Vec::new();
    let mut used = [Vec::new(), Vec::new()];
    for name in &names {
        let points = ["symmetric", "asymmetric"].map(|arm| point(ctx, &[*name; 4], 16, arm));
        let [symmetric, asymmetric] = points;
        let (symmetric, asymmetric) = (symmetric?, asymmetric?);
        gains.push(asymmetric.units_per_s(0) / symmetric.units_per_s(0) - 1.0);
        used[0].push(symmetric.utilization(16));
        used[1].push(asymmetric.utilization(16));
    }
    e.gain("gain", average(&all, &gains));
    let (others, their): (Vec<_>, Vec<f64>) = (all.iter().copied().zip(gains.iter().copied()))
        .filter(|((n, _), _)| !["dedup", "volrend"].contains(n))
        .unzip();
    e.gain("gain_without_dedup_volrend", average(&others, &their));
    let [was, is] = [0, 1].map(|arm: usize| average(&all, &used[arm]));
    e.share("utilization[0]", was);
    e.share("utilization[1]", is);
    let rises = Rule::EFFECT.allows(is / was);
    e.condition("overall utilization rises", rises, format!("{was:.3} to {is:.3}"));
    e.gain("bodytrack_gain", gains[0]);
    e.note(format!("Gains: {}.", listed(&names, &gains)));
    e.axes("benchmark", "CPU utilization, gain");
    e.series("utilization, symmetric", names.iter().zip(used[0].iter().copied()));
    e.series("utilization, asymmetric", names.iter().zip(used[1].iter().copied()));
    e.series("gain", names.iter().zip(gains));
    Ok(())
}

/// Figure 5.5: DBT-1's response times, by Little's law: its users are in a transaction or think.
fn fig5(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let profile = profile(ctx, "dbt1")?;
    let thinks = profile.program.iter().find(|s| s.op == Op::Block);
    let think_cycles = thinks.map_or(0, |s| match s.dist {
        Dist::Exp { mean, .. } => mean,
        Dist::Const { iterations } => iterations,
        Dist::Uniform { min, max } => min.midpoint(max),
    });
    let think_s = f64::from(think_cycles) / 2.4e9;
    let response = |others: &[&str], arm: &str| -> Result<f64, Error> {
        Ok(16.0 / point(ctx, &beside("dbt1", others), 16, arm)?.units_per_s(0) - think_s)
    };
    for (name, others) in
        [("response_ratio_beside_hogs", HOGS), ("response_ratio_beside_itself", ["dbt1"; 3])]
    {
        let (was, is) = (response(&others, "symmetric")?, response(&others, "asymmetric")?);
        e.performance(name, is / was);
        e.note(format!("{name}: {:.2} ms to {:.2} ms.", 1e3 * was, 1e3 * is));
    }
    Ok(())
}

const LEVELS: [u32; 5] = [1, 2, 4, 8, 16];

/// Divides the work of 16 threads in a round among `n`: the input determines the length of rounds.
/// Programs without rounds have the same work per unit for any number of threads.
fn divided(program: &[Step], n: u32) -> Vec<Step> {
    let mut held = false;
    let part = |x: u32| (u64::from(x) * 16 / u64::from(n)).min(1_000_000_000) as u32;
    let of = |step: &Step| {
        held = step.op == Op::Mutex || (held && step.op != Op::MutexUnlock);
        match step.op {
            Op::Compute if !held => Step { dist: step.dist.map(part), ..*step },
            _ => *step,
        }
    };
    program.iter().map(of).collect()
}

/// Work done with 1 to 16 vCPUs relative to 1; and units per second with 16.
fn speedups(ctx: &Ctx, name: &str, others: &[&str], arm: &str) -> Result<(Vec<f64>, f64), Error> {
    let vms = beside(name, others);
    let in_rounds = |s: &Step| {
        matches!(s.op, Op::Barrier | Op::UserBarrier | Op::CondBarrier | Op::SerialFirst)
    };
    let rounds = profile(ctx, name)?.program.iter().any(in_rounds);
    let at = |n: &u32| {
        let change = |_: &mut Host, run: &mut Run| {
            for vm in run.vms.iter_mut().filter(|vm| rounds && vm.program.iter().any(in_rounds)) {
                vm.program = divided(&vm.program, *n);
            }
        };
        let units = point_but(ctx, &vms, *n, arm, &change)?.units_per_s(0);
        Ok(if rounds { units / f64::from(*n) } else { units })
    };
    let units: Vec<f64> = LEVELS.iter().map(at).collect::<Result<_, Error>>()?;
    Ok((units.iter().map(|u| u / units[0]).collect(), units[4]))
}

/// Figures 5.6 and 5.7: concurrency from 1 to 16.
fn fig6_7(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let drops = e.rule("ocean_cp_volrend_symmetric_drop_at", 0, Rule::EFFECT);
    let scales = e.rule("asymmetric", 0, Rule::ORDER);
    let ahead = e.rule("asymmetric_speedup", 0, Rule::ORDER);
    let mut fails: [Vec<String>; 3] = Default::default();
    e.axes("vCPUs", "speedup");
    for (row, hogs) in [(0, true), (1, false)] {
        for name in SIX {
            let others = if hogs { HOGS } else { [name; 3] };
            let (symmetric, was) = speedups(ctx, name, &others, "symmetric")?;
            let (asymmetric, is) = speedups(ctx, name, &others, "asymmetric")?;
            let place = if hogs { "beside hogs" } else { "beside its like" };
            if name == "dedup" {
                e.ratio(&format!("dedup_at_16[{row}]"), is / was);
            }
            let best = |s: &[f64], from: usize| s[from..4].iter().copied().fold(f64::MIN, f64::max);
            // The text names only these two.
            let named = ["ocean_cp", "volrend"].contains(&name);
            let (s, a) = (&symmetric, &asymmetric);
            let wrong = [
                (named && !drops.allows(best(s, 1) / s[4]), s[4] / best(s, 1)),
                (named && !scales.allows(a[4] / best(a, 2)), a[4] / best(a, 2)),
                (!ahead.allows(is / was), is / was),
            ];
            for (list, (wrong, x)) in fails.iter_mut().zip(wrong) {
                list.extend(wrong.then(|| format!("{name} {place}: {x:.2}")));
            }
            e.series(&format!("{name} {place}, symmetric"), LEVELS.iter().zip(symmetric));
            e.series(&format!("{name} {place}, asymmetric"), LEVELS.iter().zip(asymmetric));
        }
    }
    let names = ["ocean_cp_volrend_symmetric_drop_at", "asymmetric", "asymmetric_speedup"];
    for (name, fails) in names.iter().zip(fails) {
        let which = if fails.is_empty() { "of all".to_string() } else { fails.join(", ") };
        e.holds(name, fails.is_empty(), which);
    }
    Ok(())
}

/// Figures 5.8 and 5.9: how much performance depends on the neighbour.
fn fig8_9(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let neighbours = ["matmul", "streamcluster", "fluidanimate"];
    e.axes("benchmark", "standard deviation");
    let mut spread = Vec::new();
    for arm in ["symmetric", "asymmetric"] {
        let mut all = Vec::new();
        for name in SIX {
            let of = |o: &&str| performance(ctx, name, &[*o], arm);
            let values: Vec<f64> = neighbours.iter().map(of).collect::<Result<_, _>>()?;
            let average = mean(values.iter().copied());
            all.push(mean(values.iter().map(|v| (v - average).powi(2))).sqrt());
        }
        spread.push(mean(all.iter().copied()));
        e.series(arm, SIX.iter().zip(all));
    }
    e.ratio("stddev_ratio", spread[1] / spread[0]);
    e.note(format!("Averages over the six: {:.3} and {:.3}.", spread[0], spread[1]));
    Ok(())
}

/// Figure 5.10: the effect of each component, with four VMs that run the same.
fn fig10(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    e.axes("benchmark", "performance");
    let mut averages = Vec::new();
    for arm in ["time", "latency", "time-latency", "asymmetric"] {
        let of = |name: &&str| performance(ctx, name, &[*name; 3], arm);
        let all: Vec<f64> = SIX.iter().map(of).collect::<Result<_, _>>()?;
        averages.push(mean(all.iter().copied()));
        e.note(format!("{arm}: {}.", listed(&SIX, &all)));
        e.series(arm, SIX.iter().zip(all));
    }
    e.performance("time_allocation", averages[0]);
    e.performance("latency", averages[1]);
    e.performance("both", averages[2]);
    e.gain("resolver_adds", averages[3] / averages[2] - 1.0);
    let adds = [
        averages[0],
        averages[1],
        averages[2] / averages[0].max(averages[1]),
        averages[3] / averages[2],
    ];
    let holds = adds.iter().all(|x| Rule::EFFECT.allows(*x));
    e.condition("every part adds", holds, format!("by so much: {}", listed(&PARTS, &adds)));
    Ok(())
}

/// The components in figure 5.10, in the order in which they are added.
const PARTS: [&str; 4] = ["time allocation", "latency", "both", "resolver"];
