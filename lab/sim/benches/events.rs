// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulator's speed: events per second of one thread by size of the host, and the memory of
//! the largest machine. `cargo bench -p unspin-sim`.

use unspin_scenario::parse_profile;
use unspin_scenario::plan::{Arm, Run};
use unspin_sim::{simulate, Host, Kernel};

const EBIZZY: &str = include_str!("../../../profiles/ebizzy.toml");
const HACKBENCH: &str = include_str!("../../../profiles/hackbench.toml");

fn run(profile: &str, text: &str, vms: u32, vcpus: u32, pcpus: u32, window_ms: u64) -> Run {
    // VM by VM around the host, so that every pCPU has the same number of vCPUs.
    let pin = |vm: u32| (0..vcpus).map(|v| (vm * vcpus + v) % pcpus).collect();
    let program = parse_profile(profile, profile, text).expect("a profile").program;
    let mut run = Run {
        profile: profile.into(),
        arm: Arm { name: "stock".into(), observe: true, ..Arm::default() },
        window_ms,
        stagger_ms: 10,
        ..Run::new(program, vms, vcpus)
    };
    for (number, vm) in (0..).zip(&mut run.vms) {
        (vm.spin_intensive, vm.pin) = (true, pin(number));
    }
    run
}

/// CPU time of this thread, so that other programs on this computer do not count.
fn cpu_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the duration of the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn measure(name: &str, run: &Run, pcpus: u32) {
    let host = Host::server(pcpus, Kernel::V6_12);
    // The best of several, because other programs share the caches.
    let (mut best, mut events) = (f64::MAX, 0);
    for _ in 0..3 {
        let start = cpu_s();
        events = simulate(&host, run).expect("a run").events;
        best = best.min(cpu_s() - start);
    }
    println!(
        "{name}: {pcpus} pCPUs, {} vCPUs, {} ms simulated: {events} events in {best:.3} s, {:.1} M events/s",
        run.vms.iter().map(|vm| vm.vcpus).sum::<u32>(),
        run.window_ms,
        events as f64 / best / 1e6
    );
}

/// The largest memory use of this process, MiB.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib / 1024)
}

fn main() {
    measure("ebizzy", &run("ebizzy", EBIZZY, 2, 16, 16, 10_000), 16);
    measure("hackbench", &run("hackbench", HACKBENCH, 2, 16, 16, 1000), 16);
    for (pcpus, window_ms) in [(16, 800), (64, 200), (256, 50), (1024, 12)] {
        let run = run("hackbench", HACKBENCH, pcpus * 4 / 64, 64, pcpus, window_ms);
        measure("4:1, VMs of 64 vCPUs", &run, pcpus);
    }
    match peak_mib() {
        Some(mib) => println!("peak memory: {mib} MiB"),
        None => println!("peak memory: unknown (no /proc/self/status)"),
    }
}
