// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user of a process.

use crate::Host;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use unspin_text::read_kernel_text;

/// Users as which VMMs run, as packages and VM managers create them.
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

/// KubeVirt runs QEMU in its pods as this user id, whatever name the host has for it.
const KUBEVIRT: u32 = 107;

/// The user of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    /// The name in `/etc/passwd`; in a pod of KubeVirt, the name there.
    pub name: Option<String>,
}

impl Owner {
    /// Whether it is root, a user for running VMs, or the user of this process.
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
    /// The effective user of a process; `None` if it has ended.
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
