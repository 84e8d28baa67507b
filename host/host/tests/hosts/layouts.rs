// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where VMs compete for CPU time, in the cgroup layouts of VM managers.

use crate::fake::Fake;
use std::collections::BTreeSet;
use std::fs;
use unspin_host::{tightest, Groups, Limited, Rival, Tree};

/// Layouts and the expected results. Each begins with its name.
///
/// * `let NAME TEXT`: `$NAME` stands for the text;
/// * `PATH = WEIGHT | FILE TEXT | …`: a directory below /sys/fs/cgroup, and its files; `, ` stands for a newline. With
///   a weight or `none`, it competes beside the first VM or around it, upper levels first;
/// * `vm PID | LINES | …`: a VM, and the lines of /proc/TID/cgroup of its VMM and of each vCPU;
/// * `own PATH WEIGHT`: the cgroup with whose weight it competes, if it belongs to the VM alone;
/// * `in PATH WEIGHT beside PIDS`: the same of another cgroup, and the other VMs there; `root`: the host's root cgroup;
/// * `quota CPUS WHOSE PATH`: all quotas, outer ones first, whose is `vm`, `vcpu N` or `others`;
/// * `limit CPUS REMEDY`: the CPUs that all its vCPUs together may use, and how to raise them;
/// * `helper PID | LINES`: another process.
const LAYOUTS: &str = r"
== Proxmox with swtpm
/qemu.slice = 100 | cpu.weight 100
/qemu.slice/100.scope = 100 | cpu.weight 100 | cpu.max 200000 100000 | cgroup.procs 100, 2002
/qemu.slice/101.scope = 200 | cpu.weight 200 | cgroup.procs 101
/system.slice = 100 | cpu.weight 100 | cgroup.events populated 1
vm 100 | 0::/qemu.slice/100.scope | 0::/qemu.slice/100.scope | 0::/qemu.slice/100.scope
own /qemu.slice/100.scope 100
quota 2 vm /qemu.slice/100.scope
limit 2 qm set 100 --cpulimit CPUS
vm 101 | 0::/qemu.slice/101.scope | 0::/qemu.slice/101.scope
own /qemu.slice/101.scope 200
helper 2002 | 0::/qemu.slice/100.scope
== libvirt with quotas of vCPUs, emulator and an I/O thread
let scope /machine.slice/machine-qemu\x2d1\x2dweb.scope
/machine.slice = 100 | cpu.weight 100
$scope = 300 | cpu.weight 300
$scope/libvirt | cpu.weight 100
$scope/libvirt/emulator | cpu.weight 100 | cpu.max 20000 100000
$scope/libvirt/vcpu0 | cpu.weight 100 | cpu.max 50000 100000
$scope/libvirt/vcpu1 | cpu.weight 100 | cpu.max 40000 100000
vm 100 | 0::$scope/libvirt/emulator | 0::$scope/libvirt/vcpu0 | 0::$scope/libvirt/vcpu1
own $scope 300
quota 0.2 others $scope/libvirt/emulator
quota 0.5 vcpu 0 $scope/libvirt/vcpu0
quota 0.4 vcpu 1 $scope/libvirt/vcpu1
limit 0.9 virsh schedinfo web --live --set vcpu_quota=MICROSECONDS
helper 2002 | 0::$scope/libvirt/emulator
== OpenStack: a quota of the whole of one vCPU
let scope /machine.slice/machine-qemu\x2d7\x2dinstance\x2d0000abcd.scope
/machine.slice = 100 | cpu.weight 100
$scope = 100 | cpu.weight 100 | cpu.max 150000 100000
$scope/libvirt/vcpu0 | cpu.weight 100
vm 100 | 0::$scope/libvirt/vcpu0 | 0::$scope/libvirt/vcpu0
own $scope 100
quota 1.5 vm $scope
limit 1.5 virsh schedinfo instance-0000abcd --live --set global_quota=MICROSECONDS
== KubeVirt with virt-launcher, quotas at two levels
let pod /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa.slice
/kubepods.slice = 500 | cpu.weight 500
/kubepods.slice/kubepods-burstable.slice = 400 | cpu.weight 400
$pod = 79 | cpu.weight 79 | cpu.max 300000 100000
$pod/cri-containerd-1.scope = 39 | cpu.weight 39 | cpu.max 150000 100000
$pod/cri-containerd-2.scope = 1 | cpu.weight 1 | cgroup.events populated 1, frozen 0
vm 100 | 0::$pod/cri-containerd-1.scope | 0::$pod/cri-containerd-1.scope | 0::$pod/cri-containerd-1.scope
own $pod/cri-containerd-1.scope 39
quota 3 vm $pod
quota 1.5 vm $pod/cri-containerd-1.scope
limit 1.5 limits.cpu of its pod
helper 2001 | 0::$pod/cri-containerd-1.scope
helper 2002 | 0::$pod/cri-containerd-1.scope
== Incus, all in one service
/system.slice = 100 | cpu.weight 100
/system.slice/incus.service = 100 | cpu.weight 100 | cpu.max 400000 100000
vm 100 | 0::/system.slice/incus.service | 0::/system.slice/incus.service
in /system.slice/incus.service 100 beside 101
quota 4 vm /system.slice/incus.service
limit 4 systemctl set-property incus.service CPUQuota=PERCENT
vm 101 | 0::/system.slice/incus.service | 0::/system.slice/incus.service
in /system.slice/incus.service 100 beside 100
quota 4 vm /system.slice/incus.service
limit 4 systemctl set-property incus.service CPUQuota=PERCENT
helper 2001 | 0::/system.slice/incus.service
== Firecracker under one runner, one with a leaf of its own
/system.slice = 100 | cpu.weight 100
/system.slice/runner.service = 100 | cpu.weight 100
/system.slice/runner.service/a = 50 | cpu.weight 50
/system.slice/runner.service/b | cpu.max max 100000
vm 100 | 0::/system.slice/runner.service/a | 0::/system.slice/runner.service/a
own /system.slice/runner.service/a 50
vm 101 | 0::/system.slice/runner.service/b | 0::/system.slice/runner.service/b
in /system.slice/runner.service 100 beside 100
== Firecracker's jailer
/firecracker = 100 | cpu.weight 100
/firecracker/id1 = 10 | cpu.weight 10 | cpu.max 25000 50000
/firecracker/id2 = 20 | cpu.weight 20
vm 100 | 0::/firecracker/id1 | 0::/firecracker/id1
own /firecracker/id1 10
quota 0.5 vm /firecracker/id1
limit 0.5 cpu.max of /firecracker/id1
vm 101 | 0::/firecracker/id2 | 0::/firecracker/id2
own /firecracker/id2 20
== jails that are named like libvirt's cgroups of vCPUs
/firecracker = 100 | cpu.weight 100
/firecracker/vcpu2 = 300 | cpu.weight 300 | cpu.max 200000 100000
/firecracker/vcpu4 = 100 | cpu.weight 100
vm 100 | 0::/firecracker/vcpu2 | 0::/firecracker/vcpu2 | 0::/firecracker/vcpu2
own /firecracker/vcpu2 300
quota 2 vm /firecracker/vcpu2
limit 2 cpu.max of /firecracker/vcpu2
vm 101 | 0::/firecracker/vcpu4 | 0::/firecracker/vcpu4
own /firecracker/vcpu4 100
== a service without the cpu controller
/system.slice = 100 | cpu.weight 100
/system.slice/vm1.service | cgroup.procs 100
/system.slice/cron.service | cgroup.procs 2001
vm 100 | 0::/system.slice/vm1.service | 0::/system.slice/vm1.service | 0::/system.slice/vm1.service
in /system.slice 100
helper 2001 | 0::/system.slice/cron.service
== a session of a user
let user /user.slice/user-61234.slice
/user.slice = 100 | cpu.weight 100
$user = 100 | cpu.weight 100
$user/user@61234.service = 100 | cpu.weight 100
$user/user@61234.service/app.slice = 100 | cpu.weight 100
$user/user@61234.service/app.slice/vm.scope = 70 | cpu.weight 70 | cpu.max 100000 100000
$user/session-2.scope | cpu.max max 100000
vm 100 | 0::$user/user@61234.service/app.slice/vm.scope | 0::$user/user@61234.service/app.slice/vm.scope
own $user/user@61234.service/app.slice/vm.scope 70
quota 1 vm $user/user@61234.service/app.slice/vm.scope
limit 1 systemctl --user --machine=61234@ set-property vm.scope CPUQuota=PERCENT
vm 101 | 0::$user/session-2.scope | 0::$user/session-2.scope
in $user 100 beside 100
helper 2001 | 0::$user/session-2.scope
== sessions with the cpu controller, one with a VM in a cgroup of its own
let user /user.slice/user-1000.slice
/user.slice = 100 | cpu.weight 100
$user = 100 | cpu.weight 100
$user/session-2.scope = 100 | cpu.weight 100
$user/session-3.scope = 100 | cpu.weight 100
$user/session-3.scope/web | cpu.weight 40
vm 100 | 0::$user/session-2.scope | 0::$user/session-2.scope
in $user/session-2.scope 100
vm 101 | 0::$user/session-3.scope/web | 0::$user/session-3.scope/web
own $user/session-3.scope/web 40
helper 2001 | 0::$user/session-2.scope
== units of a user that are named user, one with a VM in a cgroup of its own
let units /user.slice/user-61234.slice/user@61234.service
/user.slice = 100 | cpu.weight 100
/user.slice/user-61234.slice = 100 | cpu.weight 100
$units = 100 | cpu.weight 100
$units/app.slice = 100 | cpu.weight 100 | cgroup.events populated 1
$units/user.slice = 80 | cpu.weight 80 | cpu.max 150000 100000
$units/user.slice/web = 40 | cpu.weight 40
vm 100 | 0::$units/user.slice/web | 0::$units/user.slice/web
own $units/user.slice/web 40
quota 1.5 vm $units/user.slice
limit 1.5 systemctl --user --machine=61234@ set-property user.slice CPUQuota=PERCENT
== a pod in a container that is a node (kind), the only VM of the node
let node /docker-a0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde.scope
let pods $node/kubelet/kubelet-kubepods.slice
let id b0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde
$node = 100 | cpu.weight 100
$node/init.scope = 100 | cpu.weight 100 | cgroup.events populated 1
$node/kubelet = 100 | cpu.weight 100
$pods = 500 | cpu.weight 500
$pods/$id = 39 | cpu.weight 39 | cpu.max 50000 20000
vm 100 | 0::$pods/$id | 0::$pods/$id
own $pods/$id 39
quota 2.5 vm $pods/$id
limit 2.5 limits.cpu of its pod
== version 1, libvirt without systemd
let vm /machine/qemu-1-web.libvirt-qemu
/cpu,cpuacct/machine = 100 | cpu.shares 1024
/cpu,cpuacct$vm = 200 | cpu.shares 2048
/cpu,cpuacct | cpu.shares 1024
/cpu,cpuacct$vm/vcpu0 | cpu.shares 1024 | cpu.cfs_quota_us 25000 | cpu.cfs_period_us 100000
/cpu,cpuacct$vm/emulator | cpu.shares 1024 | cpu.cfs_quota_us -1 | cpu.cfs_period_us 100000
vm 100 | 4:cpu,cpuacct:$vm/emulator | 4:cpu,cpuacct:$vm/vcpu0
own $vm 200
quota 0.25 vm $vm/vcpu0
limit 0.25 virsh schedinfo web --live --set vcpu_quota=MICROSECONDS
== version 1, mounted as cpuacct,cpu
/cpuacct,cpu/vms = 50 | cpu.shares 512 | cpu.cfs_quota_us 300000 | cpu.cfs_period_us 100000
/cpuacct,cpu | cpu.shares 1024
vm 100 | 3:cpuacct,cpu:/vms | 3:cpuacct,cpu:/vms
own /vms 50
quota 3 vm /vms
limit 3 cpu.cfs_quota_us of /vms
== hybrid, the controller in version 1
/cpu/vms = 50 | cpu.shares 512 | cpu.cfs_quota_us 300000 | cpu.cfs_period_us 100000
/cpu | cpu.shares 1024
/unified/system.slice/vm.service | cgroup.procs 100
vm 100 | 3:cpu:/vms, 1:name=systemd:/s, 0::/system.slice/vm.service | 3:cpu:/vms, 0::/system.slice/vm.service
own /vms 50
quota 3 vm /vms
limit 3 cpu.cfs_quota_us of /vms
== hybrid, the controller in version 2
/unified/system.slice = none
/unified/system.slice/vm.service = 30 | cpu.weight 30
vm 100 | 1:name=systemd:/s, 0::/system.slice/vm.service | 0::/system.slice/vm.service
own /system.slice/vm.service 30
== a quota within one of a group of vCPUs
/vm = 100 | cpu.weight 100
/vm/n0 | cpu.max 100000 100000
/vm/n0/v0 | cpu.max 20000 100000
vm 100 | 0::/vm | 0::/vm/n0/v0 | 0::/vm/n0/v1 | 0::/vm | 0::/vm
own /vm 100
quota 1 vcpu 0,1 /vm/n0
quota 0.2 vcpu 0 /vm/n0/v0
limit 3 cpu.max of /vm/n0
== quotas of vCPUs within that of the VM
/vm = 100 | cpu.weight 100 | cpu.max 200000 100000
/vm/v0 | cpu.max 25000 100000
/vm/v1 | cpu.max 50000 100000
vm 100 | 0::/vm | 0::/vm/v0 | 0::/vm/v1
own /vm 100
quota 2 vm /vm
quota 0.25 vcpu 0 /vm/v0
quota 0.5 vcpu 1 /vm/v1
limit 0.75 cpu.max of /vm/v0
== no cgroup at all
/ | cgroup.procs 100
vm 100 | 0::/ | 0::/
in root
";

/// A VM, and the expected results.
struct Vm {
    pid: u32,
    /// Of the VMM, then of each vCPU.
    groups: Vec<String>,
    place: Option<(String, f64)>,
    is_own: bool,
    beside: BTreeSet<u32>,
    quotas: Vec<(String, f64, String)>,
    limit: Option<(f64, String)>,
}

impl Vm {
    fn read(text: &str) -> Vm {
        let mut parts = text.split(" | ").map(|lines| lines.replace(", ", "\n"));
        Vm {
            pid: parts.next().unwrap().parse().unwrap(),
            groups: parts.collect(),
            place: None,
            is_own: false,
            beside: BTreeSet::new(),
            quotas: Vec::new(),
            limit: None,
        }
    }

    fn add(&mut self, word: &str, rest: &str) {
        let number = |text: &str| text.parse::<f64>().unwrap();
        let (first, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "own" | "in" => {
                let (weight, beside) = rest.split_once(" beside ").unwrap_or((rest, ""));
                self.place = (first != "root").then(|| (first.to_string(), number(weight)));
                self.is_own = word == "own";
                self.beside =
                    beside.split_terminator(',').map(|pid| pid.parse().unwrap()).collect();
            }
            "quota" => {
                let (of, path) = rest.rsplit_once(' ').unwrap();
                self.quotas.push((path.to_string(), number(first), of.to_string()));
            }
            "limit" => self.limit = Some((number(first), rest.to_string())),
            _ => panic!("{word} {first} {rest}"),
        }
    }

    fn start(&self, fake: &Fake) {
        let vcpus: Vec<&str> = self.groups[1..].iter().map(String::as_str).collect();
        fake.placed(self.pid, &self.groups[0], &vcpus);
    }
}

#[derive(Default)]
struct Layout {
    name: String,
    files: Vec<(String, String)>,
    vms: Vec<Vm>,
    helpers: Vec<(u32, String)>,
    rivals: Vec<(String, Option<f64>)>,
}

impl Layout {
    fn read(text: &str) -> Layout {
        let (name, lines) = text.split_once('\n').unwrap();
        let mut all = Layout { name: name.to_string(), ..Layout::default() };
        all.rivals.push(("/".to_string(), None));
        let mut short: Vec<(String, String)> = Vec::new();
        for line in lines.lines() {
            let line = short.iter().fold(line.to_string(), |line, (of, is)| line.replace(of, is));
            let (word, rest) = line.split_once(' ').unwrap();
            match word {
                "let" => {
                    let (name, is) = rest.split_once(' ').unwrap();
                    short.push((format!("${name}"), is.to_string()));
                }
                "vm" => all.vms.push(Vm::read(rest)),
                "helper" => {
                    let (pid, group) = rest.split_once(" | ").unwrap();
                    all.helpers.push((pid.parse().unwrap(), group.to_string()));
                }
                _ if word.starts_with('/') => all.add_group(&line),
                _ => all.vms.last_mut().unwrap().add(word, rest),
            }
        }
        all
    }

    fn add_group(&mut self, line: &str) {
        let mut parts = line.split(" | ");
        let first = parts.next().unwrap();
        let (path, weight) = first.split_once(" = ").unwrap_or((first, ""));
        for part in parts {
            let (file, text) = part.split_once(' ').unwrap();
            self.files.push((format!("sys/fs/cgroup{path}/{file}"), text.replace(", ", "\n")));
        }
        if !weight.is_empty() {
            let hierarchies = ["/cpu,cpuacct/", "/cpuacct,cpu/", "/cpu/", "/unified/", "/"];
            let path = hierarchies.iter().find_map(|root| path.strip_prefix(root)).unwrap();
            self.rivals.push((format!("/{path}"), weight.parse().ok()));
        }
    }
}

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
fn check(name: &str, fake: &Fake, vms: &[Vm]) -> (Tree, Groups) {
    let (tree, groups, all) = fake.groups();
    assert_eq!(all.len(), vms.len(), "{name}: VMs");
    for (vm, process) in vms.iter().zip(&all) {
        let name = format!("{name}, VM {}", vm.pid);
        let place = groups.place(&tree, process.pid).unwrap();
        let found = place.group.as_ref().map(|group| {
            assert!(group.holds(&tree.group(vm.pid * 10).unwrap()), "{name}: it is elsewhere");
            (group.path.clone(), tree.weight(group).unwrap())
        });
        assert_eq!(found, vm.place, "{name}");
        assert_eq!(place.is_own, vm.is_own, "{name}: own");
        assert_eq!(place.beside, vm.beside, "{name}");
        let limits = groups.limits(&tree, process.pid);
        let quotas: Vec<(String, f64, String)> = limits
            .iter()
            .map(|limit| (limit.group.path.clone(), limit.cpus, written(&limit.of)))
            .collect();
        assert_eq!(quotas, vm.quotas, "{name}: quotas");
        let limit = tightest(&limits, process.vcpus.len());
        let cpus = vm.limit.as_ref().map(|(cpus, _)| *cpus);
        assert_eq!(limit.map(|(_, cpus)| cpus), cpus, "{name}");
        if let (Some((limit, _)), Some((_, remedy))) = (limit, &vm.limit) {
            let is = limit.remedy(process);
            assert!(is.starts_with(remedy), "{name}: {is}");
        }
    }
    (tree, groups)
}

#[test]
fn vms_compete_where_their_managers_put_them() {
    for layout in LAYOUTS.split("== ").skip(1).map(Layout::read) {
        let fake = Fake::new();
        for (path, text) in &layout.files {
            fake.line(path, text);
        }
        for vm in &layout.vms {
            vm.start(&fake);
            for line in vm.groups.iter().flat_map(|text| text.lines()) {
                let (_, path) = line.rsplit_once(':').unwrap();
                for root in ["", "/unified"].iter().filter(|_| line.starts_with("0::")) {
                    let root = format!("sys/fs/cgroup{root}");
                    if fake.join(&root).is_dir() {
                        fake.dir(root + path);
                    }
                }
            }
        }
        for (pid, group) in &layout.helpers {
            fake.process(*pid, &[b"/usr/bin/swtpm"], "/dev/null", &[(*pid, "main")]);
            fake.proc(&format!("{pid}/cgroup"), group);
        }
        let (tree, groups) = check(&layout.name, &fake, &layout.vms);
        let first = BTreeSet::from([layout.vms[0].pid]);
        let rivals = Rival::all(&tree, &groups, &first, false);
        let found: Vec<(String, Option<f64>)> =
            rivals.into_iter().map(|rival| (rival.group.path, rival.weight)).collect();
        assert_eq!(found, layout.rivals, "{}: rivals", layout.name);
    }
}

const NAMESPACE: &str = "a container
vm 100 | 0::/../../pod2/vm | 0::/../../pod2/vm
own /kubepods/pod2/vm 39
quota 8 vm /kubepods
limit 8 cpu.max of /kubepods
vm 101 | 0::/../../../system.slice/vm1.service | 0::/../../../system.slice/vm1.service
in /system.slice 100
";

/// A container that sees the host's processes and has a cgroup namespace of its own.
#[test]
fn from_within_a_namespace_the_hosts_tree_is_read() {
    let vms = Layout::read(NAMESPACE).vms;
    let fake = Fake::new();
    fs::remove_dir_all(fake.join("sys/fs/cgroup")).unwrap();
    fake.proc("1/cgroup", "0::/../../../init.scope\n");
    for (path, text) in [
        ("kubepods/pod2/vm/cpu.weight", "39"),
        ("kubepods/pod2/cpu.weight", "100"),
        ("kubepods/cpu.weight", "100"),
        ("kubepods/cpu.max", "800000 100000"),
        ("kubepods/pod1/own/cgroup.procs", "1"),
        ("system.slice/cpu.weight", "100"),
        ("system.slice/vm1.service/cgroup.procs", "101"),
    ] {
        fake.write(format!("outer/sys/fs/cgroup/{path}"), text);
    }
    vms.iter().for_each(|vm| vm.start(&fake));
    let outer = fake.text("outer/sys/fs/cgroup");
    fake.link("sys/fs/cgroup", &format!("{outer}/kubepods/pod1/own"));
    let (tree, blind, _) = fake.groups();
    let why = tree.group(100).unwrap_err();
    assert!(why.contains("is not in the tree that is seen here"), "{why}");
    assert_eq!(blind.place(&tree, 100).unwrap_err(), why, "unknown, and not the root");
    fake.link("proc/1/root", &fake.text("outer"));
    check("namespace", &fake, &vms);
    let own = format!("7\n{}\n", std::process::id());
    fake.write("outer/sys/fs/cgroup/kubepods/pod1/own/cgroup.procs", own);
    fs::remove_file(fake.join("sys/fs/cgroup")).unwrap();
    fake.link("sys/fs/cgroup", &outer);
    check("the host's /sys in a namespace", &fake, &vms);
}
