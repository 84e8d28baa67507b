// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chapter 4 of J. Shan's dissertation (NJIT 2018): scalability on machines and in VMs. Applications
//! are those of `models/`, one per type of table 4.1, beside three VMs that never rest.

use super::average;
use crate::within::Rule;
use crate::{Ctx, Entry, Error, Experiment};
use std::path::PathBuf;
use unspin_model::{setup, Allocation, App, Sequential};
use unspin_sim::{Setup, Simulated};

pub const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "dissertation_ch4_fig2_pm", run: fig2_pm },
    Experiment { id: "dissertation_ch4_fig2_vm", run: fig2_vm },
    Experiment { id: "dissertation_ch4_fig4_efficiency", run: fig4 },
    Experiment { id: "dissertation_ch4_fig5_period", run: fig5 },
    Experiment { id: "dissertation_ch4_fig7_vanilla", run: fig7_vanilla },
    Experiment { id: "dissertation_ch4_fig7_synthetic", run: fig7 },
];

const TYPES: [&str; 4] = ["type1", "type2", "type3", "type4"];
const WINDOW_MS: u64 = 8000;
const PERIODS_MS: [f64; 4] = [24.0, 48.0, 96.0, 192.0];

fn app(ctx: &Ctx, name: &str) -> Result<App, Error> {
    let file = PathBuf::from(format!("models/{name}.toml"));
    let (path, text) = (ctx.root().join(&file), ctx.read(&file)?);
    let name = file.display().to_string();
    App::parse(&name, &text).map_err(|e| Error::Wrong { path, text: e.to_string() })
}

/// CPU time of the application's work, relative to one unit. A pass that is cut off at the end of
/// the measuring time does not distort it.
fn speedup(ctx: &Ctx, one: Setup, many: Setup) -> Result<f64, Error> {
    let made = ctx.simulate(&[one, many])?;
    let useful = |s: &Simulated| s.result.vm[0].attribution.map_or(0, |a| a.useful_ns) as f64;
    Ok(useful(&made[1]) / useful(&made[0]))
}

fn of(ctx: &Ctx, app: &App, physical: bool) -> Result<f64, Error> {
    let run = |units| setup(app, units, physical, WINDOW_MS, Ctx::SEED);
    speedup(ctx, run(1), run(app.units))
}

fn by_type(ctx: &Ctx, physical: bool) -> Result<Vec<f64>, Error> {
    TYPES.iter().map(|name| of(ctx, &app(ctx, name)?, physical)).collect()
}

fn fig2_pm(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let ours = by_type(ctx, true)?;
    for (name, x) in TYPES.iter().zip(&ours) {
        e.count(name, *x, Some(1.0));
    }
    Ok(())
}

fn fig2_vm(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let (pm, vm) = (by_type(ctx, true)?, by_type(ctx, false)?);
    for ((name, x), machine) in TYPES.iter().zip(&vm).zip(&pm) {
        e.count(name, *x, Some(*machine));
    }
    let order = [0, 3, 2, 1].windows(2).all(|i| Rule::ORDER.allows(vm[i[0]] / vm[i[1]]));
    let sides = Rule::EFFECT.allows(vm[3] / pm[3])
        && [1, 2].iter().all(|&i| Rule::EFFECT.allows(pm[i] / vm[i]));
    e.condition("order 1 > 4 > 3 > 2", order, "");
    e.condition("type 4 above its physical speed-up, types 2 and 3 below", sides, "");
    let rotating = by_type_but(ctx, |app| app.sequential = Sequential::Rotating)?;
    e.note(format!(
        "Which thread does sequential work is not printed: were it each one's in turn, the four \
         types would reach {rotating}."
    ));
    let mut shown = Vec::new();
    for times in [0.5, 2.0, 4.0] {
        let of = by_type_but(ctx, |app| app.phases.iter_mut().for_each(|p| p.ms *= times))?;
        shown.push(format!("{times} times as long {of}"));
    }
    e.note(format!("Sensitivity to the phases' length, not printed: {}.", shown.join("; ")));
    Ok(())
}

/// The four types in a VM with a change.
fn by_type_but(ctx: &Ctx, change: impl Fn(&mut App)) -> Result<String, Error> {
    let mut shown = Vec::new();
    for name in TYPES {
        let mut app = app(ctx, name)?;
        change(&mut app);
        shown.push(format!("{:.1}", of(ctx, &app, false)?));
    }
    Ok(shown.join(", "))
}

/// Type 4's benchmarks with their own profile; `type4` represents the other four.
const FOURTH: [(&str, f64); 5] =
    [("canneal", 1.0), ("lu_cb", 1.0), ("fft", 1.0), ("raytrace", 1.0), ("type4", 4.0)];

/// The model of one benchmark. `canneal-phases` is the model, because `canneal` is a program.
fn benchmark(ctx: &Ctx, name: &str) -> Result<App, Error> {
    match name {
        "type4" => app(ctx, name),
        name => app(ctx, &format!("{name}-phases")),
    }
}

/// Speedups of type 4's benchmarks in a VM with that allocation period.
fn fourth(ctx: &Ctx, period_ms: f64) -> Result<Vec<f64>, Error> {
    let at = |(name, _): &(&str, f64)| of(ctx, &App { period_ms, ..benchmark(ctx, name)? }, false);
    FOURTH.iter().map(at).collect()
}

fn fig4(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let actual: Vec<f64> = fourth(ctx, PERIODS_MS[0])?.iter().map(|x| x / 16.0).collect();
    let mut most = Vec::new();
    for (name, _) in FOURTH {
        let app = benchmark(ctx, name)?;
        most.push(app.predict(Allocation::Even).efficiency_max);
    }
    e.share("actual", average(&FOURTH, &actual));
    e.share("estimated_max", average(&FOURTH, &most));
    e.share("canneal[0]", actual[0]);
    e.share("canneal[1]", most[0]);
    e.axes("benchmark", "efficiency");
    e.series("actual", FOURTH.iter().map(|(n, _)| n).zip(actual));
    e.series("estimated maximum", FOURTH.iter().map(|(n, _)| n).zip(most));
    e.note("Four of the type's eight benchmarks have profiles; type4 stands for the others.");
    Ok(())
}

fn fig5(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let mut all = Vec::new();
    for period_ms in PERIODS_MS {
        all.push(fourth(ctx, period_ms)?);
    }
    e.setting("periods_ms");
    e.axes("allocation period, ms", "speedup");
    let first = average(&FOURTH, &all[0]);
    e.count("avg_speedup[0]", first, Some(1.0));
    let last = average(&FOURTH, &all[3]);
    e.count("avg_speedup[1]", last, Some(1.0));
    let rises = Rule::EFFECT.allows(last / first);
    e.condition("the average rises", rises, format!("{first:.2} to {last:.2}"));
    let linear = e.rule("lu_cb", 0, Rule::ORDER).allows(all[3][1] / 16.0);
    e.holds("lu_cb", linear, format!("{:.1} at 24 ms, {:.1} at 192 ms", all[0][1], all[3][1]));
    let change = |i: usize| all[3][i] / all[0][i];
    let same = e.rule("unchanged", 0, Rule::SIMILAR);
    let holds = [2, 3].iter().all(|&i| same.allows(change(i)));
    e.holds("unchanged", holds, format!("fft {:.3}, raytrace {:.3}", change(2), change(3)));
    for (i, (name, _)) in FOURTH.iter().enumerate() {
        e.series(name, PERIODS_MS.iter().zip(&all).map(|(ms, at)| (*ms, at[i])));
    }
    Ok(())
}

/// The synthetic benchmark. With several threads, `sync_ms` for waking them one after the other is
/// added to its sequential part.
fn fork_join(app: &App, units: u32, sequential: Sequential, tuned: bool, seed: u64) -> Setup {
    // 9 ms of work at every concurrency; calibrated on dissertation_ch4_fig7_vanilla alone: what
    // rescheduling delays leave of 9 / (1 + 8/16) is 5.8 here, and 0.15 ms a round, 10 us a thread that
    // is woken, bring it to 4.8.
    const WAKE_MS: f64 = 0.01;
    let mut app = App { sequential, ..app.clone() };
    if units > 1 {
        app.phases[0].ms += WAKE_MS * f64::from(units - 1);
    }
    let mut made = setup(&app, units, false, WINDOW_MS, seed);
    if tuned {
        // Each vCPU's share is its part of the 9 ms: the first one's sequential and parallel work,
        // the others' parallel work.
        let share = |ms: f64| (f64::from(units) * 1024.0 * ms / 9.0).round() as u64;
        let each_ms = 8.0 / f64::from(units);
        made.vms[0].vcpu_shares = vec![share(each_ms); units as usize];
        made.vms[0].vcpu_shares[0] = share(1.0 + each_ms);
    }
    made
}

fn fig7_at(ctx: &Ctx, units: u32, sequential: Sequential, tuned: bool) -> Result<f64, Error> {
    let app = app(ctx, "fork-join")?;
    let one = fork_join(&app, 1, Sequential::Same, false, Ctx::SEED);
    let many = fork_join(&app, units, sequential, tuned, Ctx::SEED);
    let made = ctx.simulate(&[one, many])?;
    let passes =
        |s: &Simulated, n: u32| s.result.vm[0].units.iter().sum::<u64>() as f64 / f64::from(n);
    Ok(passes(&made[1], units) / passes(&made[0], 1))
}

fn fig7_vanilla(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    e.count("imbalanced_at_16", fig7_at(ctx, 16, Sequential::Same, false)?, Some(1.0));
    Ok(())
}

fn fig7(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let vanilla = fig7_at(ctx, 16, Sequential::Same, false)?;
    let balanced = fig7_at(ctx, 16, Sequential::Rotating, false)?;
    e.count("balanced_at_16", balanced, Some(vanilla));
    let tuned = fig7_at(ctx, 16, Sequential::Same, true)?;
    e.count("tuned_allocation_at_16", tuned, Some(vanilla));
    let name = "both_above_imbalanced_vanilla";
    let above = e.rule(name, 0, Rule::EFFECT);
    let holds = [balanced, tuned].iter().all(|x| above.allows(x / vanilla));
    e.holds(name, holds, format!("{balanced:.2} and {tuned:.2} against {vanilla:.2}"));
    e.note(format!("The imbalanced benchmark on vanilla KVM reaches {vanilla:.2} here."));
    Ok(())
}
