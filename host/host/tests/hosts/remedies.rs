// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that raise a quota.

use crate::fake::{id, Fake};

/// The remedy for a quota of this cgroup on a VM with this name.
fn remedy(group: &str, name: &str, uuid: &str) -> String {
    let fake = Fake::new();
    fake.line(format!("sys/fs/cgroup/{group}/cpu.max"), "100000 100000");
    let line = format!("0::/{group}");
    fake.placed(100, &line, &[&line]);
    let args = format!("/usr/bin/kvm\0-name\0guest={name}\0-uuid\0{uuid}\0");
    fake.proc("100/cmdline", args);
    let (tree, groups, all) = fake.groups();
    groups.limits(&tree, 100)[0].remedy(&all[0])
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
    let [a, b, c] = ['a', 'b', 'c'].map(id);
    // SAFETY: it takes nothing and cannot fail.
    let own = format!("user@{}.service/vm.service", unsafe { libc::geteuid() });
    let inside = [
        r"lxc.payload.build/machine.slice/machine-qemu\x2d1\x2dweb.scope".to_string(),
        "lxc/101/ns/system.slice/vm.service".into(),
        "machine.slice/systemd-nspawn@c1.service/payload/system.slice/vm.service".into(),
        format!("system.slice/docker-{a}.scope/system.slice/vm.service"),
        r"machine.slice/machine-lxc\x2d1\x2da.scope/libvirt/vm.service".into(),
        "lxc.payload.build/user.slice/user@1.service/vm.service".into(),
    ];
    for group in inside {
        assert_eq!(remedy(&group, "web", uuid), format!("cpu.max of /{group}"));
    }
    for (group, expected) in [
        (&*format!("docker-{a}.scope"), &*format!("docker update --cpus CPUS {}", &a[..12])),
        (
            &*format!("machine.slice/libpod-{b}.scope"),
            &*format!("podman update --cpus CPUS {}", &b[..12]),
        ),
        (&*format!("docker/{c}"), &*format!("docker update --cpus CPUS {}", &c[..12])),
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
