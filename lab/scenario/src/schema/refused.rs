// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a machine does not support in a scenario, from the declarations of keys.

use crate::schema::arm::Arm;
use crate::schema::key::Table;
use crate::schema::keys::{arm, host, scenario, vm};
use crate::schema::scenario::Scenario;

/// A key that a machine does not support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its place: `host.scheduler`, `arm[1].asym`.
    pub path: String,
    /// Its meaning.
    pub help: &'static str,
    /// The machines that support it.
    pub machines: &'static [&'static str],
}

/// The first key of a table that requires something that `machine` does not support.
fn refused<Of>(table: &Table<Of>, of: &Of, at: &str, machine: &str) -> Option<Refused> {
    let key = table.keys.iter().find(|key| key.is_refused(of, machine))?.row();
    let path = if at.is_empty() { key.name.to_string() } else { format!("{at}.{}", key.name) };
    Some(Refused { path, help: key.help, machines: key.machines.names() })
}

impl Scenario {
    /// The first key that `machine` does not support, considering only the arms that will run.
    pub fn refused_by(&self, machine: &str, is_run: impl Fn(&Arm) -> bool) -> Option<Refused> {
        let vms = || {
            let mut vms = self.vms.iter().enumerate();
            vms.find_map(|(i, g)| refused(&vm::VM, g, &format!("vm[{i}]"), machine))
        };
        let arms = || {
            let mut arms = self.arms.iter().enumerate().filter(|(_, a)| is_run(a));
            arms.find_map(|(i, a)| {
                let at = format!("arm[{i}]");
                let of_asym = || refused(&arm::ASYM_PARTS, &a.asym, &format!("{at}.asym"), machine);
                refused(&arm::ARM, a, &at, machine).or_else(of_asym)
            })
        };
        refused(&scenario::SCENARIO, self, "", machine)
            .or_else(|| refused(&host::HOST, &self.host, "host", machine))
            .or_else(|| refused(&scenario::MEASURE, &self.measure, "measure", machine))
            .or_else(|| refused(&scenario::TRACE, &self.trace, "trace", machine))
            .or_else(vms)
            .or_else(arms)
    }
}
