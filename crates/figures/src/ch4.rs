// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chapter 4 of J. Shan's dissertation (NJIT 2018): scalability on machines and in VMs. Applications
//! are those of `profiles/model/paper/`, one a type of table 4.1, beside three VMs that never rest.

use crate::{Ctx, Entry, Error, Experiment};
use unspin_model::{setup, Allocation, App, Sequential};
use unspin_scenario::plan::Asym;
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
    let path = ctx.root().join(format!("profiles/model/{name}.toml"));
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Error::Read { path: path.clone(), error })?;
    App::parse(&text).map_err(|e| Error::Wrong { path, text: e.to_string() })
}

/// CPU time the application's work used, over what it uses with one unit: a speedup that no pass
/// cut off by the window's end falsifies.
fn speedup(ctx: &Ctx, one: Setup, many: Setup) -> Result<f64, Error> {
    let made = ctx.simulate(&[one, many])?;
    let useful = |s: &Simulated| s.result.vm[0].attribution.map_or(0, |a| a.useful_ns) as f64;
    Ok(useful(&made[1]) / useful(&made[0]))
}

fn of(ctx: &Ctx, app: &App, physical: bool) -> Result<f64, Error> {
    let run = |units| setup(app, units, physical, WINDOW_MS, ctx.seed());
    speedup(ctx, run(1), run(app.units))
}

fn by_type(ctx: &Ctx, physical: bool) -> Result<Vec<f64>, Error> {
    TYPES.iter().map(|name| of(ctx, &app(ctx, &format!("paper/{name}"))?, physical)).collect()
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
    let mut turn = Vec::new();
    for name in TYPES {
        let app = app(ctx, &format!("paper/{name}"))?;
        turn.push(of(ctx, &App { sequential: Sequential::Turn, ..app }, false)?);
    }
    let shown: Vec<String> = turn.iter().map(|x| format!("{x:.1}")).collect();
    e.note(format!(
        "Which thread does sequential work is not printed: were it each one's in turn, the four \
         types would reach {}.",
        shown.join(", ")
    ));
    Ok(())
}

fn fig4(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let app = app(ctx, "paper/type4")?;
    let actual = of(ctx, &app, false)? / f64::from(app.units);
    let most = app.predict(Allocation::Even).efficiency_max;
    e.share("actual", actual);
    e.share("estimated_max", most);
    e.note("canneal has no profile of its own: the paper prints only its efficiencies.");
    Ok(())
}

fn fig5(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let app = app(ctx, "paper/type4")?;
    let mut points = Vec::new();
    for period_ms in PERIODS_MS {
        points.push((period_ms, of(ctx, &App { period_ms, ..app.clone() }, false)?));
    }
    e.setting("periods_ms");
    e.axes("allocation period, ms", "speedup");
    e.count("avg_speedup[0]", points[0].1, Some(1.0));
    // What a longer period changes is the claim.
    e.count("avg_speedup[1]", points[3].1, Some(points[0].1));
    e.series("type 4", points);
    e.note("Benchmarks by name (lu_cb, fft, raytrace) have no profiles of their own.");
    Ok(())
}

/// The synthetic benchmark, `sync_ms` of waking threads one after the other added to its sequential
/// part where there are several.
fn fork_join(app: &App, units: u32, sequential: Sequential, asym: bool, seed: u64) -> Setup {
    // 9 ms of work at every concurrency; calibrated on dissertation_ch4_fig7_vanilla alone: what
    // lies between 9 / (1 + 8/16) and 4.8 is 0.375 ms a round, 25 us a thread that is woken.
    const WAKE_MS: f64 = 0.025;
    let mut app = App { sequential, ..app.clone() };
    if units > 1 {
        app.phases[0].ms += WAKE_MS * f64::from(units - 1);
    }
    let mut made = setup(&app, units, false, WINDOW_MS, seed);
    if asym {
        made.run.arm.asym = Asym { time: true, ..Asym::default() };
    }
    made
}

fn fig7_at(ctx: &Ctx, units: u32, sequential: Sequential, asym: bool) -> Result<f64, Error> {
    let app = app(ctx, "fork-join")?;
    let one = fork_join(&app, 1, Sequential::Same, false, ctx.seed());
    let many = fork_join(&app, units, sequential, asym, ctx.seed());
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
    e.count("balanced_at_16", fig7_at(ctx, 16, Sequential::Turn, false)?, Some(vanilla));
    let tuned = fig7_at(ctx, 16, Sequential::Same, true)?;
    e.count("tuned_allocation_at_16", tuned, Some(vanilla));
    e.note(format!("The imbalanced benchmark on vanilla KVM reaches {vanilla:.2} here."));
    Ok(())
}
