// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that this user may not look into: VMs among them are missing.

use crate::{euid, monitor_of, Host, Monitor};
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::Path;
use unspin_text::read_kernel;

/// Limit of processes that are named.
const NAMED_MAX: usize = 5;

impl Host {
    /// Whether there is a process or thread with this number.
    pub fn is_there(&self, pid: u32) -> bool {
        self.dir(pid).is_dir()
    }

    /// Why VMs may be missing from [`Host::vm_processes`], in words; `None` if this user may look into all
    /// processes. A process that keeps even root out counts only if it is a known VMM.
    pub fn unseen(&self) -> Option<String> {
        let pids = self.processes().ok()?;
        let denied: Vec<u32> = pids.iter().copied().filter(|pid| self.is_denied(*pid)).collect();
        let vmms: Vec<String> = denied.iter().filter_map(|pid| self.missing(*pid)).collect();
        let is_root = euid() == 0;
        let mut why = Vec::new();
        if !vmms.is_empty() || (!denied.is_empty() && !is_root) {
            let processes = if denied.len() == 1 { "process" } else { "processes" };
            let among = match vmms.is_empty() {
                true => String::new(),
                false => format!(", among them {}", vmms[..vmms.len().min(NAMED_MAX)].join(", ")),
            };
            why.push(format!("this user may not look into {} {processes}{among}", denied.len()));
        }
        // The first process is there on every host.
        if !is_root && !pids.contains(&1) {
            why.push("/proc does not show the processes of other users (hidepid)".to_string());
        }
        let needs = if is_root { "CAP_SYS_PTRACE" } else { "root" };
        let why = why.join(", and ");
        (!why.is_empty()).then(|| format!("VMs may be missing: {why}; it takes {needs}"))
    }

    /// The process, if it is a known VMM and is not in the list of VMs.
    fn missing(&self, pid: u32) -> Option<String> {
        let line = read_kernel(self.dir(pid).join("cmdline")).unwrap_or_default();
        let args: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let (monitor, ..) = monitor_of(&self.dir(pid), &args);
        let is_missing = monitor != Monitor::Other && self.vm_process(pid).is_none();
        is_missing.then(|| format!("{pid} ({})", monitor.name()))
    }

    /// Whether this user may not see the descriptors of a process. Kernel threads have none.
    fn is_denied(&self, pid: u32) -> bool {
        let is = |e: &Error| e.kind() == ErrorKind::PermissionDenied;
        let dir = self.dir(pid);
        let is_kernels =
            |dir: &Path| read_kernel(dir.join("cmdline")).is_ok_and(|line| line.is_empty());
        match fs::read_dir(dir.join("fd")) {
            Err(e) => is(&e) && !is_kernels(&dir),
            Ok(entries) => {
                let link = entries.flatten().next().map(|entry| fs::read_link(entry.path()));
                link.is_some_and(|link| link.is_err_and(|e| is(&e)))
            }
        }
    }
}
