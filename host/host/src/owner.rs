// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose a process is.

use crate::Host;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use unspin_text::read_kernel_text;

/// Users that VMMs run as, as packages and managers of VMs create them.
const MONITORS: [&str; 15] = [
    "root",
    "qemu",
    "libvirt-qemu",
    "libvirt-kvm",
    "qemu-libvirtd",
    "kvm",
    "incus",
    "lxd",
    "nova",
    "oneadmin",
    "vdsm",
    "firecracker",
    "cloud-hypervisor",
    "crosvm",
    "kata",
];

/// As this user KubeVirt runs QEMU in its pods, whatever the host calls it.
const KUBEVIRT: u32 = 107;

/// The user that a process runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    /// As `/etc/passwd` has it; in a pod of KubeVirt's, as that has it.
    pub name: Option<String>,
}

impl Owner {
    /// Whether it is root, a user that is there to run VMs, or the one that this process runs as.
    pub fn is_trusted(&self) -> bool {
        // SAFETY: it takes nothing and cannot fail.
        let is_ours = self.uid == unsafe { libc::geteuid() };
        let is_known = |name: &String| MONITORS.contains(&name.as_str());
        self.uid == 0 || is_ours || self.name.as_ref().is_some_and(is_known)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} ({})", name.escape_debug(), self.uid),
            None => write!(f, "{}", self.uid),
        }
    }
}

impl Host {
    /// The effective user of a process; `None` where it has ended.
    pub fn owner(&self, pid: u32) -> Option<Owner> {
        let status = read_kernel_text(self.dir(pid).join("status")).ok()?;
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let uid: u32 = match ids {
            Some(ids) => ids.split_whitespace().nth(1)?.parse().ok()?,
            None => fs::metadata(self.dir(pid)).ok()?.uid(),
        };
        let users = read_kernel_text(&self.users).unwrap_or_default();
        let name = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_string())
        };
        let is_pod = || self.cgroup(pid).is_some_and(|group| group.path.contains("/kubepods"));
        let name = match uid {
            KUBEVIRT if is_pod() => Some("qemu".into()),
            _ => users.lines().find_map(name),
        };
        Some(Owner { uid, name })
    }
}
