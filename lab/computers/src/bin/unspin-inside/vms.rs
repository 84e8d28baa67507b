// SPDX-License-Identifier: MIT OR Apache-2.0
//! VMs whose vCPUs contend for one ticket lock.

use crate::machine::tsc;
use crate::watched;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use unspin_scenario::plan::{Op, Step};
use unspin_vmm::{Vm, VmConfig};

const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest allowed time without a unit of work; emulated computers are slow.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// When a VM is started or stopped.
pub enum End {
    /// After this many ms.
    After(u64),
    /// When this file exists.
    File(PathBuf),
}

/// The guest reports waits for a lock above this, log2 of TSC cycles.
const REPORT_LOG2_CYCLES: u32 = 14;

/// Runs one VM. An error if it failed, broke mutual exclusion, or did no work at its end.
pub fn run(vcpus: u32, cpl: u8, end: &End) -> Result<String, String> {
    run_as(&VmConfig { cpl, ..config(vcpus, 1) }, end)
}

/// The same with a guest that reports its waits.
pub fn run_reporting(vcpus: u32, cpl: u8, end: &End) -> Result<String, String> {
    let report_log2_cycles = Some(REPORT_LOG2_CYCLES);
    run_as(&VmConfig { cpl, report_log2_cycles, ..config(vcpus, 1) }, end)
}

/// Runs one VM whose vCPUs compute `iterations` each, and halt until all have.
pub fn meet(vcpus: u32, iterations: u32, end: &End) -> Result<String, String> {
    let program = vec![Step::new(Op::Compute, iterations), Step::new(Op::Barrier, 0)];
    run_as(&VmConfig { program, ..config(vcpus, 1) }, end)
}

/// Runs one VM whose vCPUs wait until `begin`, as those of a VM that is migrated in.
pub fn run_later(vcpus: u32, begin: &End, end: &End) -> Result<String, String> {
    run_between(&config(vcpus, 1), begin, end)
}

fn run_as(config: &VmConfig, end: &End) -> Result<String, String> {
    run_between(config, &End::After(0), end)
}

fn run_between(config: &VmConfig, begin: &End, end: &End) -> Result<String, String> {
    let mut vm = Vm::new(config).map_err(|e| e.to_string())?;
    wait(&mut vm, begin)?;
    vm.start();
    wait(&mut vm, end)?;
    let units = progress(&mut vm)?;
    vm.stop(STOP_TIMEOUT).map_err(|e| e.to_string())?;
    Ok(format!("{units} units"))
}

/// Waits until then. An error if the VM fails meanwhile.
fn wait(vm: &mut Vm, until: &End) -> Result<(), String> {
    let start = Instant::now();
    while !match until {
        End::After(ms) => start.elapsed() >= Duration::from_millis(*ms),
        End::File(file) => file.exists(),
    } {
        fine(vm)?;
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Creates, runs and ends VMs one after the other.
pub fn churn(count: u32, vcpus: u32) -> Result<String, String> {
    let mut units = 0;
    for seed in 0..count {
        let mut vm = new(vcpus, seed.into())?;
        vm.start();
        units += progress(&mut vm)?;
        vm.stop(STOP_TIMEOUT).map_err(|e| e.to_string())?;
    }
    Ok(format!("{count} VMs, {units} units"))
}

/// Runs a VM of one vCPU that computes, on a computer with one CPU. With `sleep_us`, a second VM
/// runs whose vCPU sleeps this long at a time and takes the CPU at each wake-up. After `ms` returns
/// the units of the first VM, TSC cycles, VM exits, and context switches of the host.
pub fn switches(ms: u64, sleep_us: Option<u32>) -> Result<String, String> {
    // The guest's timer counts nanoseconds.
    let sleep = sleep_us.map(|us| us.checked_mul(1000).filter(|ns| *ns > 0).ok_or(us));
    let sleep = sleep.transpose().map_err(|us| format!("nobody sleeps {us} us"))?;
    let program = |op, iterations| vec![Step::new(op, iterations)];
    let vm = |program| {
        Vm::new(&VmConfig { program, ..config(1, 1) }).map_err(|e: unspin_vmm::Error| e.to_string())
    };
    let mut worker = vm(program(Op::Compute, 1000))?;
    let mut other = sleep.map(|ns| vm(program(Op::Block, ns))).transpose()?;
    worker.start();
    progress(&mut worker)?;
    if let Some(other) = &mut other {
        other.start();
        progress(other)?;
    }
    watched::begin(Duration::from_millis(ms))?;
    let look = |worker: &mut Vm| -> Result<[u64; 4], String> {
        let now = tsc();
        let units = worker.sample().iter().map(|vcpu| vcpu.units).sum();
        let exits = total("/sys/kernel/debug/kvm/exits", "")?;
        Ok([units, now, exits, total("/proc/stat", "ctxt ")?])
    };
    let before = look(&mut worker)?;
    std::thread::sleep(Duration::from_millis(ms));
    let after = look(&mut worker)?;
    for vm in std::iter::once(&mut worker).chain(&mut other) {
        fine(vm)?;
        vm.stop(STOP_TIMEOUT).map_err(|e| e.to_string())?;
    }
    let spent: Vec<String> = (0..4).map(|i| (after[i] - before[i]).to_string()).collect();
    Ok(spent.join(" "))
}

/// The number behind `name` at the beginning of a line.
fn total(file: &str, name: &str) -> Result<u64, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        .ok_or_else(|| format!("{file}: no number after '{name}'"))
}

fn new(vcpus: u32, seed: u64) -> Result<Vm, String> {
    Vm::new(&config(vcpus, seed)).map_err(|e| e.to_string())
}

fn config(vcpus: u32, seed: u64) -> VmConfig {
    let program = vec![
        Step::new(Op::Compute, 100),
        Step::new(Op::Lock, 0),
        Step::new(Op::Critical, 100),
        Step::new(Op::Unlock, 0),
    ];
    VmConfig::new(vcpus, program, seed)
}

/// Waits until more work is done, and returns how much.
fn progress(vm: &mut Vm) -> Result<u64, String> {
    let units = |vm: &Vm| vm.sample().iter().map(|vcpu| vcpu.units).sum::<u64>();
    let (before, start) = (units(vm), Instant::now());
    loop {
        fine(vm)?;
        let now = units(vm);
        if now > before {
            return Ok(now);
        }
        if start.elapsed() > PROGRESS_TIMEOUT {
            return Err(format!(
                "no progress for {} s after {now} units",
                PROGRESS_TIMEOUT.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn fine(vm: &mut Vm) -> Result<(), String> {
    vm.error().map_or(Ok(()), |error| Err(error.to_string()))
}
