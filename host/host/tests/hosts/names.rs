// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of VMs from cgroups, and from the records of container engines and of libvirt.

use crate::fake::{id, Fake};
use serde_json::json;
use std::fs;
use unspin_host::{meant, Kind, VmProcess};

const UID: &str = "0a0b0c0d-1111-2222-3333-444455556666";
/// The records of docker and podman below a user's data.
const DOCKER: &str = "docker/containers";
const PODMAN: &str = "containers/storage/overlay-containers";

/// The VM of a process with this command line, all of whose threads are in this cgroup.
fn vm(fake: &Fake, line: &str, group: &str) -> VmProcess {
    // That of an earlier call.
    let _ = fs::remove_dir_all(fake.join("proc/100"));
    let lines = if group.starts_with('/') { format!("0::{group}") } else { group.to_string() };
    fake.placed(100, &lines, &[&lines]);
    fake.proc("100/cmdline", line.replace(' ', "\0") + "\0");
    fake.host().vm_process(100).unwrap()
}

fn name(vm: &VmProcess, kind: Kind) -> Option<String> {
    vm.names.get(kind).map(ToString::to_string)
}

/// containerd's record of a container in this pod, with a label more.
fn record(fake: &Fake, id: &str, [namespace, pod]: [&str; 2], [label, text]: [&str; 2]) {
    let record = json!({"annotations": {
        "io.kubernetes.cri.sandbox-namespace": namespace,
        "io.kubernetes.cri.sandbox-name": pod,
        (format!("io.kubernetes.cri.{label}")): text,
    }});
    let dir = "proc/1/root/run/containerd/io.containerd.runtime.v2.task/k8s.io";
    fake.write(format!("{dir}/{id}/config.json"), record.to_string());
}

/// Any user, also of a container, may write a VMID of the host's into a command line.
#[test]
fn a_vmid_is_believed_from_the_host() {
    let fake = Fake::new();
    for (group, vmid) in [
        ("/qemu.slice/104.scope", Some("104")),
        ("/qemu.slice/105.scope", Some("105")),
        ("/system.slice/vm.service", Some("104")),
        ("/user.slice/user-1000.slice/session-2.scope", None),
        ("/user.slice/user@1000.service/qemu.slice/105.scope", None),
        ("/lxc/200/ns/user.service", None),
        ("1:name=systemd:/lxc.payload.a/x\n0::/", None),
        (&*format!("/system.slice/docker-{}.scope", id('d')), None),
        ("/machine.slice/machine-c1.scope/payload", None),
        ("/machine.slice/systemd-nspawn@c1.service/payload", None),
    ] {
        let vm = vm(&fake, "/usr/bin/kvm -id 104 -name web", group);
        assert_eq!(name(&vm, Kind::Vmid).as_deref(), vmid, "{group}");
    }
}

/// QEMU in another pod may have any name.
#[test]
fn a_vm_of_kubevirt_is_named_in_its_own_pod() {
    let fake = Fake::new();
    let id = id('a');
    let pod = "kubepods-burstable-pod0a0b0c0d_1111_2222_3333_444455556666.slice";
    let group = format!("/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-{id}.scope");
    let started = || vm(&fake, "/usr/bin/kvm -name guest=win_11", &group);
    assert!(name(&started(), Kind::Kubevirt).is_some(), "nothing says which pod it is");
    for (pod, container, kubevirt) in [
        ("virt-launcher-11-x", "x", Some("win/11")),
        ("other", "compute", Some("win/11")),
        ("other", "qemu", None),
    ] {
        record(&fake, &id, ["win", pod], ["container-name", container]);
        let vm = started();
        assert_eq!(name(&vm, Kind::Kubevirt).as_deref(), kubevirt, "{pod}/{container}");
        assert_eq!(vm.names.has(b"11"), kubevirt.is_some(), "{pod}/{container}");
    }
}

/// libvirt escapes it, and another VM's name is not its.
#[test]
fn an_instance_of_openstack_has_its_users_name() {
    let fake = Fake::new();
    let scope = r"/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/emulator";
    let called = |name: &str, group: &str| {
        vm(&fake, &format!("/usr/bin/qemu-system-x86_64 -name guest={name}"), group)
    };
    let instance = |group: &str| called("instance-0000abcd", group);
    let xml = |name: &str| {
        format!("<domstatus><metadata><nova:name>{name}</nova:name></metadata></domstatus>")
    };
    assert_eq!(name(&instance(scope), Kind::Nova), None);
    for (written, is) in [("a &amp;lt; b", "a &lt; b"), ("web", "web")] {
        fake.write("proc/1/root/run/libvirt/qemu/instance-0000abcd.xml", xml(written));
        assert_eq!(name(&instance(scope), Kind::Nova).as_deref(), Some(is));
    }
    let vm = instance(scope);
    assert_eq!(vm.title(), "instance-0000abcd");
    assert!(
        meant(b"nova:web", Some(&vm), None).is_some() && meant(b"web", Some(&vm), None).is_some()
    );
    // In a cgroup that is not libvirt's, any user may choose such a name.
    for (group, is_believed) in [
        ("/user.slice/user-1000.slice/session-2.scope", false),
        (&*format!("/system.slice/docker-{}.scope", id('d')), false),
        ("/vms", true),
    ] {
        assert_eq!(name(&instance(group), Kind::Nova).is_some(), is_believed, "{group}");
    }
    fake.write("proc/1/root/run/libvirt/other.xml", xml("db"));
    assert_eq!(name(&called("instance-/../../other", "/vms"), Kind::Nova), None);
}

/// Kata's runtime leaves the VMM in a cgroup of its own, and puts only the vCPUs into the pod's.
#[test]
fn a_vm_has_the_names_of_its_vcpus_cgroup() {
    let fake = Fake::new();
    let overhead = format!("0::/kata_overhead/{}", id('a'));
    let pod = format!("0::/kubepods/burstable/pod{UID}/kata_{}", id('a'));
    fake.placed(100, &overhead, &[&pod]);
    let vm = fake.host().vm_process(100).unwrap();
    assert!(vm.names.has_of(Kind::PodUid, UID.as_bytes()), "{vm:?}");
}

/// Anyone may give QEMU the name that Kata's runtime would give it.
#[test]
fn a_vm_does_not_have_the_name_of_anothers_container() {
    let fake = Fake::new();
    let [victim, own, docker] = ['a', 'b', 'd'].map(id);
    record(&fake, &victim, ["prod", "db-0"], ["sandbox-uid", &UID.replace("0a", "ff")]);
    record(&fake, &own, ["evil", "pod"], ["sandbox-uid", UID]);
    let path = format!("proc/1/root/var/lib/{DOCKER}/{docker}/config.v2.json");
    fake.write(path, r#"{"Name": "/postgres"}"#);
    let session = "/user.slice/user-1000.slice/session-2.scope";
    for (group, sandbox, kind, found) in [
        (format!("/kubepods/pod{UID}/{own}"), &victim, Kind::Pod, Some("evil/pod")),
        (format!("/kubepods/pod{UID}"), &victim, Kind::Pod, None),
        (format!("/kubepods/pod{UID}"), &own, Kind::Pod, Some("evil/pod")),
        (format!("/docker-{docker}.scope"), &victim, Kind::Pod, None),
        (format!("/docker-{docker}.scope"), &victim, Kind::Container, Some("postgres")),
        (session.into(), &victim, Kind::Pod, None),
        (session.into(), &docker, Kind::Container, None),
        ("/system.slice/containerd.service".into(), &own, Kind::Pod, Some("evil/pod")),
    ] {
        let vm = vm(&fake, &format!("/usr/bin/kvm -name sandbox-{sandbox}"), &group);
        assert_eq!(name(&vm, kind).as_deref(), found, "{group}");
    }
}

/// Such as podman's with `--rm`, and those of docker's snap.
#[test]
fn a_container_in_another_record_has_its_name() {
    let fake = Fake::new();
    let [podman, docker] = ['a', 'b'].map(id);
    let root = "proc/1/root/var";
    let all = json!([{"id": podman, "names": ["short"]}]).to_string();
    fake.write(format!("{root}/lib/{PODMAN}/volatile-containers.json"), all);
    let snap = format!("{root}/snap/docker/common/var-lib-docker/containers");
    fake.write(format!("{snap}/{docker}/config.v2.json"), r#"{"Name": "/snapped"}"#);
    for (scope, name) in [
        (format!("/libpod-{podman}.scope"), "short"),
        (format!("/docker-{docker}.scope"), "snapped"),
    ] {
        assert_eq!(vm(&fake, "/usr/bin/vmm", &scope).title(), name);
    }
}

/// podman and docker of a user keep their records in the user's home directory.
#[test]
fn a_container_of_a_user_has_its_name() {
    let fake = Fake::new();
    fake.write("etc/passwd", "root:x:0:0::/root:\nalice:x:1000:1000::/home/alice:/bin/sh\n");
    let share = "proc/1/root/home/alice/.local/share";
    let [podman, docker] = ['a', 'b'].map(id);
    let all = json!([{"id": podman, "names": ["pod-web"]}]).to_string();
    fake.write(format!("{share}/{PODMAN}/containers.json"), all);
    let of_docker = |text: &str| {
        fake.write(format!("{share}/{DOCKER}/{docker}/config.v2.json"), text);
    };
    let config = r#"{"Name": "/dock-web"}"#;
    of_docker(config);
    let user = "/user.slice/user-1000.slice/user@1000.service/user.slice";
    let of_user = |scope: &str| vm(&fake, "/usr/bin/vmm", &format!("{user}/{scope}"));
    let in_docker = format!("docker-{docker}.scope");
    for (scope, name) in [
        (&format!("libpod-{podman}.scope/container"), "pod-web"),
        (&in_docker, "dock-web"),
        (&format!("docker-{podman}.scope"), "pod-web"),
    ] {
        assert_eq!(of_user(scope).name().unwrap().to_text(), name);
    }
    of_docker(&format!("{config}{}", " ".repeat(1 << 18)));
    assert_eq!(of_user(&in_docker).title(), &docker[..12], "too long for a user");
    let of_none = vm(&fake, "/usr/bin/vmm", &format!("/{in_docker}"));
    assert_eq!(of_none.title(), &docker[..12], "of no user");
}

/// Tables show a VM with its cgroup, and commands take both.
#[test]
fn a_cgroup_that_has_the_name_is_a_name() {
    let fake = Fake::new();
    let scope = r"machine-qemu\x2d3\x2dweb.scope";
    let docker = format!("docker-{}.scope", id('d'));
    for (group, part, kind) in [
        (format!("/machine.slice/{scope}/libvirt/emulator"), scope, Kind::Libvirt),
        ("/qemu.slice/104.scope".into(), "104.scope", Kind::Vmid),
        (format!("/system.slice/{docker}"), &*docker, Kind::ContainerId),
    ] {
        let vm = vm(&fake, "/usr/bin/kvm -name vm100", &group);
        let means = |text: &str| meant(text.as_bytes(), Some(&vm), None).is_some();
        let cut: String = part.chars().take(9).collect();
        for text in [part, &format!("vm100 ({part})"), &format!("vm100 ({cut}…")] {
            assert!(means(text), "{text}: {vm:?}");
        }
        assert!(vm.names.has_of(kind, part.as_bytes()) && !means(&format!("vm100 (x{part})")));
    }
}
