// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every VMM in every layout of cgroups, with and without a name: the names of each VM, and the threads
//! that run its vCPUs. All are on one fake host.

use crate::fake::{vcpus, Fake, VM};
use std::collections::BTreeMap;
use unspin_host::{keep_told, meant, By, Kind, VmProcess};

/// How to recognize a VMM's threads that run vCPUs.
#[derive(Clone, Copy)]
enum Shows {
    /// By their names: prefix and suffix of the number.
    Names(&'static str, &'static str),
    /// Not by names: they wait in KVM_RUN, except the last one, which has been in a guest.
    Calls,
    /// Not at all: they never ran.
    Nothing,
}

struct Monitor {
    name: &'static str,
    program: &'static str,
    shows: Shows,
    /// Arguments that name the VM; `NAME` and `UUID` stand for its own.
    named: &'static [&'static str],
    has_uuid: bool,
    /// Arguments without a name.
    nameless: &'static [&'static str],
}

const fn monitor(
    name: &'static str,
    program: &'static str,
    shows: Shows,
    named: &'static [&'static str],
    nameless: &'static [&'static str],
) -> Monitor {
    Monitor { name, program, shows, named, has_uuid: false, nameless }
}

const MONITORS: &[Monitor] = &[
    Monitor {
        has_uuid: true,
        ..monitor(
            "QEMU",
            "/usr/bin/qemu-system-x86_64",
            Shows::Names("CPU ", "/KVM"),
            &["-name", "guest=NAME,debug-threads=on", "-S", "-uuid", "UUID"],
            &["-nodefaults", "-append", "-name"],
        )
    },
    Monitor {
        has_uuid: true,
        ..monitor(
            "QEMU",
            "/usr/bin/kvm",
            Shows::Calls,
            &["-name", "NAME", "-smbios", "type=1,uuid=UUID,sku=x"],
            &["-no-shutdown"],
        )
    },
    monitor("QEMU", "/usr/libexec/qemu-kvm", Shows::Nothing, &["-name", "NAME"], &["-S"]),
    monitor(
        "Firecracker",
        "/srv/firecracker",
        Shows::Names("fc_vcpu ", ""),
        &["--id", "NAME", "--api-sock", "/run/firecracker.socket"],
        &["--api-sock", "/run/firecracker.socket"],
    ),
    monitor(
        "Firecracker",
        "firecracker-v1.10.1-x86_64",
        Shows::Names("fc_vcpu ", ""),
        &["--api-sock=/run/vc/firecracker/NAME/root/run/firecracker.socket"],
        &["--no-api", "--config-file", "/etc/firecracker/vmconfig.json"],
    ),
    monitor(
        "Cloud Hypervisor",
        "/usr/bin/cloud-hypervisor",
        Shows::Names("vcpu", ""),
        &["--api-socket", "/run/vc/vm/NAME/clh-api.sock"],
        &["--api-socket", "fd=4"],
    ),
    monitor(
        "crosvm",
        "/usr/bin/crosvm",
        Shows::Names("crosvm_vcpu", ""),
        &["run", "--name", "NAME", "-s", "/run/crosvm.sock"],
        &["run", "--cpus", "3"],
    ),
    monitor(
        "Dragonball",
        "/opt/kata/bin/containerd-shim-kata-v2",
        Shows::Names("db_vcpu", ""),
        &["-namespace", "k8s.io", "-id", "NAME"],
        &["-namespace", "k8s.io"],
    ),
    monitor(
        "kvmtool",
        "/usr/bin/lkvm",
        Shows::Names("kvm-vcpu-", ""),
        &["run", "--name", "NAME"],
        &[],
    ),
    monitor("libkrun", "/usr/bin/krun", Shows::Names("fc_vcpu ", ""), &[], &["run", "web"]),
    monitor(
        "StratoVirt",
        "/usr/bin/stratovirt",
        Shows::Names("CPU ", "/KVM"),
        &["-machine", "microvm", "-name", "NAME"],
        &["-machine", "microvm"],
    ),
    monitor(
        "VirtualBox",
        "/usr/lib/virtualbox/VBoxHeadless",
        Shows::Names("EMT-", ""),
        &["--comment", "NAME", "--vrde", "config"],
        &["--vrde", "config"],
    ),
    monitor("another VMM", "/opt/new vmm", Shows::Calls, &[], &["-name", "no"]),
    monitor("another VMM", "/opt/vmm", Shows::Names("vcpu_", ""), &[], &[]),
];

/// The container of a VM, by its number.
fn container(vm: usize) -> String {
    format!("{vm:08x}").repeat(8)
}

fn pod_uid(vm: usize) -> String {
    format!("0a0b0c0d-1111-2222-3333-{vm:012}")
}

/// Lines of `/proc/PID/cgroup`, and the names in them. `VM` stands for the VM's number.
const LAYOUTS: &[(&str, &[(Kind, &str)])] = &[
    (r"0::/machine.slice/machine-qemu\x2d3\x2dlvVM.scope/libvirt/emulator", &[(Kind::Libvirt, "lvVM")]),
    (r"4:cpu,cpuacct:/machine.slice/machine-ch\x2d3\x2dlvVM.scope", &[(Kind::Libvirt, "lvVM")]),
    ("9:cpuset:/\n4:cpu,cpuacct:/machine/qemu-1-lvVM.libvirt-qemu", &[(Kind::Libvirt, "lvVM")]),
    ("0::/qemu.slice/1VM.scope", &[(Kind::Vmid, "1VM")]),
    ("0::/system.slice/vmVM.service", &[(Kind::Unit, "vmVM.service")]),
    ("0::/system.slice/runner.service", &[(Kind::Unit, "runner.service")]),
    ("1:name=systemd:/system.slice/vm@iVM.service\n0::/", &[(Kind::Unit, "vm@iVM.service")]),
    ("0::/user.slice/user-1000.slice/session-2.scope", &[]),
    ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/m.scope", &[(Kind::Unit, "m.scope")]),
    (
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID_.slice/cri-containerd-ID.scope",
        &[
            (Kind::PodUid, "UID"),
            (Kind::ContainerId, "ID"),
            (Kind::Pod, "prod/launcher-VM"),
            (Kind::Container, "prod/launcher-VM/compute"),
        ],
    ),
    ("0::/../../kubepods/besteffort/podUID/ID", &[(Kind::PodUid, "UID"), (Kind::ContainerId, "ID")]),
    ("0::/system.slice/docker-ID.scope", &[(Kind::ContainerId, "ID"), (Kind::Container, "dVM")]),
    (
        "0::/machine.slice/libpod-ID.scope/container",
        &[(Kind::ContainerId, "ID"), (Kind::Container, "pVM")],
    ),
    ("0::/", &[]),
];

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
    let (path, text) = match LAYOUTS[layout].0 {
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
    let args = if is_named { monitor.named } else { monitor.nameless };
    let mut argv = vec![monitor.program.to_string()];
    argv.extend(args.iter().map(|arg| filled(arg, number)));
    let argv: Vec<&[u8]> = argv.iter().map(|arg| arg.as_bytes()).collect();
    fake.process(pid, &argv, VM, &[]);
    fake.comm(pid, pid, "main");
    fake.comm(pid, pid + 9, "IO mon) S (x");
    let (lines, given) = LAYOUTS[layout];
    fake.proc(&format!("{pid}/cgroup"), format!("{}\n", filled(lines, number)));
    note(fake, layout, number);
    let mut names: BTreeMap<Kind, String> =
        given.iter().map(|(kind, name)| (*kind, filled(name, number))).collect();
    if args.iter().any(|arg| arg.contains("NAME")) {
        names.insert(Kind::Name, format!("web{number}"));
        if monitor.has_uuid {
            names.insert(Kind::Uuid, uuid(number));
        }
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
            Shows::Names(before, after) => (format!("{before}{vcpu}{after}"), "running".into(), 0),
            Shows::Calls if is_last => ("vmm".to_string(), "running".into(), 7),
            Shows::Calls => {
                ("vmm".to_string(), format!("16 {fd:#x} 0xae80 0x0 0x0 0x0 0x0 0x7 0x8"), 0)
            }
            Shows::Nothing => ("vmm".to_string(), "202 0x7 0x80 0x0 0x0 0x0 0x0 0x7 0x8".into(), 0),
        };
        fake.comm(pid, tid, &comm);
        let task = format!("{pid}/task/{tid}");
        fake.proc(&format!("{task}/syscall"), format!("{call}\n"));
        let rest = "S ".to_string() + &"0 ".repeat(39) + &format!("{ticks} 0 0\n");
        fake.proc(&format!("{task}/stat"), format!("{tid} (a) b) {rest}"));
        if !matches!(monitor.shows, Shows::Nothing) {
            vcpus.push((*vcpu, tid));
        }
    }
    if matches!(monitor.shows, Shows::Calls) {
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
