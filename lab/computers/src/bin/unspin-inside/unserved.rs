// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times for which vCPUs that always want to run get no CPU time.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use unspin_vmm::unserved;

/// Directories of a process's vCPUs, by the names of their threads.
pub fn vcpus(pid: &str) -> Result<Vec<PathBuf>, String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| format!("{pid}: {e}"))?;
    let is_vcpu = |task: &PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("CPU "))
    };
    Ok(tasks.flatten().map(|task| task.path()).filter(is_vcpu).collect())
}

/// Watches the vCPUs of processes for `ms`. Returns their number, the longest time for which one had no
/// CPU time, the longest time between two looks, and for how much of the first time it waited for a CPU, in ms.
pub fn longest(ms: u64, pids: &[&str]) -> Result<String, String> {
    let vcpus = pids.iter().map(|pid| vcpus(pid)).collect::<Result<Vec<_>, _>>()?.concat();
    let seen = unserved(vcpus.iter().map(|vcpu| vcpu.join("schedstat")), Duration::from_millis(ms));
    let times = [seen.longest, seen.between, seen.ready].map(|time| time.as_millis());
    Ok(format!("{} {} {} {}", vcpus.len(), times[0], times[1], times[2]))
}
