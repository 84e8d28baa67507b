// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of the programs are loaded, with what settings and how large maps, and where they are attached.

use crate::error::Error;
use crate::layout::VMS_MAX;
use crate::plan::{Exit, Extent, Plan};
use libbpf_rs::{Link, Object, OpenObject};

/// Most vCPUs that are watched at a time.
pub const VCPUS_MAX: u32 = 16384;

/// The tracepoints whose programs are needed for running, waiting and sleeping alone.
const OF_BRIEF: [&str; 2] = ["tp_btf/sched_switch", "tp_btf/sched_waking"];

/// Those of accesses.
const OF_ACCESSES: [&str; 3] = ["tp_btf/kvm_pio", "tp_btf/kvm_mmio", "tp_btf/kvm_fast_mmio"];

/// Of the two programs for kvm_exit the one that this kernel has no use for.
fn is_for_others(program: &str, plan: &Plan) -> bool {
    program
        == match plan.exit {
            Exit::Vcpu => "exit_for",
            Exit::Reason => "exit",
        }
}

/// Leaves out what this extent does without, and what is made for other kernels.
pub fn choose(open: &mut OpenObject, extent: Extent, plan: &Plan) -> Result<(), Error> {
    for mut program in open.progs_mut() {
        let is_for_others = is_for_others(&program.name().to_string_lossy(), plan);
        let section = program.section().to_string_lossy().into_owned();
        let is_needed = match extent {
            Extent::Brief => OF_BRIEF.contains(&&*section),
            Extent::Detailed { accesses: true } => true,
            _ => !OF_ACCESSES.contains(&&*section),
        };
        program.set_autoload(is_needed && !is_for_others);
    }
    switch(open, "brief", extent == Extent::Brief)?;
    switch(open, "detailed", matches!(extent, Extent::Detailed { .. }))
}

/// Sets a constant of the programs.
fn switch(open: &mut OpenObject, name: &str, is_on: bool) -> Result<(), Error> {
    let find = format!("find the setting {name} of the BPF programs");
    let mut maps = open.maps_mut();
    let section = format!(".{name}");
    let map = maps.find(|map| map.name().to_string_lossy().ends_with(&section));
    let mut map = map.ok_or_else(|| Error::failed(&find, "it is missing"))?;
    map.set_initial_value(&u32::from(is_on).to_ne_bytes()).map_err(|e| Error::failed(&find, e))
}

/// CPUs that this computer may have.
pub fn cpus() -> u32 {
    // SAFETY: it only asks.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.max(1) as u32
}

/// Makes the maps as large as this computer wants them.
pub fn size(open: &mut OpenObject, extent: Extent) -> Result<(), Error> {
    let (cpus, mut sizes) = (cpus(), Vec::new());
    sizes.extend([("cpus", cpus), ("runs", cpus), ("shares", cpus * VMS_MAX)]);
    sizes.extend([("slots", VCPUS_MAX), ("vcpus", VCPUS_MAX)]);
    if !matches!(extent, Extent::Detailed { .. }) {
        sizes.push(("accesses", 1));
    }
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some((_, entries)) = sizes.iter().find(|(sized, _)| *sized == name) {
            let set = map.set_max_entries(*entries);
            set.map_err(|e| Error::failed(format!("size {name} of the BPF programs"), e))?;
        }
    }
    Ok(())
}

pub fn attach(object: &Object) -> Result<Vec<Link>, Error> {
    let programs = object.progs_mut().filter(|program| program.autoload());
    let links = programs.map(|program| {
        program.attach().map_err(|e| Error::NoTracepoint {
            tracepoint: program.section().to_string_lossy().replace("tp_btf/", ""),
            cause: e.to_string(),
        })
    });
    links.collect()
}
