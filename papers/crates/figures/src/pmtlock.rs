// SPDX-License-Identifier: MIT OR Apache-2.0
//! Preemptable ticket spinlocks (VEE 2013): `papers/pmtlock/scenarios/` on 8 cores of 2.6 GHz.

use crate::ctx::{mean, Change, Ctx, Runs};
use crate::within::{Rule, TIE};
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
/// Profiles, with the largest number of VMs in the paper.
const CASES: [(&str, u32); 4] = [(HACKBENCH, 3), (KERNBENCH, 3), (EBIZZY, 5), (DVDSTORE, 4)];
const TICKET: &str = "ticket";
const PREEMPTABLE: &str = "preemptable";
const PV: &str = "pv";
const PV_PREEMPTABLE: &str = "pv_preemptable";
const NEW: [&str; 3] = [PREEMPTABLE, PV, PV_PREEMPTABLE];
const ALL: [&str; 4] = [TICKET, PREEMPTABLE, PV, PV_PREEMPTABLE];
/// KVM's window in the paper's kernel, which did not change it.
const WINDOW_OF_3_5: Window = Window::Fixed { cycles: 4096 };

/// Section 6.1: 2.6 GHz, Fedora 17, whose kernels tick 1000 times a second, all CPUs at the same time
/// (skew_tick=0); the scheduler is CFS.
fn host() -> Host {
    Host { khz: 2_600_000, tick_ns: 1_000_000, skew_tick: false, ..Host::server(8, Kernel::V3_19) }
}

/// Other tasks on each core of the host: 100 us ten times per second. They are not in the paper.
/// Without them the vCPUs of VMs that never sleep, and whose slices end at the same ticks, always
/// run together, and none is preempted in a lock.
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

/// Separates their random numbers from the VMs'.
const HOST_TASKS_SEED: u64 = 0x686f_7374;

/// Whether a run with a further seed is needed. Except under the ticket lock, throughput differs by
/// less than 1 % between seeds, and the program with the most events takes most of the time.
fn is_needed(run: &Run) -> bool {
    let seeds = match (run.arm.name == TICKET && run.vms.len() > 1, run.profile == HACKBENCH) {
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

/// Every run of one profile, up to the number of VMs in the paper.
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
    let wanted = plan.runs.iter().filter(|r| r.profile == profile && vms.contains(&r.vm_count()));
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

/// The run without the host's tasks, whose passes are not work of a VM.
fn of_vms_alone(made: &Simulated) -> Simulated {
    let mut made = made.clone();
    let vms = made.result.run.vms.len();
    made.result.vm.truncate(vms);
    made.locks.truncate(vms);
    made
}

fn stalls(runs: &Runs, vms: u32) -> Stalls {
    let mut sum = Stalls::default();
    for made in &runs.all {
        let run = &made.result.run;
        if run.vm_count() == vms && run.arm.name == TICKET {
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

/// Speed of the first VM relative to the ticket lock with as many VMs: "one VM of the set".
fn speedup(runs: &Runs, profile: &str, vms: u32, arm: &str) -> f64 {
    let speed = |arm| runs.units_per_s_of_first(profile, vms, arm);
    speed(arm) / speed(TICKET)
}

/// The picture: every lock relative to the ticket lock with as many VMs.
fn draw(e: &mut Entry, runs: &Runs, profile: &str, most: u32) {
    e.axes("VMs", "throughput, ticket = 1");
    for arm in NEW {
        e.series(arm, (1..=most).map(|n| (n, speedup(runs, profile, n, arm))));
    }
}

fn speedups(e: &mut Entry, runs: &Runs, profile: &str, name: &str, vms: u32) {
    for arm in NEW {
        e.ratio(&format!("{name}.{arm}"), speedup(runs, profile, vms, arm));
    }
}

/// Checks "comparable": the others differ from the ticket lock by at most this.
fn comparable(e: &mut Entry, runs: &Runs, profile: &str) {
    let holds = NEW.iter().all(|arm| Rule::SIMILAR.allows(speedup(runs, profile, 1, arm)));
    e.condition("one VM: comparable", holds, listed(runs, profile, 1));
    if tie(runs, profile, 1) {
        e.no_evidence(TIES);
    }
}

fn listed(runs: &Runs, profile: &str, vms: u32) -> String {
    let one = |arm: &&str| format!("{arm} {:.3}", speedup(runs, profile, vms, arm));
    format!("{vms} VMs: {}", ALL.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Changes of parameters that are not printed, or printed in two ways.
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
    ("without the host's tasks", |s| s.vms.truncate(s.run.vms.len())),
    ("with pause-loop exits at the kernel's window, 4096 cycles", |s| {
        s.vms.iter_mut().for_each(|vm| vm.arm.window = WINDOW_OF_3_5);
    }),
];

fn sensitivity(ctx: &Ctx, e: &mut Entry, profile: &str, vms: u32) -> Result<(), Error> {
    for (what, change) in VARIANTS {
        let runs = runs_of(ctx, profile, vms..=vms, change)?;
        let one = |arm| format!("{arm} {:.2}", speedup(&runs, profile, vms, arm));
        let each = NEW.map(one).join(", ");
        e.note(format!("sensitivity, {vms} VMs, {what}: {each}"));
    }
    Ok(())
}

fn fig5a(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let runs = runs(ctx, HACKBENCH)?;
    speedups(e, &runs, HACKBENCH, "two_vms", 2);
    speedups(e, &runs, HACKBENCH, "three_vms", 3);
    e.at_most("one_vm_overhead_max", 1.0 - speedup(&runs, HACKBENCH, 1, PREEMPTABLE));
    if tie(&runs, HACKBENCH, 1) {
        e.no_evidence(TIES);
    }
    let said = "order preemptable < pv < pv_preemptable";
    let in_order = |vms| {
        let [preemptable, pv, pv_preemptable] =
            NEW.map(|arm| runs.units_per_s_of_first(HACKBENCH, vms, arm));
        Rule::ORDER.allows(pv / preemptable) && Rule::ORDER.allows(pv_preemptable / pv)
    };
    let evidence = [2, 3].map(|vms| listed(&runs, HACKBENCH, vms)).join("; ");
    e.condition(said, in_order(2) && in_order(3), evidence);
    draw(e, &runs, HACKBENCH, 3);
    sensitivity(ctx, e, HACKBENCH, 2)
}

fn fig5b(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let runs = runs(ctx, KERNBENCH)?;
    speedups(e, &runs, KERNBENCH, "two_vms", 2);
    for arm in NEW {
        e.ratio(&format!("three_vms_all: {arm}"), speedup(&runs, KERNBENCH, 3, arm));
    }
    comparable(e, &runs, KERNBENCH);
    draw(e, &runs, KERNBENCH, 3);
    Ok(())
}

/// Enters the statement `name` for each of these numbers of VMs.
fn states(
    e: &mut Entry,
    runs: &Runs,
    name: &str,
    (profile, vms): (&str, &[u32]),
    (arm, others, usual): (&str, &[&str], Rule),
) {
    let rule = e.rule(name, 0, usual);
    let holds = vms.iter().all(|n| {
        let speed = |arm| speedup(runs, profile, *n, arm);
        others.iter().all(|other| *other == arm || rule.allows(speed(arm) / speed(other)))
    });
    let evidence: Vec<String> = vms.iter().map(|n| listed(runs, profile, *n)).collect();
    e.holds(name, holds, evidence.join("; "));
    if vms.iter().all(|n| tie(runs, profile, *n)) {
        e.no_evidence(TIES);
    }
}

/// Why a lock that is no worse than another may be any of them.
const TIES: &str = "the locks differ by less than 2 %";

/// Whether no lock is more than 2 % faster than another: with one VM, no waiter lacks a pCPU.
fn tie(runs: &Runs, profile: &str, vms: u32) -> bool {
    spread(runs, profile, vms) <= 1.0 + TIE
}

/// How much faster the fastest lock is than the slowest.
fn spread(runs: &Runs, profile: &str, vms: u32) -> f64 {
    let all = ALL.map(|arm| speedup(runs, profile, vms, arm));
    let most = all.iter().copied().fold(f64::MIN, f64::max);
    most / all.iter().copied().fold(f64::MAX, f64::min)
}

fn fig5c(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let runs = runs(ctx, EBIZZY)?;
    e.setting("vms");
    let best = |arm| (arm, &ALL[..], Rule::ORDER);
    states(e, &runs, "three_vms_best", (EBIZZY, &[3]), best(PREEMPTABLE));
    states(e, &runs, "two_vms_best", (EBIZZY, &[2]), best(PV));
    let pair = (PV_PREEMPTABLE, &[PV][..], Rule::ORDER);
    states(e, &runs, "from_three_vms", (EBIZZY, &[3, 4, 5]), pair);
    comparable(e, &runs, EBIZZY);
    draw(e, &runs, EBIZZY, 5);
    Ok(())
}

fn fig6(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let runs = runs(ctx, DVDSTORE)?;
    e.setting("vms");
    let name = "one_and_two_vms";
    let similar = e.rule(name, 0, Rule::SIMILAR);
    let alike = [1, 2].iter().all(|vms| similar.allows(spread(&runs, DVDSTORE, *vms)));
    let evidence = [1, 2].map(|vms| listed(&runs, DVDSTORE, vms)).join("; ");
    e.holds(name, alike, evidence);
    let best = |arm| (arm, &ALL[..], Rule::ORDER);
    states(e, &runs, "two_vms_best", (DVDSTORE, &[2]), best(PV));
    let worst = (PV, &ALL[..], Rule::AtMost(1.0 + TIE));
    states(e, &runs, "one_vm_worst", (DVDSTORE, &[1]), worst);
    let name = "many_vms";
    let (ahead, behind) = (e.rule(name, 0, Rule::EFFECT), e.rule(name, 1, Rule::ORDER));
    let holds = [3, 4].iter().all(|vms| {
        let of = |arm| speedup(&runs, DVDSTORE, *vms, arm);
        NEW.iter().all(|arm| ahead.allows(of(arm)))
            && [PV, PV_PREEMPTABLE].iter().all(|arm| behind.allows(of(arm) / of(PREEMPTABLE)))
    });
    e.holds(name, holds, [3, 4].map(|vms| listed(&runs, DVDSTORE, vms)).join("; "));
    states(e, &runs, "many_vms_best", (DVDSTORE, &[3, 4]), best(PV_PREEMPTABLE));
    draw(e, &runs, DVDSTORE, 4);
    Ok(())
}

fn average(ctx: &Ctx, e: &mut Entry) -> Result<(), Error> {
    let (mut preemptable, mut pv_preemptable, mut vs_pv) = (Vec::new(), Vec::new(), Vec::new());
    for (profile, most) in CASES {
        let runs = runs(ctx, profile)?;
        for vms in 1..=most {
            let of = |arm| speedup(&runs, profile, vms, arm);
            preemptable.push(of(PREEMPTABLE));
            pv_preemptable.push(of(PV_PREEMPTABLE));
            vs_pv.push(of(PV_PREEMPTABLE) / of(PV));
        }
    }
    e.note(format!(
        "arithmetic means over {} cases: figures 5 and 6, every number of VMs",
        vs_pv.len()
    ));
    e.ratio("preemptable_vs_ticket", mean(preemptable));
    e.ratio("pv_preemptable_vs_ticket", mean(pv_preemptable));
    e.performance("pv_preemptable_vs_pv", mean(vs_pv));
    Ok(())
}
