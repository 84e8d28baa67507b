// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of VMs besides their vCPUs' states: how the host is set, what the module has counted.

use crate::sysfs::Module;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use unspin_diagnosis::Setting;
use unspin_host::{cpus, Host, Kvm, VmProcess};
use unspin_scenario::module::MODE;
use unspin_uapi::{Counter, Value};

/// Where KVM's statistics are, a directory per VM.
const KVM_STATISTICS: &str = "/sys/kernel/debug/kvm";

/// Of a time.
pub struct Facts {
    kvm: Kvm,
    tsc_khz: Option<u32>,
    numa_balancing: bool,
    vms: BTreeMap<u32, OfVm>,
}

#[derive(Default)]
struct OfVm {
    allowed: BTreeSet<u32>,
    caches: Option<usize>,
    quota_cpus: Option<f64>,
    /// The module's files of it; none where it is not loaded.
    module: BTreeMap<String, String>,
    counts: Counts,
}

/// What the kernel itself has counted of a VM's vCPUs, in seconds: states can be held against it. `None`
/// is what this kernel does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Their threads were on a CPU (schedstat).
    pub on_cpu_s: Option<f64>,
    /// Their threads could run and had no CPU (schedstat), those that are throttled or parked among them.
    pub ready_s: Option<f64>,
    /// From HLT's sleep until the vCPU has a CPU again (KVM).
    pub halted_s: Option<f64>,
    /// Polling after HLT (KVM).
    pub polled_s: Option<f64>,
}

impl Counts {
    fn read(host: &Host, pid: u32, tids: &[u32]) -> Counts {
        let schedstat = |field: usize| -> Option<f64> {
            let of = |tid: &u32| -> Option<f64> {
                let text = host.schedstat(*tid)?;
                text.split_whitespace().nth(field)?.parse().ok()
            };
            tids.iter().map(of).sum::<Option<f64>>().map(|ns| ns / 1e9)
        };
        Counts {
            on_cpu_s: schedstat(0),
            ready_s: schedstat(1),
            halted_s: statistic(pid, "halt_wait_ns"),
            polled_s: statistic(pid, "halt_poll_success_ns")
                .and_then(|success| Some(success + statistic(pid, "halt_poll_fail_ns")?)),
        }
    }

    fn since(&self, before: &Counts) -> Counts {
        let since = |of: fn(&Counts) -> Option<f64>| Some((of(self)? - of(before)?).max(0.0));
        Counts {
            on_cpu_s: since(|counts| counts.on_cpu_s),
            ready_s: since(|counts| counts.ready_s),
            halted_s: since(|counts| counts.halted_s),
            polled_s: since(|counts| counts.polled_s),
        }
    }
}

/// A statistic of KVM's in seconds, over all VMs of a process.
fn statistic(pid: u32, name: &str) -> Option<f64> {
    let is_of = |dir: &fs::DirEntry| {
        let id = dir.file_name();
        id.to_str().and_then(|id| id.split_once('-')).is_some_and(|(of, _)| of == pid.to_string())
    };
    let dirs = fs::read_dir(KVM_STATISTICS).ok()?.flatten().filter(is_of);
    let read = |dir: fs::DirEntry| fs::read_to_string(dir.path().join(name)).ok();
    let values: Vec<f64> = dirs.filter_map(|dir| read(dir)?.trim().parse().ok()).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / 1e9)
}

impl Facts {
    /// `sysfs`: the module's directory, if it is loaded.
    pub fn read(sysfs: &Path, host: &Host, vms: &[VmProcess]) -> Facts {
        let module = Module::open(sysfs).ok();
        let files = |vm: &VmProcess| {
            let module = module.as_ref()?;
            let is_of = |id: &String| host.of_module_id(id).is_some_and(|of| of.pid == vm.pid);
            module.ids().ok()?.into_iter().find(is_of).map(|id| module.vm(&id))
        };
        let of_vm = |vm: &VmProcess| {
            let tids: Vec<u32> = vm.vcpus.iter().map(|vcpu| vcpu.tid).collect();
            let tids = if tids.is_empty() { vec![vm.pid] } else { tids };
            let allowed = tids.iter().flat_map(|tid| host.allowed_cpus(*tid)).collect();
            let quotas = tids.iter().filter_map(|tid| {
                let quota = host.cgroup(*tid)?.quota(Path::new("/sys/fs/cgroup"))?;
                Some(quota.cpus)
            });
            OfVm {
                caches: cpus::last_level_caches(Path::new("/sys/devices/system"), &allowed),
                allowed,
                quota_cpus: quotas.min_by(f64::total_cmp),
                module: files(vm).unwrap_or_default(),
                counts: Counts::read(host, vm.pid, &tids),
            }
        };
        let balancing = std::fs::read_to_string("/proc/sys/kernel/numa_balancing");
        Facts {
            kvm: Kvm::read(Path::new("/sys/module")),
            tsc_khz: unspin_vmm::host_tsc_khz().ok(),
            numa_balancing: balancing.is_ok_and(|text| text.trim() != "0"),
            vms: vms.iter().map(|vm| (vm.pid, of_vm(vm))).collect(),
        }
    }

    fn count(&self, pid: u32, file: &str) -> Option<u64> {
        self.vms.get(&pid)?.module.get(file)?.parse().ok()
    }

    /// How much a counter of the module grew since `before`.
    fn grew(&self, before: &Facts, pid: u32, counter: Counter) -> Option<u64> {
        let (first, last) = (before.count(pid, counter.file())?, self.count(pid, counter.file())?);
        last.checked_sub(first)
    }

    /// Spinning before a pause-loop exit: as the module has counted it since `before`, or else a window,
    /// the VM's or KVM's.
    pub fn spin_ns_per_exit(&self, before: &Facts, pid: u32) -> Option<f64> {
        let ns = |cycles: f64| Some(cycles * 1e6 / f64::from(self.tsc_khz.filter(|khz| *khz > 0)?));
        let exits = self.grew(before, pid, Counter::PLE_EXITS).filter(|exits| *exits > 0);
        match (exits, self.grew(before, pid, Counter::SPIN_CYCLES)) {
            (Some(exits), Some(cycles)) if cycles > 0 => ns(cycles as f64 / exits as f64),
            _ => {
                let of_vm = self.count(pid, Value::WINDOW.file()).filter(|cycles| *cycles > 0);
                ns(of_vm.or(self.kvm.ple_window)? as f64)
            }
        }
    }

    /// How often the module found a vCPU spinning in user space, of its looks since `before`.
    pub fn user_spin_share(&self, before: &Facts, pid: u32) -> Option<f64> {
        let looks = self.grew(before, pid, Counter::USER_SAMPLES)?;
        let spins = self.grew(before, pid, Counter::USER_SPINS)?;
        unspin_diagnosis::user_spin_share(looks, spins)
    }

    /// What the kernel has counted since `before`.
    pub fn counts(&self, before: &Facts, pid: u32) -> Counts {
        let of = |facts: &Facts| facts.vms.get(&pid).map(|vm| vm.counts).unwrap_or_default();
        of(self).since(&of(before))
    }

    pub fn caches(&self, pid: u32) -> Option<usize> {
        self.vms.get(&pid)?.caches
    }

    pub fn setting(&self, vm: &VmProcess) -> Setting {
        let none = OfVm::default();
        let of_vm = self.vms.get(&vm.pid).unwrap_or(&none);
        Setting {
            name: match &vm.name {
                Some(name) => name.to_string(),
                None => format!("pid:{}", vm.pid),
            },
            allowed_cpus: of_vm.allowed.len(),
            quota_cpus: of_vm.quota_cpus,
            module_mode: of_vm.module.get(MODE).cloned(),
            halt_poll_ns: self.kvm.halt_poll_ns,
            apicv: self.kvm.apicv,
            numa_balancing: self.numa_balancing,
        }
    }
}
