// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the agent refuses in any run.

use unspin_scenario::plan::{CgroupLayout, CoschedulingMechanism, Run};

use crate::Error;

/// An error that says what of the run cannot be.
pub(crate) fn check(run: &Run) -> Result<(), Error> {
    let wrong = |text: String| Err(Error::Run(format!("run {}: {text}", run.id)));
    if run.vms == 0 {
        return wrong("no VMs".into());
    }
    if !run.pin.is_empty() && run.pin.len() != run.vms as usize {
        return wrong(format!("CPUs for {} VMs, but {} VMs", run.pin.len(), run.vms));
    }
    if !run.weights.is_empty() && run.weights.len() != run.vms as usize {
        return wrong(format!("weights for {} VMs, but {} VMs", run.weights.len(), run.vms));
    }
    if let Some(weight) = run.weights.iter().find(|w| !(1..=10_000).contains(*w)) {
        return wrong(format!("weight {weight}; cpu.weight is 1 to 10000"));
    }
    let unequal = run.weights.iter().any(|w| *w != run.weights[0]);
    if unequal && run.cgroup == CgroupLayout::Flat {
        return wrong("weights need cgroups; use the layout `vm` or `vcpu`".into());
    }
    if run.window_ms == 0 {
        return wrong("window_ms is 0".into());
    }
    if !run.each.is_empty() && run.each.len() != run.vms as usize {
        return wrong(format!("says what {} VMs are, of {}", run.each.len(), run.vms));
    }
    if run.each.iter().any(|vm| vm.quota_ppm.is_some()) && run.cgroup == CgroupLayout::Flat {
        return wrong("a quota needs a cgroup; use the layout `vm`, `vcpu` or `libvirt`".into());
    }
    let by_others = run.arm.coscheduling_mechanism != CoschedulingMechanism::Park;
    if by_others && run.each.iter().any(|vm| vm.mode_off) {
        return wrong(
            "turns that the module does not make are for all VMs, and one has mode = \"off\""
                .into(),
        );
    }
    let linux = (0..run.vms).filter(|vm| run.linux_of(*vm).is_some()).count();
    if linux == run.vms as usize {
        return Ok(());
    }
    if linux > 0 {
        return wrong("some of its guests are Linux and some are not".into());
    }
    for vm in 0..run.vms {
        let each = run.vm(vm);
        unspin_guest_abi::compile(&each.program, each.cpl).map_err(unspin_vmm::Error::from)?;
    }
    Ok(())
}
