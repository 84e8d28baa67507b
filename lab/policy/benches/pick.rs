// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of a choice on the PLE-exit path and of a turn of gangs, in instructions (a child
//! process is single-stepped, so they repeat exactly) and in nanoseconds: `cargo bench -p
//! unspin-policy`. The stock search is the model's, without KVM's own loads of other vCPUs' state.

#[path = "../tests/common/gang_load.rs"]
mod gang_load;
mod steps;

use gang_load::{scattered, Load, LAYOUTS};
use std::hint::black_box;
use std::time::Instant;
use steps::{instructions, pick, pick_looked, ready};
use unspin_policy::gang::{fill, Filler, FILLERS_MAX};
use unspin_policy::kvm_stock::{Search, Variant, Vcpu, Yield};

const ROUNDS: u32 = 200_000;

fn nanoseconds(rounds: u32, mut choose: impl FnMut()) -> f64 {
    let best = (0..5).map(|_| {
        let start = Instant::now();
        (0..rounds).for_each(|_| choose());
        start.elapsed()
    });
    best.min().expect("five runs").as_secs_f64() * 1e9 / f64::from(rounds)
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
            nanoseconds(ROUNDS, hvs),
            counted(&mut stock),
            nanoseconds(ROUNDS, &mut stock),
        );
    }
}

/// One turn ends and the next starts. `tests/instructions.rs` has the most that it may cost.
fn turns() {
    println!("\nVMs of 8 vCPUs that all spin, on as many pCPUs");
    println!("{:>6} {:>8} {:>8} {:>14} {:>10}", "VMs", "vCPUs", "cache", "instructions", "us");
    for count in [16, 64, 256] {
        let set = (0..count).collect();
        for layout in LAYOUTS {
            for known in [false, true] {
                let mut load = Load::new(count, layout, known, &set);
                let mut one = || {
                    black_box(load.one());
                };
                println!(
                    "{count:>6} {:>8} {:>8} {:>14} {:>10.1}",
                    format!("{layout:?}"),
                    if known { "known" } else { "unknown" },
                    counted(&mut one),
                    nanoseconds(ROUNDS / 1000, one) / 1000.0
                );
            }
        }
    }
}

/// A hole, with as many who may fill it as are looked at.
fn fills() {
    let all: Vec<Filler> = (0..FILLERS_MAX)
        .map(|i| Filler {
            owed: scattered(i) as i64,
            lock: (i % 3 == 0).into(),
            ..Filler::default()
        })
        .collect();
    let mut one = || {
        black_box(fill(black_box(&all)));
    };
    println!("\n{:>6} {:>14} {:>8}", "parked", "instructions", "ns");
    println!("{FILLERS_MAX:>6} {:>14} {:>8.1}", counted(&mut one), nanoseconds(ROUNDS, &mut one));
}

fn main() {
    picks();
    turns();
    fills();
}
