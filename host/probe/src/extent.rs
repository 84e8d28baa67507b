// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which programs are loaded and attached, with which settings and sizes of maps.

use crate::error::Error;
use crate::layout::VMS_MAX;
use crate::plan::{Exit, Extent, Plan};
use libbpf_rs::{Link, Object, OpenObject};

/// The number of slots. One is for threads that are not watched, so one vCPU less is watched at a time.
pub const VCPUS_MAX: u32 = 16384;

/// The programs that distinguish only running, waiting and sleeping.
const OF_BRIEF: [&str; 2] = ["switch_briefly", "wake_briefly"];

/// The programs for accesses.
const OF_ACCESSES: [&str; 3] = ["tp_btf/kvm_pio", "tp_btf/kvm_mmio", "tp_btf/kvm_fast_mmio"];

/// Whether this is the one of the two programs for kvm_exit that does not fit this kernel.
fn is_for_others(program: &str, plan: &Plan) -> bool {
    program
        == match plan.exit {
            Exit::Vcpu => "exit_for",
            Exit::Reason => "exit",
        }
}

/// Leaves out programs that this extent does not need, or that are for other kernels. `naming`: count who had
/// the CPUs for which vCPUs waited.
pub fn choose(
    open: &mut OpenObject,
    (extent, naming): (Extent, bool),
    plan: &Plan,
) -> Result<(), Error> {
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let section = program.section().to_string_lossy().into_owned();
        let is_brief = OF_BRIEF.contains(&&*name);
        let is_needed = match extent {
            Extent::Brief => is_brief,
            Extent::Detailed { accesses: true } => !is_brief,
            _ => !is_brief && !OF_ACCESSES.contains(&&*section),
        };
        program.set_autoload(is_needed && !is_for_others(&name, plan));
    }
    switch(open, "naming", naming)?;
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

/// Number of CPUs that this computer may have.
pub fn cpus() -> u32 {
    // SAFETY: it only reads a configuration value.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.max(1) as u32
}

/// Sets the sizes of the maps for this computer.
pub fn size(open: &mut OpenObject, (extent, naming): (Extent, bool)) -> Result<(), Error> {
    let (cpus, mut sizes) = (cpus(), Vec::new());
    let runs = if naming { cpus } else { 1 };
    sizes.extend([("cpus", cpus), ("runs", runs), ("shares", cpus * VMS_MAX)]);
    if !naming {
        sizes.push(("takers", 1));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_rs::ObjectBuilder;

    /// Before 5.12 the verifier refuses an atomic addition that returns the old value, and an exchange, even
    /// in unreachable code.
    #[test]
    fn kernels_before_5_12_know_what_the_brief_programs_do() {
        const STX_ATOMIC: u8 = 0xc3;
        const CALL: u8 = 0x85;
        const PSEUDO_CALL: u8 = 1;
        let mut builder = ObjectBuilder::default();
        let open = builder.open_memory(crate::probe::PROGRAMS).unwrap();
        let brief = open.progs().filter(|of| OF_BRIEF.contains(&&*of.name().to_string_lossy()));
        let mut looked_at = 0;
        for program in brief {
            looked_at += 1;
            for insn in program.insns() {
                let is_newer = insn.code & 0xc7 == STX_ATOMIC && insn.imm != 0;
                let calls = insn.code == CALL && insn._bitfield_1.get(4, 4) as u8 == PSEUDO_CALL;
                assert!(!is_newer && !calls, "{:?}: {insn:?}", program.name());
            }
        }
        assert_eq!(looked_at, OF_BRIEF.len());
    }
}
