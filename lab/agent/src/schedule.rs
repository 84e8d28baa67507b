// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `unspin schedule` on the VMs of arms that ask for it.

use unspin_scenario::plan::{Coscheduling, CoschedulingMechanism, Run};

use crate::beside::Helper;
use crate::Error;

const PROGRAM: &str = "unspin";

/// Gives it the VMs of these processes, on all pCPUs; `None` if the arm has no such scheduler. When
/// it ends, it gives them back.
pub(crate) fn start(run: &Run, pids: &[u32], pcpus: u32) -> Result<Option<Helper>, Error> {
    Helper::start(PROGRAM, arguments(run, pids, pcpus), |what| Error::NoScheduler { what })
}

fn arguments(run: &Run, pids: &[u32], pcpus: u32) -> Option<Vec<String>> {
    if run.arm.coscheduling_mechanism != CoschedulingMechanism::Scheduler {
        return None;
    }
    let mut words = vec!["schedule".into(), "--beside".into()];
    words.extend(["--cpus".into(), format!("0-{}", pcpus.saturating_sub(1))]);
    if let Some(turn_us) = run.arm.turn_us {
        words.extend(["--turn-us".into(), turn_us.to_string()]);
    }
    let name = |pid: &u32| format!("pid:{pid}");
    match run.arm.coscheduling {
        Coscheduling::Con => {
            let gangs = run.vms.iter().zip(pids).filter(|(vm, _)| vm.gangs());
            words.extend(gangs.flat_map(|(_, pid)| ["--gang".into(), name(pid)]));
        }
        Coscheduling::None => words.push("--no-gangs".into()),
        _ => {}
    }
    words.extend(pids.iter().map(name));
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_for_what_the_arm_is() {
        let mut run = Run::new(vec![], 2, 2).with(|vm| vm.spin_intensive = true);
        assert!(arguments(&run, &[10, 20], 4).is_none(), "no arm asks for it");
        run.arm.coscheduling_mechanism = CoschedulingMechanism::Scheduler;
        let words = |run: &Run| arguments(run, &[10, 20], 4).unwrap().join(" ");
        let first = "schedule --beside --cpus 0-3";
        assert_eq!(words(&run), format!("{first} --no-gangs pid:10 pid:20"));
        run.arm.coscheduling = Coscheduling::VcrdPle;
        run.arm.turn_us = Some(3000);
        assert_eq!(words(&run), format!("{first} --turn-us 3000 pid:10 pid:20"));
        run.arm.coscheduling = Coscheduling::Con;
        run.vms[0].spin_intensive = false;
        let gang = "--turn-us 3000 --gang pid:20 pid:10 pid:20";
        assert_eq!(words(&run), format!("{first} {gang}"));
    }
}
