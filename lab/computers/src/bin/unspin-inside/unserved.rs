// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times for which vCPUs that always want to run get no CPU time.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use unspin_vmm::{ran_ns, unserved};

/// A thread of KVM with less CPU time than this is not a vCPU of a guest that always runs.
const RUNS_NS: u64 = 1_000_000;

/// `schedstat` files of the vCPUs of processes that `vm` started: those of all threads that have
/// run, except the first thread, which waits for the others.
fn vcpus(pids: &[&str]) -> Result<Vec<PathBuf>, String> {
    let mut vcpus = Vec::new();
    for pid in pids {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| format!("{pid}: {e}"))?;
        let others = tasks.flatten().filter(|task| *task.file_name() != **pid);
        vcpus.extend(others.map(|task| task.path().join("schedstat")));
    }
    vcpus.retain(|schedstat| ran_ns(schedstat).is_some_and(|ns| ns >= RUNS_NS));
    Ok(vcpus)
}

/// Watches the vCPUs of processes for `ms`. Returns their number, the longest time for which one had no
/// CPU time, and the longest time between two looks, in ms.
pub fn longest(ms: u64, pids: &[&str]) -> Result<String, String> {
    let vcpus = vcpus(pids)?;
    let many = vcpus.len();
    let seen = unserved(vcpus, Duration::from_millis(ms));
    Ok(format!("{many} {} {}", seen.longest.as_millis(), seen.between.as_millis()))
}
