// SPDX-License-Identifier: MIT OR Apache-2.0
//! What /proc says of a thread, in its `stat` and `status`.

use crate::{cpus, Host};
use std::collections::BTreeSet;
use std::str::FromStr;

/// A thread, of which each file was read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub tid: u32,
    /// The process that has it.
    pub process: u32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
    pub nice: i32,
    /// A `SCHED_` number of sched(7).
    pub policy: i32,
    /// The CPUs on which it may run.
    pub cpus: BTreeSet<u32>,
}

impl Host {
    /// A thread; `None` if it has ended.
    pub fn task(&self, tid: u32) -> Option<Task> {
        let (stat, status) = (self.text(tid, "stat")?, self.text(tid, "status")?);
        Some(Task {
            tid,
            process: process_in(&status)?,
            start: field(&stat, 22)?,
            nice: field(&stat, 19)?,
            policy: field(&stat, 41)?,
            cpus: cpus_in(&status),
        })
    }
}

/// A numeric field of `stat`, counted from 1 as in proc(5).
pub(crate) fn field<T: FromStr>(stat: &str, number: usize) -> Option<T> {
    // The name, in parentheses, may contain any bytes. Field 3 follows it.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(number - 3)?.parse().ok()
}

/// The process of the thread with this `status`.
pub(crate) fn process_in(status: &str) -> Option<u32> {
    let id = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    id?.trim().parse().ok()
}

/// The CPUs on which the thread with this `status` may run.
pub(crate) fn cpus_in(status: &str) -> BTreeSet<u32> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(cpus::parse).unwrap_or_default()
}
