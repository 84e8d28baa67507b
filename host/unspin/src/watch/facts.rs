// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about VMs besides the states of their vCPUs: settings of the host, counters of the module.

use super::counts::Counts;
use crate::sysfs::Module;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use unspin_diagnosis::{Machine, Quota, Setting};
use unspin_host::module::maker_of;
use unspin_host::{
    cpus, place, tightest, Groups, Host, Kvm, Limited, Monitor, SchedExt, Tree, VmProcess,
};
use unspin_probe::SeenVm;
use unspin_text::read_kernel_text;
use unspin_uapi::MODE;
use unspin_uapi::{Counter, Value};

/// The module's files from which causes are computed.
const OF_CAUSES: [&str; 6] = [
    Counter::PLE_EXITS.file(),
    Counter::SPIN_CYCLES.file(),
    Counter::USER_SAMPLES.file(),
    Counter::USER_SPINS.file(),
    Value::WINDOW.file(),
    MODE,
];

#[derive(Default)]
pub struct Facts {
    pub kvm: Kvm,
    tsc_khz: Option<u32>,
    numa_balancing: bool,
    /// The module's names of VMs, and their processes; `None` if the module is not loaded.
    module: Option<BTreeMap<String, Option<u32>>>,
    /// Last-level caches by the CPUs that they serve.
    caches: BTreeMap<BTreeSet<u32>, Option<usize>>,
    /// The scheduler that replaces the kernel's own, if one is enabled.
    pub sched_ext: Option<SchedExt>,
    groups: Arc<Groups>,
    /// Index of the VM whose settings are read next.
    turn: usize,
    vms: BTreeMap<u32, OfVm>,
    /// Counts of VMs as a whole, by process; missing if not counted.
    seen: BTreeMap<u32, SeenVm>,
}

#[derive(Default)]
struct OfVm {
    set: Arc<Set>,
    /// The module's files of the VM; empty if the module is not loaded.
    module: BTreeMap<String, String>,
    counts: Counts,
}

#[derive(Default)]
struct Set {
    allowed: BTreeSet<u32>,
    caches: Option<usize>,
    quota: Option<Quota>,
    has_cgroup: Option<bool>,
    machine: Option<Machine>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The module's files from which causes are computed.
    Causes,
    /// In addition, the processes that have the CPUs for which vCPUs wait.
    Takers,
    /// All files of the module.
    Module,
    /// All files of the module, the processes that have the CPUs, and the kernel's counts.
    All,
}

/// The places that [`Facts`] reads.
#[derive(Clone, Copy)]
pub struct Places<'a> {
    /// The module's directory, which exists if the module is loaded.
    pub sysfs: &'a Path,
    pub host: &'a Host,
}

impl Facts {
    /// The present facts. To reduce the cost, it reads settings only of new VMs and of one more VM per
    /// call, in turn.
    pub fn renewed(&self, places: Places, vms: &[VmProcess], detail: Detail) -> Facts {
        let next = vms.get(self.turn % vms.len().max(1)).map(|vm| vm.pid);
        let old = vms.iter().map(|vm| vm.pid).filter(|pid| Some(*pid) != next);
        let set = |pid| Some((pid, Arc::clone(&self.vms.get(&pid)?.set)));
        let of_vm = |(pid, set)| (pid, OfVm { set, ..OfVm::default() });
        let mut facts = Facts {
            kvm: self.kvm.clone(),
            tsc_khz: self.tsc_khz,
            numa_balancing: self.numa_balancing,
            module: self.module.clone(),
            caches: self.caches.clone(),
            groups: Arc::clone(&self.groups),
            turn: self.turn.wrapping_add(1),
            vms: old.filter_map(set).map(of_vm).collect(),
            ..Facts::default()
        };
        facts.look_at(places, vms, detail);
        facts
    }

    /// The facts without VMs.
    pub fn of_host() -> Facts {
        let balancing = read_kernel_text(place::proc().join("sys/kernel/numa_balancing"));
        Facts {
            kvm: Kvm::read(&place::sys().join("module")),
            tsc_khz: unspin_host::tsc_khz(),
            numa_balancing: balancing.is_ok_and(|text| text.trim() != "0"),
            ..Facts::default()
        }
    }

    /// Facts as if the module had these files of VMs, by process, on a processor of 2 GHz.
    pub fn of_files(files: BTreeMap<u32, BTreeMap<String, String>>) -> Facts {
        let of_vm = |module| OfVm { module, ..OfVm::default() };
        Facts {
            kvm: Kvm { ple_window: Some(4096), ..Kvm::default() },
            tsc_khz: Some(2_000_000),
            module: Some(BTreeMap::new()),
            vms: files.into_iter().map(|(pid, files)| (pid, of_vm(files))).collect(),
            ..Facts::default()
        }
    }

    fn look_at(&mut self, places: Places, vms: &[VmProcess], detail: Detail) {
        self.sched_ext = places.host.sched_ext();
        let tree = Tree::of(places.host);
        self.look_at_groups(&tree, places.host, vms);
        for vm in vms {
            if !self.vms.contains_key(&vm.pid) {
                let set = Arc::new(self.set_of(places.host, &tree, vm));
                self.vms.insert(vm.pid, OfVm { set, ..OfVm::default() });
            }
        }
        if detail == Detail::All {
            for vm in vms {
                let counts = Counts::read(places.host, &place::sys(), vm);
                self.vms.entry(vm.pid).or_default().counts = counts;
            }
        }
        let module = Module::open(places.sysfs).ok();
        let ids = module.as_ref().and_then(|module| module.ids().ok());
        self.find(places.host, ids);
        let Some(module) = module else { return };
        for (id, pid) in self.module.iter().flatten() {
            let Some(of_vm) = pid.and_then(|pid| self.vms.get_mut(&pid)) else { continue };
            // If a process has several VMs, take the first.
            if of_vm.module.is_empty() {
                of_vm.module = match detail {
                    Detail::Module | Detail::All => module.vm(id),
                    Detail::Causes | Detail::Takers => module.vm_files(id, &OF_CAUSES),
                };
            }
        }
    }

    /// Reads the cgroups of VMs whose settings are unknown.
    fn look_at_groups(&mut self, tree: &Tree, host: &Host, all: &[VmProcess]) {
        let pids: BTreeSet<u32> = all.iter().map(|vm| vm.pid).collect();
        let asked = all.iter().filter(|vm| !self.vms.contains_key(&vm.pid));
        let new: Vec<_> = asked.filter(|vm| !self.groups.is_same(tree, host, vm)).collect();
        // The map is large, and most samples share it.
        if !new.is_empty() || self.groups.vms().any(|pid| !pids.contains(&pid)) {
            let groups = Arc::make_mut(&mut self.groups);
            groups.retain(|pid| pids.contains(&pid));
            new.into_iter().for_each(|vm| groups.renew(tree, host, vm));
        }
    }

    /// Finds the processes of the module's VMs. The module names a VM after the thread that created
    /// it, usually the first of its process.
    fn find(&mut self, host: &Host, ids: Option<Vec<String>>) {
        let before = self.module.take().unwrap_or_default();
        let process = |id: &String| {
            let is_process = maker_of(id).filter(|pid| self.vms.contains_key(pid));
            is_process.or_else(|| host.of_module_id(id).map(|vm| vm.pid))
        };
        let found = |id: String| match before.get(&id) {
            Some(Some(pid)) => (id, Some(*pid)),
            _ => {
                let pid = process(&id);
                (id, pid)
            }
        };
        self.module = ids.map(|ids| ids.into_iter().map(found).collect());
    }

    fn set_of(&mut self, host: &Host, tree: &Tree, vm: &VmProcess) -> Set {
        // Other threads may have other CPUs.
        let allowed = vm.vcpus.iter().flat_map(|vcpu| host.usable_cpus(vcpu.tid));
        let allowed: BTreeSet<u32> = allowed.collect();
        let system = place::sys().join("devices/system");
        let caches = self.caches.entry(allowed.clone());
        let caches = *caches.or_insert_with(|| cpus::last_level_caches(&system, &allowed));
        let limits = self.groups.limits(tree, vm.pid);
        let quota = tightest(&limits, vm.vcpu_count).map(|(limit, _)| Quota {
            cpus: limit.cpus,
            is_per_vcpu: limit.of != Limited::Vm,
            remedy: limit.remedy(vm),
        });
        let has_cgroup = self.groups.place(tree, vm.pid).ok().map(|place| place.is_own);
        let options = Some(host.qemu_options(vm.pid)).filter(|_| vm.monitor == Monitor::Qemu);
        let machine = options.filter(|all| !all.is_empty()).map(|all| Machine::of(&all));
        Set { allowed, caches, quota, has_cgroup, machine }
    }

    /// The same facts with counts of VMs as a whole.
    pub fn with_seen(self, seen: BTreeMap<u32, SeenVm>) -> Facts {
        Facts { seen, ..self }
    }

    /// What was counted of a VM as a whole since `before`; `None` if it was not counted, or the VM
    /// is new.
    pub fn seen_since(&self, before: &Facts, pid: u32) -> Option<SeenVm> {
        Some(self.seen.get(&pid)?.since(before.seen.get(&pid)?))
    }

    pub fn has_module(&self) -> bool {
        self.module.is_some()
    }

    /// The contents of a VM's file of the module; `None` if the module is not loaded, or has no such
    /// file.
    pub fn of_module(&self, pid: u32, file: &str) -> Option<&str> {
        self.vms.get(&pid)?.module.get(file).map(String::as_str)
    }

    fn count(&self, pid: u32, file: &str) -> Option<u64> {
        self.of_module(pid, file)?.parse().ok()
    }

    /// How much a counter of the module grew since `before`.
    fn grew(&self, before: &Facts, pid: u32, counter: Counter) -> Option<u64> {
        let (first, last) = (before.count(pid, counter.file())?, self.count(pid, counter.file())?);
        last.checked_sub(first)
    }

    /// Spinning before a pause-loop exit: as counted by the module since `before`, or else the window of
    /// the VM or of KVM.
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

    /// Share of the module's samples since `before` that found a vCPU spinning in user space.
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
        self.vms.get(&pid)?.set.caches
    }

    /// Whether a quota is known to limit it.
    pub fn has_quota(&self, pid: u32) -> bool {
        self.vms.get(&pid).is_some_and(|vm| vm.set.quota.is_some())
    }

    pub fn setting(&self, vm: &VmProcess) -> Setting {
        let none = OfVm::default();
        let of_vm = self.vms.get(&vm.pid).unwrap_or(&none);
        Setting {
            name: vm.selector(),
            allowed_cpus: of_vm.set.allowed.len(),
            quota: of_vm.set.quota.clone(),
            has_cgroup: of_vm.set.has_cgroup,
            module_mode: of_vm.module.get(MODE).cloned(),
            halt_poll_ns: self.kvm.halt_poll_ns,
            apicv: self.kvm.apicv,
            numa_balancing: self.numa_balancing,
            machine: of_vm.set.machine.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use unspin_cli::fake::Fake;
    use unspin_diagnosis::{advice, losses, Did, State};

    fn advised(fake: &Fake, line: &[&[u8]]) -> Vec<String> {
        let line: Vec<u8> = line.iter().flat_map(|arg| [arg, &b"\0"[..]].concat()).collect();
        fs::write(fake.path("proc/41/cmdline"), line).unwrap();
        let (host, sysfs) = (fake.host(), fake.path("sys"));
        let vm = host.vm_process(41).unwrap();
        let places = Places { sysfs: &sysfs, host: &host };
        let facts = Facts::of_host().renewed(places, std::slice::from_ref(&vm), Detail::Causes);
        let mut did = Did { vcpus: 1, window_ns: 1_000, ..Did::default() };
        for (state, ns) in
            [(State::ExitIo, 60), (State::ExitMsr, 40), (State::Vmm, 50), (State::Blocked, 850)]
        {
            did.times[state] = ns;
        }
        did.exits[State::ExitIo] = 1;
        let all = advice(&did, &losses(&did), &facts.setting(&vm));
        all.iter().map(|advice| advice.line()).collect()
    }

    /// An idle Windows guest, as people report it.
    #[test]
    fn the_command_line_says_what_an_idle_vm_lacks() {
        let fake = Fake::new();
        fake.vm("41-0", "web");
        let qemu: &[u8] = b"/usr/bin/qemu-system-x86_64";
        let lacks = [qemu, b"-name", b"guest=win11,debug-threads=on", b"-cpu", b"host,hv_time"];
        let all = advised(&fake, &lacks).join("\n");
        assert!(all.contains("hv_synic,hv_stimer") && all.contains("vmm 5.0 %"), "{all}");
        let has: &[u8] =
            b"host,hv_relaxed,hv_vapic,hv_spinlocks=0x1fff,hv_vpindex,hv_time,hv_synic,\
                           hv_stimer";
        let all = advised(&fake, &[qemu, b"-name", b"win11", b"-cpu", has]).join("\n");
        assert!(!all.contains("hv_") && all.contains("perf kvm stat"), "{all}");
        // A value that looks like an option is not one, and a comma in a name is doubled.
        let (long, commas) = ("a".repeat(4096), ",".repeat(4096));
        for hostile in [long.as_bytes(), commas.as_bytes(), b"{\"driver\":", b"\xff\xfe,,=", b""] {
            let line = [qemu, b"-append", b"-cpu", b"-device", hostile, b"-name", b"win,,11"];
            let all = advised(&fake, &line).join("\n");
            assert!(all.contains("hv_stimer") && all.contains("because of its name"), "{all}");
        }
        let all = advised(&fake, &[b"cloud-hypervisor", b"--cpus", b"boot=1"]).join("\n");
        assert!(!all.contains("hv_") && !all.is_empty(), "{all}");
    }

    /// The advice for a VM that is throttled and spins in user space.
    fn advised_of_cgroup(fake: &Fake, pid: u32) -> String {
        let (host, sysfs) = (fake.host(), fake.path("sys"));
        let all = host.vm_processes().unwrap();
        let vm = all.iter().find(|vm| vm.pid == pid).unwrap();
        let places = Places { sysfs: &sysfs, host: &host };
        let facts = Facts::of_host().renewed(places, &all, Detail::Causes);
        let mut did =
            Did { vcpus: 1, window_ns: 1_000, user_spin_share: Some(0.9), ..Did::default() };
        (did.times[State::Guest], did.times[State::Throttled]) = (500, 500);
        let all = advice(&did, &losses(&did), &facts.setting(vm));
        all.iter().map(|advice| advice.line() + "\n").collect()
    }

    #[test]
    fn the_cgroup_says_who_shares_and_what_raises_a_quota() {
        let fake = Fake::new();
        let weights =
            ["qemu.slice", "qemu.slice/104.scope", "system.slice", "system.slice/runner.service"];
        for path in weights {
            fake.write(&format!("sys/fs/cgroup/{path}/cpu.weight"), "100");
        }
        fake.write("sys/fs/cgroup/qemu.slice/104.scope/cpu.max", "150000 100000");
        fake.write("sys/fs/cgroup/system.slice/vm1.service/cgroup.procs", "44");
        for (pid, group) in [
            (41, "/system.slice/runner.service"),
            (42, "/system.slice/runner.service"),
            (43, "/qemu.slice/104.scope"),
            (44, "/system.slice/vm1.service"),
        ] {
            fake.vm(&format!("{pid}-0"), &format!("vm{pid}"));
            fake.0.link(format!("proc/{pid}/fd/8"), "anon_inode:kvm-vcpu:0");
            fake.write(&format!("proc/{pid}/cgroup"), &format!("0::{group}"));
        }
        let each = "into a cgroup each";
        for (pid, shares) in [(41, true), (42, true), (43, false), (44, true)] {
            let all = advised_of_cgroup(&fake, pid);
            assert_eq!(all.contains(each), shares, "{pid}: {all}");
            assert!(all.contains("raise its CPU quota"), "{all}");
        }
        let all = advised_of_cgroup(&fake, 43);
        assert!(all.contains("now 1.50 CPUs: qm set 104 --cpulimit CPUS"), "{all}");
    }

    #[test]
    fn a_scheduler_in_bpf_is_told() {
        let fake = Fake::new();
        fake.write("sys/kernel/sched_ext/state", "enabled");
        fake.write("sys/kernel/sched_ext/root/ops", "lavd");
        let (host, sysfs) = (fake.host(), fake.path("sys"));
        let facts =
            Facts::of_host().renewed(Places { sysfs: &sysfs, host: &host }, &[], Detail::Causes);
        assert_eq!(facts.sched_ext.unwrap().name, "lavd");
    }
}
