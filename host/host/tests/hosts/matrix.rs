// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every VMM in every layout of cgroups, with and without a name: the names of each VM, and the threads
//! that run its vCPUs. All are on one fake host.

use crate::fake::{vcpus, Fake, VM};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use unspin_host::{keep_told, meant, By, Kind, VmProcess};

/// VMMs: the name, the program, how to recognize its threads that run vCPUs, arguments that name the VM (`NAME` and
/// `UUID` stand for its own), and arguments without a name. `-`: no arguments. Threads are known by their names, in which
/// `*` is the number; `calls`: they wait in KVM_RUN, except the last one, which has been in a guest; `nothing`: they
/// never ran.
const VMMS: &str = "
QEMU | /usr/bin/qemu-system-x86_64 | CPU */KVM | -name guest=NAME,debug-threads=on -S -uuid UUID | -nodefaults -append -name
QEMU | /usr/bin/kvm | calls | -name NAME -smbios type=1,uuid=UUID,sku=x | -no-shutdown
QEMU | /usr/libexec/qemu-kvm | nothing | -name NAME | -S
Firecracker | /srv/firecracker | fc_vcpu * | --id NAME --api-sock /run/firecracker.socket | --api-sock /run/firecracker.socket
Firecracker | firecracker-v1.10.1-x86_64 | fc_vcpu * | --api-sock=/run/vc/firecracker/NAME/root/run/firecracker.socket | --no-api --config-file /etc/firecracker/vmconfig.json
Cloud Hypervisor | /usr/bin/cloud-hypervisor | vcpu* | --api-socket /run/vc/vm/NAME/clh-api.sock | --api-socket fd=4
crosvm | /usr/bin/crosvm | crosvm_vcpu* | run --name NAME -s /run/crosvm.sock | run --cpus 3
Dragonball | /opt/kata/bin/containerd-shim-kata-v2 | db_vcpu* | -namespace k8s.io -id NAME | -namespace k8s.io
kvmtool | /usr/bin/lkvm | kvm-vcpu-* | run --name NAME | -
libkrun | /usr/bin/krun | fc_vcpu * | - | run web
StratoVirt | /usr/bin/stratovirt | CPU */KVM | -machine microvm -name NAME | -machine microvm
VirtualBox | /usr/lib/virtualbox/VBoxHeadless | EMT-* | --comment NAME --vrde config | --vrde config
another VMM | /opt/new vmm | calls | - | -name no
another VMM | /opt/vmm | vcpu_* | - | -
";

struct Monitor {
    name: &'static str,
    program: &'static str,
    shows: &'static str,
    named: Vec<&'static str>,
    nameless: Vec<&'static str>,
}

static MONITORS: LazyLock<Vec<Monitor>> =
    LazyLock::new(|| VMMS.trim().lines().map(monitor).collect());

fn monitor(line: &'static str) -> Monitor {
    let mut parts = line.split(" | ");
    let [name, program, shows, named, nameless] = [(); 5].map(|()| parts.next().unwrap());
    let args = |text: &'static str| text.split(' ').filter(|arg| *arg != "-").collect();
    Monitor { name, program, shows, named: args(named), nameless: args(nameless) }
}

/// The container of a VM, by its number.
fn container(vm: usize) -> String {
    format!("{vm:08x}").repeat(8)
}

fn pod_uid(vm: usize) -> String {
    format!("0a0b0c0d-1111-2222-3333-{vm:012}")
}

/// Lines of `/proc/PID/cgroup`, of which each `, ` ends one, and the names in them. `VM` stands for the VM's number.
const GROUPS: &str = r"
0::/machine.slice/machine-qemu\x2d3\x2dlvVM.scope/libvirt/emulator | libvirt:lvVM
4:cpu,cpuacct:/machine.slice/machine-ch\x2d3\x2dlvVM.scope | libvirt:lvVM
9:cpuset:/, 4:cpu,cpuacct:/machine/qemu-1-lvVM.libvirt-qemu | libvirt:lvVM
0::/qemu.slice/1VM.scope | vmid:1VM
0::/system.slice/vmVM.service | unit:vmVM.service
0::/system.slice/runner.service | unit:runner.service
1:name=systemd:/system.slice/vm@iVM.service, 0::/ | unit:vm@iVM.service
0::/user.slice/user-1000.slice/session-2.scope
0::/user.slice/user-1000.slice/user@1000.service/app.slice/m.scope | unit:m.scope
0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID_.slice/cri-containerd-ID.scope | pod_uid:UID container_id:ID pod:prod/launcher-VM container:prod/launcher-VM/compute
0::/../../kubepods/besteffort/podUID/ID | pod_uid:UID container_id:ID
0::/system.slice/docker-ID.scope | container_id:ID container:dVM
0::/machine.slice/libpod-ID.scope/container | container_id:ID container:pVM
0::/
";

/// The lines, and the names in them.
type Layout = (String, Vec<(Kind, &'static str)>);

static LAYOUTS: LazyLock<Vec<Layout>> =
    LazyLock::new(|| GROUPS.trim().lines().map(layout).collect());

fn layout(line: &'static str) -> Layout {
    let (lines, names) = line.split_once(" | ").unwrap_or((line, ""));
    let named = |text: &'static str| {
        let (key, name) = text.split_once(':').unwrap();
        (Kind::ALL.into_iter().find(|kind| kind.key() == key).unwrap(), name)
    };
    (lines.replace(", ", "\n"), names.split_whitespace().map(named).collect())
}

/// A VM of the matrix, and the expected results.
struct Cell {
    pid: u32,
    monitor: &'static str,
    names: BTreeMap<Kind, String>,
    count: usize,
    vcpus: Vec<(u32, u32)>,
}

fn filled(text: &str, vm: usize) -> String {
    let text = text.replace("UID_", &pod_uid(vm).replace('-', "_")).replace("UUID", &uuid(vm));
    let text = text.replace("UID", &pod_uid(vm)).replace("ID", &container(vm));
    text.replace("NAME", &format!("web{vm}")).replace("VM", &vm.to_string())
}

fn uuid(vm: usize) -> String {
    format!("c7a5fdb2-cdaf-9455-926a-{vm:012}")
}

/// Writes the records of engines about the containers of this layout.
fn note(fake: &Fake, layout: usize, vm: usize) {
    let id = container(vm);
    let (path, text) = match LAYOUTS[layout].0.as_str() {
        path if path.contains("cri-containerd") => (
            format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/config.json"),
            format!(
                r#"{{"annotations": {{"io.kubernetes.cri.sandbox-namespace": "prod",
                     "io.kubernetes.cri.sandbox-name": "launcher-{vm}",
                     "io.kubernetes.cri.container-name": "compute"}}}}"#
            ),
        ),
        path if path.contains("docker") => (
            format!("var/lib/docker/containers/{id}/config.v2.json"),
            format!(r#"{{"Name": "/d{vm}", "Config": {{"Labels": {{}}}}}}"#),
        ),
        path if path.contains("libpod") => {
            // One file has the records of all.
            let cells =
                (0..MONITORS.len() * LAYOUTS.len()).filter(|cell| cell % LAYOUTS.len() == layout);
            let of = |vm| format!(r#"{{"id": "{}", "names": ["p{vm}"]}}"#, container(vm));
            let all: Vec<String> = cells.map(of).collect();
            let path = "var/lib/containers/storage/overlay-containers/containers.json";
            (path.to_string(), format!("[{}]", all.join(",")))
        }
        // The pod has been deleted.
        _ => return,
    };
    fake.proc(&format!("1/root/{path}"), text);
}

fn cell(fake: &Fake, number: usize, monitor: &Monitor, layout: usize, is_named: bool) -> Cell {
    let pid = 1000 + 20 * number as u32;
    let args = if is_named { &monitor.named } else { &monitor.nameless };
    let mut argv = vec![monitor.program.to_string()];
    argv.extend(args.iter().map(|arg| filled(arg, number)));
    let argv: Vec<&[u8]> = argv.iter().map(|arg| arg.as_bytes()).collect();
    fake.process(pid, &argv, VM, &[]);
    fake.comm(pid, pid, "main");
    fake.comm(pid, pid + 9, "IO mon) S (x");
    let (lines, given) = &LAYOUTS[layout];
    fake.proc(&format!("{pid}/cgroup"), format!("{}\n", filled(lines, number)));
    note(fake, layout, number);
    let mut names: BTreeMap<Kind, String> =
        given.iter().map(|(kind, name)| (*kind, filled(name, number))).collect();
    if args.iter().any(|arg| arg.contains("NAME")) {
        names.insert(Kind::Name, format!("web{number}"));
    }
    if args.iter().any(|arg| arg.contains("UUID")) {
        names.insert(Kind::Uuid, uuid(number));
    }
    if args.is_empty() && monitor.name == "kvmtool" && !names.contains_key(&Kind::ContainerId) {
        names.insert(Kind::Name, format!("guest-{pid}"));
    }
    // Numbers may have gaps, and may be in another order than the threads.
    let count = 1 + number % 4;
    let numbers: Vec<u32> = (0..count as u32).map(|n| 2 * n).rev().collect();
    let mut vcpus = Vec::new();
    for (at, vcpu) in numbers.iter().enumerate() {
        let tid = pid + 2 + at as u32;
        let fd = 20 + 3 * at as u32;
        fake.descriptor(pid, fd, &format!("anon_inode:kvm-vcpu:{vcpu}"));
        fake.descriptor(pid, fd + 1, &format!("anon_inode:kvm-vcpu-stats:{vcpu}"));
        if monitor.name == "Firecracker" {
            fake.descriptor(pid, fd + 2, &format!("anon_inode:kvm-vcpu:{vcpu}"));
        }
        let is_last = at + 1 == count;
        let (comm, call, ticks) = match monitor.shows {
            "calls" if is_last => ("vmm".to_string(), "running".into(), 7),
            "calls" => ("vmm".into(), format!("16 {fd:#x} 0xae80 0x0 0x0 0x0 0x0 0x7 0x8"), 0),
            "nothing" => ("vmm".into(), "202 0x7 0x80 0x0 0x0 0x0 0x0 0x7 0x8".into(), 0),
            comm => (comm.replace('*', &vcpu.to_string()), "running".into(), 0),
        };
        fake.comm(pid, tid, &comm);
        let task = format!("{pid}/task/{tid}");
        fake.proc(&format!("{task}/syscall"), format!("{call}\n"));
        let rest = "S ".to_string() + &"0 ".repeat(39) + &format!("{ticks} 0 0\n");
        fake.proc(&format!("{task}/stat"), format!("{tid} (a) b) {rest}"));
        if monitor.shows != "nothing" {
            vcpus.push((*vcpu, tid));
        }
    }
    if monitor.shows == "calls" {
        // A kernel thread, copied from a vCPU's.
        let task = format!("{pid}/task/{}", pid + 9);
        fake.proc(&format!("{task}/syscall"), b"16 0x14 0xae80 0x0 0x0 0x0 0x0 0x7 0x8\n");
        fake.proc(&format!("{task}/stat"), format!("{} (x) S 1 1 1 0 -1 16448 0\n", pid + 9));
    }
    vcpus.sort_unstable();
    Cell { pid, monitor: monitor.name, names, count, vcpus }
}

/// The VMs that a text selects, by their processes.
fn found(vms: &[VmProcess], given: &[u8]) -> Vec<(u32, By)> {
    let by = |vm: &VmProcess| Some((meant(given, Some(vm), None)?, vm.pid));
    let mut found = vms.iter().filter_map(by).collect();
    keep_told(&mut found);
    found.into_iter().map(|(by, pid)| (pid, by)).collect()
}

#[test]
fn every_vm_is_seen_as_what_it_is() {
    let fake = Fake::new();
    let mut cells = Vec::new();
    for (number, monitor) in MONITORS.iter().enumerate() {
        for layout in 0..LAYOUTS.len() {
            let is_named = (number + layout) % 2 == 0;
            cells.push(cell(&fake, cells.len(), monitor, layout, is_named));
        }
    }
    assert!(cells.len() > 150);
    // Other processes look like VMMs, and have no VM.
    fake.process(
        2,
        &[b"/usr/bin/qemu-system-x86_64", b"-name", b"web1"],
        "anon_inode:[eventfd]",
        &[],
    );
    fake.thread(2, 3, "CPU 0/KVM");
    let vms = fake.host().vm_processes().unwrap();
    assert_eq!(vms.len(), cells.len());
    for (vm, cell) in vms.iter().zip(&cells) {
        assert_eq!((vm.pid, vm.monitor.name()), (cell.pid, cell.monitor));
        let names: BTreeMap<Kind, String> =
            vm.names.iter().map(|(kind, name)| (kind, name.to_text())).collect();
        assert_eq!(names, cell.names, "{vm:?}");
        assert_eq!((vm.vcpu_count, vcpus(vm)), (cell.count, cell.vcpus.clone()), "{vm:?}");
        // The title selects only this VM.
        assert_eq!(found(&vms, vm.title().as_bytes()), [(vm.pid, By::Exact)], "{}", vm.title());
        for (kind, name) in vm.names.iter() {
            let explicit = format!("{}:{name}", kind.key());
            let (bare, explicit) = (found(&vms, name.as_bytes()), found(&vms, explicit.as_bytes()));
            assert!(explicit.contains(&(vm.pid, By::Exact)), "{kind:?} {name}");
            assert!(bare.iter().any(|(pid, _)| *pid == vm.pid), "{kind:?} {name}");
            let has_it = |(pid, _): &(u32, By)| {
                let vm = vms.iter().find(|vm| vm.pid == *pid).unwrap();
                vm.names.get(kind) == Some(name)
            };
            assert!(explicit.iter().all(has_it), "{kind:?} {name}");
        }
    }
    // The names that are shown.
    let title = |monitor: usize, layout: usize| {
        let number = monitor * LAYOUTS.len() + layout;
        vms[number].title().replace(&number.to_string(), "N")
    };
    assert_eq!(title(0, 4), "webN");
    assert_eq!(title(2, 3), "1N", "Proxmox's VMID");
    assert_eq!(title(5, 4), "vmN", "a service");
    assert_eq!(title(4, 9), "prod/launcher-N", "a pod");
    assert_eq!(title(2, 11), "dN", "a container");
    let runner = vms[3 * LAYOUTS.len()].pid - 9 * 20;
    assert_eq!(title(2, 5), format!("runner (process {runner})"));
    assert_eq!(title(12, 13), format!("pid:{}", vms[13 * LAYOUTS.len()].pid - 20));
}
