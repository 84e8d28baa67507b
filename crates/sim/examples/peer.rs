// SPDX-License-Identifier: MIT OR Apache-2.0
//! The small model that `bench/simpy/peer.py` and `bench/ns3/peer.cc` have on general frameworks too:
//! two VMs of four vCPUs, each on a pCPU of its own, and a ticket lock per VM. Prints what every vCPU
//! did, the events and the CPU time of this thread as JSON. `cargo run --release --example peer -- MS`.

use std::collections::BTreeMap;
use unspin_scenario::parse_scenario;
use unspin_scenario::{expand, parse_profile, Selection};
use unspin_sim::{simulate_setup, Costs, Host, Kernel, Setup};

/// The same lengths stand in `bench/simpy/peer.py` and `bench/ns3/peer.cc`.
const PROFILE: &str = r#"
name = "peer"
spin_intensive = true
[[step]]
op = "compute"
iterations = { uniform = [1000, 9000] }
[[step]]
op = "lock"
lock = 0
[[step]]
op = "critical"
iterations = { uniform = [200, 1800] }
[[step]]
op = "unlock"
lock = 0
"#;

const SCENARIO: &str = r#"
title = "peer"
repeats = 1
[host]
pcpus = 8
[[vm]]
vcpus = 4
pin = [0, 1, 2, 3]
lock = "ticket"
[[vm]]
vcpus = 4
pin = [4, 5, 6, 7]
lock = "ticket"
[sweep]
profiles = ["peer"]
[measure]
warmup_ms = 0
window_ms = 1
stagger_ms = 0
alone = false
[[arm]]
name = "ple-off"
window = "off"
"#;

fn setup(window_ms: u64) -> Result<Setup, Box<dyn std::error::Error>> {
    let scenario = parse_scenario("peer.toml", "peer", SCENARIO)?;
    let profile = (parse_profile("peer.toml", "peer", PROFILE)?, PROFILE.to_string());
    let profiles = BTreeMap::from([("peer".to_string(), profile)]);
    let plan = expand(&scenario, SCENARIO, &profiles.into(), &Selection::default())?;
    let mut run = plan.runs.iter().find(|r| !r.alone).ok_or("no run")?.clone();
    run.window_ms = window_ms;
    // A cycle is a nanosecond and nothing but the program costs anything: a lock 1 ns. No tick
    // falls into a run.
    let zero = Costs {
        iteration_cycles: 1,
        step_cycles: 0,
        lock_cycles: 1,
        unlock_cycles: 0,
        handoff_cycles: 0,
        handoff_per_waiter_cycles: 0,
        switch_cycles: 0,
        wake_cycles: 0,
        reschedule_cycles: 0,
        interrupt_cycles: 0,
        ..Costs::SERVER
    };
    let host = Host::server(8, Kernel::V6_1);
    let host = Host { khz: 1_000_000, tick_ns: 1_000_000_000_000_000, costs: zero, ..host };
    Ok(Setup::new(&host, &run))
}

/// CPU time of this thread.
fn cpu_s() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call only writes the struct it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let window_ms: u64 = std::env::args().nth(1).ok_or("usage: peer MS")?.parse()?;
    let setup = setup(window_ms)?;
    let seeds: Vec<u64> = setup.vms.iter().map(|vm| vm.seed).collect();
    let since = cpu_s();
    let made = simulate_setup(&setup)?;
    let seconds = cpu_s() - since;
    let units: Vec<&u64> = made.result.vm.iter().flat_map(|vm| &vm.units).collect();
    let taken: Vec<&u64> = made.result.vm.iter().flat_map(|vm| &vm.acquisitions).collect();
    println!(
        "{{\"seeds\":{seeds:?},\"units\":{units:?},\"acquisitions\":{taken:?},\"events\":{},\"seconds\":{seconds}}}",
        made.events
    );
    Ok(())
}
