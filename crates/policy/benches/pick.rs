// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a choice on the PLE-exit path and a turn of gangs cost, in instructions (a child process
//! is single-stepped; they repeat exactly) and in nanoseconds: `cargo bench -p unspin-policy`.
//! The stock search is the model's, without KVM's own loads of other vCPUs' state.

mod steps;

use std::hint::black_box;
use std::time::Instant;
use steps::{instructions, pick, pick_looked, ready, scattered};
use unspin_policy::gang::{self, Cpu, CpuSet, Host};
use unspin_policy::kvm_stock::{Search, Variant, Vcpu, Yield};

const ROUNDS: u32 = 200_000;

fn nanoseconds(mut choose: impl FnMut()) -> f64 {
    let best = (0..5).map(|_| {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| choose());
        start.elapsed()
    });
    best.min().expect("five runs").as_secs_f64() * 1e9 / f64::from(ROUNDS)
}

fn counted(choose: &mut dyn FnMut()) -> String {
    instructions(choose).map_or_else(|| "no ptrace".to_owned(), |n| n.to_string())
}

fn picks() {
    println!("       {:^23}  {:^23}", "hvs_pick", "stock search, 6.12");
    println!(
        "{:>6} {:>14} {:>8}  {:>14} {:>8}",
        "vCPUs", "instructions", "ns", "instructions", "ns"
    );
    for count in [2, 4, 8, 16, 32, 64, 256, 4096] {
        let slots = ready(count);
        let mut of_snapshot = pick(&slots);
        let mut looked = pick_looked(&slots);
        let hvs: &mut dyn FnMut() = if count > 64 { &mut looked } else { &mut of_snapshot };

        let mut vcpus = vec![Vcpu::PREEMPTED_SPINNING; count];
        vcpus[0] = Vcpu::RUNNING;
        vcpus[count - 1] = Vcpu::PREEMPTED;
        let mut stock = || {
            vcpus[1..count - 1].fill(Vcpu::PREEMPTED_SPINNING); // none "checked" yet
            let mut last_boosted = 0;
            let mut search =
                Search::start(black_box(&mut vcpus), 0, last_boosted, Variant::V6_12, true);
            black_box(search.next(&mut vcpus));
            search.result(&mut last_boosted, Yield::Boosted);
            search.finish(&mut vcpus);
        };
        println!(
            "{count:>6} {:>14} {:>8.1}  {:>14} {:>8.1}",
            counted(hvs),
            nanoseconds(hvs),
            counted(&mut stock),
            nanoseconds(&mut stock),
        );
    }
}

/// One turn ends and the next starts: VMs of 4 vCPUs that all spin and may run everywhere, four on
/// each pCPU.
fn turns() {
    println!("\n{:>6} {:>6} {:>14} {:>8}", "VMs", "pCPUs", "instructions", "ns");
    for count in [4, 16] {
        let everywhere: CpuSet = (0..count).collect();
        let mut vcpus: Vec<gang::Vcpu> = (0..4 * count)
            .map(|i| gang::Vcpu {
                got: scattered(i) >> 40,
                allowed: Some(&everywhere),
                wants: 1,
                ..gang::Vcpu::new((i % count) as u32, 1024)
            })
            .collect();
        let start: Vec<gang::Vm> =
            (0..count as u32).map(|i| gang::Vm { high: 1, ..gang::Vm::new(4 * i, 4) }).collect();
        let (mut vms, mut cpus, mut turn) = (start.clone(), vec![Cpu::default(); count], 0);
        let mut one = || {
            vms.copy_from_slice(&start);
            let mut host =
                Host { vms: &mut vms, vcpus: &mut vcpus, cpus: &mut cpus, turn: &mut turn };
            host.account(12_000_000);
            black_box(host.turn_starts());
        };
        println!("{count:>6} {count:>6} {:>14} {:>8.1}", counted(&mut one), nanoseconds(&mut one));
    }
}

fn main() {
    picks();
    turns();
}
