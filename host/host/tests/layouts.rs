// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where VMs compete for CPU time, in the cgroup layouts of VM managers, on hosts made of files.

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use unspin_host::{meant, tightest, Groups, Host, Kind, Limited, Rival, Tree, VmProcess};
use unspin_scratch::Scratch;

/// A host made of files.
struct Fake(Scratch);

impl Fake {
    fn new() -> Fake {
        let fake = Fake(Scratch::new());
        fake.0.dir("sys/fs/cgroup");
        fake.write("proc/1/cgroup", "0::/init.scope\n");
        fake
    }

    fn write(&self, path: &str, text: &str) {
        self.0.write(path, text);
    }

    /// A process in this cgroup, with threads in these cgroups; `kvm`: it has a VM.
    fn process(&self, pid: u32, program: &str, main: &str, vcpus: &[&str], kvm: bool) {
        self.write(&format!("proc/{pid}/cmdline"), &format!("{program}\0-name\0vm{pid}\0"));
        self.write(&format!("proc/{pid}/status"), &format!("Name:\tx\nTgid:\t{pid}\n"));
        self.write(&format!("proc/{pid}/task/{pid}/comm"), "main\n");
        self.write(&format!("proc/{pid}/cgroup"), &format!("{main}\n"));
        let held = if kvm { "anon_inode:kvm-vm" } else { "/dev/null" };
        self.0.link(format!("proc/{pid}/fd/7"), held);
        for (index, group) in vcpus.iter().enumerate() {
            let tid = pid * 10 + index as u32;
            self.write(&format!("proc/{pid}/task/{tid}/comm"), &format!("CPU {index}/KVM\n"));
            self.write(&format!("proc/{tid}/cgroup"), &format!("{group}\n"));
        }
    }

    fn host(&self) -> Host {
        Host::at(&self.0.join("proc"))
    }
}

/// A VM, and the expected results.
struct Vm {
    pid: u32,
    /// Lines of /proc/TID/cgroup: of the VMM; `vcpus` has those of each vCPU.
    main: &'static str,
    vcpus: &'static [&'static str],
    /// The cgroup with whose weight it competes, and the weight; `None`: the host's root cgroup.
    place: Option<(&'static str, f64)>,
    is_own: bool,
    beside: &'static [u32],
    /// All quotas, outer ones first: cgroup, CPUs, and to whom it applies (`vm`, `vcpu N`,
    /// `others`).
    quotas: &'static [(&'static str, f64, &'static str)],
    /// The CPUs that all its vCPUs together may use, and how to raise them.
    limit: Option<(f64, &'static str)>,
}

/// A VM that has a cgroup of its own and no quota.
const OWN: Vm = Vm {
    pid: 0,
    main: "",
    vcpus: &[],
    place: None,
    is_own: true,
    beside: &[],
    quotas: &[],
    limit: None,
};

struct Layout {
    name: &'static str,
    /// Files below /sys/fs/cgroup that are not empty.
    files: &'static [(&'static str, &'static str)],
    vms: &'static [Vm],
    /// Other processes, and their cgroups.
    helpers: &'static [(u32, &'static str)],
    /// Cgroups that compete beside the first VM or around it, with their weights, upper levels first.
    rivals: &'static [(&'static str, Option<f64>)],
}

const SCOPE: &str = r"0::/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/emulator";
const POD: &str =
    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa.slice/cri-containerd-1.scope";

/// A container's id.
macro_rules! id {
    ($digit:literal) => {
        concat!($digit, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde")
    };
}

macro_rules! node {
    () => {
        concat!("docker-", id!("a"), ".scope")
    };
}

const NODE: &str = concat!(node!(), "/cpu.weight");

const LAYOUTS: &[Layout] = &[
    Layout {
        name: "Proxmox with swtpm",
        files: &[
            ("qemu.slice/cpu.weight", "100"),
            ("qemu.slice/100.scope/cpu.weight", "100"),
            ("qemu.slice/100.scope/cpu.max", "200000 100000"),
            ("qemu.slice/100.scope/cgroup.procs", "100\n2002"),
            ("qemu.slice/101.scope/cpu.weight", "200"),
            ("qemu.slice/101.scope/cgroup.procs", "101"),
            ("system.slice/cpu.weight", "100"),
            ("system.slice/cgroup.events", "populated 1"),
        ],
        vms: &[
            Vm {
                pid: 100,
                main: "0::/qemu.slice/100.scope",
                vcpus: &["0::/qemu.slice/100.scope", "0::/qemu.slice/100.scope"],
                place: Some(("/qemu.slice/100.scope", 100.0)),
                quotas: &[("/qemu.slice/100.scope", 2.0, "vm")],
                limit: Some((2.0, "qm set 100 --cpulimit CPUS")),
                ..OWN
            },
            Vm {
                pid: 101,
                main: "0::/qemu.slice/101.scope",
                vcpus: &["0::/qemu.slice/101.scope"],
                place: Some(("/qemu.slice/101.scope", 200.0)),
                ..OWN
            },
        ],
        helpers: &[(2002, "0::/qemu.slice/100.scope")],
        rivals: &[
            ("/", None),
            ("/qemu.slice", Some(100.0)),
            ("/qemu.slice/100.scope", Some(100.0)),
            ("/qemu.slice/101.scope", Some(200.0)),
            ("/system.slice", Some(100.0)),
        ],
    },
    Layout {
        name: "libvirt with quotas of vCPUs, emulator and an I/O thread",
        files: &[
            ("machine.slice/cpu.weight", "100"),
            (r"machine.slice/machine-qemu\x2d1\x2dweb.scope/cpu.weight", "300"),
            (r"machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/cpu.weight", "100"),
            (r"machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/emulator/cpu.weight", "100"),
            (r"machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/emulator/cpu.max", "20000 100000"),
            (r"machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/vcpu0/cpu.weight", "100"),
            (r"machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/vcpu0/cpu.max", "50000 100000"),
            (r"machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/vcpu1/cpu.weight", "100"),
            (r"machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/vcpu1/cpu.max", "40000 100000"),
        ],
        vms: &[Vm {
            pid: 100,
            main: SCOPE,
            vcpus: &[
                r"0::/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/vcpu0",
                r"0::/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/vcpu1",
            ],
            place: Some((r"/machine.slice/machine-qemu\x2d1\x2dweb.scope", 300.0)),
            quotas: &[
                (r"/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/emulator", 0.2, "others"),
                (r"/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/vcpu0", 0.5, "vcpu 0"),
                (r"/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/vcpu1", 0.4, "vcpu 1"),
            ],
            limit: Some((0.9, "virsh schedinfo web --live --set vcpu_quota=MICROSECONDS")),
            ..OWN
        }],
        helpers: &[(2002, SCOPE)],
        rivals: &[
            ("/", None),
            ("/machine.slice", Some(100.0)),
            (r"/machine.slice/machine-qemu\x2d1\x2dweb.scope", Some(300.0)),
        ],
    },
    Layout {
        name: "OpenStack: a quota of the whole of one vCPU",
        files: &[
            ("machine.slice/cpu.weight", "100"),
            (r"machine.slice/machine-qemu\x2d7\x2dinstance\x2d0000abcd.scope/cpu.weight", "100"),
            (r"machine.slice/machine-qemu\x2d7\x2dinstance\x2d0000abcd.scope/cpu.max", "150000 100000"),
            (r"machine.slice/machine-qemu\x2d7\x2dinstance\x2d0000abcd.scope/libvirt/vcpu0/cpu.weight", "100"),
        ],
        vms: &[Vm {
            pid: 100,
            main: r"0::/machine.slice/machine-qemu\x2d7\x2dinstance\x2d0000abcd.scope/libvirt/vcpu0",
            vcpus: &[r"0::/machine.slice/machine-qemu\x2d7\x2dinstance\x2d0000abcd.scope/libvirt/vcpu0"],
            place: Some((r"/machine.slice/machine-qemu\x2d7\x2dinstance\x2d0000abcd.scope", 100.0)),
            quotas: &[(r"/machine.slice/machine-qemu\x2d7\x2dinstance\x2d0000abcd.scope", 1.5, "vm")],
            limit: Some((1.5, "virsh schedinfo instance-0000abcd --live --set global_quota=MICROSECONDS")),
            ..OWN
        }],
        helpers: &[],
        rivals: &[
            ("/", None),
            ("/machine.slice", Some(100.0)),
            (r"/machine.slice/machine-qemu\x2d7\x2dinstance\x2d0000abcd.scope", Some(100.0)),
        ],
    },
    Layout {
        name: "KubeVirt with virt-launcher, quotas at two levels",
        files: &[
            ("kubepods.slice/cpu.weight", "500"),
            ("kubepods.slice/kubepods-burstable.slice/cpu.weight", "400"),
            ("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa.slice/cpu.weight", "79"),
            ("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa.slice/cpu.max", "300000 100000"),
            ("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa.slice/cri-containerd-1.scope/cpu.weight", "39"),
            ("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa.slice/cri-containerd-1.scope/cpu.max", "150000 100000"),
            ("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa.slice/cri-containerd-2.scope/cpu.weight", "1"),
            ("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa.slice/cri-containerd-2.scope/cgroup.events", "populated 1\nfrozen 0"),
        ],
        vms: &[Vm {
            pid: 100,
            main: POD,
            vcpus: &[POD, POD],
            place: Some((
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa.slice/cri-containerd-1.scope",
                39.0,
            )),
            quotas: &[
                ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa.slice", 3.0, "vm"),
                (
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa.slice/cri-containerd-1.scope",
                    1.5,
                    "vm",
                ),
            ],
            limit: Some((1.5, "limits.cpu of its pod")),
            ..OWN
        }],
        helpers: &[(2001, POD), (2002, POD)],
        rivals: &[
            ("/", None),
            ("/kubepods.slice", Some(500.0)),
            ("/kubepods.slice/kubepods-burstable.slice", Some(400.0)),
            ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa.slice", Some(79.0)),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa.slice/cri-containerd-1.scope",
                Some(39.0),
            ),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa.slice/cri-containerd-2.scope",
                Some(1.0),
            ),
        ],
    },
    Layout {
        name: "Incus, all in one service",
        files: &[
            ("system.slice/cpu.weight", "100"),
            ("system.slice/incus.service/cpu.weight", "100"),
            ("system.slice/incus.service/cpu.max", "400000 100000"),
        ],
        vms: &[
            Vm {
                pid: 100,
                main: "0::/system.slice/incus.service",
                vcpus: &["0::/system.slice/incus.service"],
                place: Some(("/system.slice/incus.service", 100.0)),
                is_own: false,
                beside: &[101],
                quotas: &[("/system.slice/incus.service", 4.0, "vm")],
                limit: Some((4.0, "systemctl set-property incus.service CPUQuota=PERCENT")),
            },
            Vm {
                pid: 101,
                main: "0::/system.slice/incus.service",
                vcpus: &["0::/system.slice/incus.service"],
                place: Some(("/system.slice/incus.service", 100.0)),
                is_own: false,
                beside: &[100],
                quotas: &[("/system.slice/incus.service", 4.0, "vm")],
                limit: Some((4.0, "systemctl set-property incus.service CPUQuota=PERCENT")),
            },
        ],
        helpers: &[(2001, "0::/system.slice/incus.service")],
        rivals: &[
            ("/", None),
            ("/system.slice", Some(100.0)),
            ("/system.slice/incus.service", Some(100.0)),
        ],
    },
    Layout {
        name: "Firecracker under one runner, one with a leaf of its own",
        files: &[
            ("system.slice/cpu.weight", "100"),
            ("system.slice/runner.service/cpu.weight", "100"),
            ("system.slice/runner.service/a/cpu.weight", "50"),
            ("system.slice/runner.service/b/cpu.max", "max 100000"),
        ],
        vms: &[
            Vm {
                pid: 100,
                main: "0::/system.slice/runner.service/a",
                vcpus: &["0::/system.slice/runner.service/a"],
                place: Some(("/system.slice/runner.service/a", 50.0)),
                ..OWN
            },
            Vm {
                pid: 101,
                main: "0::/system.slice/runner.service/b",
                vcpus: &["0::/system.slice/runner.service/b"],
                place: Some(("/system.slice/runner.service", 100.0)),
                is_own: false,
                beside: &[100],
                ..OWN
            },
        ],
        helpers: &[],
        rivals: &[
            ("/", None),
            ("/system.slice", Some(100.0)),
            ("/system.slice/runner.service", Some(100.0)),
            ("/system.slice/runner.service/a", Some(50.0)),
        ],
    },
    Layout {
        name: "Firecracker's jailer",
        files: &[
            ("firecracker/cpu.weight", "100"),
            ("firecracker/id1/cpu.weight", "10"),
            ("firecracker/id1/cpu.max", "25000 50000"),
            ("firecracker/id2/cpu.weight", "20"),
        ],
        vms: &[
            Vm {
                pid: 100,
                main: "0::/firecracker/id1",
                vcpus: &["0::/firecracker/id1"],
                place: Some(("/firecracker/id1", 10.0)),
                quotas: &[("/firecracker/id1", 0.5, "vm")],
                limit: Some((0.5, "cpu.max of /firecracker/id1")),
                ..OWN
            },
            Vm {
                pid: 101,
                main: "0::/firecracker/id2",
                vcpus: &["0::/firecracker/id2"],
                place: Some(("/firecracker/id2", 20.0)),
                ..OWN
            },
        ],
        helpers: &[],
        rivals: &[
            ("/", None),
            ("/firecracker", Some(100.0)),
            ("/firecracker/id1", Some(10.0)),
            ("/firecracker/id2", Some(20.0)),
        ],
    },
    Layout {
        name: "jails that are named like libvirt's cgroups of vCPUs",
        files: &[
            ("firecracker/cpu.weight", "100"),
            ("firecracker/vcpu2/cpu.weight", "300"),
            ("firecracker/vcpu2/cpu.max", "200000 100000"),
            ("firecracker/vcpu4/cpu.weight", "100"),
        ],
        vms: &[
            Vm {
                pid: 100,
                main: "0::/firecracker/vcpu2",
                vcpus: &["0::/firecracker/vcpu2", "0::/firecracker/vcpu2"],
                place: Some(("/firecracker/vcpu2", 300.0)),
                quotas: &[("/firecracker/vcpu2", 2.0, "vm")],
                limit: Some((2.0, "cpu.max of /firecracker/vcpu2")),
                ..OWN
            },
            Vm {
                pid: 101,
                main: "0::/firecracker/vcpu4",
                vcpus: &["0::/firecracker/vcpu4"],
                place: Some(("/firecracker/vcpu4", 100.0)),
                ..OWN
            },
        ],
        helpers: &[],
        rivals: &[
            ("/", None),
            ("/firecracker", Some(100.0)),
            ("/firecracker/vcpu2", Some(300.0)),
            ("/firecracker/vcpu4", Some(100.0)),
        ],
    },
    Layout {
        name: "a service without the cpu controller",
        files: &[
            ("system.slice/cpu.weight", "100"),
            ("system.slice/vm1.service/cgroup.procs", "100"),
            ("system.slice/cron.service/cgroup.procs", "2001"),
        ],
        vms: &[Vm {
            pid: 100,
            main: "0::/system.slice/vm1.service",
            vcpus: &["0::/system.slice/vm1.service", "0::/system.slice/vm1.service"],
            place: Some(("/system.slice", 100.0)),
            is_own: false,
            ..OWN
        }],
        helpers: &[(2001, "0::/system.slice/cron.service")],
        rivals: &[("/", None), ("/system.slice", Some(100.0))],
    },
    Layout {
        name: "a session of a user",
        files: &[
            ("user.slice/cpu.weight", "100"),
            ("user.slice/user-61234.slice/cpu.weight", "100"),
            ("user.slice/user-61234.slice/session-2.scope/cpu.max", "max 100000"),
            ("user.slice/user-61234.slice/user@61234.service/cpu.weight", "100"),
            ("user.slice/user-61234.slice/user@61234.service/app.slice/cpu.weight", "100"),
            ("user.slice/user-61234.slice/user@61234.service/app.slice/vm.scope/cpu.weight", "70"),
            ("user.slice/user-61234.slice/user@61234.service/app.slice/vm.scope/cpu.max", "100000 100000"),
        ],
        vms: &[
            Vm {
                pid: 100,
                main: "0::/user.slice/user-61234.slice/user@61234.service/app.slice/vm.scope",
                vcpus: &["0::/user.slice/user-61234.slice/user@61234.service/app.slice/vm.scope"],
                place: Some((
                    "/user.slice/user-61234.slice/user@61234.service/app.slice/vm.scope",
                    70.0,
                )),
                quotas: &[(
                    "/user.slice/user-61234.slice/user@61234.service/app.slice/vm.scope",
                    1.0,
                    "vm",
                )],
                limit: Some((1.0, "systemctl --user --machine=61234@ set-property vm.scope CPUQuota=PERCENT")),
                ..OWN
            },
            Vm {
                pid: 101,
                main: "0::/user.slice/user-61234.slice/session-2.scope",
                vcpus: &["0::/user.slice/user-61234.slice/session-2.scope"],
                place: Some(("/user.slice/user-61234.slice", 100.0)),
                is_own: false,
                beside: &[100],
                ..OWN
            },
        ],
        helpers: &[(2001, "0::/user.slice/user-61234.slice/session-2.scope")],
        rivals: &[
            ("/", None),
            ("/user.slice", Some(100.0)),
            ("/user.slice/user-61234.slice", Some(100.0)),
            ("/user.slice/user-61234.slice/user@61234.service", Some(100.0)),
            ("/user.slice/user-61234.slice/user@61234.service/app.slice", Some(100.0)),
            ("/user.slice/user-61234.slice/user@61234.service/app.slice/vm.scope", Some(70.0)),
        ],
    },
    Layout {
        name: "sessions with the cpu controller, one with a VM in a cgroup of its own",
        files: &[
            ("user.slice/cpu.weight", "100"),
            ("user.slice/user-1000.slice/cpu.weight", "100"),
            ("user.slice/user-1000.slice/session-2.scope/cpu.weight", "100"),
            ("user.slice/user-1000.slice/session-3.scope/cpu.weight", "100"),
            ("user.slice/user-1000.slice/session-3.scope/web/cpu.weight", "40"),
        ],
        vms: &[
            Vm {
                pid: 100,
                main: "0::/user.slice/user-1000.slice/session-2.scope",
                vcpus: &["0::/user.slice/user-1000.slice/session-2.scope"],
                place: Some(("/user.slice/user-1000.slice/session-2.scope", 100.0)),
                is_own: false,
                ..OWN
            },
            Vm {
                pid: 101,
                main: "0::/user.slice/user-1000.slice/session-3.scope/web",
                vcpus: &["0::/user.slice/user-1000.slice/session-3.scope/web"],
                place: Some(("/user.slice/user-1000.slice/session-3.scope/web", 40.0)),
                ..OWN
            },
        ],
        helpers: &[(2001, "0::/user.slice/user-1000.slice/session-2.scope")],
        rivals: &[
            ("/", None),
            ("/user.slice", Some(100.0)),
            ("/user.slice/user-1000.slice", Some(100.0)),
            ("/user.slice/user-1000.slice/session-2.scope", Some(100.0)),
            ("/user.slice/user-1000.slice/session-3.scope", Some(100.0)),
        ],
    },
    Layout {
        name: "units of a user that are named user, one with a VM in a cgroup of its own",
        files: &[
            ("user.slice/cpu.weight", "100"),
            ("user.slice/user-61234.slice/cpu.weight", "100"),
            ("user.slice/user-61234.slice/user@61234.service/cpu.weight", "100"),
            ("user.slice/user-61234.slice/user@61234.service/user.slice/cpu.weight", "80"),
            ("user.slice/user-61234.slice/user@61234.service/user.slice/cpu.max", "150000 100000"),
            ("user.slice/user-61234.slice/user@61234.service/user.slice/web/cpu.weight", "40"),
            ("user.slice/user-61234.slice/user@61234.service/app.slice/cpu.weight", "100"),
            ("user.slice/user-61234.slice/user@61234.service/app.slice/cgroup.events", "populated 1"),
        ],
        vms: &[Vm {
            pid: 100,
            main: "0::/user.slice/user-61234.slice/user@61234.service/user.slice/web",
            vcpus: &["0::/user.slice/user-61234.slice/user@61234.service/user.slice/web"],
            place: Some(("/user.slice/user-61234.slice/user@61234.service/user.slice/web", 40.0)),
            quotas: &[("/user.slice/user-61234.slice/user@61234.service/user.slice", 1.5, "vm")],
            limit: Some((1.5, "systemctl --user --machine=61234@ set-property user.slice CPUQuota=PERCENT")),
            ..OWN
        }],
        helpers: &[],
        rivals: &[
            ("/", None),
            ("/user.slice", Some(100.0)),
            ("/user.slice/user-61234.slice", Some(100.0)),
            ("/user.slice/user-61234.slice/user@61234.service", Some(100.0)),
            ("/user.slice/user-61234.slice/user@61234.service/app.slice", Some(100.0)),
            ("/user.slice/user-61234.slice/user@61234.service/user.slice", Some(80.0)),
            ("/user.slice/user-61234.slice/user@61234.service/user.slice/web", Some(40.0)),
        ],
    },
    Layout {
        name: "a pod in a container that is a node (kind), the only VM of the node",
        files: &[
            (NODE, "100"),
            (concat!(node!(), "/kubelet/cpu.weight"), "100"),
            (concat!(node!(), "/kubelet/kubelet-kubepods.slice/cpu.weight"), "500"),
            (concat!(node!(), "/kubelet/kubelet-kubepods.slice/", id!("b"), "/cpu.weight"), "39"),
            (concat!(node!(), "/kubelet/kubelet-kubepods.slice/", id!("b"), "/cpu.max"), "50000 20000"),
            (concat!(node!(), "/init.scope/cpu.weight"), "100"),
            (concat!(node!(), "/init.scope/cgroup.events"), "populated 1"),
        ],
        vms: &[Vm {
            pid: 100,
            main: concat!("0::/", node!(), "/kubelet/kubelet-kubepods.slice/", id!("b")),
            vcpus: &[concat!("0::/", node!(), "/kubelet/kubelet-kubepods.slice/", id!("b"))],
            place: Some((concat!("/", node!(), "/kubelet/kubelet-kubepods.slice/", id!("b")), 39.0)),
            quotas: &[(
                concat!("/", node!(), "/kubelet/kubelet-kubepods.slice/", id!("b")),
                2.5,
                "vm",
            )],
            limit: Some((2.5, "limits.cpu of its pod")),
            ..OWN
        }],
        helpers: &[],
        rivals: &[
            ("/", None),
            (concat!("/", node!()), Some(100.0)),
            (concat!("/", node!(), "/init.scope"), Some(100.0)),
            (concat!("/", node!(), "/kubelet"), Some(100.0)),
            (concat!("/", node!(), "/kubelet/kubelet-kubepods.slice"), Some(500.0)),
            (concat!("/", node!(), "/kubelet/kubelet-kubepods.slice/", id!("b")), Some(39.0)),
        ],
    },
    Layout {
        name: "version 1, libvirt without systemd",
        files: &[
            ("cpu,cpuacct/cpu.shares", "1024"),
            ("cpu,cpuacct/machine/cpu.shares", "1024"),
            ("cpu,cpuacct/machine/qemu-1-web.libvirt-qemu/cpu.shares", "2048"),
            ("cpu,cpuacct/machine/qemu-1-web.libvirt-qemu/vcpu0/cpu.shares", "1024"),
            ("cpu,cpuacct/machine/qemu-1-web.libvirt-qemu/vcpu0/cpu.cfs_quota_us", "25000"),
            ("cpu,cpuacct/machine/qemu-1-web.libvirt-qemu/vcpu0/cpu.cfs_period_us", "100000"),
            ("cpu,cpuacct/machine/qemu-1-web.libvirt-qemu/emulator/cpu.shares", "1024"),
            ("cpu,cpuacct/machine/qemu-1-web.libvirt-qemu/emulator/cpu.cfs_quota_us", "-1"),
            ("cpu,cpuacct/machine/qemu-1-web.libvirt-qemu/emulator/cpu.cfs_period_us", "100000"),
        ],
        vms: &[Vm {
            pid: 100,
            main: "4:cpu,cpuacct:/machine/qemu-1-web.libvirt-qemu/emulator",
            vcpus: &["4:cpu,cpuacct:/machine/qemu-1-web.libvirt-qemu/vcpu0"],
            place: Some(("/machine/qemu-1-web.libvirt-qemu", 200.0)),
            quotas: &[("/machine/qemu-1-web.libvirt-qemu/vcpu0", 0.25, "vm")],
            limit: Some((0.25, "virsh schedinfo web --live --set vcpu_quota=MICROSECONDS")),
            ..OWN
        }],
        helpers: &[],
        rivals: &[
            ("/", None),
            ("/machine", Some(100.0)),
            ("/machine/qemu-1-web.libvirt-qemu", Some(200.0)),
        ],
    },
    Layout {
        name: "version 1, mounted as cpuacct,cpu",
        files: &[
            ("cpuacct,cpu/cpu.shares", "1024"),
            ("cpuacct,cpu/vms/cpu.shares", "512"),
            ("cpuacct,cpu/vms/cpu.cfs_quota_us", "300000"),
            ("cpuacct,cpu/vms/cpu.cfs_period_us", "100000"),
        ],
        vms: &[Vm {
            pid: 100,
            main: "3:cpuacct,cpu:/vms",
            vcpus: &["3:cpuacct,cpu:/vms"],
            place: Some(("/vms", 50.0)),
            quotas: &[("/vms", 3.0, "vm")],
            limit: Some((3.0, "cpu.cfs_quota_us of /vms")),
            ..OWN
        }],
        helpers: &[],
        rivals: &[("/", None), ("/vms", Some(50.0))],
    },
    Layout {
        name: "hybrid, the controller in version 1",
        files: &[
            ("cpu/cpu.shares", "1024"),
            ("cpu/vms/cpu.shares", "512"),
            ("cpu/vms/cpu.cfs_quota_us", "300000"),
            ("cpu/vms/cpu.cfs_period_us", "100000"),
            ("unified/system.slice/vm.service/cgroup.procs", "100"),
        ],
        vms: &[Vm {
            pid: 100,
            main: "3:cpu:/vms\n1:name=systemd:/s\n0::/system.slice/vm.service",
            vcpus: &["3:cpu:/vms\n0::/system.slice/vm.service"],
            place: Some(("/vms", 50.0)),
            quotas: &[("/vms", 3.0, "vm")],
            limit: Some((3.0, "cpu.cfs_quota_us of /vms")),
            ..OWN
        }],
        helpers: &[],
        rivals: &[("/", None), ("/vms", Some(50.0))],
    },
    Layout {
        name: "hybrid, the controller in version 2",
        files: &[("unified/system.slice/vm.service/cpu.weight", "30")],
        vms: &[Vm {
            pid: 100,
            main: "1:name=systemd:/s\n0::/system.slice/vm.service",
            vcpus: &["0::/system.slice/vm.service"],
            place: Some(("/system.slice/vm.service", 30.0)),
            ..OWN
        }],
        helpers: &[],
        rivals: &[("/", None), ("/system.slice", None), ("/system.slice/vm.service", Some(30.0))],
    },
    Layout {
        name: "a quota within one of a group of vCPUs",
        files: &[
            ("vm/cpu.weight", "100"),
            ("vm/n0/cpu.max", "100000 100000"),
            ("vm/n0/v0/cpu.max", "20000 100000"),
        ],
        vms: &[Vm {
            pid: 100,
            main: "0::/vm",
            vcpus: &["0::/vm/n0/v0", "0::/vm/n0/v1", "0::/vm", "0::/vm"],
            place: Some(("/vm", 100.0)),
            quotas: &[
                ("/vm/n0", 1.0, "vcpu 0,1"),
                ("/vm/n0/v0", 0.2, "vcpu 0"),
            ],
            limit: Some((3.0, "cpu.max of /vm/n0")),
            ..OWN
        }],
        helpers: &[],
        rivals: &[("/", None), ("/vm", Some(100.0))],
    },
    Layout {
        name: "quotas of vCPUs within that of the VM",
        files: &[
            ("vm/cpu.weight", "100"),
            ("vm/cpu.max", "200000 100000"),
            ("vm/v0/cpu.max", "25000 100000"),
            ("vm/v1/cpu.max", "50000 100000"),
        ],
        vms: &[Vm {
            pid: 100,
            main: "0::/vm",
            vcpus: &["0::/vm/v0", "0::/vm/v1"],
            place: Some(("/vm", 100.0)),
            quotas: &[
                ("/vm", 2.0, "vm"),
                ("/vm/v0", 0.25, "vcpu 0"),
                ("/vm/v1", 0.5, "vcpu 1"),
            ],
            limit: Some((0.75, "cpu.max of /vm/v0")),
            ..OWN
        }],
        helpers: &[],
        rivals: &[("/", None), ("/vm", Some(100.0))],
    },
    Layout {
        name: "no cgroup at all",
        files: &[("cgroup.procs", "100")],
        vms: &[Vm { pid: 100, main: "0::/", vcpus: &["0::/"], is_own: false, ..OWN }],
        helpers: &[],
        rivals: &[("/", None)],
    },
];

fn written(of: &Limited) -> String {
    match of {
        Limited::Vm => "vm".into(),
        Limited::Vcpus(numbers) => {
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            format!("vcpu {}", numbers.join(","))
        }
        Limited::Others => "others".into(),
    }
}

/// Compares the results for each VM with the expected ones.
#[track_caller]
fn check(name: &str, host: &Host, vms: &[Vm]) -> (Tree, Groups, Vec<VmProcess>) {
    let tree = Tree::of(host);
    let all = host.vm_processes().unwrap();
    assert_eq!(all.len(), vms.len(), "{name}: VMs");
    let groups = Groups::of(&tree, host, &all);
    for (vm, process) in vms.iter().zip(&all) {
        let name = format!("{name}, VM {}", vm.pid);
        let place = groups.place(&tree, process.pid).unwrap();
        let found = place.group.as_ref().map(|group| {
            assert!(group.holds(&tree.group(vm.pid * 10).unwrap()), "{name}: it is elsewhere");
            (group.path.as_str(), tree.weight(group).unwrap())
        });
        assert_eq!(found, vm.place, "{name}");
        assert_eq!(place.is_own, vm.is_own, "{name}: own");
        assert_eq!(place.beside, BTreeSet::from_iter(vm.beside.iter().copied()), "{name}");
        let limits = groups.limits(&tree, process.pid);
        let quotas: Vec<(&str, f64, String)> = limits
            .iter()
            .map(|limit| (limit.group.path.as_str(), limit.cpus, written(&limit.of)))
            .collect();
        let expected = vm.quotas.iter().map(|(path, cpus, of)| (*path, *cpus, of.to_string()));
        assert_eq!(quotas, expected.collect::<Vec<_>>(), "{name}: quotas");
        let limit = tightest(&limits, process.vcpus.len());
        assert_eq!(limit.map(|(_, cpus)| cpus), vm.limit.map(|(cpus, _)| cpus), "{name}");
        if let (Some((limit, _)), Some((_, remedy))) = (limit, vm.limit) {
            let is = limit.remedy(process);
            assert!(is.starts_with(remedy), "{name}: {is}");
        }
    }
    (tree, groups, all)
}

#[test]
fn vms_compete_where_their_managers_put_them() {
    for layout in LAYOUTS {
        let fake = Fake::new();
        for (path, text) in layout.files {
            fake.write(&format!("sys/fs/cgroup/{path}"), &format!("{text}\n"));
        }
        for vm in layout.vms {
            fake.process(vm.pid, "/usr/bin/kvm", vm.main, vm.vcpus, true);
            for line in vm.vcpus.iter().chain([&vm.main]).flat_map(|text| text.lines()) {
                let (_, path) = line.rsplit_once(':').unwrap();
                for root in ["", "unified"].iter().filter(|_| line.starts_with("0::")) {
                    let root = fake.0.join("sys/fs/cgroup").join(root);
                    if root.is_dir() {
                        fs::create_dir_all(root.join(path.trim_start_matches('/'))).unwrap();
                    }
                }
            }
        }
        for (pid, group) in layout.helpers {
            fake.process(*pid, "/usr/bin/swtpm", group, &[], false);
        }
        let (tree, groups, _) = check(layout.name, &fake.host(), layout.vms);
        let first = BTreeSet::from([layout.vms[0].pid]);
        let rivals = Rival::all(&tree, &groups, &first, false);
        let found: Vec<(&str, Option<f64>)> =
            rivals.iter().map(|rival| (rival.group.path.as_str(), rival.weight)).collect();
        assert_eq!(found, layout.rivals, "{}: rivals", layout.name);
    }
}

/// A container that sees the host's processes and has a cgroup namespace of its own.
#[test]
fn from_within_a_namespace_the_hosts_tree_is_read() {
    let pod = "kubepods/pod2/vm";
    let vms = [
        Vm {
            pid: 100,
            main: "0::/../../pod2/vm",
            vcpus: &["0::/../../pod2/vm"],
            place: Some(("/kubepods/pod2/vm", 39.0)),
            quotas: &[("/kubepods", 8.0, "vm")],
            limit: Some((8.0, "cpu.max of /kubepods")),
            ..OWN
        },
        Vm {
            pid: 101,
            main: "0::/../../../system.slice/vm1.service",
            vcpus: &["0::/../../../system.slice/vm1.service"],
            place: Some(("/system.slice", 100.0)),
            is_own: false,
            ..OWN
        },
    ];
    let fake = Fake::new();
    fs::remove_dir_all(fake.0.join("sys/fs/cgroup")).unwrap();
    fake.write("proc/1/cgroup", "0::/../../../init.scope\n");
    for (path, text) in [
        (&format!("{pod}/cpu.weight"), "39"),
        (&"kubepods/pod2/cpu.weight".to_string(), "100"),
        (&"kubepods/cpu.weight".to_string(), "100"),
        (&"kubepods/cpu.max".to_string(), "800000 100000"),
        (&"kubepods/pod1/own/cgroup.procs".to_string(), "1"),
        (&"system.slice/cpu.weight".to_string(), "100"),
        (&"system.slice/vm1.service/cgroup.procs".to_string(), "101"),
    ] {
        fake.write(&format!("outer/sys/fs/cgroup/{path}"), text);
    }
    for vm in &vms {
        fake.process(vm.pid, "/usr/bin/kvm", vm.main, vm.vcpus, true);
    }
    symlink(fake.0.join("outer/sys/fs/cgroup/kubepods/pod1/own"), fake.0.join("sys/fs/cgroup"))
        .unwrap();
    let host = fake.host();
    let why = Tree::of(&host).group(100).unwrap_err();
    assert!(why.contains("is not in the tree that is seen here"), "{why}");
    let all = host.vm_processes().unwrap();
    let blind = Groups::of(&Tree::of(&host), &host, &all);
    assert_eq!(blind.place(&Tree::of(&host), 100).unwrap_err(), why, "unknown, and not the root");
    symlink(fake.0.join("outer"), fake.0.join("proc/1/root")).unwrap();
    check("namespace", &host, &vms);
    let own = format!("7\n{}\n", std::process::id());
    fake.write("outer/sys/fs/cgroup/kubepods/pod1/own/cgroup.procs", &own);
    fs::remove_file(fake.0.join("sys/fs/cgroup")).unwrap();
    symlink(fake.0.join("outer/sys/fs/cgroup"), fake.0.join("sys/fs/cgroup")).unwrap();
    check("the host's /sys in a namespace", &host, &vms);
}

/// In a cgroup namespace where process 1 is not seen, or in the same namespace.
#[test]
fn a_cgroup_out_of_the_tree_is_unknown() {
    let fake = Fake::new();
    fake.write("sys/fs/cgroup/cpu.max", "50000 100000\n");
    fake.process(100, "/usr/bin/kvm", "0::/..", &["0::/.."], true);
    fake.process(101, "/usr/bin/kvm", "0::/../../cgroup", &["0::/../../cgroup"], true);
    for of_first in ["0::/", "0::/../x", "0::/../../x", "0::/../../../../x"] {
        fake.write("proc/1/cgroup", &format!("{of_first}\n"));
        let (host, tree) = (fake.host(), Tree::of(&fake.host()));
        let groups = Groups::of(&tree, &host, &host.vm_processes().unwrap());
        for pid in [100, 101] {
            let why = groups.place(&tree, pid).unwrap_err();
            assert!(why.contains("is not in the tree"), "{of_first}, {pid}: {why}");
            assert_eq!(groups.limits(&tree, pid), []);
        }
    }
}

/// Version 1 may be mounted without it, and a kernel may have no cgroups.
#[test]
fn a_host_without_the_cpu_controller_is_named() {
    for lines in ["5:cpuset:/x\n1:name=systemd:/system.slice/vm.service", ""] {
        let fake = Fake::new();
        fake.process(100, "/usr/bin/kvm", lines, &[lines], true);
        let vms = fake.host().vm_processes().unwrap();
        let tree = Tree::of(&fake.host());
        let why = Groups::of(&tree, &fake.host(), &vms).place(&tree, 100).unwrap_err();
        assert_eq!(why, "no hierarchy of cgroups on this host controls CPU time");
    }
}

/// Two whose names are shown alike are not taken for each other.
#[test]
fn cgroups_whose_names_are_no_text_compete() {
    let fake = Fake::new();
    let dir = |name: &[u8]| fake.0.join("sys/fs/cgroup").join(OsStr::from_bytes(name));
    for (name, weight) in [(&b"a.scope"[..], "100\n"), (b"\xff.scope", "300\n")] {
        fs::create_dir(dir(name)).unwrap();
        fs::write(dir(name).join("cpu.weight"), weight).unwrap();
        fs::write(dir(name).join("cgroup.procs"), "1\n").unwrap();
    }
    fake.process(100, "/usr/bin/kvm", "0::/a.scope", &["0::/a.scope"], true);
    fake.process(101, "/usr/bin/kvm", "", &[""], true);
    for tid in [101, 1010] {
        fake.0.write(format!("proc/{tid}/cgroup"), b"0::/\xff.scope\n");
    }
    let (host, tree) = (fake.host(), Tree::of(&fake.host()));
    let all = host.vm_processes().unwrap();
    let rivals = || {
        let groups = Groups::of(&tree, &host, &all);
        let rivals = Rival::all(&tree, &groups, &BTreeSet::from([100]), false);
        rivals.into_iter().map(|rival| (rival.weight, rival.own)).collect::<Vec<_>>()
    };
    let both = [(None, None), (Some(100.0), Some(100)), (Some(300.0), Some(101))];
    assert_eq!(rivals(), both);
    fs::create_dir(dir(b"\xfe.scope")).unwrap();
    assert_eq!(rivals(), both[..2]);
}

/// Any user of a container may write a VMID of the host's into a command line.
#[test]
fn a_vmid_is_believed_outside_of_containers() {
    let fake = Fake::new();
    let docker = format!("0::/system.slice/docker-{}.scope", id!("d"));
    for (group, is_believed) in [
        ("0::/qemu.slice/104.scope", true),
        ("0::/system.slice/vm.service", true),
        ("0::/lxc/200/ns/user.service", false),
        ("1:name=systemd:/lxc.payload.a/x\n0::/", false),
        (&*docker, false),
        ("0::/machine.slice/machine-c1.scope/payload", false),
        ("0::/machine.slice/systemd-nspawn@c1.service/payload", false),
    ] {
        fake.process(100, "/usr/bin/kvm", group, &[group], true);
        fake.write("proc/100/cmdline", "/usr/bin/kvm\0-id\x00104\0-name\0web\0");
        let vm = fake.host().vm_process(100).unwrap();
        assert_eq!(vm.names.get(Kind::Vmid).is_some(), is_believed, "{group}");
        fs::remove_dir_all(fake.0.join("proc/100")).unwrap();
    }
}

#[test]
fn what_ends_or_moves_is_forgotten() {
    let fake = Fake::new();
    for path in ["a/cpu.weight", "b/cpu.weight"] {
        fake.write(&format!("sys/fs/cgroup/{path}"), "100\n");
    }
    fake.process(100, "/usr/bin/kvm", "0::/a", &["0::/a"], true);
    fake.process(101, "/usr/bin/kvm", "0::/a", &["0::/a"], true);
    let (host, tree) = (fake.host(), Tree::of(&fake.host()));
    let all = host.vm_processes().unwrap();
    let mut groups = Groups::of(&tree, &host, &all);
    let own = |groups: &Groups, pid| groups.place(&tree, pid).unwrap().is_own;
    assert!(!own(&groups, 100) && !own(&groups, 101));
    fake.write("proc/101/cgroup", "0::/b\n");
    fake.write("proc/1010/cgroup", "0::/b\n");
    groups.renew(&tree, &host, &all[1]);
    assert!(own(&groups, 100) && own(&groups, 101));
    groups.retain(|pid| pid == 101);
    assert!(groups.place(&tree, 100).unwrap_err().contains("not looked at"));
    fs::remove_file(fake.0.join("proc/1010/cgroup")).unwrap();
    groups.renew(&tree, &host, &all[1]);
    assert!(groups.place(&tree, 101).unwrap_err().contains("has ended"));
}

#[test]
fn a_vm_that_hides_its_vcpus_has_a_place_where_all_its_threads_have_one() {
    let fake = Fake::new();
    for path in ["a/cpu.weight", "b/cpu.weight"] {
        fake.write(&format!("sys/fs/cgroup/{path}"), "100\n");
    }
    fake.process(100, "/usr/bin/kvm", "0::/a", &["0::/a"], true);
    fake.write("proc/100/task/1000/comm", "kvm\n");
    let (host, tree) = (fake.host(), Tree::of(&fake.host()));
    let place = |host: &Host| {
        let groups = Groups::of(&tree, host, &host.vm_processes().unwrap());
        groups.place(&tree, 100).map(|place| place.group.unwrap().path)
    };
    assert_eq!(place(&host).as_deref(), Ok("/a"));
    fake.write("proc/1000/cgroup", "0::/b\n");
    assert!(place(&host).unwrap_err().contains("not known which of them run vCPUs"));
}

/// libvirt's cgroups are known by their scope. A quota inside it may be of a vCPU or of others.
#[test]
fn a_vm_that_hides_its_vcpus_has_the_place_of_its_unit() {
    let fake = Fake::new();
    let scope = r"machine.slice/machine-qemu\x2d1\x2dweb.scope";
    for (path, text) in [
        ("cpu.weight", "300"),
        ("cpu.max", "200000 100000"),
        ("libvirt/emulator/cpu.weight", "100"),
        ("libvirt/emulator/cpu.max", "20000 100000"),
        ("libvirt/vcpu0/cpu.weight", "100"),
    ] {
        fake.write(&format!("sys/fs/cgroup/{scope}/{path}"), text);
    }
    let [emulator, vcpu] = ["emulator", "vcpu0"].map(|part| format!("0::/{scope}/libvirt/{part}"));
    fake.process(100, "/usr/bin/kvm", &emulator, &[&vcpu], true);
    fake.write("proc/100/task/1000/comm", "kvm\n");
    fake.0.link("proc/100/fd/20", "anon_inode:kvm-vcpu:0");
    let (host, tree) = (fake.host(), Tree::of(&fake.host()));
    let groups = Groups::of(&tree, &host, &host.vm_processes().unwrap());
    let place = groups.place(&tree, 100).unwrap();
    assert_eq!((place.group.unwrap().path, place.is_own), (format!("/{scope}"), true));
    let limits = groups.limits(&tree, 100);
    let limits: Vec<(f64, String)> =
        limits.iter().map(|limit| (limit.cpus, written(&limit.of))).collect();
    assert_eq!(limits, [(2.0, "vm".to_string())]);
}

/// Such as a helper that has inherited the descriptor.
#[test]
fn a_process_without_vcpus_takes_nothing_from_a_vm() {
    let fake = Fake::new();
    fake.write("sys/fs/cgroup/a/cpu.weight", "100\n");
    fake.process(100, "/usr/bin/kvm", "0::/a", &["0::/a"], true);
    fake.process(101, "/usr/bin/kvm", "0::/a", &[], true);
    let (host, tree) = (fake.host(), Tree::of(&fake.host()));
    let all = host.vm_processes().unwrap();
    assert_eq!(all.iter().map(VmProcess::has_vcpus).collect::<Vec<_>>(), [true, false]);
    let groups = Groups::of(&tree, &host, &all);
    let place = |pid| groups.place(&tree, pid).unwrap();
    assert!(place(100).is_own && place(100).beside.is_empty());
    assert_eq!((place(101).is_own, place(101).beside), (false, BTreeSet::from([100])));
    let rivals = Rival::all(&tree, &groups, &BTreeSet::from([100]), false);
    let own: Vec<Option<u32>> = rivals.iter().map(|rival| rival.own).collect();
    assert_eq!(own, [None, Some(100)]);
    assert!(rivals.iter().all(|rival| rival.threads_of.is_empty()));
}

/// QEMU in another pod may have any name.
#[test]
fn a_vm_of_kubevirt_is_named_in_its_own_pod() {
    let fake = Fake::new();
    let id = id!("a");
    let group = POD.replace("cri-containerd-1", &format!("cri-containerd-{id}"));
    let group = group.replace("podaa", "pod0a0b0c0d_1111_2222_3333_444455556666");
    fake.process(100, "/usr/bin/kvm", &group, &[&group], true);
    fake.write("proc/100/cmdline", "/usr/bin/kvm\0-name\0guest=win_11\0");
    let vm = fake.host().vm_process(100).unwrap();
    assert!(vm.names.get(Kind::Kubevirt).is_some(), "nothing says which pod it is");
    for (pod, container, kubevirt) in [
        ("virt-launcher-11-x", "x", Some("win/11")),
        ("other", "compute", Some("win/11")),
        ("other", "qemu", None),
    ] {
        let labels = format!(
            r#"{{"annotations": {{"io.kubernetes.cri.sandbox-namespace": "win",
                 "io.kubernetes.cri.sandbox-name": "{pod}",
                 "io.kubernetes.cri.container-name": "{container}"}}}}"#
        );
        let dir = "proc/1/root/run/containerd/io.containerd.runtime.v2.task/k8s.io";
        fake.write(&format!("{dir}/{id}/config.json"), &labels);
        let vm = fake.host().vm_process(100).unwrap();
        let name = vm.names.get(Kind::Kubevirt).map(ToString::to_string);
        assert_eq!(name.as_deref(), kubevirt, "{pod}/{container}");
        assert_eq!(vm.names.has(b"11"), kubevirt.is_some(), "{pod}/{container}");
    }
}

/// libvirt escapes it, and another VM's name is not its.
#[test]
fn an_instance_of_openstack_has_its_users_name() {
    let fake = Fake::new();
    fake.process(100, "/usr/bin/qemu-system-x86_64", SCOPE, &[SCOPE], true);
    let line = |name: &str| format!("/usr/bin/qemu-system-x86_64\0-name\0guest={name}\0");
    let nova = || {
        let vm = fake.host().vm_process(100).unwrap();
        vm.names.get(Kind::Nova).map(ToString::to_string)
    };
    let xml = |name: &str| {
        format!("<domstatus><metadata><nova:name>{name}</nova:name></metadata></domstatus>")
    };
    fake.write("proc/100/cmdline", &line("instance-0000abcd"));
    assert_eq!(nova(), None);
    for (written, name) in [("a &amp;lt; b", "a &lt; b"), ("web", "web")] {
        fake.write("proc/1/root/run/libvirt/qemu/instance-0000abcd.xml", &xml(written));
        assert_eq!(nova().as_deref(), Some(name));
    }
    let vm = fake.host().vm_process(100).unwrap();
    assert_eq!(vm.title(), "instance-0000abcd");
    assert!(
        meant(b"nova:web", Some(&vm), None).is_some() && meant(b"web", Some(&vm), None).is_some()
    );
    // In a cgroup that is not libvirt's, any user may choose such a name.
    for (group, is_believed) in [
        ("0::/user.slice/user-1000.slice/session-2.scope".to_string(), false),
        (format!("0::/system.slice/docker-{}.scope", id!("d")), false),
        ("0::/vms".into(), true),
    ] {
        for file in ["100", "1000"] {
            fake.write(&format!("proc/{file}/cgroup"), &group);
        }
        assert_eq!(nova().is_some(), is_believed, "{group}");
    }
    fake.write("proc/1/root/run/libvirt/other.xml", &xml("db"));
    fake.write("proc/100/cmdline", &line("instance-/../../other"));
    assert_eq!(nova(), None);
}

/// Kata's runtime leaves the VMM in a cgroup of its own, and puts only the vCPUs into the pod's.
#[test]
fn a_vm_has_the_names_of_its_vcpus_cgroup() {
    let fake = Fake::new();
    let overhead = format!("0::/kata_overhead/{}", id!("a"));
    let pod = format!("0::/kubepods/burstable/pod{UID}/kata_{}", id!("a"));
    fake.process(100, "/opt/kata/bin/qemu-system-x86_64", &overhead, &[&pod], true);
    let vm = fake.host().vm_process(100).unwrap();
    assert!(vm.names.has_of(Kind::PodUid, UID.as_bytes()), "{vm:?}");
}

/// Anyone may give QEMU the name that Kata's runtime would give it.
#[test]
fn a_vm_does_not_have_the_name_of_anothers_container() {
    let fake = Fake::new();
    let (victim, own) = (id!("a"), id!("b"));
    let containerd = "proc/1/root/run/containerd/io.containerd.runtime.v2.task/k8s.io";
    for (id, namespace, pod, uid) in
        [(victim, "prod", "db-0", UID.replace("0a", "ff")), (own, "evil", "pod", UID.to_string())]
    {
        let labels = format!(
            r#"{{"annotations": {{"io.kubernetes.cri.sandbox-namespace": "{namespace}",
                 "io.kubernetes.cri.sandbox-name": "{pod}",
                 "io.kubernetes.cri.sandbox-uid": "{uid}"}}}}"#
        );
        fake.write(&format!("{containerd}/{id}/config.json"), &labels);
    }
    let docker = id!("d");
    let path = format!("proc/1/root/var/lib/docker/containers/{docker}/config.v2.json");
    fake.write(&path, r#"{"Name": "/postgres"}"#);
    let session = "/user.slice/user-1000.slice/session-2.scope";
    for (group, name, kind, found) in [
        (format!("/kubepods/pod{UID}/{own}"), victim, Kind::Pod, Some("evil/pod")),
        (format!("/kubepods/pod{UID}"), victim, Kind::Pod, None),
        (format!("/kubepods/pod{UID}"), own, Kind::Pod, Some("evil/pod")),
        (format!("/docker-{docker}.scope"), victim, Kind::Pod, None),
        (format!("/docker-{docker}.scope"), victim, Kind::Container, Some("postgres")),
        (session.into(), victim, Kind::Pod, None),
        (session.into(), docker, Kind::Container, None),
        ("/system.slice/containerd.service".into(), own, Kind::Pod, Some("evil/pod")),
    ] {
        fake.process(100, "/usr/bin/kvm", &format!("0::{group}"), &[], true);
        fake.write("proc/100/cmdline", &format!("/usr/bin/kvm\0-name\0sandbox-{name}\0"));
        let vm = fake.host().vm_process(100).unwrap();
        assert_eq!(vm.names.get(kind).map(ToString::to_string).as_deref(), found, "{group}");
        fs::remove_dir_all(fake.0.join("proc/100")).unwrap();
    }
}

/// Such as podman's with `--rm`, and those of docker's snap.
#[test]
fn a_container_in_another_record_has_its_name() {
    let fake = Fake::new();
    let (podman, docker) = (id!("a"), id!("b"));
    let root = "proc/1/root/var";
    let all = format!(r#"[{{"id": "{podman}", "names": ["short"]}}]"#);
    let list = "lib/containers/storage/overlay-containers/volatile-containers.json";
    fake.write(&format!("{root}/{list}"), &all);
    let snap = "snap/docker/common/var-lib-docker/containers";
    let config = r#"{"Name": "/snapped"}"#;
    fake.write(&format!("{root}/{snap}/{docker}/config.v2.json"), config);
    for (scope, name) in
        [(format!("libpod-{podman}.scope"), "short"), (format!("docker-{docker}.scope"), "snapped")]
    {
        fake.process(100, "/usr/bin/vmm", &format!("0::/{scope}"), &[], true);
        assert_eq!(fake.host().vm_process(100).unwrap().title(), name);
        fs::remove_dir_all(fake.0.join("proc/100")).unwrap();
    }
}

/// The kernel marks a cgroup that was removed in the same way.
#[test]
fn a_cgroup_whose_name_ends_like_the_mark_is_known() {
    let fake = Fake::new();
    for (path, weight) in [("vm", "100"), ("vm (deleted)", "300")] {
        fake.write(&format!("sys/fs/cgroup/{path}/cpu.weight"), weight);
    }
    let of = |path: &str| {
        fake.write("proc/7/cgroup", &format!("0::{path}\n"));
        Tree::of(&fake.host()).group(7).map(|group| group.path)
    };
    assert_eq!(of("/vm (deleted)").as_deref(), Ok("/vm (deleted)"));
    assert_eq!(of("/vm").as_deref(), Ok("/vm"));
    fs::remove_dir_all(fake.0.join("sys/fs/cgroup/vm (deleted)")).unwrap();
    assert_eq!(of("/vm (deleted)").as_deref(), Ok("/vm"));
}

const UID: &str = "0a0b0c0d-1111-2222-3333-444455556666";

/// Tables show a VM with its cgroup, and commands take both.
#[test]
fn a_cgroup_that_has_the_name_is_a_name() {
    let fake = Fake::new();
    let scope = r"machine-qemu\x2d3\x2dweb.scope";
    let docker = format!("docker-{}.scope", id!("d"));
    for (group, part, kind) in [
        (format!("/machine.slice/{scope}/libvirt/emulator"), scope, Kind::Libvirt),
        ("/qemu.slice/104.scope".into(), "104.scope", Kind::Vmid),
        (format!("/system.slice/{docker}"), &*docker, Kind::ContainerId),
    ] {
        let line = format!("0::{group}");
        fake.process(100, "/usr/bin/kvm", &line, &[&line], true);
        let vm = fake.host().vm_process(100).unwrap();
        let means = |text: &str| meant(text.as_bytes(), Some(&vm), None).is_some();
        let cut: String = part.chars().take(9).collect();
        for text in [part, &format!("vm100 ({part})"), &format!("vm100 ({cut}…")] {
            assert!(means(text), "{text}: {vm:?}");
        }
        assert!(vm.names.has_of(kind, part.as_bytes()) && !means(&format!("vm100 (x{part})")));
        fs::remove_dir_all(fake.0.join("proc/100")).unwrap();
    }
}

/// podman and docker of a user keep their records in the user's home directory.
#[test]
fn a_container_of_a_user_has_its_name() {
    let fake = Fake::new();
    fake.write("etc/passwd", "root:x:0:0::/root:\nalice:x:1000:1000::/home/alice:/bin/sh\n");
    let share = "proc/1/root/home/alice/.local/share";
    let (podman, docker) = (id!("a"), id!("b"));
    let all = format!(r#"[{{"id": "{podman}", "names": ["pod-web"]}}]"#);
    fake.write(&format!("{share}/containers/storage/overlay-containers/containers.json"), &all);
    let config = r#"{"Name": "/dock-web"}"#;
    fake.write(&format!("{share}/docker/containers/{docker}/config.v2.json"), config);
    let user = "user.slice/user-1000.slice/user@1000.service/user.slice";
    for (pid, scope, name) in [
        (100, format!("libpod-{podman}.scope/container"), "pod-web"),
        (101, format!("docker-{docker}.scope"), "dock-web"),
        (102, format!("docker-{podman}.scope"), "pod-web"),
    ] {
        fake.process(pid, "/usr/bin/vmm", &format!("0::/{user}/{scope}"), &[], true);
        let vm = fake.host().vm_process(pid).unwrap();
        assert_eq!(vm.name().unwrap().to_text(), name);
    }
    let long = format!("{config}{}", " ".repeat(1 << 18));
    fake.write(&format!("{share}/docker/containers/{docker}/config.v2.json"), &long);
    assert_eq!(fake.host().vm_process(101).unwrap().title(), &docker[..12], "too long for a user");
    fake.process(103, "/usr/bin/vmm", &format!("0::/docker-{docker}.scope"), &[], true);
    assert_eq!(fake.host().vm_process(103).unwrap().title(), &docker[..12], "of no user");
}

/// The remedy for a quota of this cgroup on a VM with this name.
fn remedy(group: &str, name: &str, uuid: &str) -> String {
    let fake = Fake::new();
    fake.write(&format!("sys/fs/cgroup/{group}/cpu.max"), "100000 100000\n");
    let line = format!("0::/{group}");
    fake.process(100, "/usr/bin/kvm", &line, &[&line], true);
    let args = format!("/usr/bin/kvm\0-name\0guest={name}\0-uuid\0{uuid}\0");
    fake.write("proc/100/cmdline", &args);
    let (host, tree) = (fake.host(), Tree::of(&fake.host()));
    let all = host.vm_processes().unwrap();
    let limits = Groups::of(&tree, &host, &all).limits(&tree, 100);
    limits[0].remedy(&all[0])
}

/// Commands that people copy. systemd's names of scopes lack characters of the VM's name, and the end of a long
/// one; any user may make a cgroup whose name is no unit's.
#[test]
fn a_remedy_names_the_vm_or_the_unit() {
    let uuid = "0a000000-0000-0000-0000-000000000001";
    for (name, scope, domain) in [
        ("web", "web", "web"),
        ("my_vm", "myvm", "my_vm"),
        ("a--b.", r"a\x2db", "a--b."),
        ("customer-production", r"customer\x2dprod", "customer-production"),
        ("my vm", "myvm", uuid),
        ("", "web", "web"),
    ] {
        let group = format!(r"machine.slice/machine-qemu\x2d1\x2d{scope}.scope");
        let expected = format!("virsh schedinfo {domain} --live --set global_quota=MICROSECONDS");
        assert_eq!(remedy(&group, name, uuid), expected, "{name}");
    }
    // SAFETY: it takes nothing and cannot fail.
    let own = format!("user@{}.service/vm.service", unsafe { libc::geteuid() });
    let inside = [
        r"lxc.payload.build/machine.slice/machine-qemu\x2d1\x2dweb.scope".to_string(),
        "lxc/101/ns/system.slice/vm.service".into(),
        "machine.slice/systemd-nspawn@c1.service/payload/system.slice/vm.service".into(),
        format!("system.slice/docker-{}.scope/system.slice/vm.service", id!("a")),
        r"machine.slice/machine-lxc\x2d1\x2da.scope/libvirt/vm.service".into(),
        "lxc.payload.build/user.slice/user@1.service/vm.service".into(),
    ];
    for group in inside {
        assert_eq!(remedy(&group, "web", uuid), format!("cpu.max of /{group}"));
    }
    let docker = format!("docker-{}.scope", id!("a"));
    for (group, expected) in [
        (&*docker, &*format!("docker update --cpus CPUS {}", &id!("a")[..12])),
        (
            concat!("machine.slice/libpod-", id!("b"), ".scope"),
            &*format!("podman update --cpus CPUS {}", &id!("b")[..12]),
        ),
        (concat!("docker/", id!("c")), &*format!("docker update --cpus CPUS {}", &id!("c")[..12])),
        (
            "nomad.slice/share.slice/0a0b.web.scope",
            "cpu.max of /nomad.slice/share.slice/0a0b.web.scope",
        ),
        ("nomad.slice", "cpu.max of /nomad.slice"),
        ("jobs.slice/share.slice/web.scope", "cpu.max of /jobs.slice/share.slice/web.scope"),
        ("a.slice/a-b.slice", "systemctl set-property a-b.slice CPUQuota=PERCENT"),
        ("a.slice/-x.service", "systemctl set-property -- -x.service CPUQuota=PERCENT"),
        (&*own, "systemctl --user set-property vm.service CPUQuota=PERCENT"),
        (
            r"machine.slice/machine-qemu\x2dci.scope",
            r"systemctl set-property 'machine-qemu\x2dci.scope' CPUQuota=PERCENT",
        ),
        (
            r"machine.slice/machine-qemu\x2d7.scope/libvirt/vcpu0",
            "virsh schedinfo web --live --set vcpu_quota=MICROSECONDS",
        ),
        (
            r"machine.slice/machine-ch\x2d2\x2ddb.scope/libvirt/vcpu0",
            "virsh -c ch:///system schedinfo db --live --set vcpu_quota=MICROSECONDS",
        ),
        ("kubepods.slice", "systemctl set-property kubepods.slice CPUQuota=PERCENT"),
        (
            "kubepods.slice/kubepods-besteffort.slice",
            "systemctl set-property kubepods-besteffort.slice CPUQuota=PERCENT",
        ),
        (
            "machine.slice/machine-c1.scope",
            "systemctl set-property machine-c1.scope CPUQuota=PERCENT",
        ),
        ("a.slice/vm@1.service", "systemctl set-property vm@1.service CPUQuota=PERCENT"),
        (r"a.slice/b\x2dc.scope", r"systemctl set-property 'b\x2dc.scope' CPUQuota=PERCENT"),
        ("a.slice/b;reboot;.scope", "cpu.max of /a.slice/b;reboot;.scope"),
    ] {
        assert_eq!(remedy(group, "web", uuid), expected);
    }
}

#[test]
fn owners_are_known_by_number_and_name() {
    let fake = Fake::new();
    fake.0.write(
        "etc/passwd",
        b"root:x:0:0:caf\xe9:/:/bin/sh\nlibvirt-qemu:x:64055:1::/:\nmallory:x:1234:1::/:\n",
    );
    let host = fake.host();
    for (uid, group, words, is_trusted) in [
        ("0", "0::/", "root (0)", true),
        ("64055", "0::/", "libvirt-qemu (64055)", true),
        ("1234", "0::/", "mallory (1234)", false),
        ("4321", "0::/", "4321", false),
        ("107", "0::/", "107", false),
        ("107", POD, "qemu (107)", true),
    ] {
        fake.write("proc/7/status", &format!("Name:\tx\nUid:\t1\t{uid}\t1\t1\n"));
        fake.write("proc/7/cgroup", group);
        let owner = host.owner(7).unwrap();
        assert_eq!((owner.to_string().as_str(), owner.is_trusted()), (words, is_trusted));
    }
    assert_eq!(host.owner(8), None);
    // In a container, what is beside its /hostproc is not the host's.
    fake.write("proc/1/root/etc/passwd", "eve:x:64055:1::/:\n");
    fake.write("proc/7/status", "Uid:\t1\t64055\t1\t1\n");
    let owner = fake.host().owner(7).unwrap();
    assert_eq!((owner.to_string().as_str(), owner.is_trusted()), ("eve (64055)", false));
}

#[test]
fn a_scheduler_in_bpf_is_told() {
    let fake = Fake::new();
    let host = fake.host();
    assert_eq!(host.sched_ext(), None, "a kernel without");
    fake.write("sys/kernel/sched_ext/state", "disabled\n");
    assert_eq!(host.sched_ext(), None);
    fake.write("sys/kernel/sched_ext/state", "enabled\n");
    fake.write("sys/kernel/sched_ext/root/ops", "lavd_1.0\n");
    fake.write("sys/kernel/sched_ext/switch_all", "1\n");
    let told = host.sched_ext().unwrap();
    assert!(told.all && told.to_string().contains("scheduler lavd_1.0 is enabled: weights"));
    fake.write("sys/kernel/sched_ext/switch_all", "0\n");
    assert!(!host.sched_ext().unwrap().all);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    /// For any cgroups of VMs, and any cgroups with the controller on.
    #[test]
    fn no_vm_is_at_two_places(
        on in prop::collection::vec(any::<bool>(), 15),
        vms in prop::collection::vec((0..15usize, 0..15usize), 1..6),
    ) {
        let fake = Fake::new();
        let path = |at: usize| -> String {
            let bits: Vec<String> = (0..4).filter(|bit| at >> bit > 0).map(|bit| format!("g{}", at >> bit & 1)).collect();
            bits.into_iter().rev().fold(String::new(), |all, part| all + "/" + &part)
        };
        for (at, on) in on.iter().enumerate().filter(|(at, _)| *at > 0) {
            let file = if *on { "cpu.weight" } else { "cgroup.procs" };
            fake.write(&format!("sys/fs/cgroup{}/{file}", path(at)), "100\n");
        }
        for (index, (main, vcpu)) in vms.iter().enumerate() {
            let of = |at: &usize| format!("0::{}", if *at == 0 { "/".into() } else { path(*at) });
            fake.process(100 + index as u32, "/usr/bin/kvm", &of(main), &[&of(vcpu), &of(main)], true);
        }
        let (host, tree) = (fake.host(), Tree::of(&fake.host()));
        let all = host.vm_processes().unwrap();
        let groups = Groups::of(&tree, &host, &all);
        let pids: BTreeSet<u32> = all.iter().map(|vm| vm.pid).collect();
        let rivals = Rival::all(&tree, &groups, &pids, true);
        let mut seen: Vec<u32> = rivals.iter().flat_map(|of| of.threads_of.iter().chain(&of.own)).copied().collect();
        seen.sort_unstable();
        prop_assert_eq!(&seen, &pids.iter().copied().collect::<Vec<_>>(), "each at one place");
        for rival in &rivals {
            prop_assert!(rival.own.is_none() || rival.threads_of.is_empty());
            let within = rival.within.map(|within| &rivals[within]);
            prop_assert!(within.is_none_or(|of| of.group.holds(&rival.group) && of.is_divided));
        }
        for pid in &pids {
            let place = groups.place(&tree, *pid).unwrap();
            let group = place.group.as_ref();
            prop_assert!(group.is_none_or(|group| tree.is_on(group)));
            prop_assert!(!place.is_own || place.beside.is_empty() && group.is_some());
            for other in &place.beside {
                prop_assert!(!groups.place(&tree, *other).unwrap().is_own || group != groups.place(&tree, *other).unwrap().group.as_ref());
            }
        }
    }
}
