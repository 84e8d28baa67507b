// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that this user may not look into: VMs among them are missing.

use crate::{Host, Monitor};
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::Path;
use unspin_text::read_kernel;

/// Limit of processes that are named.
const NAMED_MAX: usize = 5;

impl Host {
    /// Why VMs may be missing from [`Host::vm_processes`], in words; `None` if this user may look into all
    /// processes.
    pub fn unseen(&self) -> Option<String> {
        let pids = self.processes().ok()?;
        let denied: Vec<u32> = pids.iter().copied().filter(|pid| self.is_denied(*pid)).collect();
        // SAFETY: it takes nothing and cannot fail.
        let is_root = unsafe { libc::geteuid() == 0 };
        // The first process is there on every host.
        let hides = !is_root && !pids.contains(&1);
        let mut why = Vec::new();
        if !denied.is_empty() {
            why.push(self.in_words(&denied));
        }
        if hides {
            why.push("/proc does not show the processes of other users (hidepid)".to_string());
        }
        let needs = if is_root { "CAP_SYS_PTRACE" } else { "root" };
        let why = why.join(", and ");
        (!why.is_empty()).then(|| format!("VMs may be missing: {why}; it takes {needs}"))
    }

    /// Names the VMMs that are not in the list of VMs.
    fn in_words(&self, denied: &[u32]) -> String {
        let vmm = |pid: &u32| {
            let line = read_kernel(self.dir(*pid).join("cmdline")).unwrap_or_default();
            let args: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            let (monitor, _) = self.monitor(*pid, &args);
            let is_missing = monitor != Monitor::Other && self.look_at(*pid).is_none();
            is_missing.then(|| format!("{pid} ({})", monitor.name()))
        };
        let vmms: Vec<String> = denied.iter().filter_map(vmm).take(NAMED_MAX).collect();
        let among = match vmms.is_empty() {
            true => String::new(),
            false => format!(", among them {}", vmms.join(", ")),
        };
        let processes = if denied.len() == 1 { "process" } else { "processes" };
        format!("this user may not look into {} {processes}{among}", denied.len())
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
