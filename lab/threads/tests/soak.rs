// SPDX-License-Identifier: MIT OR Apache-2.0
//! `make soak-locks`: 10^8 acquisitions of a lock by four threads a CPU, under real preemption: no
//! increment lost, no thread left behind, counters wrapped around thousands of times, progress shown.

mod common;

use common::Build;
use std::process::Command;
use unspin_threads::locks::by_name;

const ACQUISITIONS: u64 = 100_000_000;
const THREADS_A_CPU: u64 = 4;
/// First-come locks would take days at four threads a CPU: name them to see.
const LOCKS: &str = "preemptable,pv_preemptable,tas,pv_queued,lease";

#[test]
#[ignore = "takes hours; make soak-locks"]
fn locks_survive_a_hundred_million_acquisitions() {
    let locks = std::env::var("UNSPIN_SOAK_LOCKS").unwrap_or_else(|_| LOCKS.to_string());
    let acquisitions = match std::env::var("UNSPIN_SOAK_ACQUISITIONS") {
        Ok(n) => n.parse().expect("UNSPIN_SOAK_ACQUISITIONS is a number"),
        Err(_) => ACQUISITIONS,
    };
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let threads = THREADS_A_CPU * cpus;
    let rounds = acquisitions.div_ceil(threads);
    for name in locks.split(',') {
        let lock = by_name(name).unwrap_or_else(|| panic!("no lock {name}"));
        let flags = [
            "-DPROGRESS_S=30",
            "-DYIELD_EVERY=1000003",
            "-DSECONDS_MAX=36000",
            "-DMS_ENOUGH=36000000",
        ];
        let program = Build::new(lock, "stress", "soak", &flags).make();
        println!("{name}: {threads} threads, {} acquisitions", threads * rounds);
        let began = std::time::Instant::now();
        let args = [threads.to_string(), rounds.to_string(), "65000".to_string()];
        let status = Command::new(program).args(args).status().unwrap();
        assert!(status.success(), "{name}: {status}");
        println!("{name}: passed in {} s", began.elapsed().as_secs());
    }
}
