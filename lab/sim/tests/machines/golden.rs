// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small scenarios whose results are known to the last integer. After a change that is meant to
//! change them: `UNSPIN_BLESS=1 cargo test -p unspin-sim --test machines golden`, and read the
//! difference.

use crate::common::{self, arm, constant, contended, run, setup, sleeping, step, unpinned};
use std::fmt::Write;
use std::path::Path;
use unspin_scenario::plan::{
    ApleParams, Asym, CgroupLayout, Coscheduling, Dist, LockKind, Op, Run, Window, YieldTo,
};
use unspin_scenario::result::Attribution;
use unspin_sim::{lock_params, simulate_setup, Host, Kernel, Setup};
use unspin_uapi::Variant;

#[allow(clippy::too_many_lines)] // a table
fn scenarios() -> Vec<(&'static str, Kernel, Run)> {
    let lock = || contended(1000, 400);
    let base = |vms| run(vms, 4, lock());
    let with = |mut run: Run, window, yield_to| {
        run.arm = arm(window, yield_to);
        run
    };
    let aple = Window::Aple(ApleParams { epoch_ple_exits: 50, ..ApleParams::default() });
    let barrier =
        |op, pauses| vec![step(Op::Compute, constant(9000), 0), step(op, constant(pauses), 0)];
    let weighted = Run { cgroup: CgroupLayout::Vm, ..base(2).weighted(&[100, 300]) };
    let grouped = Run { cgroup: CgroupLayout::Vm, ..run(2, 4, sleeping(1000, 400)) };
    let free = unpinned(run(3, 4, lock()));
    let user = base(2).with(|vm| vm.cpl = 3);
    let mut mixed = base(2);
    let other = &mut mixed.vms[1];
    (other.vcpus, other.lock, other.mode_off) = (2, LockKind::Mcs, true);
    other.program = sleeping(1000, 400);
    other.pin.truncate(2);
    mixed.arm = arm(Window::Stock, YieldTo::HVS);
    let selecting =
        |program, variant| with(run(3, 4, program), Window::Stock, YieldTo::Module(variant));
    // Its spinning in user space lasts as long as the slowest of 7 rounds in the kernel.
    let user_barrier = || {
        let mut program = vec![contended(300, 700); 7].concat();
        program.push(step(Op::UserBarrier, constant(0), 0));
        program
    };
    let locked = |kind| base(3).with(|vm| vm.lock = kind);
    let tau = |ns| locked(LockKind::Preemptable).with(|vm| vm.tau_ns = Some(ns));
    vec![
        ("alone", Kernel::V6_12, with(base(1), Window::Off, YieldTo::Stock)),
        ("ple-off", Kernel::V6_12, with(base(2), Window::Off, YieldTo::Stock)),
        ("stock-3.19", Kernel::V3_19, base(2)),
        ("stock-6.1", Kernel::V6_1, base(2)),
        ("stock-6.12", Kernel::V6_12, base(2)),
        ("stock-6.13", Kernel::V6_13, base(3)),
        ("stock-2012", Kernel::Proposal2012, base(3)),
        ("fixed-4096", Kernel::V6_1, with(base(2), Window::Fixed { cycles: 4096 }, YieldTo::Stock)),
        ("aple", Kernel::V6_12, with(base(3), aple.clone(), YieldTo::Stock)),
        ("hvs", Kernel::V6_1, with(base(3), Window::Stock, YieldTo::HVS)),
        ("hvs-paper", Kernel::V6_1, with(base(3), Window::Stock, YieldTo::Module(Variant::PAPER))),
        ("apples", Kernel::V6_12, with(base(3), aple, YieldTo::HVS)),
        ("tas", Kernel::V6_12, locked(LockKind::Tas)),
        ("mcs", Kernel::V6_1, locked(LockKind::Mcs)),
        ("preemptable", Kernel::V6_1, locked(LockKind::Preemptable)),
        ("preemptable-8us", Kernel::V6_1, tau(lock_params::tau_code_ns())),
        ("pv-ticket", Kernel::V6_12, locked(LockKind::PvTicket)),
        ("pv-preemptable", Kernel::V6_12, locked(LockKind::PvPreemptable)),
        ("oticket", Kernel::V6_1, locked(LockKind::Oticket)),
        ("oticket-spin", Kernel::V6_1, locked(LockKind::OticketSpin)),
        ("oticket-wake", Kernel::V6_1, locked(LockKind::OticketWake)),
        ("iticket", Kernel::V6_12, locked(LockKind::Iticket)),
        ("long-ticket", Kernel::V6_12, locked(LockKind::LongTicket)),
        ("pv-queued", Kernel::V6_12, locked(LockKind::PvQueued)),
        ("lease", Kernel::V6_12, locked(LockKind::Lease)),
        ("sleeping", Kernel::V6_12, run(2, 4, sleeping(1000, 400))),
        ("barrier", Kernel::V6_12, run(2, 4, barrier(Op::Barrier, 500))),
        ("spin-barrier", Kernel::V6_1, run(2, 4, barrier(Op::SpinBarrier, 0))),
        ("weights", Kernel::V6_12, weighted),
        ("groups-3.19", Kernel::V3_19, grouped.clone()),
        ("groups-6.12", Kernel::V6_12, grouped),
        ("unpinned", Kernel::V6_12, free),
        ("mixed", Kernel::V6_12, mixed),
        ("user-spinning", Kernel::V6_12, user),
        ("woken", Kernel::V6_12, selecting(sleeping(1000, 400), Variant::HVS)),
        ("woken-paper", Kernel::V6_12, selecting(sleeping(1000, 400), Variant::PAPER)),
        ("woken-3.19", Kernel::V3_19, selecting(sleeping(1000, 400), Variant::HVS)),
        ("paper-lists", Kernel::V6_1, selecting(lock(), Variant::PAPER_LISTS)),
        ("displaced", Kernel::V6_1, selecting(lock(), Variant::DISPLACED)),
        ("paper-displaced", Kernel::V6_1, selecting(lock(), Variant::PAPER_DISPLACED)),
        ("user-barrier-stock", Kernel::V6_12, run(3, 4, user_barrier())),
        ("user-barrier-hvs", Kernel::V6_12, selecting(user_barrier(), Variant::HVS)),
    ]
}

/// Asymmetric vCPUs beside others, on both fair schedulers.
fn asymmetric() -> Vec<(&'static str, Setup)> {
    let asym = Asym {
        time: true,
        latency: true,
        resolver: true,
        weight: false,
        uncorrected: true,
        period_ms: None,
    };
    let of = |kernel| {
        let long = Dist::Exp { mean: 900_000, max: 9_000_000 };
        let mut r = run(3, 4, vec![step(Op::Compute, long, 0), step(Op::Barrier, constant(0), 0)]);
        r.arm.asym = asym;
        r.window_ms = 400;
        setup(kernel, &r)
    };
    vec![("asym-3.19", of(Kernel::V3_19)), ("asym-6.12", of(Kernel::V6_12))]
}

/// Hosts under Credit, Xen's and that of sched_ext: eight pCPUs, vCPUs free to move, an idle Dom0.
fn credit_hosts() -> Vec<(&'static str, Setup)> {
    let on = |host: Host, way| {
        let mut run = Run { window_ms: 400, ..unpinned(run(3, 4, contended(3000, 600))) };
        run.arm.coscheduling = way;
        let mut setup = Setup::new(&host, &run);
        setup.vms[2].program = vec![step(Op::Block, constant(0), 0)];
        setup.vms[0].weight = 64;
        setup.vms[1].weight = 32;
        setup.vms[2].weight = 256;
        setup
    };
    let lab = || Host::lab(8, Kernel::V3_19);
    let xen = |capped, way| on(lab().with_xen_credit(capped), way);
    let maximal = |capped, way| on(lab().with_credit(capped), way);
    vec![
        ("xen-credit", xen(false, Coscheduling::None)),
        ("xen-credit-con", xen(false, Coscheduling::Con)),
        ("xen-credit-vcrd", xen(false, Coscheduling::Vcrd)),
        ("xen-credit-vcrd-ple", xen(false, Coscheduling::VcrdPle)),
        ("xen-credit-capped", xen(true, Coscheduling::None)),
        ("xen-credit-capped-con", xen(true, Coscheduling::Con)),
        ("xen-credit-capped-vcrd", xen(true, Coscheduling::Vcrd)),
        ("credit-con", maximal(false, Coscheduling::Con)),
        ("credit-capped", maximal(true, Coscheduling::None)),
        ("credit-capped-vcrd", maximal(true, Coscheduling::Vcrd)),
    ]
}

/// Capped VMs, and spinning in user space under AMD's pause filter.
fn other_hosts() -> Vec<(&'static str, Setup)> {
    let grouped =
        Run { cgroup: CgroupLayout::Vm, window_ms: 300, ..run(2, 4, contended(3000, 600)) };
    let user = run(2, 4, contended(1000, 400)).with(|vm| vm.cpl = 3);
    let lab = |kernel| Host::lab(4, kernel);
    let capped = |kernel| Setup::new(&Host { capped: true, ..lab(kernel) }, &grouped);
    let spinning = run(2, 4, sleeping(1000, 400));
    let of_threads =
        Setup::new(&Host { threads_share_cores: true, ..lab(Kernel::V6_12) }, &spinning);
    vec![
        ("fair-capped-3.19", capped(Kernel::V3_19)),
        ("fair-capped-6.12", capped(Kernel::V6_12)),
        ("threads-of-cores", of_threads),
        ("server", Setup::new(&Host::server(4, Kernel::V6_12), &spinning)),
        ("pause-filter", Setup::new(&lab(Kernel::V6_12).with_pause_filter(), &user)),
    ]
}

/// Turns on both fair schedulers: a VM that spins and one that sleeps as well gang, beside one of the
/// group.
fn turned() -> Vec<(&'static str, Setup)> {
    let of = |kernel, way, pinned: bool| {
        let mut run = run(3, 4, contended(600, 600)).weighted(&[100, 200, 150]);
        run.window_ms = 300;
        run.arm = arm(Window::Stock, YieldTo::HVS);
        (run.arm.coscheduling, run.cgroup) = (way, CgroupLayout::Vcpu);
        if !pinned {
            run = unpinned(run);
        }
        run.vms[1].program = sleeping(1000, 400);
        run.vms[2].program = common::busy();
        run.vms[2].spin_intensive = false;
        Setup::new(&Host::lab(if pinned { 4 } else { 6 }, kernel), &run)
    };
    vec![
        ("turns-con-6.12", of(Kernel::V6_12, Coscheduling::Con, true)),
        ("turns-con-3.19", of(Kernel::V3_19, Coscheduling::Con, true)),
        ("turns-vcrd-ple-6.12", of(Kernel::V6_12, Coscheduling::VcrdPle, true)),
        ("turns-con-unpinned", of(Kernel::V6_12, Coscheduling::Con, false)),
    ]
}

/// The numbers of a structure that are not 0, by their names.
fn numbers(of: impl std::fmt::Debug) -> String {
    let text = format!("{of:?}").replace(", factors: None", "");
    let fields = text.trim_end_matches(" }").split_once(" { ").map_or("", |(_, fields)| fields);
    fields.split(", ").filter(|field| !field.ends_with(": 0")).collect::<Vec<_>>().join(", ")
}

fn described() -> String {
    let mut text = String::new();
    let kernels = scenarios().into_iter().map(|(name, kernel, run)| (name, setup(kernel, &run)));
    let hosts = credit_hosts().into_iter().chain(asymmetric()).chain(other_hosts());
    for (name, setup) in kernels.chain(hosts).chain(turned()) {
        let simulated = simulate_setup(&setup).unwrap();
        writeln!(text, "{name}: {} events", simulated.events).unwrap();
        for (number, vm) in simulated.result.vm.iter().enumerate() {
            let waits: u64 = vm.wait_hist.iter().enumerate().map(|(b, n)| (b as u64 + 1) * n).sum();
            let acquisitions: u64 = vm.acquisitions.iter().sum();
            let (units, longest) = (&vm.units, vm.max_wait_cycles);
            let spent = Attribution { factors: None, ..vm.attribution.unwrap() };
            let mut parts = vec![format!(
                "units {units:?} acquisitions {acquisitions} waits {waits} longest {longest}"
            )];
            parts.extend(simulated.coscheduling.get(number).map(numbers));
            parts.push(numbers(spent));
            parts.push(format!("halts in locks {}", simulated.locks[number].halts));
            parts.push(numbers(vm.module.clone().unwrap_or_default()));
            parts.retain(|part| !part.is_empty());
            writeln!(text, "  VM {number}: {}", parts.join("; ")).unwrap();
        }
    }
    text
}

#[test]
fn results_are_what_they_were() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden.txt");
    let now = described();
    if std::env::var_os("UNSPIN_BLESS").is_some() {
        std::fs::write(&file, &now).unwrap();
    }
    let was = std::fs::read_to_string(&file).unwrap();
    for (line, (was, now)) in was.lines().zip(now.lines()).enumerate() {
        assert_eq!(was, now, "golden.txt:{}", line + 1);
    }
    assert_eq!(was.lines().count(), now.lines().count());
}
