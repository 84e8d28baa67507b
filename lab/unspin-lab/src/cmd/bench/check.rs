// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checks of a bench before anything runs.

use super::Bench;
use crate::exit::Usage;
use crate::load::Loaded;
use crate::machine::Refusal;
use unspin_scenario::module;
use unspin_scenario::plan::{
    Arm, CgroupLayout, Coscheduling, CoschedulingMechanism, HostScheduler, Plan, Run,
};
use unspin_uapi::any_of;

impl Bench<'_> {
    /// Whether the machine supports the request, before any run.
    pub fn check(&self) -> Result<(), Usage> {
        let Bench { args, loaded: l, plan, machine, .. } = self;
        for k in &args.kernel {
            machine.check_kernel(k)?;
        }
        if args.kernel.is_empty() && machine.boots() {
            for k in &l.scenario.kernels {
                machine.check_kernel(k).map_err(|why| l.refused("kernel", &why))?;
            }
        }
        for run in &plan.runs {
            let vcpus = run.vms.iter().map(|vm| vm.vcpus).max().unwrap_or(0);
            machine.check_vcpus(vcpus).map_err(|why| l.refused("vm", &why))?;
        }
        let is_run = |arm: &Arm| plan.runs.iter().any(|run| run.arm.name == arm.name);
        if let Some(key) = l.scenario.refused_by(machine.name(), is_run) {
            let message = format!("machine {} does not support this: {}", machine.name(), key.help);
            let allowed =
                format!("left out, or --machine {}", any_of(key.machines.iter().copied()));
            return Err(l.refused(&key.path, &Refusal { message, allowed }));
        }
        if machine.name() != "sim" {
            check_coscheduling(l)?;
            check_scheduler(l, plan, machine.name())?;
        }
        let pcpus = l.scenario.host.pcpus;
        machine.check_pcpus(pcpus).map_err(|why| l.refused("host.pcpus", &why))?;
        machine.check_plan(plan).map_err(|(key, why)| l.refused(key, &why))
    }
}

/// Whether the module supports the arm's coscheduling, on a machine with the real module. Turns by
/// other means do not need the module.
fn check_coscheduling(l: &Loaded) -> Result<(), Usage> {
    for (i, arm) in l.scenario.arms.iter().enumerate() {
        let needs = match arm.coscheduling_mechanism {
            CoschedulingMechanism::Park => arm.coscheduling != Coscheduling::None,
            // It reads from the module who spins in user space.
            CoschedulingMechanism::Scheduler => arm.coscheduling == Coscheduling::VcrdBoth,
            _ => false,
        };
        if needs && !module::acts(arm) {
            let message = format!("arm {:?} leaves its VMs to KVM alone", arm.name);
            let allowed =
                "yield_to or window of the module in addition to coscheduling".to_string();
            return Err(l.refused(&format!("arm[{i}].coscheduling"), &Refusal { message, allowed }));
        }
    }
    Ok(())
}

/// Checks the scheduler for a machine that is not a model: it has its kernel's own, which caps
/// cgroups.
fn check_scheduler(l: &Loaded, plan: &Plan, machine: &str) -> Result<(), Usage> {
    let scheduler = l.scenario.host.scheduler;
    let refused = |message: String, allowed: &str| {
        Err(l.refused("host.scheduler", &Refusal { message, allowed: allowed.to_string() }))
    };
    if scheduler.is_credit() {
        let message =
            format!("machine {machine} has the scheduler of its kernel, not a modelled Credit");
        return refused(
            message,
            "\"fair\" or \"fair-capped\" beside coscheduling_mechanism = \"sched-ext\" in an arm, or \
             --machine sim",
        );
    }
    let flat = |run: &Run| run.cgroup == CgroupLayout::Flat && !run.alone;
    if scheduler == HostScheduler::FairCapped && plan.runs.iter().any(flat) {
        return refused("caps need cgroups".into(), "sweep.cgroups without \"flat\"");
    }
    Ok(())
}
