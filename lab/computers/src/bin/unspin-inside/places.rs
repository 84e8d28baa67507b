// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places of a VM's vCPUs while all of them want to run.

use crate::unserved::vcpus;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// Index of the state among the fields after the name in `/proc/TID/stat`.
const STATE: usize = 0;
const PROCESSOR: usize = 36;

/// The CPU of each vCPU of a process; `None` if one of them does not want to run.
fn cpus(tasks: &[PathBuf]) -> Option<Vec<usize>> {
    let of_task = |task: &PathBuf| {
        let stat = fs::read_to_string(task.join("stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
        (fields[STATE] == "R").then(|| fields[PROCESSOR].parse().ok())?
    };
    tasks.iter().map(of_task).collect()
}

/// The group of each CPU, named by the group's first CPU: 0, the core; 1, the last-level cache.
fn shared() -> Result<[Vec<String>; 2], String> {
    let of = |file: &str| {
        let name = |cpu: usize| format!("/sys/devices/system/cpu/cpu{cpu}/{file}");
        (0..).map_while(|cpu| fs::read_to_string(name(cpu)).ok()).collect::<Vec<_>>()
    };
    let found = [of("topology/thread_siblings_list"), of("cache/index3/shared_cpu_list")];
    match found[0].len() == found[1].len() && !found[0].is_empty() {
        true => Ok(found),
        false => Err(format!("{} CPUs, {} caches", found[0].len(), found[1].len())),
    }
}

/// Takes `looks` looks. Returns in how many all vCPUs wanted to run, in how many of these each had
/// a core of its own, and in how many of those the cores shared one cache.
pub fn seen(pid: &str, looks: u32) -> Result<String, String> {
    let [core, cache] = shared()?;
    let tasks = vcpus(pid)?;
    let (mut all, mut apart, mut near) = (0, 0, 0);
    for _ in 0..looks {
        sleep(BETWEEN_LOOKS);
        let Some(cpus) = cpus(&tasks) else { continue };
        let count = |of: &[String]| cpus.iter().map(|cpu| &of[*cpu]).collect::<BTreeSet<_>>().len();
        let is_apart = count(&core) == cpus.len();
        all += 1;
        apart += u32::from(is_apart);
        near += u32::from(is_apart && count(&cache) == 1);
    }
    Ok(format!("{all} {apart} {near}"))
}
