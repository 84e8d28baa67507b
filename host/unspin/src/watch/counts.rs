// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own counts of VMs.

use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use unspin_host::{Host, VmProcess};
use unspin_text::read_kernel_text;

/// The directory in /sys with KVM's statistics: a subdirectory per VM.
const KVM_STATISTICS: &str = "kernel/debug/kvm";

/// The kernel's own times of a VM's vCPUs, in seconds, to compare with states. `None`: this kernel does
/// not count them, or it is not known which threads are its vCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Time of their threads on a CPU (schedstat).
    pub on_cpu_s: Option<f64>,
    /// Time in which their threads could run and had no CPU (schedstat), including throttled and parked
    /// threads.
    pub ready_s: Option<f64>,
    /// From the sleep after HLT until the vCPU has a CPU again (KVM).
    pub halted_s: Option<f64>,
    /// Time of polling after HLT (KVM).
    pub polled_s: Option<f64>,
}

impl Counts {
    pub fn read(host: &Host, sys: &Path, vm: &VmProcess) -> Counts {
        let schedstat = |field: usize| -> Option<f64> {
            let of = |tid: u32| -> Option<f64> {
                let text = host.schedstat(tid)?;
                text.split_whitespace().nth(field)?.parse().ok()
            };
            let vcpus = vm.vcpus.iter().filter(|_| vm.is_all_known());
            let times = vcpus.map(|vcpu| of(vcpu.tid)).collect::<Option<Vec<f64>>>()?;
            (!times.is_empty()).then(|| times.iter().sum::<f64>() / 1e9)
        };
        let kvm = Statistics::of(host, sys, vm.pid);
        Counts {
            on_cpu_s: schedstat(0),
            ready_s: schedstat(1),
            halted_s: kvm.seconds("halt_wait_ns"),
            polled_s: kvm
                .seconds("halt_poll_success_ns")
                .and_then(|success| Some(success + kvm.seconds("halt_poll_fail_ns")?)),
        }
    }

    pub fn since(&self, before: &Counts) -> Counts {
        let since = |of: fn(&Counts) -> Option<f64>| Some((of(self)? - of(before)?).max(0.0));
        Counts {
            on_cpu_s: since(|counts| counts.on_cpu_s),
            ready_s: since(|counts| counts.ready_s),
            halted_s: since(|counts| counts.halted_s),
            polled_s: since(|counts| counts.polled_s),
        }
    }
}

/// KVM's directories with the statistics of a process's VMs.
struct Statistics(Vec<fs::DirEntry>);

impl Statistics {
    /// KVM names a directory after the thread that created the VM.
    fn of(host: &Host, sys: &Path, pid: u32) -> Statistics {
        let makers: BTreeSet<u32> = host.threads(pid).into_iter().chain([pid]).collect();
        let is_of = |dir: &fs::DirEntry| {
            let id = dir.file_name();
            let maker = id.to_str().and_then(|id| id.split_once('-')?.0.parse().ok());
            maker.is_some_and(|maker: u32| makers.contains(&maker))
        };
        let all = fs::read_dir(sys.join(KVM_STATISTICS)).into_iter().flatten().flatten();
        Statistics(all.filter(is_of).collect())
    }

    /// The sum over its VMs.
    fn seconds(&self, name: &str) -> Option<f64> {
        let read = |dir: &fs::DirEntry| read_kernel_text(dir.path().join(name)).ok();
        let values: Vec<f64> =
            self.0.iter().filter_map(|dir| read(dir)?.trim().parse().ok()).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_cli::fake::Fake;

    /// Cloud Hypervisor creates its VM in a thread other than the first.
    #[test]
    fn the_counts_are_of_all_vcpus_and_of_the_vms_that_its_threads_created() {
        let fake = Fake::new();
        fake.vm("41-0", "web");
        for (tid, comm) in [(41, "main"), (42, "vmm"), (43, "CPU 0/KVM"), (44, "CPU 1/KVM")] {
            fake.write(&format!("proc/41/task/{tid}/comm"), comm);
            fake.write(&format!("proc/{tid}/schedstat"), "2000000000 1000000000 1");
        }
        for (dir, ns) in [("41-9", 1), ("42-9", 2), ("421-9", 9), ("5-42", 9)] {
            let file = format!("sys/kernel/debug/kvm/{dir}/halt_wait_ns");
            fake.write(&file, &format!("{ns}000000000"));
        }
        let mut vm = fake.host().vm_process(41).unwrap();
        let counts = |vm: &VmProcess| Counts::read(&fake.host(), &fake.path("sys"), vm);
        let all =
            Counts { on_cpu_s: Some(4.0), ready_s: Some(2.0), halted_s: Some(3.0), polled_s: None };
        assert_eq!(counts(&vm), all);
        vm.vcpu_count += 1;
        let some = Counts { on_cpu_s: None, ready_s: None, ..all };
        assert_eq!(counts(&vm), some, "of 2 of 3 vCPUs");
    }
}
