// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loaded scheduler, with the threads given to it.

use std::sync::Mutex;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel};

use crate::class;
use crate::error::Error;
use crate::shared::{Config, Gang, Report};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/credit.bpf.o"));
const STATE: &str = "/sys/kernel/sched_ext/state";
const NAME: &str = "/sys/kernel/sched_ext/root/ops";
const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// Name of the program that receives guests' reports.
const HEARS: &str = "reported";
/// Number of lines of the kernel's last messages in an error.
const LOG_LINES: usize = 20;

/// Messages of libbpf, including the verifier's log.
static LOG: Mutex<String> = Mutex::new(String::new());

/// The scheduler with its threads. Dropping it unloads it, and returns the threads to SCHED_OTHER.
pub struct Scheduler {
    object: Object,
    _links: Vec<Link>,
    tids: Vec<u32>,
}

impl Scheduler {
    pub fn load(config: &Config) -> Result<Scheduler, Error> {
        check_kernel()?;
        libbpf_rs::set_print(Some((PrintLevel::Info, |_, text| {
            LOG.lock().unwrap_or_else(|e| e.into_inner()).push_str(&text);
        })));
        let mut object = open(config).map_err(refused)?;
        let links = attach(&mut object, config).map_err(refused)?;
        let mut scheduler = Scheduler { object, _links: links, tids: Vec::new() };
        for vcpu in &config.vcpus[..config.vcpu_count as usize] {
            let given = class::set_ext(vcpu.tid);
            given.map_err(|source| Error::Class { tid: vcpu.tid, source })?;
            scheduler.tids.push(vcpu.tid);
        }
        scheduler.check()?;
        Ok(scheduler)
    }

    /// Checks that the scheduler is still loaded.
    pub fn check(&self) -> Result<Report, Error> {
        let report = self.report()?;
        match report.exit_kind {
            0 => Ok(report),
            _ => Err(Error::Ended { reason: report.reason(), message: report.message() }),
        }
    }

    fn report(&self) -> Result<Report, Error> {
        let map = self.object.maps().find(|map| is_called(map.name(), ".data.report"));
        let bytes = map.map(|map| map.lookup(&[0; 4], MapFlags::ANY)).transpose();
        let report = bytes.map_err(refused)?.flatten();
        report.and_then(|bytes| Report::of(&bytes)).ok_or(Error::NotBuilt)
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.tids.iter().for_each(|&tid| class::set_normal(tid));
    }
}

fn is_called(name: &std::ffi::OsStr, wanted: &str) -> bool {
    name.to_string_lossy().ends_with(wanted)
}

fn open(config: &Config) -> libbpf_rs::Result<Object> {
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(OBJECT)?;
    for mut map in open.maps_mut() {
        if is_called(map.name(), ".rodata.config") {
            let values = map.initial_value_mut().expect("a section has bytes");
            values[..config.bytes().len()].copy_from_slice(config.bytes());
        }
    }
    for mut program in open.progs_mut() {
        if program.name() == HEARS {
            program.set_autoload(config.gang == Gang::Reported as u32);
        }
    }
    open.load()
}

/// Attaches the program for guests' reports first: an attached scheduler starts to schedule.
fn attach(object: &mut Object, config: &Config) -> libbpf_rs::Result<Vec<Link>> {
    let mut links = Vec::new();
    for program in object.progs_mut() {
        if program.name() == HEARS && config.gang == Gang::Reported as u32 {
            links.push(program.attach()?);
        }
    }
    for map in object.maps() {
        if map.name() == "threads" {
            for (i, vcpu) in config.vcpus[..config.vcpu_count as usize].iter().enumerate() {
                let index = (i as u32).to_ne_bytes();
                map.update(&vcpu.tid.to_ne_bytes(), &index, MapFlags::ANY)?;
            }
        }
    }
    for mut map in object.maps_mut() {
        if map.name() == "credit" {
            links.push(map.attach_struct_ops()?);
        }
    }
    Ok(links)
}

fn refused(what: libbpf_rs::Error) -> Error {
    let log = LOG.lock().unwrap_or_else(|e| e.into_inner());
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
    Error::Load { what, log: last.join("\n") }
}

fn check_kernel() -> Result<(), Error> {
    if OBJECT.is_empty() {
        return Err(Error::NotBuilt);
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim().to_string();
    let Ok(state) = std::fs::read_to_string(STATE) else {
        return Err(Error::NoSchedExt { release, path: STATE.into() });
    };
    if !std::path::Path::new(TYPES).exists() {
        return Err(Error::NoTypes { release, path: TYPES.into() });
    }
    if state.trim() != "disabled" {
        let name = std::fs::read_to_string(NAME).unwrap_or_default();
        return Err(Error::Occupied { name: format!("{} ({})", name.trim(), state.trim()) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    #[test]
    fn what_both_sides_share_has_one_layout() {
        if OBJECT.is_empty() {
            println!("SKIPPED: the scheduler is not built: no clang");
            return;
        }
        let mut builder = ObjectBuilder::default();
        let open = builder.open_memory(OBJECT).unwrap();
        let size = |name: &str| {
            let found = open.maps().find(|map| is_called(map.name(), name));
            found.and_then(|map| map.initial_value().map(<[u8]>::len))
        };
        assert_eq!(size(".rodata.config"), Some(size_of::<Config>()));
        assert_eq!(size(".data.report"), Some(size_of::<Report>()));
        assert!(open.progs().any(|program| program.name() == HEARS));
    }
}
