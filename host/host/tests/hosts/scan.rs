// SPDX-License-Identifier: MIT OR Apache-2.0
//! What processes and threads are found: on hosts made of files, and on this computer with a VM under QEMU.

use crate::fake::{vcpus, Fake, VM};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use unspin_host::{Host, Monitor, Vcpu, VmProcess};
use unspin_scratch::Killed;

const UUID: &[u8] = b"C7A5FDB2-cdaf-9455-926a-d65c16db1809";

#[test]
fn cpus_that_are_offline_are_of_no_use() {
    let fake = Fake::new();
    fake.proc("7/status", b"Name:\tx\nCpus_allowed_list:\t0-3\n");
    let host = fake.host();
    assert_eq!(host.usable_cpus(7), host.allowed_cpus(7), "nobody says which are online");
    fake.proc("stat", b"cpu  1 2\ncpu0 1 2\ncpu2 3 4\nintr 5\n");
    assert_eq!(host.usable_cpus(7).into_iter().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(host.allowed_cpus(7).len(), 4);
}

#[test]
fn vms_are_found_with_names_and_vcpus() {
    let fake = Fake::new();
    let libvirt: &[&[u8]] =
        &[b"/usr/bin/qemu-system-x86_64", b"-name", b"guest=web,,1,debug-threads=on", b"-S"];
    let threads =
        [(300, "qemu-system-x86"), (312, "CPU 10/KVM"), (311, "CPU 2/KVM"), (309, "IO mon")];
    fake.process(300, &[libvirt, &[b"-uuid", UUID]].concat(), VM, &threads);
    fake.process(40, &[b"/opt/vmm", b"-name", b"no"], VM, &[(40, "CPU 0/KVM")]);
    let fire: &[&[u8]] = &[b"firecracker", b"--id", b"db1"];
    fake.process(41, fire, VM, &[(41, "firecracker"), (44, "fc_vcpu 0")]);
    fake.process(42, &[b"/usr/bin/qemu-system-x86_64", b"-name", b"off"], "anon_inode:x", &[]);
    let host = fake.host();
    let all = host.vm_processes().unwrap();
    assert_eq!(all.iter().map(|p| p.pid).collect::<Vec<_>>(), [40, 41, 300]);
    assert_eq!(all[0].name(), None, "whose option -name means something else");
    assert_eq!(all[0].vcpus, [Vcpu { index: 0, tid: 40 }]);
    assert_eq!(
        (all[1].monitor, all[1].name().unwrap().as_bytes()),
        (Monitor::Firecracker, &b"db1"[..])
    );
    assert_eq!(all[1].vcpus, [Vcpu { index: 0, tid: 44 }]);
    let web = &all[2];
    assert_eq!(web.name().unwrap().as_bytes(), b"web,1");
    assert_eq!(web.uuid().as_deref(), Some("c7a5fdb2-cdaf-9455-926a-d65c16db1809"));
    assert_eq!(web.vcpus, [Vcpu { index: 2, tid: 311 }, Vcpu { index: 10, tid: 312 }]);
    assert_eq!(host.threads(300), [300, 309, 311, 312]);
    assert!(host.threads(7).is_empty(), "there is none");
    // A thread of the process created the VM.
    for id in ["300-0", "309-3"] {
        assert_eq!(host.of_module_id(id).as_ref(), Some(web), "{id}");
    }
    for id in ["42-0", "7-0", "x-0", "", "300", "-300-0"] {
        assert_eq!(host.of_module_id(id), None, "{id}");
    }
}

/// The kernel cuts names within a character, and does not show where a file with a very long path is.
#[test]
fn a_vm_is_seen_beside_what_cannot_be_read() {
    let fake = Fake::new();
    fake.process(10, &[b"/usr/bin/kvm", b"-name", b"web"], VM, &[(10, "x"), (12, "CPU 0/KVM")]);
    fake.proc("10/fd/3", b"no link");
    let name = b"qemu:\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\xe6";
    let fields = b") S 1 1 1 0 -1 0 0 0 0 0 3 4 0 0 20 -7 2 0 77 0\n";
    fake.proc("10/stat", [b"10 (", name.as_slice(), fields].concat());
    let status = b"\nTgid:\t10\nUid:\t1\t7\t1\t1\nCpus_allowed_list:\t0-1\n";
    fake.proc("10/status", [b"Name:\t", name.as_slice(), status].concat());
    fake.proc("10/cgroup", b"9:memory:/\xff\n4:cpu:/vms\n");
    let host = fake.host();
    let vm = host.vm_process(10).unwrap();
    assert_eq!((vm.title(), vm.vcpu_count), ("web", 1));
    assert_eq!((host.start_time(10), host.nice(10)), (Some(77), Some(-7)));
    assert!(host.cpu_time_ns(10).is_some());
    assert_eq!(host.allowed_cpus(10).len(), 2);
    assert_eq!(host.owner(10).unwrap().uid, 7);
    assert_eq!(host.cgroup(10).unwrap().path, "/vms");
}

/// Then /proc shows neither files nor a command line for the process, only for its other threads.
#[test]
fn a_vm_is_found_after_its_first_thread_has_ended() {
    let fake = Fake::new();
    fake.dir("proc/10/fd");
    fake.proc("10/cmdline", b"");
    for (tid, comm) in [(10, "main"), (12, "CPU 0/KVM"), (13, "worker")] {
        fake.thread(10, tid, comm);
        fake.dir(format!("proc/10/task/{tid}/fd"));
    }
    let host = fake.host();
    assert_eq!(host.vm_process(10), None, "no thread shows files");
    fake.proc("10/task/12/cmdline", b"/usr/bin/kvm\0-name\0web\0");
    fake.link("proc/10/task/12/fd/9", VM);
    fake.link("proc/10/task/12/fd/20", "anon_inode:kvm-vcpu:0");
    fake.link("proc/10/task/12/fd/21", "anon_inode:kvm-vcpu:1");
    fake.proc("10/task/13/syscall", b"16 0x15 0xae80 0x0\n");
    let vm = host.vm_process(10).unwrap();
    assert_eq!((vm.title(), vm.monitor), ("web", Monitor::Qemu));
    assert_eq!(vm.vcpus, [Vcpu { index: 0, tid: 12 }, Vcpu { index: 1, tid: 13 }]);
    assert_eq!(host.vm_process(13).as_ref(), Some(&vm), "by a thread");
}

/// A thread waits within KVM_RUN of the vCPU with this descriptor.
fn runs(fake: &Fake, pid: u32, tid: u32, fd: u32) {
    fake.proc(&format!("{pid}/task/{tid}/syscall"), format!("16 {fd:#x} 0xae80 0x0\n"));
}

/// Old kernels do not number descriptors. A process whose threads are named as vCPUs has only as many as
/// KVM reports.
#[test]
fn vcpus_are_those_that_kvm_has() {
    let fake = Fake::new();
    let of = |pid: u32| {
        let vm = fake.host().vm_process(pid)?;
        Some((vm.vcpu_count, vcpus(&vm), vm.is_all_known()))
    };
    let qemu: &[&[u8]] = &[b"/usr/bin/qemu-system-x86_64"];
    let call = |pid: u32, tid: u32, fd: u32| runs(&fake, pid, tid, fd);
    fake.process(10, qemu, VM, &[(10, "kvm"), (12, "kvm"), (11, "kvm")]);
    fake.descriptor(10, 20, "anon_inode:kvm-vcpu");
    fake.descriptor(10, 21, "anon_inode:kvm-vcpu");
    call(10, 12, 20);
    assert_eq!(of(10), Some((2, vec![(0, 12)], false)));
    call(10, 11, 21);
    assert_eq!(of(10), Some((2, vec![(0, 11), (1, 12)], true)));
    // A descriptor that is not of a vCPU, and one that was closed.
    call(10, 10, 9);
    call(10, 12, 77);
    assert_eq!(of(10), Some((2, vec![(0, 11)], false)));
    let imitates: &[(u32, &str)] = &[(30, "CPU 7/KVM"), (31, "CPU 1/KVM"), (32, "CPU 0/KVMX")];
    fake.process(30, qemu, VM, imitates);
    fake.descriptor(30, 20, "anon_inode:kvm-vcpu:0");
    fake.descriptor(30, 21, "anon_inode:kvm-vcpu:1");
    assert_eq!(of(30), Some((1, vec![(1, 31)], true)));
    call(30, 30, 20);
    assert_eq!(of(30), Some((2, vec![(0, 30), (1, 31)], true)));
    // 2 sockets of 3 cores: the second begins with APIC 4.
    let names: Vec<String> = (0..6).map(|n| format!("CPU {n}/KVM")).collect();
    let threads: Vec<(u32, &str)> =
        names.iter().zip(51..).map(|(name, tid)| (tid, name.as_str())).collect();
    fake.process(50, qemu, VM, &[&[(50, "qemu")], &threads[..]].concat());
    for (fd, apic) in [0, 1, 2, 4, 5, 6].iter().enumerate() {
        fake.descriptor(50, 20 + fd as u32, &format!("anon_inode:kvm-vcpu:{apic}"));
    }
    assert_eq!(of(50), Some((6, (0..6).zip(51..).collect(), true)));
    for (pid, numbers, apics) in [
        // The third of 3 sockets of 3 cores has its last vCPU only.
        (60, &[0, 1, 2, 3, 4, 5, 6, 8][..], &[0, 1, 2, 4, 5, 6, 8, 10][..]),
        // The second of 2 sockets of 3 cores has its last two.
        (70, &[0, 1, 2, 4, 5], &[0, 1, 2, 5, 6]),
        // One was removed from the VM.
        (80, &[0, 1, 2, 3, 4], &[0, 1, 2, 4, 5, 6]),
    ] {
        fake.process(pid, qemu, VM, &[(pid, "qemu")]);
        for (at, number) in (1..).zip(numbers) {
            fake.thread(pid, pid + at, &format!("CPU {number}/KVM"));
            call(pid, pid + at, 20 + at);
        }
        for (at, apic) in (1..).zip(apics) {
            fake.descriptor(pid, 20 + at, &format!("anon_inode:kvm-vcpu:{apic}"));
        }
        let all: Vec<(u32, u32)> = numbers.iter().copied().zip(pid + 1..).collect();
        assert_eq!(of(pid), Some((numbers.len(), all, true)), "{apics:?}");
    }
    // One that runs the vCPU whose name another thread has.
    fake.process(90, qemu, VM, &[(91, "CPU 0/KVM"), (92, "CPU 9/KVM"), (93, "x")]);
    for (fd, apic) in [(20, 0), (21, 1), (22, 4)] {
        fake.descriptor(90, fd, &format!("anon_inode:kvm-vcpu:{apic}"));
    }
    call(90, 93, 20);
    assert_eq!(of(90), Some((2, vec![(0, 91), (1, 93)], true)));
    fake.process(40, qemu, "anon_inode:kvm-vm-stats", &[(40, "CPU 0/KVM")]);
    fake.descriptor(40, 20, "anon_inode:kvm-vcpu-stats:0");
    assert_eq!(of(40), None, "it holds no VM");
}

/// Any thread may have the name of a vCPU's thread, and some guest time.
#[test]
fn there_are_no_more_vcpus_than_kvm_has() {
    let fake = Fake::new();
    let of = |pid: u32| {
        let vm = fake.host().vm_process(pid).unwrap();
        (vm.vcpu_count, vcpus(&vm))
    };
    let begin = |pid: u32, vcpus: &[u32], comm: &str, threads: u32| {
        let threads: Vec<(u32, &str)> = (pid..pid + threads).map(|tid| (tid, comm)).collect();
        fake.process(pid, &[b"/opt/vmm"], VM, &threads);
        for (fd, vcpu) in (20..).zip(vcpus) {
            fake.descriptor(pid, fd, &format!("anon_inode:kvm-vcpu:{vcpu}"));
        }
    };
    let runs = |pid: u32, tid: u32, fd: u32| runs(&fake, pid, tid, fd);
    let has_ticks = |pid: u32, tid: u32| {
        let stat = format!("{tid} (x) S {}7 0 0\n", "0 ".repeat(39));
        fake.proc(&format!("{pid}/task/{tid}/stat"), stat);
    };
    begin(100, &[0, 1, 2, 3], "exe", 13);
    (101..113).for_each(|tid| has_ticks(100, tid));
    assert_eq!(of(100), (4, vec![]), "12 threads take turns");
    let takes_turns = |pid: u32| fake.host().vm_process(pid).unwrap().take_turns;
    assert!(takes_turns(100));
    runs(100, 105, 22);
    assert_eq!(of(100), (4, vec![(2, 105)]));
    begin(200, &[0], "worker", 2);
    has_ticks(200, 200);
    runs(200, 201, 20);
    assert_eq!(of(200), (1, vec![(0, 201)]), "the first thread ran it once");
    begin(300, &[0, 1], "CPU 0/KVM", 6);
    assert_eq!(of(300), (2, vec![]));
    runs(300, 301, 20);
    has_ticks(300, 302);
    assert_eq!(of(300), (2, vec![(0, 301), (1, 302)]));
    assert!(!takes_turns(300));
    begin(400, &[0, 0], "vcpu_0", 2);
    assert_eq!(of(400), (1, vec![]), "2 descriptors of 1 vCPU");
    fake.descriptor(400, 10, VM);
    assert_eq!(of(400), (2, vec![(0, 400), (0, 401)]), "2 VMs");
    begin(500, &[0, 0], "exe", 2);
    fake.descriptor(500, 10, VM);
    runs(500, 500, 20);
    has_ticks(500, 501);
    assert_eq!(of(500), (2, vec![(0, 500), (1, 501)]), "2 VMs, without names");
    begin(600, &[0, 1, 2], "x", 1);
    for (tid, comm) in [(601, "vcpu_0"), (602, "vcpu_1"), (603, "vcpu_2"), (604, "vcpu_0")] {
        fake.thread(600, tid, comm);
    }
    assert_eq!(of(600), (3, vec![(1, 602), (2, 603)]), "a helper has the name of its vCPU");
    runs(600, 601, 20);
    assert_eq!(of(600), (3, vec![(0, 601), (1, 602), (2, 603)]));
}

#[test]
fn a_vm_is_seen_as_what_runs_it() {
    let fake = Fake::new();
    let probe: &[&[u8]] =
        &[b"/usr/bin/kvm", b"-S", b"-machine", b"none,accel=kvm:tcg", b"-daemonize"];
    fake.process(10, probe, VM, &[(10, "kvm")]);
    fake.process(20, &[b"/usr/bin/kvm", b"-M", b"none", b"-M", b"pc"], VM, &[(20, "kvm")]);
    let loader: &[&[u8]] = &[b"/lib64/ld-linux-x86-64.so.2", b"--library-path", b"/x"];
    let qemu: &[&[u8]] = &[b"/opt/qemu-system-x86_64", b"-name", b"ubuntu"];
    for (pid, exe) in [(30, "/usr/lib/ld-2.31.so"), (40, "/opt/vmm")] {
        fake.process(pid, &[loader, qemu].concat(), VM, &[(pid, "x")]);
        fake.link(format!("proc/{pid}/exe"), exe);
    }
    let android = b"/opt/sdk/emulator/qemu/linux-x86_64/qemu-system-x86_64-headless".as_slice();
    fake.process(50, &[android, b"-verbose", b"-avd", b"Pixel_7"], VM, &[(50, "x")]);
    let strato: &[&[u8]] = &[b"/usr/bin/stratovirt", b"-new-flag", b"-name", b"db"];
    fake.process(60, strato, VM, &[(60, "x")]);
    let vms = fake.host().vm_processes().unwrap();
    let seen: Vec<(u32, &str, &str)> =
        vms.iter().map(|vm| (vm.pid, vm.monitor.name(), vm.title())).collect();
    assert_eq!(
        seen,
        [
            (20, "QEMU", "pid:20"),
            (30, "QEMU", "ubuntu"),
            (40, "another VMM", "pid:40"),
            (50, "QEMU", "Pixel_7"),
            (60, "StratoVirt", "db"),
        ]
    );
}

/// It may close the VM's descriptor, and change its command line.
#[test]
fn a_vm_is_found_by_its_vcpus_descriptors_alone() {
    let fake = Fake::new();
    fake.process(10, &[b"/opt/vmm"], "anon_inode:kvm-vcpu:0", &[(10, "x"), (11, "vcpu_0")]);
    fake.process(20, &[], VM, &[(20, "x")]);
    fake.proc("20/cmdline", b"/usr/bin/qemu-system-x86_64\0-name\0web");
    let vms = fake.host().vm_processes().unwrap();
    let seen: Vec<(u32, &str, usize)> =
        vms.iter().map(|vm| (vm.pid, vm.title(), vm.vcpu_count)).collect();
    assert_eq!(seen, [(10, "pid:10", 1), (20, "web", 0)]);
}

#[test]
fn owners_are_known_by_number_and_name() {
    let fake = Fake::new();
    fake.write(
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
        ("107", "0::/kubepods.slice/x.scope", "qemu (107)", true),
    ] {
        fake.proc("7/status", format!("Name:\tx\nUid:\t1\t{uid}\t1\t1\n"));
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

#[test]
fn a_host_without_processes_is_an_error_and_one_without_vms_is_not() {
    let fake = Fake::new();
    assert_eq!(fake.host().vm_processes().unwrap(), []);
    assert!(Host::at(&fake.join("none")).vm_processes().is_err());
}

/// A VM of two vCPUs, with these options.
fn qemu(options: &[&str]) -> Option<Killed> {
    let child = Command::new("qemu-system-x86_64")
        .args(["-accel", "kvm", "-display", "none", "-nodefaults", "-smp", "2", "-m", "16"])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    child.ok().map(Killed)
}

/// A VM on this computer, once the condition holds; `None`: this computer cannot run one.
fn of_this_computer(
    options: &[&str],
    is_so: impl Fn(&VmProcess) -> bool,
) -> Option<(Killed, VmProcess)> {
    let kvm = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    let (Ok(_), Some(mut vm)) = (kvm, qemu(options)) else {
        println!("SKIPPED: a VM of this computer: needs /dev/kvm and qemu-system-x86_64");
        return None;
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = Host::default().vm_process(vm.0.id());
        if let Some(found) = found.clone().filter(&is_so) {
            return Some((vm, found));
        }
        if let Some(status) = vm.0.try_wait().unwrap() {
            let mut said = String::new();
            vm.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            println!("SKIPPED: a VM of this computer: QEMU ended with {status}: {said}");
            return None;
        }
        assert!(Instant::now() < deadline, "QEMU runs and shows no vCPUs: {found:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_vm_of_this_computer_is_found() {
    let uuid = std::str::from_utf8(UUID).unwrap();
    let options = ["-S", "-name", "guest=a,,b \x1b\",debug-threads=on", "-uuid", uuid];
    let Some((vm, found)) = of_this_computer(&options, |vm| vm.vcpus.len() == 2) else { return };
    let pid = vm.0.id();
    assert_eq!(found.name().unwrap().to_string(), "a,b \\u{1b}\"");
    assert_eq!(found.uuid().as_deref(), Some("c7a5fdb2-cdaf-9455-926a-d65c16db1809"));
    assert_eq!(found.vcpus.iter().map(|v| v.index).collect::<Vec<_>>(), [0, 1]);
    for vcpu in &found.vcpus {
        assert!(Path::new("/proc").join(vcpu.tid.to_string()).exists());
        assert_eq!(Host::default().vm_process(vcpu.tid).unwrap().pid, pid, "by a thread");
    }
    assert!(Host::default().vm_processes().unwrap().iter().any(|p| p.pid == pid));
}

/// The second vCPU waits within KVM_RUN, because nothing starts it.
#[test]
fn vcpus_without_names_are_found_on_this_computer() {
    let waits = |vm: &VmProcess| vm.vcpus.iter().any(|vcpu| vcpu.index == 1);
    let Some((vm, found)) = of_this_computer(&["-name", "plain"], waits) else { return };
    assert_eq!((found.title(), found.vcpu_count), ("plain", 2));
    let tids: BTreeSet<u32> = found.vcpus.iter().map(|vcpu| vcpu.tid).collect();
    assert_eq!(tids.len(), found.vcpus.len());
    assert!(!tids.contains(&vm.0.id()), "{found:?}");
    for tid in tids {
        let comm = fs::read_to_string(format!("/proc/{tid}/comm")).unwrap();
        assert!(comm.starts_with("qemu-system"), "{comm}");
    }
}
