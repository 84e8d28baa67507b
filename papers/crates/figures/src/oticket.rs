// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opportunistic spinlocks (APSys 2015): `papers/oticket/scenarios/oticket.toml` on a growing number of cores.

use crate::ctx::{mean, units_per_s, Change};
use crate::within::Rule;
use crate::{Ctx, Entry, Error, Experiment};
use std::sync::Arc;
use unspin_scenario::plan::{Dist, Op, Run};
use unspin_sim::{Budgets, Host, IdleState, Kernel, Setup, Simulated};

pub const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "oticket_fig2_pvm_collapse", run: fig2_pvm },
    Experiment { id: "oticket_fig8_pvm_halts_per_message", run: fig8_pvm },
    Experiment { id: "oticket_fig2_oticket", run: fig2_oticket },
    Experiment { id: "oticket_fig6_parts", run: fig6 },
    Experiment { id: "oticket_fig8_oticket_halts", run: fig8_oticket },
    Experiment { id: "oticket_fig9_alternatives", run: fig9 },
    Experiment { id: "oticket_fig10_oversubscribed", run: fig10 },
    Experiment { id: "oticket_fig11_32_cores", run: fig11 },
];

const LKC: &str = "oticket-lkc";
const EXIM: &str = "oticket-exim";
const METIS: &str = "oticket-metis";
/// Units of EXIM's program per message: the files that it creates for one
/// (`papers/oticket/profiles/oticket-exim.toml`).
const EXIM_UNITS_A_MESSAGE: f64 = 5.0;
/// EXIM's clients, however many vCPUs there are (section 5). Each is a thread with its processes.
const EXIM_CLIENTS: u32 = 160;
/// Ticks per second of Ubuntu's kernel, by which threads share vCPUs.
const TICK_HZ: u32 = 250;
/// Additional work of a core with both hardware threads busy (D. Marr et al., "Hyper-Threading
/// technology architecture and microarchitecture", Intel Technology Journal 2002: up to 30 %).
const HYPERTHREAD_GAIN: f64 = 0.25;
/// On 80 cores: vCPUs with a core each, then hardware threads, in steps of 10 as in the paper's
/// scripts (CPU_STEP of VBENCH's config.py).
const CORES: [u32; 8] = [10, 20, 30, 40, 50, 60, 70, 80];
const THREADS: [u32; 8] = [90, 100, 110, 120, 130, 140, 150, 160];
/// A vCPU that halts leaves its core idle. These are the idle states of the paper's processors
/// (Westmere-EX) without C6, with which the stock lock would collapse from 10 vCPUs on
/// (oticket_fig2_pvm_collapse).
const IDLE_STATES: &[IdleState] = IdleState::NEHALEM.split_at(3).0;
/// Thresholds are turns of a loop with PAUSE, as in the paper's figure 5. The queued lock is that
/// of section 2, which is first come, first served.
const BUDGETS: Budgets =
    Budgets { by_turns: true, pv_ticket_turns: None, pv_queued_in_order: true };

/// Runs of VMs of some sizes, by lock.
struct Sweep {
    /// Numbers of vCPUs.
    sizes: Vec<u32>,
    runs: Vec<Arc<Simulated>>,
}

/// A host that uses as many of its `cores` as are needed for a hardware thread per vCPU.
fn host(cores: u32, vcpus: u32) -> Host {
    let host = Host::server(vcpus, Kernel::V3_19);
    let (cores, n) = (f64::from(cores), f64::from(vcpus));
    let busy_cores = n.min(cores) + HYPERTHREAD_GAIN * (n - cores).max(0.0);
    let khz = (host.khz as f64 * busy_cores / n) as u64;
    Host { khz, idle_states: IDLE_STATES, ..host }
}

/// The run with VMs of `n` vCPUs, each pinned to a hardware thread.
fn sized(run: &Run, n: u32) -> Run {
    let exim = run.profile == EXIM;
    run.clone().with(|vm| {
        (vm.vcpus, vm.pin) = (n, (0..n).collect());
        if exim {
            (vm.threads, vm.tick_hz) = (Some(EXIM_CLIENTS), TICK_HZ);
        }
    })
}

fn sweep(
    ctx: &Ctx,
    profile: &str,
    cores_and_vms: (u32, u32),
    sizes: &[u32],
    arms: &[&str],
) -> Result<Sweep, Error> {
    sweep_of(ctx, profile, cores_and_vms, sizes, arms, (u32::MAX, |_| {}))
}

/// A sweep of changed set-ups, with a limit for the number of seeds.
fn sweep_of(
    ctx: &Ctx,
    profile: &str,
    (cores, vms): (u32, u32),
    sizes: &[u32],
    arms: &[&str],
    (seeds, change): (u32, Change),
) -> Result<Sweep, Error> {
    let plan = ctx.plan(match vms {
        1 => "papers/oticket/scenarios/oticket.toml",
        _ => "papers/oticket/scenarios/oticket-two-vms.toml",
    })?;
    let wanted = |name: &str| arms.contains(&name);
    let runs: Vec<_> = plan
        .runs
        .iter()
        .filter(|r| {
            r.profile == profile && r.vm_count() == vms && r.repeat < seeds && wanted(&r.arm.name)
        })
        .collect();
    let mut setups = Vec::new();
    for &n in sizes {
        for run in &runs {
            let mut setup =
                Setup { budgets: BUDGETS, ..Setup::new(&host(cores, n), &sized(run, n)) };
            change(&mut setup);
            setups.push(setup);
        }
    }
    Ok(Sweep { sizes: sizes.to_vec(), runs: ctx.simulate(&setups)? })
}

impl Sweep {
    /// Mean over the repeats; `NaN` without any.
    fn mean(&self, n: u32, arm: &str, of: fn(&Simulated) -> f64) -> f64 {
        let is_one = |run: &Run| run.first().vcpus == n && run.arm.name == arm;
        mean(self.runs.iter().filter(|s| is_one(&s.result.run)).map(|s| of(s)))
    }

    /// One VM's units of work per second. A unit of LKC and METIS is one use of their lock.
    fn per_s(&self, n: u32, arm: &str) -> f64 {
        self.mean(n, arm, |s| {
            units_per_s(&s.result, &s.result.vm) / f64::from(s.result.run.vm_count())
        })
    }

    /// Halts in locks and of idle vCPUs, as KVM's halt_exits, per message of EXIM.
    fn halts_a_message(&self, n: u32, arm: &str) -> f64 {
        let a_unit = self.mean(n, arm, |s| {
            let units: u64 = s.result.vm.iter().flat_map(|vm| &vm.units).sum();
            let halts: u64 = s.locks.iter().map(|l| l.halts + l.idle_halts).sum();
            halts as f64 / units.max(1) as f64
        });
        a_unit * EXIM_UNITS_A_MESSAGE
    }

    fn sizes(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.sizes.iter().copied()
    }

    /// The size with the largest throughput.
    fn peak(&self, arm: &str) -> u32 {
        let better = |a: &u32, b: &u32| self.per_s(*a, arm).total_cmp(&self.per_s(*b, arm));
        self.sizes().max_by(better).unwrap_or(0)
    }

    fn ratio(&self, n: u32, arm: &str, to: &str) -> f64 {
        self.per_s(n, arm) / self.per_s(n, to)
    }

    fn draw(&self, e: &mut Entry, arms: &[&str]) {
        e.axes("vCPUs", "uses of the lock a second");
        for arm in arms {
            e.series(arm, self.sizes().map(|n| (n, self.per_s(n, arm))));
        }
    }

    fn text(&self, n: u32, arms: &[&str]) -> String {
        let each: Vec<String> =
            arms.iter().map(|arm| format!("{arm} {:.0}/ms", self.per_s(n, arm) / 1e3)).collect();
        format!("{n} vCPUs: {}", each.join(", "))
    }
}

fn all_sizes() -> Vec<u32> {
    CORES.into_iter().chain(THREADS).collect()
}

/// The size from which a lock is more than 2 % behind the machine without VMs, and the size from
/// which it does about as much as on all cores.
fn collapse(s: &Sweep, arm: &str, cores: u32) -> (u32, u32) {
    let begins = s.sizes().find(|n| s.ratio(*n, arm, "native") < 0.98).unwrap_or(u32::MAX);
    let last = s.per_s(cores, arm);
    let near = |n: &u32| (s.per_s(*n, arm) / last - 1.0).abs() < 0.1;
    let complete = s.sizes().filter(|n| *n <= cores).rev().take_while(near).last();
    (begins, complete.unwrap_or(u32::MAX))
}

fn fig2_pvm(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let arms = ["native", "hvm", "pvm", "oticket"];
    let s = sweep(ctx, LKC, (80, 1), &all_sizes(), &arms)?;
    let (begins, complete) = collapse(&s, "pvm", 80);
    e.between("begins_between", f64::from(begins));
    e.at_most("complete_by", f64::from(complete));
    s.draw(e, &arms);
    Ok(())
}

fn fig8_pvm(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let s = sweep(ctx, EXIM, (80, 1), &CORES, &["pvm", "oticket"])?;
    e.count("exim_20_cores", s.halts_a_message(20, "pvm"), None);
    e.count("exim_70_cores", s.halts_a_message(70, "pvm"), None);
    e.axes("cores", "halts a message");
    for arm in ["pvm", "oticket"] {
        e.series(arm, s.sizes().map(|n| (n, s.halts_a_message(n, arm))));
    }
    Ok(())
}

fn fig2_oticket(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let arms = ["native", "hvm", "pvm", "oticket"];
    let s = sweep(ctx, LKC, (80, 1), &all_sizes(), &arms)?;
    let name = "scales_to";
    let step = e.rule(name, 0, Rule::ORDER);
    let up_to_80: Vec<f64> = CORES.iter().map(|n| s.per_s(*n, "oticket")).collect();
    let scales = up_to_80.windows(2).all(|w| step.allows(w[1] / w[0]));
    e.holds(name, scales, CORES.map(|n| s.text(n, &["oticket"])).join("; "));
    // The size from which the stock lock has collapsed.
    let (_, from) = collapse(&s, "pvm", 80);
    let after: Vec<u32> = s.sizes().filter(|n| *n >= from).collect();
    let ahead = after.iter().all(|n| Rule::EFFECT.allows(s.ratio(*n, "oticket", "pvm")));
    let evidence = [from, 80, 120, 160].map(|n| s.text(n, &["pvm", "oticket"])).join("; ");
    e.holds("no_collapse_like_pv_until", ahead && !after.is_empty(), evidence);
    s.draw(e, &arms);
    Ok(())
}

/// Changes of parameters that are not printed, for figures 2, 6 and 9.
const VARIANTS: [(&str, Change); 4] = [
    ("as calibrated", |_| {}),
    ("idle cores stay in C1", |s| s.host.idle_states = &IDLE_STATES[..1]),
    ("idle cores go to C6 as well", |s| s.host.idle_states = &IdleState::NEHALEM),
    ("another fit, of 375 and 250 us instead of 310 and 210", |s| {
        for step in s.vms.iter_mut().flat_map(|vm| &mut vm.program) {
            match (step.op, &mut step.dist) {
                (Op::Compute, Dist::Exp { mean, .. }) => *mean = 900_000,
                (Op::Critical, Dist::Uniform { min, max }) if step.permille < 1000 => {
                    (*min, *max) = (300_000, 900_000);
                }
                _ => {}
            }
        }
    }),
];

fn sensitivity(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let arms = ["native", "pvm", "oticket", "spinning", "wakeup", "longer-spinning"];
    for (what, change) in VARIANTS {
        let s = sweep_of(ctx, LKC, (80, 1), &all_sizes(), &arms, (1, change))?;
        let (begins, complete) = collapse(&s, "pvm", 80);
        e.note(format!(
            "sensitivity, {what}: pvm falls behind with {begins} vCPUs and does no more from \
             {complete} on; most is done with {} by oticket, {} by spinning alone, {} by wake-up \
             alone",
            s.peak("oticket"),
            s.peak("spinning"),
            s.peak("wakeup")
        ));
    }
    Ok(())
}

fn fig6(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let arms = ["oticket", "spinning", "wakeup"];
    let s = sweep(ctx, LKC, (80, 1), &all_sizes(), &arms)?;
    let order = e.rule("oticket", 0, Rule::ORDER);
    let over = |n: u32| {
        ["spinning", "wakeup"].iter().all(|part| order.allows(s.ratio(n, "oticket", part)))
    };
    let evidence = [40, 60, 80].map(|n| s.text(n, &arms)).join("; ");
    let never_behind = CORES.iter().all(|n| over(*n));
    e.part_holds("oticket", "slightly better than either part", never_behind, evidence);
    // Ahead of both parts at that size, or at its own best size.
    let best =
        over(80) || order.allows(s.per_s(80, "oticket") / s.per_s(s.peak("oticket"), "oticket"));
    e.part_holds("oticket", "best at 80", best, s.text(80, &arms));
    for part in ["spinning", "wakeup"] {
        let name = format!("both_parts_degrade_after: {part}");
        e.count(&name, f64::from(s.peak(part)), None);
    }
    e.note(format!(
        "spinning alone does most with {} vCPUs, wake-up alone with {}",
        s.peak("spinning"),
        s.peak("wakeup")
    ));
    s.draw(e, &arms);
    sensitivity(ctx, e)
}

fn fig8_oticket(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let s = sweep(ctx, EXIM, (80, 1), &CORES, &["pvm", "oticket"])?;
    let pvm = s.halts_a_message(70, "pvm");
    let ours = s.halts_a_message(70, "oticket");
    e.count("exim_70_cores", ours, Some(pvm));
    e.count("cut", pvm / ours, Some(1.0));
    Ok(())
}

fn fig9(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let arms = ["pvm", "oticket", "longer-spinning", "iticket", "qspinlock"];
    let s = sweep(ctx, LKC, (80, 1), &all_sizes(), &arms)?;
    let ahead = |n: &u32| Rule::EFFECT.allows(s.ratio(*n, "longer-spinning", "oticket"));
    let from = s.sizes().rev().take_while(ahead).last().map_or(f64::NAN, f64::from);
    e.count("longer_spin_slightly_ahead_from", from, None);
    let (similar, sick) =
        (e.rule("iticket", 0, Rule::SIMILAR), e.rule("qspinlock", 0, Rule::SIMILAR));
    let farthest = |arm: &str, to: &str| {
        let far = |n: &u32| (s.ratio(*n, arm, to) - 1.0).abs();
        let n = s.sizes().max_by(|a, b| far(a).total_cmp(&far(b))).unwrap_or(0);
        format!("farthest apart: {}", s.text(n, &[to, arm]))
    };
    let holds = s.sizes().all(|n| similar.allows(s.ratio(n, "iticket", "oticket")));
    e.holds("iticket", holds, farthest("iticket", "oticket"));
    let holds = s.sizes().all(|n| sick.allows(s.ratio(n, "qspinlock", "pvm")));
    e.holds("qspinlock", holds, farthest("qspinlock", "pvm"));
    s.draw(e, &arms);
    Ok(())
}

fn fig10(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let arms = ["hvm", "pvm", "oticket", "longer-spinning"];
    let lkc = sweep(ctx, LKC, (80, 2), &CORES, &arms)?;
    let exim = sweep(ctx, EXIM, (80, 2), &CORES, &arms[..3])?;
    let metis = sweep(ctx, METIS, (80, 2), &CORES, &arms[..3])?;
    let sick = [40, 60, 70, 80];
    let name = "oticket_vs_pv";
    let (more, alike) = (e.rule(name, 0, Rule::EFFECT), e.rule(name, 1, Rule::SIMILAR));
    let ahead = |s: &Sweep| sick.iter().all(|n| more.allows(s.ratio(*n, "oticket", "pvm")));
    let evidence = |s: &Sweep, arms: &[&str]| sick.map(|n| s.text(n, arms)).join("; ");
    let pair = ["pvm", "oticket"];
    e.part_holds(name, "ahead on LKC", ahead(&lkc), evidence(&lkc, &pair));
    e.part_holds(name, "ahead on EXIM", ahead(&exim), evidence(&exim, &pair));
    let equal = CORES.iter().all(|n| alike.allows(metis.ratio(*n, "oticket", "pvm")));
    e.part_holds(name, "equal on METIS", equal, evidence(&metis, &pair));
    e.no_evidence("its lock is hardly ever contended");
    e.count("longer_spinning_degrades_after", f64::from(lkc.peak("longer-spinning")), None);
    let order = e.rule("hvm_on_lkc", 0, Rule::ORDER);
    let ahead = CORES
        .iter()
        .filter(|n| **n < 60)
        .all(|n| pair.iter().all(|arm| order.allows(lkc.ratio(*n, "hvm", arm))));
    let evidence = |s: &Sweep| CORES.map(|n| s.text(n, &arms[..3])).join("; ");
    e.holds("hvm_on_lkc", ahead, evidence(&lkc));
    e.count("hvm_on_lkc_suffers_from", f64::from(lkc.peak("hvm")), None);
    let order = e.rule("hvm_on_exim", 0, Rule::ORDER);
    let kept = |arm: &str| exim.per_s(80, arm) / exim.per_s(60, arm);
    let falls = Rule::EFFECT.allows(1.0 / kept("hvm"))
        && pair.iter().all(|arm| order.allows(kept(arm) / kept("hvm")));
    e.holds("hvm_on_exim", falls, evidence(&exim));
    lkc.draw(e, &arms);
    Ok(())
}

fn fig11(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let arms = ["native", "hvm", "pvm", "oticket"];
    let sizes = [8, 16, 24, 28, 32, 40, 48, 56, 64];
    e.setting("machine");
    let name = "lkc_and_exim";
    let ahead = e.rule(name, 0, Rule::EFFECT);
    for (profile, part) in [(LKC, "ahead on LKC"), (EXIM, "ahead on EXIM")] {
        let s = sweep(ctx, profile, (32, 1), &sizes, &arms)?;
        let holds = ahead.allows(s.ratio(64, "oticket", "pvm"));
        e.part_holds(name, part, holds, s.text(64, &arms));
        if profile == LKC {
            s.draw(e, &arms);
        }
    }
    let s = sweep(ctx, METIS, (32, 1), &sizes, &arms)?;
    let equal = e.rule("metis", 0, Rule::SIMILAR);
    let holds = sizes.iter().all(|n| equal.allows(s.ratio(*n, "oticket", "pvm")));
    e.holds("metis", holds, s.text(64, &arms));
    e.no_evidence("its lock is hardly ever contended");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn exim_has_160_clients_on_any_number_of_vcpus() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let ctx = Ctx::new(&root, Some(1), |_| {});
        let plan = ctx.plan("papers/oticket/scenarios/oticket.toml").unwrap();
        for n in [20, 80] {
            for run in plan.runs.iter().map(|run| sized(run, n)) {
                let vm = run.first();
                assert_eq!((vm.vcpus, vm.pin.len()), (n, n as usize));
                assert_eq!(vm.threads, (run.profile == EXIM).then_some(160), "{}", run.profile);
            }
        }
    }
}
