// SPDX-License-Identifier: MIT OR Apache-2.0
//! cgroups v2 of a run's VMs: one per VM, threaded ones per vCPU inside it, or libvirt's whole
//! tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use unspin_scenario::plan::{CgroupLayout, HostScheduler, Plan, Run, Vm};

use crate::Error;

const ROOT: &str = "/sys/fs/cgroup";

/// Whether the cpu controller of cgroup v2 can be used.
pub(crate) fn available() -> Result<(), Error> {
    let path = Path::new(ROOT).join("cgroup.controllers");
    let controllers = fs::read_to_string(&path)
        .map_err(|e| Error::NoCgroup(format!("{}: {e}", path.display())))?;
    if controllers.split_whitespace().any(|c| c == "cpu") {
        Ok(())
    } else {
        Err(Error::NoCgroup(format!("it has `{}`", controllers.trim())))
    }
}

/// Moves a VM's process out of all cgroups.
pub(crate) fn to_root(pid: u32) -> Result<(), Error> {
    write(&Path::new(ROOT).join("cgroup.procs"), &pid.to_string())
}

/// The slice of libvirt's VMs, which systemd creates.
const MACHINE_SLICE: &str = "machine.slice";
/// Whether this process created the slice, so that it is removed with the last VM.
static MADE_SLICE: AtomicBool = AtomicBool::new(false);

/// The period of cpu.max, in us: the kernel's default.
const PERIOD_US: u64 = 100_000;

const MILLION: u64 = 1_000_000;

/// The pCPUs of a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpus {
    pub count: u32,
    /// No VM gets more than its weight's share.
    pub capped: bool,
}

impl Cpus {
    pub(crate) fn of(plan: &Plan) -> Cpus {
        Cpus { count: plan.host.pcpus, capped: plan.host.scheduler == HostScheduler::FairCapped }
    }
}

/// The limits of a VM's CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Limits {
    /// cpu.weight; `None`: the kernel's default.
    weight: Option<u32>,
    /// CPU time per period of cpu.max, in us; `None`: no quota.
    quota_us: Option<u64>,
}

impl Limits {
    /// The limits of a VM of a run: its own quota, or its weight's share if the host is capped; but
    /// no more than its vCPUs can use.
    pub(crate) fn of(run: &Run, vm: &Vm, cpus: Cpus) -> Limits {
        let weight = vm.weight;
        let part = vm.quota_ppm.map(|ppm| (u64::from(ppm), MILLION));
        let by_weight = || {
            let sum: u64 = run.vms.iter().filter_map(|vm| vm.weight).map(u64::from).sum();
            weight.map_or((1, run.vms.len() as u64), |weight| (weight.into(), sum))
        };
        let part = part.or_else(|| cpus.capped.then(by_weight));
        let quota_us = part.map(|(part, whole)| {
            let share = PERIOD_US * u64::from(cpus.count) * part / whole.max(1);
            share.min(PERIOD_US * u64::from(vm.vcpus))
        });
        Limits { weight, quota_us }
    }

    fn set(self, scope: &Path) -> Result<(), Error> {
        if let Some(weight) = self.weight {
            write(&scope.join("cpu.weight"), &weight.to_string())?;
        }
        let file = scope.join("cpu.max");
        match self.quota_us {
            Some(quota_us) => write(&file, &format!("{quota_us} {PERIOD_US}")),
            // A cgroup that a killed run left behind may have a quota, if the kernel supports
            // quotas.
            None if file.exists() => write(&file, "max"),
            None => Ok(()),
        }
    }
}

/// The cgroups of one VM. Dropping it removes them; the VM's process must have ended or left by
/// then.
pub(crate) struct VmCgroup {
    pid: u32,
    dirs: Vec<PathBuf>,
}

impl VmCgroup {
    /// Moves a VM's process and the threads of its vCPUs into the cgroups of the layout: the whole
    /// process, or each thread into its own cgroup.
    pub(crate) fn new(
        vm: u32,
        layout: CgroupLayout,
        limits: Limits,
        pid: u32,
        tids: &[i32],
    ) -> Result<Option<VmCgroup>, Error> {
        if layout == CgroupLayout::Flat {
            return Ok(None);
        }
        available()?;
        let mut cgroup = VmCgroup { pid, dirs: Vec::new() };
        let name = format!("machine-unspin-{vm}.scope");
        let scope = match layout {
            CgroupLayout::Libvirt => {
                if !Path::new(ROOT).join(MACHINE_SLICE).exists() {
                    MADE_SLICE.store(true, Ordering::Relaxed);
                }
                let slice = child(Path::new(ROOT), MACHINE_SLICE)?;
                child(&slice, &name)?
            }
            _ => child(Path::new(ROOT), &name)?,
        };
        cgroup.dirs.push(scope.clone());
        limits.set(&scope)?;
        let home = match layout {
            CgroupLayout::Libvirt => {
                let home = child(&scope, "libvirt")?;
                cgroup.dirs.push(home.clone());
                home
            }
            _ => scope,
        };
        write(&home.join("cgroup.procs"), &pid.to_string())?;
        if layout != CgroupLayout::Vm {
            cgroup.spread(&home, pid, tids)?;
        }
        Ok(Some(cgroup))
    }

    /// Moves each vCPU's thread into its own cgroup in `home`, and all other threads into one.
    fn spread(&mut self, home: &Path, pid: u32, tids: &[i32]) -> Result<(), Error> {
        for (vcpu, tid) in tids.iter().enumerate() {
            let dir = self.create_threaded(home.join(format!("vcpu{vcpu}")))?;
            if vcpu == 0 {
                write(&home.join("cgroup.subtree_control"), "+cpu")?;
            }
            write(&dir.join("cgroup.threads"), &tid.to_string())?;
        }
        let emulator = self.create_threaded(home.join("emulator"))?;
        let tasks = PathBuf::from(format!("/proc/{pid}/task"));
        let names = fs::read_dir(&tasks).map_err(|e| Error::io(&tasks, e))?;
        let all = names.flatten().filter_map(|task| task.file_name().into_string().ok());
        for other in all.filter(|task| !tids.iter().any(|tid| tid.to_string() == *task)) {
            // A thread that has ended meanwhile is in no cgroup.
            match fs::write(emulator.join("cgroup.threads"), &other) {
                Err(e) if e.raw_os_error() != Some(libc::ESRCH) => {
                    return Err(Error::io(emulator.join("cgroup.threads"), e))
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Moves the VM's process out of its cgroups, and removes them. The VM continues to run.
    pub(crate) fn leave(self) -> Result<(), Error> {
        to_root(self.pid)
    }

    fn create_threaded(&mut self, dir: PathBuf) -> Result<PathBuf, Error> {
        create(&dir)?;
        self.dirs.push(dir.clone());
        write(&dir.join("cgroup.type"), "threaded")?;
        Ok(dir)
    }
}

impl Drop for VmCgroup {
    fn drop(&mut self) {
        for dir in self.dirs.iter().rev() {
            if let Err(error) = fs::remove_dir(dir) {
                eprintln!("agent: {} stays: {error}", dir.display());
            }
        }
        // The slice is not empty while other VMs are in it.
        if MADE_SLICE.load(Ordering::Relaxed) {
            let _ = fs::remove_dir(Path::new(ROOT).join(MACHINE_SLICE));
        }
    }
}

/// A cgroup in `parent` that has its own share of CPU time there.
fn child(parent: &Path, name: &str) -> Result<PathBuf, Error> {
    write(&parent.join("cgroup.subtree_control"), "+cpu")?;
    let dir = parent.join(name);
    create(&dir)?;
    Ok(dir)
}

/// A cgroup that a killed run left behind is empty, and is reused.
fn create(dir: &Path) -> Result<(), Error> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(Error::io(dir, e)),
        _ => Ok(()),
    }
}

fn write(path: &Path, value: &str) -> Result<(), Error> {
    fs::write(path, value).map_err(|e| Error::io(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAPPED: Cpus = Cpus { count: 4, capped: true };

    fn run(weights: &[u32], vms: u32, vcpus: u32) -> Run {
        Run::new(vec![], vms, vcpus).weighted(weights)
    }

    fn limits(run: &Run, vm: usize, cpus: Cpus) -> Limits {
        Limits::of(run, &run.vms[vm], cpus)
    }

    #[test]
    fn a_quota_is_the_weights_share() {
        let one = run(&[32, 256], 2, 4);
        assert_eq!(limits(&one, 0, CAPPED), Limits { weight: Some(32), quota_us: Some(44_444) });
        let alike = run(&[], 4, 4);
        assert_eq!(limits(&alike, 3, CAPPED), Limits { weight: None, quota_us: Some(100_000) });
        // It cannot use more.
        assert_eq!(limits(&run(&[], 1, 2), 0, CAPPED).quota_us, Some(200_000));
        let free = Cpus { capped: false, ..CAPPED };
        assert_eq!(limits(&one, 1, free), Limits { weight: Some(256), quota_us: None });
    }

    #[test]
    fn a_quota_of_a_vms_own_is_that_vms_alone() {
        let mut two = run(&[100, 300], 2, 4);
        two.vms[1].quota_ppm = Some(200_000);
        for cpus in [Cpus { capped: false, ..CAPPED }, CAPPED] {
            let quota = Limits { weight: Some(300), quota_us: Some(80_000) };
            assert_eq!(limits(&two, 1, cpus), quota, "a fifth of four pCPUs");
        }
        assert_eq!(limits(&two, 0, Cpus { capped: false, ..CAPPED }).quota_us, None);
        two.vms[1].vcpus = 1;
        two.vms[1].quota_ppm = Some(500_000);
        assert_eq!(limits(&two, 1, CAPPED).quota_us, Some(100_000), "it cannot use more");
    }

    proptest! {
        #[test]
        fn quotas_are_no_more_than_the_host(
            weights in prop::collection::vec(1..10_000u32, 1..9),
            count in 1..9u32,
        ) {
            let run = run(&weights, weights.len() as u32, 4);
            let cpus = Cpus { count, capped: true };
            let quotas = run.vms.iter().map(|vm| Limits::of(&run, vm, cpus).quota_us.unwrap());
            prop_assert!(quotas.sum::<u64>() <= PERIOD_US * u64::from(count));
        }
    }
}
