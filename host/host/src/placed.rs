// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names in the paths of cgroups. systemd, libvirt, Proxmox VE, container engines and Kubernetes encode
//! them there.

use crate::cgroup::lines;
use crate::names::{unescape, Kind, Names};

/// Digits of a container's id.
const CONTAINER_ID: usize = 64;

/// Digits of the hash in names of libvirt's embedded driver.
const EMBED_HASH: usize = 8;

/// Reads `/proc/PID/cgroup`. The hierarchy of systemd comes first.
pub fn names(text: &str) -> Names {
    let is_other = |controllers| !matches!(controllers, "" | "name=systemd");
    let mut paths: Vec<(bool, &str)> =
        lines(text).map(|(controllers, path)| (is_other(controllers), path)).collect();
    paths.sort_by_key(|(is_other, _)| *is_other);
    let mut names = Names::default();
    for (_, path) in paths {
        add(path, &mut names);
    }
    names
}

/// The user id in `user-1000.slice`, in `/proc/PID/cgroup`.
pub fn user(text: &str) -> Option<u32> {
    let parts = text.split(['/', '\n']);
    let mut ids = parts.filter_map(|part| part.strip_prefix("user-")?.strip_suffix(".slice"));
    ids.find_map(|id| id.parse().ok())
}

/// Whether it is a process of a user's session, in `/proc/PID/cgroup`.
pub fn is_of_user(text: &str) -> bool {
    text.split(['/', '\n']).any(|part| part == "user.slice" || part.starts_with("user@"))
}

/// Whether it is a process in a container, in `/proc/PID/cgroup`.
pub fn is_in_container(text: &str) -> bool {
    text.split(['/', '\n']).any(is_container)
}

/// Whether this cgroup is a container, or has all of them: docker, podman, containerd, LXC, systemd-nspawn, machined. Those
/// of VMs are none.
pub fn is_container(part: &str) -> bool {
    let is_nspawn = part.starts_with("systemd-nspawn@") && part.ends_with(".service");
    let is_machine = part.starts_with("machine-") && part.ends_with(".scope");
    let is_lxc = part == "lxc" || part.starts_with("lxc.payload");
    let is_any = is_nspawn || is_lxc || part == "payload" || of_container(part).is_some();
    is_any || (is_machine && !is_libvirts(part))
}

/// Whether this cgroup is that of a VM of libvirt.
pub fn is_libvirts(part: &str) -> bool {
    of_libvirt(part).is_some()
}

/// Whether these parts of a path are of a pod, or of what is inside: around all pods are cgroups of Kubernetes.
pub fn is_in_pod(parts: &[&str]) -> bool {
    let is_pods = |part: &&str| part.starts_with("pod") || part.contains("-pod");
    let mut inside = parts.iter().skip_while(|part| !part.contains("kubepods"));
    inside.any(|part| is_pods(part) || of_container(part).is_some())
}

fn add(path: &str, names: &mut Names) {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | "..")).collect();
    // Start with the innermost.
    for (at, part) in parts.iter().enumerate().rev() {
        // A user chooses the names below the user's manager.
        let is_hosts = !parts[..at].iter().any(|around| is_manager(around));
        // The name of a container with an id is in its engine's records.
        if is_hosts && names.get(Kind::ContainerId).is_none() {
            names.add(Kind::Container, of_machine(part, &parts[..at]).unwrap_or_default());
        }
        if let Some(name) = of_libvirt(part).filter(|_| is_hosts) {
            names.add_as(Kind::Libvirt, name, part);
        } else if let Some(vmid) = of_proxmox(part, &parts[..at]) {
            names.add_as(Kind::Vmid, vmid, part);
        } else if is_unit(part) && of_container(part).is_none() {
            names.add(Kind::Unit, *part);
        } else {
            names.add(Kind::PodUid, of_pod(part).unwrap_or_default());
            names.add_as(Kind::ContainerId, of_container(part).unwrap_or_default(), part);
        }
    }
}

/// `web1` in `machine-qemu\x2d3\x2dweb1.scope`, or in `qemu-3-web1.libvirt-qemu` without systemd. In a program of its
/// own libvirt puts `embed-HASH-` before the number. Of a name without letters and digits of ASCII there is nothing.
fn of_libvirt(part: &str) -> Option<Vec<u8>> {
    let scope = part.strip_prefix("machine-").and_then(|rest| rest.strip_suffix(".scope"));
    let plain = part.strip_suffix(".libvirt-qemu").or(part.strip_suffix(".libvirt-ch"));
    let text = unescape(scope.or(plain)?.as_bytes());
    let rest = text.strip_prefix(b"qemu-".as_slice()).or(text.strip_prefix(b"ch-".as_slice()))?;
    let embedded = rest.strip_prefix(b"embed-".as_slice()).and_then(|rest| {
        after(rest, |hash| hash.len() == EMBED_HASH && hash.iter().all(u8::is_ascii_hexdigit))
    });
    let is_id = |id: &[u8]| !id.is_empty() && id.iter().all(u8::is_ascii_digit);
    let rest = embedded.unwrap_or(rest);
    let name = after(rest, is_id).or_else(|| is_id(rest).then_some(b"".as_slice()))?;
    Some(name.to_vec())
}

/// `web` in `lxc.payload.web`, `lxc/web`, `systemd-nspawn@web.service`, or `machine-web.scope` that is no VM of libvirt.
fn of_machine(part: &str, around: &[&str]) -> Option<Vec<u8>> {
    let between = |start, end| part.strip_prefix(start)?.strip_suffix(end);
    let is_lxc = around.last() == Some(&"lxc");
    let scope = || between("machine-", ".scope").filter(|_| !is_libvirts(part));
    let named = between("lxc.payload.", "").or(is_lxc.then_some(part));
    let unit = || between("systemd-nspawn@", ".service").or_else(scope);
    Some(unescape(named.or_else(unit)?.as_bytes()))
}

/// What follows the first hyphen, if what precedes it fits.
fn after(text: &[u8], fits: impl Fn(&[u8]) -> bool) -> Option<&[u8]> {
    let at = text.iter().position(|byte| *byte == b'-')?;
    fits(&text[..at]).then_some(&text[at + 1..])
}

/// `104` in `qemu.slice/104.scope`.
fn of_proxmox<'p>(part: &'p str, around: &[&str]) -> Option<&'p str> {
    let vmid = part.strip_suffix(".scope").filter(|_| around == ["qemu.slice"])?;
    Some(vmid).filter(|vmid| !vmid.is_empty() && vmid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The UID in `pod<UID>`, or in systemd's `kubepods-burstable-pod<UID>.slice`, which has `_` for hyphens.
/// containerd without systemd appends the container: `kubepods-pod<UID>.slice:cri-containerd:<ID>`.
fn of_pod(part: &str) -> Option<String> {
    let part = part.split(".slice").next().unwrap_or(part);
    let (before, uid) = part.rsplit_once("pod").filter(|(_, uid)| uid.len() >= 32)?;
    // kind and others put all pods below a cgroup of kubelet's, and systemd repeats its name.
    let is_pod = before.is_empty() || before.contains("kubepods");
    let uid = uid.replace('_', "-");
    let fits = uid.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    (is_pod && fits).then_some(uid)
}

/// The id in `docker-<ID>.scope`, `cri-containerd-<ID>.scope`, `kata_<ID>`, or the id itself.
fn of_container(part: &str) -> Option<&str> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let id = part.rsplit(['-', '_', ':']).next()?;
    let fits = id.len() == CONTAINER_ID && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    (fits && !part.contains("conmon")).then_some(id)
}

/// The command of the engine whose container this cgroup is, and the container's id.
pub fn engine<'p>(part: &'p str, around: &[&str]) -> Option<(&'static str, &'p str)> {
    let id = of_container(part)?;
    let is_dockers = part.starts_with("docker-") || around.last() == Some(&"docker");
    match is_dockers {
        true => Some(("docker", id)),
        false => part.starts_with("libpod-").then_some(("podman", id)),
    }
}

/// Whether this cgroup may be a unit of systemd, which puts `a-b.slice` into `a.slice`. Nomad makes cgroups with names
/// of units itself.
pub fn is_of_systemd(part: &str, around: &[&str]) -> bool {
    let all: Vec<&str> = around.iter().copied().chain([part]).collect();
    let is_inside = |pair: &[&str]| match pair[0].strip_suffix(".slice") {
        Some(outer) if pair[1].ends_with(".slice") => {
            pair[1].strip_prefix(outer).is_some_and(|rest| rest.starts_with('-'))
        }
        _ => true,
    };
    let is_unit = [".service", ".scope", ".slice"].iter().any(|end| part.ends_with(end));
    is_unit && all[0] != "nomad.slice" && all.windows(2).all(is_inside)
}

/// Whether it is a service or scope other than that of a session or of the system.
fn is_unit(part: &str) -> bool {
    let is_any = part.ends_with(".service") || part.ends_with(".scope");
    is_any && !(is_session(part) || is_manager(part))
}

/// Whether it has all programs of a login.
pub fn is_session(part: &str) -> bool {
    part.starts_with("session-") && part.ends_with(".scope")
}

/// Whether systemd has it for itself: all units of a user are in the first.
fn is_manager(part: &str) -> bool {
    (part.starts_with("user@") && part.ends_with(".service")) || part == "init.scope"
}

/// Whether what is inside this cgroup is parts of one service, scope or container.
pub fn is_whole(part: &str) -> bool {
    of_container(part).is_some() || is_unit(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Paths, and the names in them, as `\` is written in names. `ID` is a container's, `UID` a pod's, and `UID_` has `_` for
    /// hyphens.
    /// `qemu-ci` is a machine of another program, and `qemu-7` has a VM whose name has no letter or digit of ASCII.
    const PATHS: &str = r"
/machine.slice/machine-qemu\x2d3\x2dweb1.scope/libvirt/vcpu0 | libvirt:web1
/machine.slice/machine-ch\x2d3\x2dweb1.scope | libvirt:web1
/machine/qemu-3-web1.libvirt-qemu/emulator | libvirt:web1
/machine-qemu\x2d12\x2dmy\x2dvm.scope | libvirt:my-vm
/machine-qemu\x2dci.scope | container:qemu-ci unit:machine-qemu\\x2dci.scope
/lxc.payload.web/system.slice/vm.service | container:web unit:vm.service
/lxc/web/ns/vm.service | container:web unit:vm.service
/lxc.monitor.web
/machine.slice/systemd-nspawn@web.service/payload/vm.service | container:web unit:vm.service
/user@1000.service/lxc.payload.web
/machine-qemu\x2dembed\x2d0a1b2c3d\x2d3\x2dweb1.scope/libvirt/vcpu0 | libvirt:web1
/machine.slice/machine-qemu\x2d7.scope/libvirt/vcpu0
/machine/qemu-7.libvirt-qemu/emulator
/machine-qemu\x2d.scope | container:qemu- unit:machine-qemu\\x2d.scope
/system.slice/docker-ID.scope (deleted) | container_id:ID
/qemu.slice/104.scope | vmid:104
/../../qemu.slice/104.scope | vmid:104
/104.scope | unit:104.scope
/a.slice/qemu.slice/104.scope | unit:104.scope
/user@1000.service/qemu.slice/104.scope | unit:104.scope
/user@1.service/machine-qemu-1-web.scope | unit:machine-qemu-1-web.scope
/vms/.service/\x20.scope
/system.slice/vm1.service | unit:vm1.service
/a.service/b.scope/c | unit:b.scope
/kubepods/burstable/podUID/ID | pod_uid:UID container_id:ID
/../../kubepods.slice/kubepods-burstable-podUID_.slice/cri-containerd-ID.scope | pod_uid:UID container_id:ID
/kubelet.slice/kubelet-kubepods-burstable-podUID_.slice/crio-ID.scope/container | pod_uid:UID container_id:ID
/system.slice/containerd.service/kubepods-burstable-podUID_.slice:cri-containerd:ID | unit:containerd.service pod_uid:UID container_id:ID
/system.slice/docker-ID.scope | container_id:ID
/user.slice/user-1000.slice/session-2.scope
/user.slice/user@1000.service/app.slice
/machine-lxc\x2d1\x2da.scope | container:lxc-1-a unit:machine-lxc\\x2d1\\x2da.scope
/init.scope
/
";

    #[test]
    fn the_path_of_a_cgroup_says_what_it_is_for() {
        let uid = "0a0b0c0d-1111-2222-3333-444455556666";
        let paths = PATHS.replace("UID_", &uid.replace('-', "_")).replace("UID", uid);
        let paths = paths.replace("ID", &"0123456789abcdef".repeat(4));
        for path in paths.trim().lines() {
            let (path, found) = path.split_once(" | ").unwrap_or((path, ""));
            for line in ["0::", "1:name=systemd:", "4:cpu,cpuacct:"] {
                let names = names(&format!("9:memory:/other\n{line}{path}\n"));
                let names: Vec<String> =
                    names.iter().map(|(kind, name)| format!("{}:{name}", kind.key())).collect();
                assert_eq!(names.join(" "), found, "{path}");
            }
        }
    }

    #[test]
    fn a_container_is_one_whatever_its_name_is() {
        for (part, is_one) in [
            (r"machine-qemu\x2dci.scope", true),
            (r"machine-lxc\x2d1\x2da.scope", true),
            (r"machine-qemu\x2d3\x2dweb1.scope", false),
            (r"machine-qemu\x2d7.scope", false),
            (r"machine-ch\x2d7\x2d.scope", false),
            (r"machine-qemu\x2dembed\x2d0a1b2c3d\x2d3.scope", false),
            (r"machine-qemu\x2dembed\x2d0a1b2c3d\x2d3\x2dweb1.scope", false),
            ("systemd-nspawn@ci.service", true),
            ("104.scope", false),
        ] {
            assert_eq!(is_container(part), is_one, "{part}");
        }
    }

    proptest! {
        #[test]
        fn no_path_makes_it_panic(text: String) {
            names(&text);
            names(&format!("0::/machine-qemu\\x2d1\\x2d{text}.scope/{text}.service"));
            names(&format!("0::/qemu.slice/{text}.scope/kubepods-pod{text}/docker-{text}"));
        }
    }
}
