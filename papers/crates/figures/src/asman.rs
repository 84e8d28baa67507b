// SPDX-License-Identifier: MIT OR Apache-2.0
//! ASMan (HPDC 2011): Xen's Credit, static coscheduling (CON) and VCRD on eight pCPUs.
//!
//! Run time is the time per unit of work. A slowdown is against Credit at an online rate of 100 %
//! (section 5.2). In addition to the paper's arms, `asman-outside` learns from PLE exits instead of
//! the guest's reports: the paper's open question (5.4).

use crate::ctx::{mean, Point};
use crate::within::{Rule, TIE};
use crate::{Ctx, Entry, Error, Experiment};
use unspin_policy::vcrd;
use unspin_scenario::plan::{Run, Vm};
use unspin_scenario::Profile;
use unspin_sim::{Host, NEIGHBOURS};

pub const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "asman_fig1_2_waits", run: fig1_2 },
    Experiment { id: "asman_fig7_8_lu", run: fig7_8 },
    Experiment { id: "asman_fig9_nas_slowdown", run: fig9 },
    Experiment { id: "asman_fig10_specjbb", run: fig10 },
    Experiment { id: "asman_fig11_four_vms", run: fig11 },
    Experiment { id: "asman_fig12_six_vms", run: fig12 },
];

const ONE_VM: &str = "papers/asman/scenarios/asman-one-vm.toml";
const FOUR_VMS: &str = "papers/asman/scenarios/asman-four-vms.toml";

/// Online rates and the weights that give them beside Dom0's 256 (Equation 2).
const RATES: [(f64, u32); 4] = [(1.0, 256), (0.667, 128), (0.4, 64), (0.222, 32)];
const NAS: [&str; 8] = ["lu", "cg", "mg", "sp", "is", "bt", "ft", "ep"];
const WARMUP_MS: u64 = 2000;
const WINDOW_MS: u64 = 10_000;
/// Waits of 2^20 cycles and more are over-threshold (section 4.2).
const OVER_THRESHOLD_LOG2: usize = 20;

impl Point {
    /// Lock waits of the first VM from 2^`low` cycles on, below 2^`high`, all seeds.
    fn waits(&self, low: usize, high: usize) -> u64 {
        let hists = self.0.iter().map(|s| &s.result.vm[0].wait_hist);
        hists.map(|h| h[low.min(h.len())..high.min(h.len())].iter().sum::<u64>()).sum()
    }

    /// How often the first VM's VCRD was set HIGH, all seeds.
    fn times_high(&self) -> f64 {
        self.0.iter().map(|s| s.coscheduling[0].events as f64).sum()
    }
}

/// The run of a scenario's arm, and the host that it needs.
fn arm(ctx: &Ctx, scenario: &str, name: &str) -> Result<(Host, Run), Error> {
    let (host, run) = ctx.arm(scenario, name)?;
    Ok((host, Run { warmup_ms: WARMUP_MS, window_ms: WINDOW_MS, ..run }))
}

/// One capped VM (5.2) with a profile, at a weight, under an arm.
fn one_vm(ctx: &Ctx, profile: &str, weight: u32, name: &str) -> Result<Point, Error> {
    one_vm_with(ctx, profile, weight, name, |_, _| ())
}

fn one_vm_with(
    ctx: &Ctx,
    profile: &str,
    weight: u32,
    name: &str,
    change: impl Fn(&mut Host, &mut Run),
) -> Result<Point, Error> {
    let (mut host, mut run) = arm(ctx, ONE_VM, name)?;
    let profile = ctx.profile(&format!("asman-{profile}"))?;
    let vm = &mut run.vms[0];
    vm.weight = Some(weight);
    (vm.program, vm.spin_intensive) = (profile.program, profile.spin_intensive);
    change(&mut host, &mut run);
    // Results depend on chance at ticks, and differ by seed.
    ctx.point(&host, &run, 9, |_| ())
}

/// VMs with these profiles beside Dom0, work-conserving (5.3).
fn many_vms(ctx: &Ctx, profiles: &[&str], name: &str) -> Result<Point, Error> {
    let (host, mut run) = arm(ctx, FOUR_VMS, name)?;
    let dom0 = run.vms.pop();
    let vm = run.first().clone();
    run.vms.clear();
    for name in profiles {
        let Profile { program, spin_intensive, .. } = ctx.profile(&format!("asman-{name}"))?;
        run.vms.push(Vm { program, spin_intensive, ..vm.clone() });
    }
    run.vms.extend(dom0);
    let run = run.with(|vm| (vm.pin, vm.weight) = (Vec::new(), None));
    // Enough seeds to distinguish losses of one point.
    ctx.point(&host, &run, 5, |_| ())
}

/// Run times relative to Credit at 100 %, by online rate.
fn slowdowns(ctx: &Ctx, profile: &str, name: &str) -> Result<Vec<f64>, Error> {
    let full = one_vm(ctx, profile, RATES[0].1, "credit")?.units_per_s(0);
    let at =
        |(_, weight): &(f64, u32)| Ok(full / one_vm(ctx, profile, *weight, name)?.units_per_s(0));
    RATES.iter().map(at).collect()
}

fn percent(rate: f64) -> String {
    format!("{:.1} %", 100.0 * rate)
}

fn listed(values: impl IntoIterator<Item = f64>, digits: usize) -> String {
    values.into_iter().map(|x| format!("{x:.digits$}")).collect::<Vec<_>>().join(", ")
}

/// Figures 1 and 2: LU under Credit, waits for spin-locks by online rate.
fn fig1_2(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let points: Vec<Point> =
        RATES.iter().map(|(_, w)| one_vm(ctx, "lu", *w, "credit")).collect::<Result<_, _>>()?;
    let all = |p: &Point| p.waits(10, 64) as f64;
    let short = points.iter().map(|p| p.waits(10, 15) as f64 / all(p));
    let least = short.clone().fold(1.0, f64::min);
    e.part_holds(
        "value",
        "most waits under 2^15 cycles",
        least > 0.5,
        format!("shares of the waits over 2^10: {}", listed(short, 3)),
    );
    let long: Vec<f64> = points.iter().map(|p| p.waits(25, 64) as f64 / all(p)).collect();
    e.part_holds(
        "value",
        "share over 2^25 grows fast as the online rate falls",
        long[0] == 0.0 && long.windows(2).all(|w| w[1] > w[0]) && long[3] > 3.0 * long[1],
        format!("in 10^6: {}", listed(long.iter().map(|x| 1e6 * x), 0)),
    );
    // The measured fractions: the share of the lock's passes that are long, and the share of these
    // that come within a few passes of another one.
    let stats = points[1..].iter().flat_map(|p| p.0.iter().map(|s| s.coscheduling[0]));
    let (long, near) = stats.fold((0, 0), |(l, n), s| (l + s.long_waits, n + s.long_neighbours));
    let passes: u64 = points[1..].iter().map(|p| p.waits(0, 64)).sum();
    let near = near as f64 / long as f64;
    let by_chance = NEIGHBOURS as f64 * long as f64 / passes as f64;
    e.part_holds(
        "value",
        "long waits cluster",
        near > 10.0 * by_chance,
        format!(
            "{} of those over 2^20 come within {NEIGHBOURS} passes of another; chance: {}",
            percent(near),
            percent(by_chance)
        ),
    );
    e.axes("wait, log2 of cycles", "waits in 30 s");
    for ((rate, _), p) in RATES.iter().zip(&points) {
        let bins = (10..30).map(|b| (b, p.waits(b, b + 1) as f64));
        e.series(&percent(*rate), bins);
    }
    Ok(())
}

/// Figures 7 and 8: LU's run time and waits under Credit and ASMan.
fn fig7_8(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let (credit, asman) = (slowdowns(ctx, "lu", "credit")?, slowdowns(ctx, "lu", "asman")?);
    statements_of_lu(ctx, e, &credit, &asman)?;
    let outside = slowdowns(ctx, "lu", "asman-outside")?;
    let con = slowdowns(ctx, "lu", "con")?;
    e.note(format!(
        "Static coscheduling: {}. VCRD seen from outside by PLE exits, the guest unchanged: {}.",
        listed(con.clone(), 2),
        listed(outside.clone(), 2)
    ));
    e.note(sensitivity(ctx)?);
    let of = |lu, name| Ok::<_, Error>(listed(slowdowns(ctx, lu, name)?, 2));
    for (lu, with) in [
        (
            "lu-flags",
            "LU's waits for neighbours in user space, which ASMan does not see, and barriers that sleep",
        ),
        ("lu-timer", "a lock that every vCPU's timer interrupt takes, as in Linux 2.6.18 for Xen"),
    ] {
        e.note(format!(
            "With {with} (asman-{lu}): Credit {}; ASMan {}; static coscheduling {}.",
            of(lu, "credit")?,
            of(lu, "asman")?,
            of(lu, "con")?
        ));
    }
    e.axes("online rate", "slowdown");
    for (name, values) in
        [("Credit", credit), ("ASMan", asman), ("CON", con), ("ASMan from outside", outside)]
    {
        e.series(name, RATES.iter().zip(values).map(|((rate, _), s)| (percent(*rate), s)));
    }
    Ok(())
}

/// Statements about LU at each online rate: run time, waits over the threshold, and how often VCRD
/// is HIGH.
fn statements_of_lu(ctx: &Ctx, e: &mut Entry, credit: &[f64], asman: &[f64]) -> Result<(), Error> {
    let ratios: Vec<f64> = credit.iter().zip(asman).map(|(c, a)| c / a).collect();
    let evidence = format!("Credit's run time over ASMan's: {}", listed(ratios.clone(), 3));
    let same = e.rule("at_100pct", 0, Rule::SIMILAR);
    e.holds("at_100pct", same.allows(ratios[0]), evidence.clone());
    if one_vm(ctx, "lu", RATES[0].1, "asman")?.times_high() == 0.0 {
        e.no_evidence("no wait is long enough for a report, so ASMan never acts");
    }
    let below = e.rule("below_100pct", 0, Rule::EFFECT);
    e.holds("below_100pct", ratios[1..].iter().all(|r| below.allows(*r)), evidence);
    let points = |name| -> Result<Vec<Point>, Error> {
        RATES[1..].iter().map(|(_, w)| one_vm(ctx, "lu", *w, name)).collect()
    };
    let (was, is) = (points("credit")?, points("asman")?);
    let over = |p: &Point| p.waits(OVER_THRESHOLD_LOG2, 64) as f64;
    let fewer = e.rule("over_threshold_waits", 0, Rule::EFFECT);
    let holds = was.iter().zip(&is).all(|(was, is)| fewer.allows(over(was) / over(is)));
    let evidence = format!(
        "in as long a time: Credit {}; ASMan {}",
        listed(was.iter().map(over), 0),
        listed(is.iter().map(over), 0)
    );
    e.holds("over_threshold_waits", holds, evidence);
    let often = e.rule("vcrd_high", 0, Rule::EFFECT);
    let high: Vec<f64> = is.iter().map(Point::times_high).collect();
    let holds = high.windows(2).all(|w| often.allows(w[1] / w[0]));
    e.holds("vcrd_high", holds, format!("times set HIGH: {}", listed(high, 0)));
    Ok(())
}

/// How LU's slowdown at 22.2 % depends on the parameters that the paper does not print.
fn sensitivity(ctx: &Ctx) -> Result<String, Error> {
    type Change = fn(&mut vcrd::Params);
    let changes: [(&str, Change); 8] = [
        ("as chosen", |_| ()),
        ("N = 4", |p| p.values = 4),
        ("N = 32", |p| p.values = 32),
        ("step 30 ms", |p| p.step_us = 30_000),
        ("r = 0.3", |p| p.recency_ppm = 300_000),
        ("e = 0.6", |p| p.experiment_ppm = 600_000),
        ("Delta = 50 ms", |p| p.margin_us = 50_000),
        ("Algorithm 2's quotient unbounded", |p| p.ratio_max = 1 << 20),
    ];
    let full = one_vm(ctx, "lu", RATES[0].1, "credit")?.units_per_s(0);
    let mut parts = Vec::new();
    for (name, change) in changes {
        let point = one_vm_with(ctx, "lu", RATES[3].1, "asman", |host, _| {
            if let Some(credit) = &mut host.credit {
                change(&mut credit.vcrd);
            }
        })?;
        parts.push(format!("{name}: {:.2}", full / point.units_per_s(0)));
    }
    Ok(format!(
        "LU's slowdown at 22.2 % under ASMan by the learner's parameters, which are not printed: {}.",
        parts.join(", ")
    ))
}

/// Figure 9: slowdowns of the NAS benchmarks.
fn fig9(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let mut all = Vec::new();
    // Further arms are drawn, but not compared.
    let arms = ["credit", "asman", "asman-outside", "con"];
    for name in &arms {
        let of = |profile: &&str| slowdowns(ctx, profile, name);
        all.push(NAS.iter().map(of).collect::<Result<Vec<_>, _>>()?);
    }
    let average = |arm: &[Vec<f64>], rate: usize| mean(arm.iter().map(|s| s[rate]));
    let (credit, asman) = (&all[0], &all[1]);
    e.gain("avg_slowdown_saved_at_22pct", 1.0 - average(asman, 3) / average(credit, 3));
    let worst = (credit.iter().zip(asman))
        .flat_map(|(c, a)| (1..4).map(move |rate| a[rate] / c[rate]))
        .fold(0.0, f64::max);
    e.setting("slowdown");
    e.setting("saved");
    let name = "asman_never_worse_than_credit";
    e.holds(
        name,
        e.rule(name, 0, Rule::AtMost(1.0 + TIE)).allows(worst),
        format!("its largest slowdown over Credit's: {worst:.3}"),
    );
    e.axes("benchmark at 22.2 %", "slowdown");
    for (name, arm) in ["Credit", "ASMan", "ASMan from outside", "CON"].iter().zip(&all) {
        let bars = NAS.iter().zip(arm).map(|(n, s)| (n.to_uppercase(), s[3]));
        e.series(name, bars.chain([("average".to_string(), average(arm, 3))]));
    }
    e.note(format!(
        "Average slowdowns at 66.7, 40 and 22.2 %: {}.",
        ["Credit", "ASMan", "ASMan from outside", "CON"]
            .iter()
            .zip(&all)
            .map(|(name, arm)| format!("{name} {}", listed((1..4).map(|r| average(arm, r)), 2)))
            .collect::<Vec<_>>()
            .join("; ")
    ));
    Ok(())
}

/// SPECjbb2005's throughput by online rate, for 1 to 8 warehouses each: threads of one program on
/// the guest's own scheduler (250 ticks a second, as Fedora's 2.6.18 for Xen).
fn warehouses(ctx: &Ctx, name: &str) -> Result<Vec<Vec<f64>>, Error> {
    let point = |weight, count: u32| {
        let point = one_vm_with(ctx, "specjbb", weight, name, |_, run| {
            run.vms[0].threads = Some(count);
            run.vms[0].tick_hz = 250;
        })?;
        Ok(point.units_per_s(0))
    };
    RATES.iter().map(|(_, weight)| (1..=8).map(|n| point(*weight, n)).collect()).collect()
}

/// Figure 10: SPECjbb2005 with one to eight warehouses; the score is the mean from four on, as many
/// as vCPUs.
fn fig10(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let (credit, asman) = (warehouses(ctx, "credit")?, warehouses(ctx, "asman")?);
    let below = credit[1..].iter().zip(&asman[1..]);
    let gains = below.flat_map(|(c, a)| c.iter().zip(a)).map(|(c, a)| a / c);
    e.gain("max_gain", gains.fold(f64::MIN, f64::max) - 1.0);
    let score = |of: &Vec<f64>| mean(of[3..].iter().copied());
    let full = score(&credit[0]);
    e.axes("online rate", "score, Credit at 100 % = 1");
    for (name, arm) in [("Credit", &credit), ("ASMan", &asman)] {
        e.series(
            name,
            RATES.iter().zip(arm).map(|((rate, _), t)| (percent(*rate), score(t) / full)),
        );
    }
    let gains = credit.iter().zip(&asman).map(|(c, a)| score(a) / score(c));
    e.note(format!(
        "Scores with ASMan, Credit's = 1, at 100, 66.7, 40 and 22.2 %: {}.",
        listed(gains, 3)
    ));
    Ok(())
}

/// Units per second of each VM in a mix relative to Credit, by arm: CON, ASMan, from outside.
fn mix(ctx: &Ctx, profiles: &[&str]) -> Result<Vec<Vec<f64>>, Error> {
    let credit = many_vms(ctx, profiles, "credit")?;
    let over = |name: &&str| {
        let point = many_vms(ctx, profiles, name)?;
        let vms = 0..profiles.len();
        Ok(vms.map(|vm| point.units_per_s(vm) / credit.units_per_s(vm)).collect())
    };
    let arms = ["con", "asman", "asman-outside"];
    arms.iter().map(over).collect()
}

/// Values of the VMs of one profile.
fn vms_of(profiles: &[&str], values: &[f64], name: &str) -> Vec<f64> {
    profiles.iter().zip(values).filter(|(p, _)| **p == name).map(|(_, v)| *v).collect()
}

/// Mean of the VMs of one profile.
fn of(profiles: &[&str], values: &[f64], name: &str) -> f64 {
    mean(vms_of(profiles, values, name))
}

fn bars(e: &mut Entry, profiles: &[&str], arms: &[Vec<f64>], prefix: &str) {
    for (name, arm) in ["CON", "ASMan", "ASMan from outside"].iter().zip(arms) {
        let mut names: Vec<&str> = profiles.to_vec();
        names.sort_unstable();
        names.dedup();
        e.series(
            &format!("{prefix}{name}"),
            names.iter().map(|n| (n.to_uppercase(), 1.0 / of(profiles, arm, n))),
        );
    }
}

/// Figure 11: two VMs that synchronize beside two that do not; four VMs that synchronize.
fn fig11(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let mixed = ["gcc", "bzip2", "sp", "lu"];
    let four = ["sp", "lu", "sp", "lu"];
    let (a, b) = (mix(ctx, &mixed)?, mix(ctx, &four)?);
    let speedups: Vec<f64> = [(&mixed, &a), (&four, &b)]
        .iter()
        .flat_map(|(p, arms)| arms[..2].iter().flat_map(|arm| ["lu", "sp"].map(|n| of(*p, arm, n))))
        .collect();
    e.part_holds(
        "value",
        "CON and ASMan both speed up LU and SP",
        speedups.iter().all(|x| Rule::EFFECT.allows(*x)),
        format!(
            "LU, SP with CON, LU, SP with ASMan, beside gcc and bzip2, then beside their like: {}",
            listed(speedups, 3)
        ),
    );
    let loss = |arm: &Vec<f64>| ["gcc", "bzip2"].map(|n| 1.0 / of(&mixed, arm, n) - 1.0);
    let (con, asman) = (loss(&a[0]), loss(&a[1]));
    e.part_holds(
        "value",
        "gcc and bzip2 lose less with ASMan than with CON",
        con.iter().zip(&asman).all(|(con, asman)| Rule::ORDER.allows((1.0 + con) / (1.0 + asman))),
        format!("run time lost by gcc, bzip2: CON {}; ASMan {}", listed(con, 4), listed(asman, 4)),
    );
    e.axes("benchmark", "run time, Credit's = 1");
    bars(e, &mixed, &a, "(a) ");
    bars(e, &four, &b, "(b) ");
    Ok(())
}

/// Figure 12: six VMs.
fn fig12(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let four_two = ["gcc", "bzip2", "gcc", "bzip2", "sp", "lu"];
    let two_four = ["gcc", "bzip2", "sp", "lu", "sp", "lu"];
    let (a, b) = (mix(ctx, &four_two)?, mix(ctx, &two_four)?);
    // "Coscheduling can save up to": the better of the two, with the VM that saves most.
    let saved = |profiles: &[&str], arms: &[Vec<f64>], n: &str| {
        let each = arms[..2].iter().flat_map(|arm| vms_of(profiles, arm, n));
        each.map(|speed| 1.0 - 1.0 / speed).fold(f64::MIN, f64::max)
    };
    for (n, key) in [("sp", "SP"), ("lu", "LU")] {
        e.gain(&format!("mixed_4ht_2conc.{key}"), saved(&four_two, &a, n));
        e.gain(&format!("mixed_2ht_4conc.{key}"), saved(&two_four, &b, n));
    }
    let worst = |arm: usize| {
        [(&four_two, &a), (&two_four, &b)]
            .iter()
            .flat_map(|(p, arms)| ["gcc", "bzip2"].map(|n| vms_of(*p, &arms[arm], n)))
            .flatten()
            .map(|speed| 1.0 / speed - 1.0)
            .fold(f64::MIN, f64::max)
    };
    let (con, asman) = (worst(0), worst(1));
    e.at_most("high_throughput_loss.asman_max", asman);
    e.gain("high_throughput_loss.static_con_max", con);
    let holds = Rule::ORDER.allows((1.0 + con) / (1.0 + asman));
    e.condition("asman_max < static_con_max", holds, format!("{asman:.3} and {con:.3}"));
    e.axes("benchmark", "run time, Credit's = 1");
    bars(e, &four_two, &a, "(a) ");
    bars(e, &two_four, &b, "(b) ");
    Ok(())
}
