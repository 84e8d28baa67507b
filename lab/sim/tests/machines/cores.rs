// SPDX-License-Identifier: MIT OR Apache-2.0
//! pCPUs that are the two threads of a core.

use crate::common::{busy, constant, refused, run, step, unpinned, vms};
use unspin_scenario::plan::{Op, Run, Step};
use unspin_sim::{Host, Kernel, Setup};

fn host(pcpus: u32, percent: u32) -> Host {
    Host {
        threads_share_cores: true,
        thread_speed_percent: percent,
        ..Host::lab(pcpus, Kernel::V6_12)
    }
}

/// A VM each on these pCPUs.
fn on(pcpus: &[u32], program: Vec<Step>) -> Run {
    let mut run = Run { stagger_ms: 0, window_ms: 400, ..run(pcpus.len() as u32, 1, program) };
    for (vm, pcpu) in run.vms.iter_mut().zip(pcpus) {
        vm.pin = vec![*pcpu];
    }
    run
}

/// Units of each VM.
fn units(host: &Host, run: &Run) -> Vec<f64> {
    let vms = vms(&Setup::new(host, run));
    vms.iter().map(|vm| vm.units.iter().sum::<u64>() as f64).collect()
}

#[test]
fn two_threads_of_a_core_each_work_at_the_speed_that_is_said() {
    for percent in [50, 62, 75, 100] {
        let host = host(4, percent);
        let alone = units(&host, &on(&[0], busy()))[0];
        let apart = units(&host, &on(&[0, 2], busy()));
        assert!(apart.iter().all(|u| (u / alone - 1.0).abs() < 0.01), "{apart:?} of {alone}");
        let together = units(&host, &on(&[2, 3], busy()));
        // What the host does is not slowed.
        let due = alone * f64::from(percent) / 100.0;
        assert!(together.iter().all(|u| (u / due - 1.0).abs() < 0.02), "{percent}: {together:?}");
    }
}

/// Beside one that sleeps half of the time, a vCPU is slow for half of the time.
#[test]
fn only_while_the_other_one_is_busy() {
    let mut run = on(&[0, 1], busy());
    let nap = step(Op::Block, constant(1_000_000), 0);
    run.vms[1].program = vec![step(Op::Compute, constant(62_000), 0), nap];
    let host = host(2, 62);
    let beside = vms(&Setup::new(&host, &run));
    let alone = units(&host, &on(&[0], busy()))[0];
    let busy = beside[1].cpu_ns[0] as f64 / 4e8;
    assert!((0.3..0.7).contains(&busy), "{busy}");
    let speed = beside[0].units[0] as f64 / alone;
    assert!((speed - (1.0 - 0.38 * busy)).abs() < 0.02, "{speed} beside {busy}");
}

/// Who may run anywhere takes an idle core, not the other thread of a busy one.
#[test]
fn idle_cores_come_first() {
    let run = unpinned(on(&[0, 0, 0, 0], busy()));
    let eight = host(8, 62);
    let all = units(&eight, &run);
    let alone = units(&eight, &on(&[0], busy()))[0];
    assert!(all.iter().all(|u| (u / alone - 1.0).abs() < 0.02), "{all:?} of {alone}");
}

#[test]
fn half_a_core_is_refused() {
    for (host, why) in [
        (host(3, 62), "an even number"),
        (host(4, 0), "a thread's speed of 0 %"),
        (host(4, 101), "a thread's speed of 101 %"),
    ] {
        refused(&Setup::new(&host, &on(&[0], busy())), why);
    }
}
