// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that the agent keeps between runs.

use crate::cgroup::Cpus;
use crate::host::Slice;
use crate::linux::Guests;
use crate::module::Module;
use crate::watch::Watcher;

pub(crate) struct Bench {
    pub(crate) module: Option<Module>,
    /// Linux guests, which keep running from run to run.
    pub(crate) guests: Guests,
    pub(crate) watcher: Watcher,
    pub(crate) cpus: Cpus,
    /// Notes of the run, for people.
    pub(crate) notes: Vec<String>,
    pub(crate) _slice: Option<Slice>,
}
