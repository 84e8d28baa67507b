// SPDX-License-Identifier: MIT OR Apache-2.0
//! APPLES (TPDS 2017): windows, HVS and both on 16 pCPUs of 2.4 GHz, kernel 3.19 (section 4.1).
//!
//! `papers/apples/scenarios/apples.toml` has host, VMs and arms; profiles were chosen on the `calibrate`
//! entries alone (`docs/calibration.md`).

use crate::ctx::{mean, Change, Runs};
use crate::within::{Rule, TIE};
use crate::{Ctx, Entry, Error, Experiment};
use unspin_scenario::plan::CgroupLayout;
use unspin_scenario::Selection;
use unspin_sim::Kernel;

mod variants;
mod windows;

const SCENARIO: &str = "papers/apples/scenarios/apples.toml";

/// The seven programs of section 4.3.
const SEVEN: [&str; 7] =
    ["ebizzy", "dbench", "hackbench", "kernbench", "raytrace", "streamcluster", "dedup"];
/// All modelled programs that are spin-intensive by the rule of 4.2.
const SPINNING: [&str; 9] = [
    "ebizzy",
    "dbench",
    "hackbench",
    "kernbench",
    "raytrace",
    "streamcluster",
    "dedup",
    "canneal",
    "bodytrack",
];
/// The programs that stock KVM's pause-loop exits slow down (4.2, `apples_ple_harmful`).
const HARMFUL: [&str; 4] = ["canneal", "bodytrack", "raytrace", "streamcluster"];
const WINDOWS: [u32; 7] = [512, 1024, 2048, 4096, 8192, 16384, 32768];

pub const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "apples_fig1_dbench", run: |ctx, e| fig1(ctx, e, "dbench") },
    Experiment { id: "apples_fig1_ebizzy", run: |ctx, e| fig1(ctx, e, "ebizzy") },
    Experiment { id: "apples_ple_harmful", run: ple_harmful },
    Experiment { id: "apples_raytrace_streamcluster_window", run: best_window },
    Experiment { id: "apples_stock_below_worst_fixed", run: stock_below_worst_fixed },
    Experiment { id: "apples_fig11_stock_window", run: windows::fig11 },
    Experiment { id: "apples_fig5_overall", run: fig5 },
    Experiment { id: "apples_fig6_ebizzy", run: fig6 },
    Experiment { id: "apples_undersubscribed", run: undersubscribed },
    Experiment { id: "apples_fig7_nonspin", run: fig7 },
    Experiment { id: "apples_fig8_aple_vs_fixed", run: fig8 },
    Experiment { id: "apples_fig9_four_vms", run: fig9 },
    Experiment { id: "apples_fig10_inefficiency", run: fig10 },
    Experiment { id: "apples_fig12_aple_window", run: windows::fig12 },
    Experiment {
        id: "apples_fig13_hvs_variants_stock_window",
        run: |ctx, e| variants::figure(ctx, e, "hvs", "stock"),
    },
    Experiment {
        id: "apples_fig14_hvs_variants_aple_window",
        run: |ctx, e| variants::figure(ctx, e, "apples", "aple"),
    },
];

const SWAPTIONS: &str = "dissertation-asym-swaptions";
const BARNES: &str = "dissertation-asym-barnes";
const FMM: &str = "dissertation-asym-fmm";

/// The dissertation's programs that are not spin-intensive also represent those of figure 7.
fn profile(name: &str) -> String {
    if name.starts_with("dissertation-") {
        name.to_string()
    } else {
        format!("apples-{name}")
    }
}

fn fixed(window_cycles: u32) -> String {
    format!("fixed-{window_cycles}")
}

fn selection(names: &[&str], arms: &[&str], vms: u32) -> Selection {
    Selection {
        profiles: names.iter().map(|n| profile(n)).collect(),
        arms: arms.iter().map(ToString::to_string).collect(),
        vms: vec![vms],
        ..Selection::default()
    }
}

/// Runs of some programs and arms with one number of VMs.
struct Made {
    runs: Runs,
    vms: u32,
}

impl Made {
    fn new(ctx: &Ctx, names: &[&str], arms: &[&str], vms: u32) -> Result<Made, Error> {
        let setups = ctx.setups(SCENARIO, Kernel::V3_19, &selection(names, arms, vms))?;
        Ok(Made { runs: Runs { all: ctx.simulate(&setups)? }, vms })
    }

    /// Runs with the named arms and all fixed windows.
    fn with_fixed(ctx: &Ctx, names: &[&str], arms: &[&str], vms: u32) -> Result<Made, Error> {
        let windows = WINDOWS.map(fixed);
        let all: Vec<&str> = arms.iter().copied().chain(windows.iter().map(|w| &**w)).collect();
        Made::new(ctx, names, &all, vms)
    }

    /// Throughput relative to another arm.
    fn against(&self, name: &str, arm: &str, baseline: &str) -> f64 {
        self.runs.performance(&profile(name), self.vms, arm, baseline)
    }

    fn performance(&self, name: &str, arm: &str) -> f64 {
        self.against(name, arm, "stock")
    }

    fn fixed(&self, name: &str) -> [(u32, f64); 7] {
        WINDOWS.map(|w| (w, self.performance(name, &fixed(w))))
    }

    /// Window and performance of the best fixed window.
    fn best(&self, name: &str) -> (u32, f64) {
        let all = self.fixed(name);
        all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("seven windows")
    }

    fn worst(&self, name: &str) -> (u32, f64) {
        let all = self.fixed(name);
        all.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("seven windows")
    }

    fn inefficiency(&self, name: &str, arm: &str) -> f64 {
        self.runs.inefficiency(&profile(name), self.vms, arm)
    }
}

fn fig1(ctx: &Ctx, e: &mut Entry, name: &str) -> Result<(), Error> {
    let made = Made::with_fixed(ctx, &[name], &["stock"], 2)?;
    e.setting("windows");
    e.setting("vs");
    let (best_window, best) = made.best(name);
    e.performance("min", made.worst(name).1);
    e.performance("max", best);
    e.count("best_window", f64::from(best_window), None);
    e.axes("window, cycles", "throughput against stock KVM");
    e.series(name, made.fixed(name));
    Ok(())
}

fn ple_harmful(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let made = Made::new(ctx, &HARMFUL, &["stock", "ple-off"], 2)?;
    for name in HARMFUL {
        let off = made.performance(name, "ple-off");
        e.part_holds("value", name, off > 1.0, format!("PLE off is {off:.3} of stock"));
    }
    e.axes("", "throughput against stock KVM");
    e.series("PLE off", HARMFUL.map(|n| (n, made.performance(n, "ple-off"))));
    Ok(())
}

fn best_window(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let names = ["raytrace", "streamcluster"];
    let made = Made::with_fixed(ctx, &names, &["stock"], 2)?;
    e.axes("window, cycles", "throughput against stock KVM");
    for name in names {
        let (window, best) = made.best(name);
        let evidence = format!("{best:.3} of stock at {window}");
        e.part_holds("best_fixed_window", name, window == 32768, evidence);
        e.series(name, made.fixed(name));
    }
    Ok(())
}

fn stock_below_worst_fixed(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let names = ["streamcluster", "kernbench", "raytrace"];
    let made = Made::with_fixed(ctx, &names, &["stock"], 2)?;
    for name in names {
        let (window, worst) = made.worst(name);
        let evidence = format!("the worst is {worst:.3} of stock, at {window}");
        e.part_holds("value", name, worst > 1.0, evidence);
    }
    e.axes("", "throughput against stock KVM");
    e.series("worst fixed window", names.map(|n| (n, made.worst(n).1)));
    Ok(())
}

fn fig5(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let made = Made::new(ctx, &SPINNING, &["stock", "ple-off", "apples"], 2)?;
    let gains = SPINNING.map(|n| made.performance(n, "apples") - 1.0);
    let least = gains.iter().copied().fold(f64::INFINITY, f64::min);
    e.gain("avg_gain", mean(gains));
    let most = SPINNING.iter().zip(gains).max_by(|a, b| a.1.total_cmp(&b.1)).expect("nine");
    e.gain("max_gain", most.1);
    let of_ebizzy = made.performance("ebizzy", "apples");
    let is_ebizzy = Rule::ORDER.allows(of_ebizzy / (1.0 + most.1));
    let evidence = format!("{} {:.3}, ebizzy {of_ebizzy:.3} of stock", most.0, 1.0 + most.1);
    e.condition("max is ebizzy", is_ebizzy, evidence);
    e.gain("min_gain", least);
    let evidence = format!("the least gain is {:.1} points", 100.0 * least);
    let name = "every_benchmark_at_least";
    e.holds(name, e.rule(name, 0, Rule::ORDER).allows(1.0 + least), evidence);
    against_ple_off(e, &made);
    e.axes("", "throughput against stock KVM");
    for arm in ["ple-off", "apples"] {
        e.series(arm, SPINNING.map(|n| (n, made.performance(n, arm))));
    }
    e.note("Nine programs; the paper has more of PARSEC and SPLASH-2x, whose bars are not in its text.");
    Ok(())
}

/// Figure 5 of the programs that pause-loop exits harm.
fn against_ple_off(e: &mut Entry, made: &Made) {
    let apples = |n: &str| made.against(n, "apples", "ple-off");
    let stock = |n: &str| made.against(n, "stock", "ple-off");
    let text = |n: &str| format!("{n} {:.3} of PLE off, stock {:.3}", apples(n), stock(n));
    let is_equal = Rule::SIMILAR.allows(apples("raytrace"));
    e.condition("raytrace equals PLE off", is_equal, text("raytrace"));
    if Rule::SIMILAR.allows(stock("raytrace")) {
        e.no_evidence("so does stock KVM");
    }
    let others = HARMFUL.into_iter().filter(|n| *n != "raytrace");
    let exceed = others.clone().all(|n| Rule::EFFECT.allows(apples(n)));
    let evidence = others.map(text).collect::<Vec<_>>().join("; ");
    e.condition("canneal, bodytrack and streamcluster exceed PLE off", exceed, evidence);
}

fn fig6(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let arms = ["aple", "hvs", "apples"];
    let made = Made::new(ctx, &["ebizzy"], &["stock", "aple", "hvs", "apples"], 2)?;
    let stock = made.inefficiency("ebizzy", "stock");
    let cut = |arm| 1.0 - made.inefficiency("ebizzy", arm) / stock;
    for arm in arms {
        e.performance(arm, made.performance("ebizzy", arm));
        e.gain(&format!("inefficiency_cut.{arm}"), cut(arm));
    }
    let [aple, hvs, both] = arms.map(|arm| made.performance("ebizzy", arm) - 1.0);
    let evidence = format!("{both:.3} against {aple:.3} and {hvs:.3}");
    let more = Rule::ORDER.allows(1.0 + both - aple - hvs);
    e.condition("apples gain > aple gain + hvs gain", more, evidence);
    e.axes("", "against stock KVM");
    e.series("throughput", arms.map(|a| (a, made.performance("ebizzy", a))));
    e.series("inefficiency", arms.map(|a| (a, 1.0 - cut(a))));
    e.note(sensitivity(ctx)?);
    Ok(())
}

/// ebizzy with one parameter changed that the paper does not print, or that the model estimates;
/// first seed.
fn sensitivity(ctx: &Ctx) -> Result<String, Error> {
    let changes: [(&str, Change); 6] = [
        ("as chosen", |_| ()),
        ("a thread a vCPU", |s| s.vms.iter_mut().for_each(|vm| vm.threads = vm.vcpus)),
        ("no groups", |s| s.run.cgroup = CgroupLayout::Flat),
        ("ticks at the same time", |s| s.host.skew_tick = false),
        ("switches at half the cost", |s| s.host.costs.switch_cycles /= 2),
        ("exits at half the cost", |s| {
            let costs = &mut s.host.costs;
            for c in [
                &mut costs.ple_exit_cycles,
                &mut costs.ple_exit_selected_cycles,
                &mut costs.yield_cycles,
            ] {
                *c /= 2;
            }
        }),
    ];
    let arms = ["stock", "fixed-16384", "aple", "hvs", "apples"];
    let selection = selection(&["ebizzy"], &arms, 2);
    let mut parts = Vec::new();
    for (name, change) in changes {
        let mut setups = ctx.setups(SCENARIO, Kernel::V3_19, &selection)?;
        setups.retain(|s| s.run.repeat == 0);
        setups.iter_mut().for_each(change);
        let made = Made { runs: Runs { all: ctx.simulate(&setups)? }, vms: 2 };
        let gained = arms[1..].iter().map(|a| format!("{:.2}", made.performance("ebizzy", a)));
        parts.push(format!("{name} {}", gained.collect::<Vec<_>>().join(", ")));
    }
    Ok(format!(
        "Fixed 16384, APLE, HVS and APPLES against stock KVM, first seed, with one thing changed: {}.",
        parts.join("; ")
    ))
}

fn undersubscribed(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let made = Made::new(ctx, &SPINNING, &["stock", "ple-off", "apples"], 1)?;
    let apples = mean(SPINNING.map(|n| made.performance(n, "apples")));
    e.at_most("apples_vs_stock_avg_difference_below", apples - 1.0);
    if SPINNING.iter().all(|n| is_tie(made.performance(n, "apples"))) {
        e.no_evidence("APPLES and stock differ by less than 2 % in each program");
    }
    e.setting("arms");
    for arm in ["stock", "apples"] {
        let losses = SPINNING.map(|n| (n, 1.0 - made.against(n, arm, "ple-off")));
        let worst = losses.iter().map(|(_, loss)| *loss).fold(f64::NEG_INFINITY, f64::max);
        let of_kernbench = losses.iter().find(|(n, _)| *n == "kernbench").map_or(0.0, |l| l.1);
        e.between(&format!("vs_ple_off_avg_loss: {arm}"), mean(losses.map(|(_, loss)| loss)));
        if losses.iter().all(|(_, loss)| is_tie(1.0 - loss)) {
            e.no_evidence("each program is within 2 % of PLE off");
        }
        e.gain(&format!("vs_ple_off_worst: {arm}"), worst);
        let evidence = format!("the most is {worst:.3}, kernbench loses {of_kernbench:.3}");
        let is_worst = worst - of_kernbench <= TIE;
        e.part_holds("vs_ple_off_worst_benchmark", arm, is_worst, evidence);
        if worst <= TIE {
            e.no_evidence("no program loses more than 2 %, so each of them may be the worst");
        }
    }
    e.axes("", "throughput against stock KVM");
    for arm in ["ple-off", "apples"] {
        e.series(arm, SPINNING.map(|n| (n, made.performance(n, arm))));
    }
    Ok(())
}

fn fig7(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let names = ["quiet", SWAPTIONS, BARNES, FMM];
    let made = Made::new(ctx, &names, &["stock", "ple-off", "apples"], 2)?;
    e.setting("arms");
    for arm in ["stock", "apples"] {
        let all = names.map(|n| made.against(n, arm, "ple-off") - 1.0);
        let farthest = all.into_iter().max_by(|a, b| a.abs().total_cmp(&b.abs()));
        e.at_most(&format!("max_difference_from_ple_off: {arm}"), farthest.unwrap_or(f64::NAN));
        if names.iter().all(|n| made.inefficiency(n, arm) < NEXT_TO_NOTHING) {
            e.no_evidence(
                "PLE exits cost no program 0.1 % of its time, so no policy can change it",
            );
        }
    }
    e.axes("", "throughput against PLE off");
    for arm in ["stock", "apples"] {
        e.series(arm, names.map(|n| (n, made.against(n, arm, "ple-off"))));
    }
    e.note(
        "Four programs stand for those of the figure: vips waits now and then for another thread, \
         swaptions for nobody, barnes and fmm at barriers.",
    );
    Ok(())
}

fn fig8(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let made = Made::with_fixed(ctx, &SEVEN, &["stock", "aple"], 2)?;
    let aple = |n: &str| made.performance(n, "aple");
    let (aple_avg, best_avg) = (mean(SEVEN.map(aple)), mean(SEVEN.map(|n| made.best(n).1)));
    e.performance("aple_avg", aple_avg);
    e.performance("best_fixed_avg", best_avg);
    e.no_evidence(BASELINES);
    let holds = Rule::ORDER.allows(aple_avg / best_avg);
    let evidence = format!("{aple_avg:.3} against {best_avg:.3}");
    e.condition("APLE average at least best fixed average", holds, evidence);
    e.gain("ebizzy_aple_vs_best_fixed", aple("ebizzy") / made.best("ebizzy").1 - 1.0);
    // Points of stock KVM's performance, as in the paper: ebizzy's 46 lie between 1.34 and 0.88,
    // its worst fixed window in 2.3.1 (as a ratio that would be 34 %).
    let losses = SEVEN.map(|n| aple(n) - made.worst(n).1);
    e.setting("worst_fixed_loss_unit");
    e.gain("worst_fixed_loss_avg", mean(losses));
    e.gain("worst_fixed_loss_max", losses.into_iter().fold(f64::NEG_INFINITY, f64::max));
    best_worst_aple(e, &made);
    Ok(())
}

fn best_worst_aple(e: &mut Entry, made: &Made) {
    e.axes("", "throughput against stock KVM");
    e.series("best-fixed", SEVEN.map(|n| (n, made.best(n).1)));
    e.series("worst-fixed", SEVEN.map(|n| (n, made.worst(n).1)));
    e.series("aple", SEVEN.map(|n| (n, made.performance(n, "aple"))));
}

fn fig9(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let two = Made::with_fixed(ctx, &SEVEN, &["stock", "aple"], 2)?;
    let four = Made::with_fixed(ctx, &SEVEN, &["stock", "aple"], 4)?;
    let spread = |m: &Made| m.best("dbench").1 - m.worst("dbench").1;
    e.gain("dbench_best_minus_worst.two_vms", spread(&two));
    e.no_evidence(BASELINES);
    e.gain("dbench_best_minus_worst.four_vms", spread(&four));
    // The differences between the averages of stock, the best fixed windows and APLE.
    let gap = |m: &Made| {
        let best = mean(SEVEN.map(|n| m.best(n).1));
        let all = [1.0, best, mean(SEVEN.map(|n| m.performance(n, "aple")))];
        all.iter().copied().fold(f64::NEG_INFINITY, f64::max)
            - all.iter().copied().fold(f64::INFINITY, f64::min)
    };
    let (with_two, with_four) = (gap(&two), gap(&four));
    let evidence = format!("{with_four:.3} with four VMs, {with_two:.3} with two");
    let name = "gap_between_stock_best_aple";
    // A tie is measured in points here: of two gaps of a point each, neither is smaller.
    e.setting("unit");
    e.holds(name, e.rule(name, 0, Rule::EFFECT).allows(1.0 + with_two - with_four), evidence);
    best_worst_aple(e, &four);
    Ok(())
}

fn fig10(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let made = Made::with_fixed(ctx, &["ebizzy"], &["stock", "aple"], 2)?;
    let at = |w: u32| made.inefficiency("ebizzy", &fixed(w));
    let all = WINDOWS.map(|w| (w, at(w)));
    let (lowest, least) = all.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("seven");
    let listed = all.map(|(w, x)| format!("{:.1} % at {w}", 100.0 * x)).join(", ");
    // Neighbours may tie, but the whole range must show an effect.
    let steps = |ends: (u32, u32), falls: bool| {
        let part: Vec<f64> =
            all.iter().filter(|(w, _)| *w >= ends.0 && *w <= ends.1).map(|(_, x)| *x).collect();
        part.windows(2).all(|w| Rule::ORDER.allows(if falls { w[0] / w[1] } else { w[1] / w[0] }))
    };
    let falls = steps((512, 16384), true) && Rule::EFFECT.allows(at(512) / at(16384));
    e.holds("falls_from_window", falls, listed.clone());
    let minimum = if Rule::ORDER.allows(least / at(16384)) { 16384 } else { lowest };
    e.count("minimum_at", f64::from(minimum), None);
    if is_flat(all.map(|(_, x)| x)) {
        e.no_evidence("the curve is flat: most windows are within 2 % of the least");
    }
    e.holds("rises_after", steps((16384, 32768), false), listed);
    let aple = made.inefficiency("ebizzy", "aple");
    e.gain("aple_cut_vs_stock", 1.0 - aple / made.inefficiency("ebizzy", "stock"));
    e.gain("aple_cut_vs_best_fixed", 1.0 - aple / at(made.best("ebizzy").0));
    e.axes("window, cycles", "inefficiency and throughput against stock KVM");
    e.series("inefficiency", all);
    e.series("throughput", made.fixed("ebizzy"));
    Ok(())
}

/// Fixed windows with two VMs are what the programs were chosen by (`apples_fig1_*`).
const BASELINES: &str =
    "stock KVM and fixed windows with two VMs, to which the programs are fitted";

/// A share of CPU time that no policy could gain by.
const NEXT_TO_NOTHING: f64 = 0.001;

/// Whether a ratio is no effect.
fn is_tie(ratio: f64) -> bool {
    (ratio - 1.0).abs() <= TIE
}

/// Whether more than half of these inefficiencies are within 2 % of the least.
fn is_flat(all: impl IntoIterator<Item = f64>) -> bool {
    let all: Vec<f64> = all.into_iter().collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let near = all.iter().filter(|x| Rule::ORDER.allows(least / **x)).count();
    2 * near > all.len()
}
