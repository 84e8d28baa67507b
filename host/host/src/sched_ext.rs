// SPDX-License-Identifier: MIT OR Apache-2.0
//! The BPF scheduler that may replace the kernel's own (sched_ext, since Linux 6.12).

use crate::Host;
use std::fmt;
use unspin_text::read_kernel_text;

/// An enabled scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedExt {
    /// Its own name; empty if the kernel does not show it.
    pub name: String,
    /// Whether it schedules all tasks of the ordinary class, or only those with SCHED_EXT.
    pub all: bool,
}

impl Host {
    /// Whether threads in the root cgroup compete by sessions (autogroups), and not one by one.
    pub fn has_autogroups(&self) -> bool {
        let path = self.proc.join("sys/kernel/sched_autogroup_enabled");
        read_kernel_text(path).is_ok_and(|text| text.trim() == "1")
    }

    /// `None` if none is enabled, or the kernel does not support them.
    pub fn sched_ext(&self) -> Option<SchedExt> {
        let dir = self.sys.join("kernel/sched_ext");
        let read = |file: &str| read_kernel_text(dir.join(file)).ok();
        let state = read("state")?;
        // It schedules in all states from `enabling` to `disabling`.
        if state.trim() == "disabled" {
            return None;
        }
        let name = read("root/ops").unwrap_or_default().trim().to_string();
        let all = read("switch_all").is_none_or(|text| text.trim() != "0");
        Some(SchedExt { name, all })
    }
}

impl fmt::Display for SchedExt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.name.as_str() {
            "" => "of unknown name".into(),
            name => name.escape_debug().to_string(),
        };
        match self.all {
            true => write!(
                f,
                "the sched_ext scheduler {name} is enabled: weights (cpu.weight, nice values), \
                 slices and turns may have no effect"
            ),
            false => write!(
                f,
                "the sched_ext scheduler {name} is enabled for tasks of the class SCHED_EXT: \
                 weights, slices and turns may have no effect on them"
            ),
        }
    }
}
