// SPDX-License-Identifier: MIT OR Apache-2.0
//! VMs that fight over one ticket lock.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use unspin_scenario::plan::{Dist, LockKind, Op, Step};
use unspin_vmm::{Vm, VmConfig};

const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time without a unit of work: emulated computers are slow, but not that slow.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// When a VM is stopped.
pub enum End {
    /// So many ms after its start.
    After(u64),
    /// When the file is there.
    File(PathBuf),
}

/// Runs one VM. An error if it failed, broke mutual exclusion, or did no work at its end.
pub fn run(vcpus: u32, end: &End) -> Result<String, String> {
    let mut vm = new(vcpus, 1)?;
    vm.start();
    let start = Instant::now();
    while !match end {
        End::After(ms) => start.elapsed() >= Duration::from_millis(*ms),
        End::File(file) => file.exists(),
    } {
        fine(&mut vm)?;
        std::thread::sleep(LOOK);
    }
    let units = progress(&mut vm)?;
    vm.stop(STOP_TIMEOUT).map_err(|e| e.to_string())?;
    Ok(format!("{units} units"))
}

/// Makes, runs and ends VMs one after the other.
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

fn new(vcpus: u32, seed: u64) -> Result<Vm, String> {
    let step =
        |op, iterations| Step { op, dist: Dist::Const { iterations }, lock: 0, permille: 1000 };
    let config = VmConfig {
        vcpus,
        program: vec![
            step(Op::Compute, 100),
            step(Op::Lock, 0),
            step(Op::Critical, 100),
            step(Op::Unlock, 0),
        ],
        lock: LockKind::Ticket,
        cpl: 0,
        seed,
        pin: Vec::new(),
        pause_exits: true,
    };
    Vm::new(&config).map_err(|e| e.to_string())
}

/// Waits for work beyond what is done now; returns how much that is.
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
