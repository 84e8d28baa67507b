// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which processes had the CPUs for which vCPUs waited.

use crate::error::Error;
use crate::layout::{bytes, from_bytes, Process, Runs, Taker, Took, Vcpu};
use crate::maps::{self, Table};
use crate::wait;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use std::collections::BTreeMap;
use std::path::Path;

/// Who had the CPUs for which a VM's vCPUs waited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Takers {
    /// By process id.
    pub by: BTreeMap<u32, Taken>,
    /// How long they waited for processes that are not recorded, in ns: there were more in a wait than the
    /// kernel keeps, or there was no room for another process.
    pub lost_ns: u64,
}

/// How long a process had these CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    pub ns: u64,
    /// The process's name in /proc/PID/comm, up to 15 bytes.
    pub command: String,
}

/// Number of entries per system call.
const BATCH: u32 = 1024;

pub struct Counted {
    takers: MapHandle,
    runs: Table<Runs>,
}

impl Counted {
    pub fn of(object: &Object) -> Result<Counted, Error> {
        Ok(Counted { takers: maps::handle(object, "takers")?, runs: Table::of(object, "runs")? })
    }

    /// Adds a vCPU's unfinished wait.
    pub fn add_present(&self, vcpu: &Vcpu, now: u64, to: &mut Takers) -> Result<(), Error> {
        let Some(begin) = wait::waits_since(vcpu) else { return Ok(()) };
        let is_steady = |runs: &Runs| runs.ended == runs.begun;
        let runs = self.runs.steady(vcpu.cpu, is_steady)?.filter(is_steady);
        let Takers { by, lost_ns } = to;
        let mut took = |whose: &Process, time| {
            let first = || Taken { ns: 0, command: command(&whose.command) };
            by.entry(whose.tgid as u32).or_insert_with(first).ns += time;
        };
        *lost_ns += match runs {
            Some(runs) => wait::takers(&runs, begin, now, &mut took),
            None => now.saturating_sub(begin),
        };
        Ok(())
    }

    /// Removes VMs that are no longer watched.
    pub fn keep(&self, is_watched: impl Fn(u32) -> bool) -> Result<(), Error> {
        self.forget(&self.entries()?, |key| !is_watched(key.vm));
        Ok(())
    }

    /// Removes processes that have ended, out of the entries that were read, if there is little room.
    pub fn make_room(&self, entries: &[(Taker, Took)]) {
        if entries.len() > self.takers.max_entries() as usize / 2 {
            let has_ended = |tgid: u32| !Path::new("/proc").join(tgid.to_string()).exists();
            self.forget(entries, |key| has_ended(key.tgid));
        }
    }

    /// Only this function removes entries.
    fn forget(&self, entries: &[(Taker, Took)], which: impl Fn(&Taker) -> bool) {
        for (key, _) in entries.iter().filter(|(key, _)| which(key)) {
            let _ = self.takers.delete(bytes(key));
        }
    }

    /// Who had CPUs in waits that have ended, and for how long.
    pub fn entries(&self) -> Result<Vec<(Taker, Took)>, Error> {
        let all = self.takers.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY);
        let all = all.map_err(|e| Error::failed("read takers of the BPF programs", e))?;
        Ok(all.filter_map(|(key, took)| Some((from_bytes(&key)?, from_bytes(&took)?))).collect())
    }
}

/// Finished waits, by the VM's number and the process.
pub fn of_vms(entries: &[(Taker, Took)]) -> BTreeMap<u32, BTreeMap<u32, Taken>> {
    let mut all: BTreeMap<u32, BTreeMap<u32, Taken>> = BTreeMap::new();
    for (key, took) in entries {
        let taken = Taken { ns: took.time, command: command(&took.command) };
        all.entry(key.vm).or_default().insert(key.tgid, taken);
    }
    all
}

/// The name without its trailing zeroes.
fn command(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
