// SPDX-License-Identifier: MIT OR Apache-2.0
//! VMs whose vCPU threads are scheduled by Credit, with or without ASMan's coscheduling, for
//! comparison with the module's turns. The scheduler is a separate program (papers/crates/scx).

use unspin_policy::credit;
use unspin_scenario::plan::{Coscheduling, CoschedulingMechanism, Run};

use crate::beside::Helper;
use crate::cgroup::Cpus;
use crate::Error;

const PROGRAM: &str = "unspin-scx";
/// The default weight of cgroups; Credit's weights have no unit.
const WEIGHT: u32 = 100;

/// Puts the vCPU threads of each VM under it; `None` if the arm does not use it. When it ends,
/// every thread is an ordinary one again.
pub(crate) fn start(run: &Run, vms: &[Vec<i32>], cpus: Cpus) -> Result<Option<Helper>, Error> {
    Helper::start(PROGRAM, arguments(run, vms, cpus), |what| Error::NoSchedExt { what })
}

fn arguments(run: &Run, vms: &[Vec<i32>], cpus: Cpus) -> Option<Vec<String>> {
    if run.arm.coscheduling_mechanism != CoschedulingMechanism::SchedExt {
        return None;
    }
    let gang = match run.arm.coscheduling {
        Coscheduling::Con => "con",
        Coscheduling::Vcrd => "vcrd",
        _ => "none",
    };
    let slot_us = run.arm.turn_us.unwrap_or(credit::Params::default().slot_us);
    let counts = [cpus.capped.into(), slot_us.into(), cpus.count.into(), run.seed];
    let counts = counts.map(|count: u64| count.to_string());
    let vms = run.vms.iter().zip(vms).map(|(vm, tids)| {
        let weight = vm.weight.unwrap_or(WEIGHT);
        let tids: Vec<String> = tids.iter().map(i32::to_string).collect();
        format!("{weight}:{}:{}", u32::from(vm.gangs()), tids.join(","))
    });
    Some(std::iter::once(gang.to_string()).chain(counts).chain(vms).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_for_what_the_arm_is() {
        let gangs = Run::new(vec![], 2, 2).with(|vm| vm.spin_intensive = true);
        let mut run = Run { seed: 7, ..gangs };
        let tids = [vec![11, 12], vec![13]];
        let cpus = Cpus { count: 4, capped: false };
        assert!(arguments(&run, &tids, cpus).is_none(), "no arm asks for it");
        run.arm.coscheduling_mechanism = CoschedulingMechanism::SchedExt;
        let words = |run: &Run, cpus| arguments(run, &tids, cpus).unwrap().join(" ");
        assert_eq!(words(&run, cpus), "none 0 10000 4 7 100:1:11,12 100:1:13");
        run.arm.coscheduling = Coscheduling::Con;
        run.arm.turn_us = Some(6000);
        run = run.with(|vm| vm.spin_intensive = false).weighted(&[1, 300]);
        let capped = Cpus { capped: true, ..cpus };
        assert_eq!(words(&run, capped), "con 1 6000 4 7 1:0:11,12 300:0:13");
        run.arm.coscheduling = Coscheduling::Vcrd;
        assert!(words(&run, cpus).starts_with("vcrd "));
    }

    #[test]
    fn what_it_says_of_a_failure_names_it() {
        let refused = Error::NoSchedExt { what: "no sched_ext here".into() }.to_string();
        assert!(
            refused.contains("sched-ext") && refused.contains("no sched_ext here"),
            "{refused}"
        );
    }
}
