// SPDX-License-Identifier: MIT OR Apache-2.0
//! Preemptable ticket spinlocks (VEE 2013): `papers/pmtlock/scenarios/` on 8 cores of 2.6 GHz.

use crate::ctx::{mean, Change, Ctx, Runs};
use crate::{Entry, Error, Experiment};
use std::ops::RangeInclusive;
use std::sync::Arc;
use unspin_scenario::plan::{CgroupLayout, Dist, Op, Run, Step, Window};
use unspin_sim::{lock_params, Budgets, Host, Kernel, Setup, Simulated, Stalls, VmSetup};

pub const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "pmtlock_table1_lwp_share", run: table1 },
    Experiment { id: "pmtlock_fig5a_hackbench", run: fig5a },
    Experiment { id: "pmtlock_fig5b_kernbench", run: fig5b },
    Experiment { id: "pmtlock_fig5c_ebizzy", run: fig5c },
    Experiment { id: "pmtlock_fig6_dvdstore", run: fig6 },
    Experiment { id: "pmtlock_average", run: average },
];

const HACKBENCH: &str = "pmtlock-hackbench";
const KERNBENCH: &str = "pmtlock-kernbench";
const EBIZZY: &str = "pmtlock-ebizzy";
const DVDSTORE: &str = "pmtlock-dvdstore";
/// Profiles and the most VMs the paper runs of each.
const CASES: [(&str, u32); 4] = [(HACKBENCH, 3), (KERNBENCH, 3), (EBIZZY, 5), (DVDSTORE, 4)];
const TICKET: &str = "ticket";
const PREEMPTABLE: &str = "preemptable";
const PV: &str = "pv";
const PV_PREEMPTABLE: &str = "pv_preemptable";
const NEW: [&str; 3] = [PREEMPTABLE, PV, PV_PREEMPTABLE];
/// KVM's window in the paper's kernel, which did not change it.
const WINDOW_OF_3_5: Window = Window::Fixed { cycles: 4096 };

/// Section 6.1: 2.6 GHz, Fedora 17, whose kernels tick 1000 times a second, all CPUs at the same time
/// (skew_tick=0); the scheduler is CFS.
fn host() -> Host {
    Host { khz: 2_600_000, tick_ns: 1_000_000, skew_tick: false, ..Host::server(8, Kernel::V3_19) }
}

/// What else runs on the host, on each core: 100 us ten times a second, ours. Without it the vCPUs of
/// VMs that never sleep, and whose slices end at the same ticks, run together for ever, and nobody
/// is preempted in a lock.
fn add_host_tasks(setup: &mut Setup) {
    let length = |op, mean| Step { op, dist: Dist::Exp { mean, max: 0 }, lock: 0, permille: 1000 };
    let cores = setup.host.pcpus;
    let tasks = VmSetup {
        seed: setup.run.seed ^ HOST_TASKS_SEED,
        start_ns: 0,
        pin: (0..cores).collect(),
        vcpus: cores,
        threads: cores,
        tick_hz: 0,
        program: vec![length(Op::Compute, 260_000), length(Op::Block, 100_000_000)],
        ..setup.vms[0].clone()
    };
    setup.vms.push(tasks);
}

/// Keeps their random numbers apart from the VMs'.
const HOST_TASKS_SEED: u64 = 0x686f_7374;

/// Other than under the ticket lock, throughput differs by less than 1 % between seeds, and the
/// program with the most events takes most of the time.
fn is_needed(run: &Run) -> bool {
    let seeds = match (run.arm.name == TICKET && run.vms > 1, run.profile == HACKBENCH) {
        (true, _) => u32::MAX,
        (false, true) => 1,
        (false, false) => 2,
    };
    run.repeat < seeds
}

/// Section 5.2: a waiter of the paravirtual ticket lock halts after 2048 iterations (APSys 2015's
/// kernel has 2^15).
const BUDGETS: Budgets =
    Budgets { by_turns: false, pv_ticket_turns: Some(2048), pv_queued_in_order: false };

/// Every run of one profile with up to as many VMs as the paper has.
fn runs(ctx: &Ctx, profile: &str) -> Result<Runs, Error> {
    let most = CASES.iter().find(|(name, _)| *name == profile).map_or(0, |(_, vms)| *vms);
    runs_of(ctx, profile, 1..=most, |_| {})
}

/// The same with these numbers of VMs, changed by `change`.
fn runs_of(
    ctx: &Ctx,
    profile: &str,
    vms: RangeInclusive<u32>,
    change: Change,
) -> Result<Runs, Error> {
    let plan = ctx.plan(match profile {
        HACKBENCH => "papers/pmtlock/scenarios/pmtlock-hackbench.toml",
        _ => "papers/pmtlock/scenarios/pmtlock.toml",
    })?;
    let wanted = plan.runs.iter().filter(|r| r.profile == profile && vms.contains(&r.vms));
    let setups = wanted.filter(|run| is_needed(run)).map(|run| {
        let stall_ns = Some(lock_params::stall_ns());
        let mut setup = Setup { stall_ns, budgets: BUDGETS, ..Setup::new(&host(), run) };
        for vm in &mut setup.vms {
            // The paper's code (figure 3), not its section 4.2.
            vm.lock.tau_ns = Some(lock_params::tau_code_ns());
        }
        add_host_tasks(&mut setup);
        change(&mut setup);
        setup
    });
    let made = ctx.simulate(&setups.collect::<Vec<_>>())?;
    Ok(Runs { all: made.iter().map(|made| Arc::new(of_vms_alone(made))).collect() })
}

/// Without the host's tasks, whose passes are no work of a VM.
fn of_vms_alone(made: &Simulated) -> Simulated {
    let mut made = made.clone();
    let vms = made.result.run.vms as usize;
    made.result.vm.truncate(vms);
    made.locks.truncate(vms);
    made
}

fn stalls(runs: &Runs, vms: u32) -> Stalls {
    let mut sum = Stalls::default();
    for made in &runs.all {
        let run = &made.result.run;
        if run.vms == vms && run.arm.name == TICKET {
            for vm in &made.locks {
                sum.waiter_preempted += vm.stalls.waiter_preempted;
                sum.holder_preempted += vm.stalls.holder_preempted;
                sum.holder_running += vm.stalls.holder_running;
            }
        }
    }
    sum
}

fn table1(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    for (profile, name) in [(HACKBENCH, "hackbench"), (EBIZZY, "ebizzy")] {
        let runs = runs(ctx, profile)?;
        for vms in [1, 2] {
            let s = stalls(&runs, vms);
            e.share(&format!("{name}_{vms}vm"), s.waiter_share());
            e.note(format!(
                "{name}, {vms} VM: {} stalls with the lock free, {} with a holder off its pCPU, {} \
                 with one that ran",
                s.waiter_preempted, s.holder_preempted, s.holder_running
            ));
        }
    }
    Ok(())
}

/// The picture: every lock over the ticket lock at as many VMs.
fn draw(e: &mut Entry, runs: &Runs, profile: &str, most: u32) {
    e.axes("VMs", "throughput, ticket = 1");
    for arm in NEW {
        e.series(arm, (1..=most).map(|n| (n, runs.performance(profile, n, arm, TICKET))));
    }
}

fn speedups(e: &mut Entry, runs: &Runs, profile: &str, name: &str, vms: u32) {
    for arm in NEW {
        e.ratio(&format!("{name}.{arm}"), runs.performance(profile, vms, arm, TICKET));
    }
}

/// What is not printed, or is in two ways.
const VARIANTS: [(&str, Change); 7] = [
    ("as made", |_| {}),
    ("tau of 2 us (section 4.2)", |s| {
        s.vms.iter_mut().for_each(|vm| vm.lock.tau_ns = Some(lock_params::tau_ns()));
    }),
    ("iterations of 16 cycles, PAUSE's, instead of 2048 a us", |s| s.budgets.by_turns = true),
    ("one cgroup a VM", |s| s.run.cgroup = CgroupLayout::Vm),
    ("locks held for 0.1 us instead of 0.45", |s| {
        for step in s.vms.iter_mut().flat_map(|vm| &mut vm.program) {
            if step.op == Op::Critical {
                step.dist = Dist::Uniform { min: 130, max: 390 };
            }
        }
    }),
    ("without the host's tasks", |s| s.vms.truncate(s.run.vms as usize)),
    ("with pause-loop exits at the kernel's window, 4096 cycles", |s| {
        s.vms.iter_mut().for_each(|vm| vm.arm.window = WINDOW_OF_3_5);
    }),
];

fn sensitivity(ctx: &Ctx, e: &mut Entry, profile: &str, vms: u32) -> Result<(), Error> {
    for (what, change) in VARIANTS {
        let runs = runs_of(ctx, profile, vms..=vms, change)?;
        let speedup = |arm| format!("{arm} {:.2}", runs.performance(profile, vms, arm, TICKET));
        let each = NEW.map(speedup).join(", ");
        e.note(format!("sensitivity, {vms} VMs, {what}: {each}"));
    }
    Ok(())
}

fn fig5a(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let runs = runs(ctx, HACKBENCH)?;
    speedups(e, &runs, HACKBENCH, "two_vms", 2);
    speedups(e, &runs, HACKBENCH, "three_vms", 3);
    e.at_most("one_vm_overhead_max", 1.0 - runs.performance(HACKBENCH, 1, PREEMPTABLE, TICKET));
    draw(e, &runs, HACKBENCH, 3);
    sensitivity(ctx, e, HACKBENCH, 2)
}

fn fig5b(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let runs = runs(ctx, KERNBENCH)?;
    speedups(e, &runs, KERNBENCH, "two_vms", 2);
    let three = NEW.map(|arm| runs.performance(KERNBENCH, 3, arm, TICKET));
    e.ratio("three_vms_all", mean(three));
    draw(e, &runs, KERNBENCH, 3);
    Ok(())
}

fn best(runs: &Runs, profile: &str, vms: u32, of: &[&'static str]) -> (&'static str, String) {
    let speed = |arm: &str| runs.performance(profile, vms, arm, TICKET);
    let list: Vec<String> = of.iter().map(|arm| format!("{arm} {:.3}", speed(arm))).collect();
    let best = of.iter().copied().max_by(|a, b| speed(a).total_cmp(&speed(b)));
    (best.unwrap_or(TICKET), format!("{vms} VMs: {}", list.join(", ")))
}

fn fig5c(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let runs = runs(ctx, EBIZZY)?;
    e.setting("vms");
    let all = [TICKET, PREEMPTABLE, PV, PV_PREEMPTABLE];
    let (three, evidence) = best(&runs, EBIZZY, 3, &all);
    e.holds("three_vms_best", three == PREEMPTABLE, evidence);
    let (two, evidence) = best(&runs, EBIZZY, 2, &all);
    e.holds("two_vms_best", two == PV, evidence);
    let pair = |vms| best(&runs, EBIZZY, vms, &[PV, PV_PREEMPTABLE]);
    let ahead = (3..=5).all(|vms| pair(vms).0 == PV_PREEMPTABLE);
    e.holds("from_three_vms", ahead, [3, 4, 5].map(|vms| pair(vms).1).join("; "));
    draw(e, &runs, EBIZZY, 5);
    Ok(())
}

fn fig6(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let runs = runs(ctx, DVDSTORE)?;
    e.setting("vms");
    let all = [TICKET, PREEMPTABLE, PV, PV_PREEMPTABLE];
    let (two, evidence) = best(&runs, DVDSTORE, 2, &all);
    e.holds("two_vms_best", two == PV, evidence);
    let one = |arm| runs.performance(DVDSTORE, 1, arm, TICKET);
    let worst = all.iter().all(|arm| *arm == PV || one(PV) < one(arm));
    e.holds("one_vm_worst", worst, best(&runs, DVDSTORE, 1, &all).1);
    let many = [3, 4].map(|vms| best(&runs, DVDSTORE, vms, &all));
    let ahead = many.iter().all(|(arm, _)| *arm == PV_PREEMPTABLE);
    e.holds("many_vms_best", ahead, many.map(|(_, evidence)| evidence).join("; "));
    draw(e, &runs, DVDSTORE, 4);
    Ok(())
}

fn average(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let (mut preemptable, mut pv_preemptable, mut vs_pv) = (Vec::new(), Vec::new(), Vec::new());
    for (profile, most) in CASES {
        let runs = runs(ctx, profile)?;
        for vms in 1..=most {
            preemptable.push(runs.performance(profile, vms, PREEMPTABLE, TICKET));
            pv_preemptable.push(runs.performance(profile, vms, PV_PREEMPTABLE, TICKET));
            vs_pv.push(runs.performance(profile, vms, PV_PREEMPTABLE, PV));
        }
    }
    e.note(format!("over {} cases: figures 5 and 6, every number of VMs", vs_pv.len()));
    e.ratio("preemptable_vs_ticket", mean(preemptable));
    e.ratio("pv_preemptable_vs_ticket", mean(pv_preemptable));
    e.ratio("pv_preemptable_vs_pv", mean(vs_pv));
    Ok(())
}
