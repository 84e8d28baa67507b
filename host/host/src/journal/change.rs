// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is noted of a change.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// Something of this host that has one value, which can be read and written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Target {
    /// A file of the kernel's with one line: a module's parameter, a setting of a VM, a cgroup's weight.
    /// It is told from another of the same name by the inode of its directory (a cgroup's, a VM's).
    File { path: PathBuf },
    /// The CPUs that a thread may run on, as the kernel's lists have them (`0-3,8`). A thread is told from
    /// another with the same id by the time of its start.
    Affinity { tid: u32 },
    /// The time that the fair scheduler gives a thread at a stretch, in ns, as sched_setattr(2) has it.
    Slice { tid: u32 },
    /// The nice value of a thread, -20 to 19.
    Nice { tid: u32 },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::File { path } => write!(f, "{}", path.display()),
            Target::Affinity { tid } => write!(f, "the CPUs of thread {tid}"),
            Target::Slice { tid } => write!(f, "the slice of thread {tid}"),
            Target::Nice { tid } => write!(f, "the nice value of thread {tid}"),
        }
    }
}

/// A change that was about to be made. Whether it was made, the target's value tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Of this journal, counted up.
    pub id: u64,
    pub target: Target,
    /// What tells the target from another of the same name, see [`Target`].
    pub key: u64,
    /// The value before.
    pub was: String,
    /// The value that it was to get.
    pub set: String,
}
