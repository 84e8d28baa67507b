// SPDX-License-Identifier: MIT OR Apache-2.0
//! The record of a change.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// A setting of this host with one value, which can be read and written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Target {
    /// A kernel file with one line: a module's parameter, a setting of a VM, a cgroup's weight. The
    /// inode of its directory distinguishes it from another file with the same path.
    File { path: PathBuf },
    /// The CPUs on which a thread may run, in the kernel's list format (`0-3,8`). The thread's start time
    /// distinguishes it from another thread with the same id.
    Affinity { tid: u32 },
    /// The slice of a thread in the fair scheduler, in ns, as in sched_setattr(2).
    Slice { tid: u32 },
    /// The nice value of a thread, -20 to 19.
    Nice { tid: u32 },
    /// The scheduling policy of a thread, as a number of sched(7).
    Policy { tid: u32 },
}

impl Target {
    /// The thread whose setting it is; `None` for a file.
    pub fn thread(&self) -> Option<u32> {
        match self {
            Target::File { .. } => None,
            Target::Affinity { tid }
            | Target::Slice { tid }
            | Target::Nice { tid }
            | Target::Policy { tid } => Some(*tid),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::File { path } => write!(f, "{}", path.display()),
            Target::Affinity { tid } => write!(f, "the CPUs of thread {tid}"),
            Target::Slice { tid } => write!(f, "the slice of thread {tid}"),
            Target::Nice { tid } => write!(f, "the nice value of thread {tid}"),
            Target::Policy { tid } => write!(f, "the scheduling policy of thread {tid}"),
        }
    }
}

/// A change that was about to be made. The target's value shows whether it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Unique in this journal, increasing.
    pub id: u64,
    pub target: Target,
    /// Distinguishes the target from another with the same name, see [`Target`].
    pub key: u64,
    /// The previous value.
    pub was: String,
    /// The value to set.
    pub set: String,
}
