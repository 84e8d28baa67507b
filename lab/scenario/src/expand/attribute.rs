// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs that split the cost of virtualization among its factors.

use crate::plan::{Plan, Run, Vm};
use crate::schema::arm::{Factor, Platform};
use crate::schema::names::PHYSICAL_ARM;
use std::collections::BTreeSet;

impl Plan {
    /// The plan with further arms: for every arm, arms with one of the five factors of
    /// virtualization's cost switched off each: `NAME-no-FACTOR` (NJIT 2018, 2.4). If all VMs are
    /// alike, also each program on the machine itself ([`PHYSICAL_ARM`]). Machine `sim` only.
    pub fn attributed(&self) -> Plan {
        let mut runs = Vec::new();
        let mut physical = BTreeSet::new();
        for run in &self.runs {
            let program = (&run.profile, run.cgroup as u8, &run.lock_group, run.repeat);
            if !run.alone && run.groups().len() == 1 && physical.insert(program) {
                runs.push(on_the_machine_itself(run));
            }
            runs.push(run.clone());
            let off = |factor| run.arm.platform.without.contains(&factor);
            for (name, factor) in Factor::all().into_iter().filter(|(_, f)| !run.alone && !off(*f))
            {
                let mut without = run.clone();
                without.arm.name = format!("{}-no-{name}", run.arm.name);
                without.arm.platform.without.push(factor);
                runs.push(without);
            }
        }
        for (id, run) in (0..).zip(&mut runs) {
            run.id = id;
        }
        Plan { runs, ..self.clone() }
    }
}

fn on_the_machine_itself(run: &Run) -> Run {
    let one = Vm { weight: None, ..run.first().clone() };
    let mut physical = Run { vms: vec![one], baseline: PHYSICAL_ARM.into(), ..run.clone() };
    physical.arm.name = PHYSICAL_ARM.into();
    physical.arm.platform = Platform { physical: true, ..Platform::default() };
    physical
}
