// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts and ends turns many times while VMs compute. Afterwards no vCPU may wait for a long time.

use super::judge::Check;
use crate::sysfs::Module;
use anyhow::Context;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use unspin_scenario::plan::{Op, Step};
use unspin_vmm::{allowed_cpus, run_on, unserved, Vm, VmConfig};

const VMS: u32 = 3;
const VCPUS: u32 = 4;
/// Longest time that a vCPU may be without CPU time after turns have ended.
const LONGEST_MS: f64 = 100.0;
const WATCHED: Duration = Duration::from_millis(300);
/// Time limit for turns to start in a round, and the number of parks that show that they have.
const PATIENCE: Duration = Duration::from_secs(3);
const PARKS: u64 = 20;
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The former defaults of the settings. Restored when dropped.
struct Restored<'a>(&'a Module, BTreeMap<String, String>);

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        let before = ["mode", "coscheduling"];
        let before: Vec<(&str, &str)> =
            before.iter().filter_map(|key| Some((*key, self.1.get(*key)?.as_str()))).collect();
        if let Err(e) = self.0.set(None, &before) {
            say!("the defaults of the module were not restored: {e:#}");
        }
    }
}

/// The former CPUs of the thread. Restored when dropped; threads that it starts meanwhile keep the
/// fewer.
struct FewerCpus(Vec<usize>);

impl FewerCpus {
    fn new(count: u32) -> anyhow::Result<FewerCpus> {
        let all = allowed_cpus();
        run_on(&all[..all.len().min(count as usize)]).context("cannot set the CPU affinity")?;
        Ok(FewerCpus(all))
    }
}

impl Drop for FewerCpus {
    fn drop(&mut self) {
        let _ = run_on(&self.0);
    }
}

fn config(seed: u64) -> VmConfig {
    let program = vec![Step::new(Op::Compute, 1000)];
    VmConfig::new(VCPUS, program, seed)
}

pub fn check(module: &Module, rounds: u32, cpus: u32, stop: &AtomicBool) -> anyhow::Result<Check> {
    let _restored = Restored(module, module.defaults());
    let mut vms = {
        let _few = FewerCpus::new(cpus)?;
        let vms: Result<Vec<Vm>, _> = (0..VMS).map(|i| Vm::new(&config(i.into()))).collect();
        vms.context("cannot create the VMs of the rollback check")?
    };
    vms.iter().for_each(Vm::start);
    let threads: Vec<i32> = vms.iter().flat_map(Vm::tids).collect();
    let mut worst = Duration::ZERO;
    let mut made = 0;
    for _ in 0..rounds {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        module.set(None, &[("mode", "aple"), ("coscheduling", "con")])?;
        made += u32::from(turns_begin(module));
        module.set(None, &[("mode", "off")])?;
        worst = worst.max(longest_wait(&threads));
    }
    for vm in &mut vms {
        vm.stop(STOP_TIMEOUT).context("a VM of the rollback check")?;
    }
    let what = format!(
        "longest time without a CPU after turns were ended, {made} of {rounds} times while vCPUs waited for one"
    );
    // If turns never started, there was nothing to end.
    let value = (2 * made >= rounds && rounds > 0).then_some(worst.as_secs_f64() * 1000.0);
    Ok(Check::at_most("rollback", what, value, LONGEST_MS, "ms"))
}

/// Whether vCPUs wait for turns before the time limit.
fn turns_begin(module: &Module) -> bool {
    let parks = || -> u64 {
        let vms = module.vms().unwrap_or_default();
        let of_vm = |(_, files): &(String, BTreeMap<String, String>)| {
            files.get("parks").and_then(|parks| parks.parse::<u64>().ok())
        };
        vms.iter().filter_map(of_vm).sum()
    };
    let (before, began) = (parks(), Instant::now());
    while began.elapsed() < PATIENCE {
        sleep(Duration::from_millis(200));
        if parks() >= before + PARKS {
            return true;
        }
    }
    false
}

/// The longest time for which one of the threads, which always want to run, had no CPU time, less the
/// longest time between two looks.
fn longest_wait(threads: &[i32]) -> Duration {
    let schedstat = |tid| PathBuf::from(format!("/proc/self/task/{tid}/schedstat"));
    let seen = unserved(threads.iter().map(schedstat), WATCHED);
    seen.longest.saturating_sub(seen.between)
}
