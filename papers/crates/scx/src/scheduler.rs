// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loaded scheduler, with the threads given to it.

use libbpf_rs::{Link, MapCore, MapFlags, Object};
use unspin_host::{place, policy};
use unspin_schedule::ext;

use crate::error::Error;
use crate::shared::{Config, Report};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/credit.bpf.o"));
/// The map of the scheduler itself.
const OPS: &str = "credit";
/// The program that receives guests' reports: Credit counts them always, and follows them with `vcrd`.
const HEARS: &str = "reported";

/// The scheduler with its threads. Dropping it unloads it, and returns the threads to SCHED_OTHER.
pub struct Scheduler {
    object: Object,
    _links: Vec<Link>,
    tids: Vec<u32>,
}

impl Scheduler {
    pub fn load(config: &Config) -> Result<Scheduler, Error> {
        ext::check(&place::proc(), &place::sys())?;
        let vcpus = &config.vcpus[..config.vcpu_count as usize];
        let hears = |program: &str| program == HEARS;
        let mut object = ext::load(OBJECT, config.bytes(), hears)?;
        let threads = ext::map(&object, "threads").ok_or(Error::NoMap { name: "threads" })?;
        for (i, vcpu) in vcpus.iter().enumerate() {
            let (tid, index) = (vcpu.tid.to_ne_bytes(), (i as u32).to_ne_bytes());
            threads.update(&tid, &index, MapFlags::ANY).map_err(Error::Map)?;
        }
        // An attached scheduler starts to schedule.
        let links = ext::attach(&mut object, OPS, hears)?;
        let mut scheduler = Scheduler { object, _links: links, tids: Vec::new() };
        for vcpu in vcpus {
            let given = policy::set(vcpu.tid, policy::EXT);
            given.map_err(|source| Error::Class { tid: vcpu.tid, source })?;
            scheduler.tids.push(vcpu.tid);
        }
        scheduler.check()?;
        Ok(scheduler)
    }

    /// Checks that the scheduler is still loaded.
    pub fn check(&self) -> Result<Report, Error> {
        let bytes = ext::section(&self.object, ".data.report").map_err(Error::Map)?;
        let report = bytes.and_then(|bytes| Report::of(&bytes));
        let report = report.ok_or(Error::NoMap { name: ".data.report" })?;
        report.ending.check()?;
        Ok(report)
    }
}

impl Drop for Scheduler {
    /// Threads that have ended need nothing.
    fn drop(&mut self) {
        for tid in &self.tids {
            let _ = policy::set(*tid, libc::SCHED_OTHER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_rs::ObjectBuilder;
    use std::mem::size_of;

    #[test]
    fn what_both_sides_share_has_one_layout() {
        let mut builder = ObjectBuilder::default();
        let open = builder.open_memory(OBJECT).unwrap();
        let size = |name: &str| {
            let found = open.maps().find(|map| map.name().to_string_lossy().ends_with(name));
            found.and_then(|map| map.initial_value().map(<[u8]>::len))
        };
        assert_eq!(size(".rodata.config"), Some(size_of::<Config>()));
        assert_eq!(size(".data.report"), Some(size_of::<Report>()));
        assert!(open.progs().any(|program| program.name() == HEARS));
    }
}
