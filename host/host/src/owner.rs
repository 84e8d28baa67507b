// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user of a process.

use crate::Host;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use unspin_text::read_kernel;

/// Users as which VMMs run, as packages and VM managers create them.
const MONITORS: &str =
    "root qemu libvirt-qemu libvirt-kvm qemu-libvirtd kvm incus lxd nova oneadmin vdsm \
     firecracker cloud-hypervisor crosvm kata";

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
        let is_known = |name: &String| MONITORS.split(' ').any(|known| known == name);
        self.uid == 0 || is_ours(self.uid) || self.name.as_ref().is_some_and(is_known)
    }
}

/// The effective user of this process.
pub fn euid() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether it is the user of this process.
pub(crate) fn is_ours(uid: u32) -> bool {
    uid == euid()
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
        let status = self.text(pid, "status")?;
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let uid: u32 = match ids {
            Some(ids) => ids.split_whitespace().nth(1)?.parse().ok()?,
            None => fs::metadata(self.dir(pid)).ok()?.uid(),
        };
        let is_pod = || self.cgroup(pid).is_some_and(|group| group.path.contains("kubepods"));
        let name = match uid {
            KUBEVIRT if is_pod() => Some("qemu".into()),
            _ => self.user(uid).map(|(name, _)| name),
        };
        Some(Owner { uid, name })
    }

    /// The name and the home directory of a user, as in `/etc/passwd`.
    pub(crate) fn user(&self, uid: u32) -> Option<(String, String)> {
        let users = read_kernel(&self.users).unwrap_or_default();
        let users = String::from_utf8_lossy(&users);
        let is_it = |fields: &Vec<&str>| fields.get(2).and_then(|id| id.parse().ok()) == Some(uid);
        let fields = users.lines().map(|line| line.split(':').collect()).find(is_it)?;
        Some((fields[0].to_string(), fields.get(5).unwrap_or(&"").to_string()))
    }
}
