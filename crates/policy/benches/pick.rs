// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a choice on the PLE-exit path and a turn of gangs cost, in instructions (a child process
//! is single-stepped; they repeat exactly) and in nanoseconds: `cargo bench -p unspin-policy`.
//! The stock search is the model's, without KVM's own loads of other vCPUs' state.

use std::hint::black_box;
use std::time::Instant;
use unspin_policy::gang::{self, Cpu, CpuSet, Host};
use unspin_policy::hvs::{pick, Category, Flags, Slot};
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

/// Instructions from one raised signal to the next, in a child that runs `choose` between.
fn steps(choose: &mut dyn FnMut()) -> Option<u64> {
    // SAFETY: one thread; the child runs `choose` and leaves without unwinding or exit
    // handlers; the parent only waits for it and steps it.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            choose();
            libc::raise(libc::SIGSTOP);
            libc::_exit(0);
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        for count in 0.. {
            if libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) != 0 {
                return None;
            }
            libc::waitpid(child, &mut status, 0);
            if !libc::WIFSTOPPED(status) {
                return None;
            }
            if libc::WSTOPSIG(status) == libc::SIGSTOP {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &mut status, 0);
                return Some(count);
            }
        }
    }
    None
}

fn instructions(choose: &mut dyn FnMut()) -> String {
    choose(); // so that the linker's work is done
    match (steps(choose), steps(&mut || ())) {
        (Some(with), Some(without)) => (with - without).to_string(),
        _ => "no ptrace".to_owned(),
    }
}

/// No two times alike.
fn scattered(i: usize) -> u64 {
    (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn picks() {
    println!("       {:^23}  {:^23}", "hvs_pick", "stock search, 6.12");
    println!(
        "{:>6} {:>14} {:>8}  {:>14} {:>8}",
        "vCPUs", "instructions", "ns", "instructions", "ns"
    );
    for count in [2, 4, 8, 16, 32, 64] {
        // Everyone else is ready: three quarters lock-waiters, the last a resource-waiter.
        let slots: Vec<Slot> = (0..count)
            .map(|i| {
                let spun = i % 4 != 3;
                let category = if spun { Category::LockWaiter } else { Category::ResourceWaiter };
                Slot::ready(category, scattered(i))
            })
            .collect();
        let mut hvs = || {
            black_box(pick(black_box(&slots), 0, 0, Flags::ADDED));
        };

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
            instructions(&mut hvs),
            nanoseconds(hvs),
            instructions(&mut stock),
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
        println!(
            "{count:>6} {count:>6} {:>14} {:>8.1}",
            instructions(&mut one),
            nanoseconds(&mut one)
        );
    }
}

fn main() {
    picks();
    turns();
}
