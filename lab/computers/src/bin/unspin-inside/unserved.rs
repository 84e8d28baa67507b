// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times for which vCPUs that always want to run get no CPU time.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use unspin_vmm::unserved;

/// `schedstat` files of the vCPUs of processes that `vm` started, by the names of their threads.
fn vcpus(pids: &[&str]) -> Result<Vec<PathBuf>, String> {
    let mut vcpus = Vec::new();
    for pid in pids {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| format!("{pid}: {e}"))?;
        let tasks = tasks.flatten().map(|task| task.path());
        let is_vcpu = |task: &PathBuf| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("CPU "))
        };
        vcpus.extend(tasks.filter(is_vcpu).map(|task| task.join("schedstat")));
    }
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
