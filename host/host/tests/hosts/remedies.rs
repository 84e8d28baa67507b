// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that raise a quota.

use crate::fake::{id, Fake};

/// Cgroups with a quota, and the commands. `ID` is a container's, `SHORT` its first digits, and `UID` that of this user.
/// A cgroup in a container has no command, and neither has one whose name is no unit's: any user may make it.
const REMEDIES: &str = r"
lxc.payload.build/machine.slice/machine-qemu\x2d1\x2dweb.scope
lxc/101/ns/system.slice/vm.service
machine.slice/systemd-nspawn@c1.service/payload/system.slice/vm.service
system.slice/docker-ID.scope/system.slice/vm.service
machine.slice/machine-lxc\x2d1\x2da.scope/libvirt/vm.service
lxc.payload.build/user.slice/user@1.service/vm.service
docker-ID.scope | docker update --cpus CPUS SHORT
machine.slice/libpod-ID.scope | podman update --cpus CPUS SHORT
docker/ID | docker update --cpus CPUS SHORT
nomad.slice/share.slice/0a0b.web.scope
nomad.slice
jobs.slice/share.slice/web.scope
a.slice/a-b.slice | systemctl set-property a-b.slice CPUQuota=PERCENT
a.slice/-x.service | systemctl set-property -- -x.service CPUQuota=PERCENT
user@UID.service/vm.service | systemctl --user set-property vm.service CPUQuota=PERCENT
machine.slice/machine-qemu\x2dci.scope | systemctl set-property 'machine-qemu\x2dci.scope' CPUQuota=PERCENT
machine.slice/machine-qemu\x2d7.scope/libvirt/vcpu0 | virsh schedinfo web --live --set vcpu_quota=MICROSECONDS
machine.slice/machine-ch\x2d2\x2ddb.scope/libvirt/vcpu0 | virsh -c ch:///system schedinfo db --live --set vcpu_quota=MICROSECONDS
kubepods.slice | systemctl set-property kubepods.slice CPUQuota=PERCENT
kubepods.slice/kubepods-besteffort.slice | systemctl set-property kubepods-besteffort.slice CPUQuota=PERCENT
machine.slice/machine-c1.scope | systemctl set-property machine-c1.scope CPUQuota=PERCENT
a.slice/vm@1.service | systemctl set-property vm@1.service CPUQuota=PERCENT
a.slice/b\x2dc.scope | systemctl set-property 'b\x2dc.scope' CPUQuota=PERCENT
a.slice/b;reboot;.scope
";

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

/// Commands that people copy. systemd's names of scopes lack characters of the VM's name, and the end of a long one.
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
    let id = id('a');
    // SAFETY: it takes nothing and cannot fail.
    let uid = unsafe { libc::geteuid() }.to_string();
    let remedies = REMEDIES.replace("UID", &uid).replace("ID", &id).replace("SHORT", &id[..12]);
    for line in remedies.trim().lines() {
        let (group, command) = line.split_once(" | ").unwrap_or((line, ""));
        let expected = match command {
            "" => format!("cpu.max of /{group}"),
            command => command.to_string(),
        };
        assert_eq!(remedy(group, "web", uuid), expected);
    }
}
