// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that apply to every run.

use unspin_scenario::plan::{CgroupLayout, CoschedulingMechanism, Run};

use crate::Error;

/// The error names the part of the run that is not possible.
pub(crate) fn check(run: &Run) -> Result<(), Error> {
    let wrong = |text: String| Err(Error::Run(format!("run {}: {text}", run.id)));
    if run.vms.is_empty() {
        return wrong("no VMs".into());
    }
    let mut weights = run.vms.iter().filter_map(|vm| vm.weight);
    if let Some(weight) = weights.find(|w| !(1..=10_000).contains(w)) {
        return wrong(format!("weight {weight}; cpu.weight is 1 to 10000"));
    }
    let unequal = run.vms.iter().any(|vm| vm.weight != run.first().weight);
    if unequal && run.cgroup == CgroupLayout::Flat {
        return wrong("weights need cgroups; use the layout `vm` or `vcpu`".into());
    }
    if run.window_ms == 0 {
        return wrong("window_ms is 0".into());
    }
    if run.vms.iter().any(|vm| vm.quota_ppm.is_some()) && run.cgroup == CgroupLayout::Flat {
        return wrong("a quota needs a cgroup; use the layout `vm`, `vcpu` or `libvirt`".into());
    }
    let by_others = run.arm.coscheduling_mechanism != CoschedulingMechanism::Park;
    if by_others && run.vms.iter().any(|vm| vm.mode_off) {
        return wrong(
            "turns that the module does not make are for all VMs, and one has mode = \"off\""
                .into(),
        );
    }
    let linux = run.vms.iter().filter(|vm| vm.linux.is_some()).count();
    if linux == run.vms.len() {
        return Ok(());
    }
    if linux > 0 {
        return wrong("some of its guests are Linux and some are not".into());
    }
    for vm in &run.vms {
        unspin_guest_abi::compile(&vm.program, vm.cpl).map_err(unspin_vmm::Error::from)?;
    }
    Ok(())
}
