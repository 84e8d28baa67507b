// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worlds in records.

use crate::plan::{Asym, Coscheduling, LockKind, Run, Vm};
use serde::{Deserialize, Serialize};

/// A world: one draw of the unknown values of a scenario. Its runs have the same ids as in the plan
/// with the usual values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    pub design: WorldDesign,
    /// Index in the design's order, 0 to `of` - 1.
    pub index: u32,
    /// Number of worlds of the design.
    pub of: u32,
    /// `scenario_hash` of the plan with the usual values.
    pub usual_hash: String,
    /// The drawn values. The last input is chance, which decides the seed.
    pub inputs: Vec<WorldInput>,
    /// The model's own error, if known. The input [`World::MODEL_ERROR`] determines its value in
    /// this world.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ModelError>,
}

impl World {
    /// Names of inputs that are not values of a scenario.
    pub const CHANCE: &'static str = "chance";
    pub const MODEL_ERROR: &'static str = "model error";
}

/// How far measured ratios are from the model's: the standard deviation of the difference of their
/// logarithms is `least` + `grows` × the absolute value of the model's logarithm. For runs that are
/// not [familiar](ModelError::is_familiar) it is `strange` times as large.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelError {
    pub least: f64,
    pub grows: f64,
    /// A factor, 1 or more.
    pub strange: f64,
}

impl ModelError {
    /// Standard deviation for `run` if `outcome` is the logarithm of the model's ratio.
    pub fn deviation(&self, run: &Run, outcome: f64) -> f64 {
        match ModelError::is_familiar(run) {
            true => self.familiar(outcome),
            false => self.strange * self.familiar(outcome),
        }
    }

    fn familiar(&self, outcome: f64) -> f64 {
        self.least + self.grows * outcome.abs()
    }

    /// Whether a run is of the kind with which the model's costs and its error were determined:
    /// equal VMs with one weight, each vCPU on its own pCPU among its VM's, ticket locks that PLE
    /// sees, and no turns, shaping or host tasks.
    pub fn is_familiar(run: &Run) -> bool {
        let own_pcpu = |pin: &[u32]| (0..pin.len()).all(|i| !pin[..i].contains(&pin[i]));
        let is_usual = |vm: &Vm| vm.weight.is_none() && vm.linux.is_none() && own_pcpu(&vm.pin);
        let first = run.first();
        run.is_of_alike()
            && run.vms.iter().all(is_usual)
            && run.is_pinned()
            && (first.lock, first.cpl, run.hogs) == (LockKind::Ticket, 0, 0)
            && run.arm.coscheduling == Coscheduling::None
            && run.arm.asym == Asym::default()
    }
}

/// The purpose of the worlds of a design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorldDesign {
    /// Bands.
    Sample,
    /// From a file.
    Given,
}

/// An unknown value of a scenario, in one world.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorldInput {
    pub name: String,
    /// Its place in the range, 0 to 1.
    pub at: f64,
    /// The value in the scenario.
    pub value: String,
    /// The source of the range.
    pub source: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Arm;

    fn familiar() -> Run {
        Run::new(Vec::new(), 2, 2).with(|vm| vm.pin = vec![0, 1])
    }

    #[test]
    fn each_thing_that_is_new_makes_the_error_larger() {
        let error = ModelError { least: 0.01, grows: 0.1, strange: 3.0 };
        assert_eq!(error.deviation(&familiar(), -0.5), 0.01 + 0.1 * 0.5);
        let arm = |arm: Arm| Run { arm, ..familiar() };
        let usual = familiar().arm;
        let others = [
            familiar().with(|vm| vm.pin.clear()),
            familiar().with(|vm| vm.pin = vec![0, 0]),
            familiar().weighted(&[100, 200]),
            familiar().with(|vm| vm.lock = LockKind::Mcs),
            familiar().with(|vm| vm.cpl = 3),
            Run { hogs: 1, ..familiar() },
            arm(Arm { coscheduling: Coscheduling::Con, ..usual.clone() }),
            arm(Arm { asym: Asym { time: true, ..Asym::default() }, ..usual }),
        ];
        for run in others {
            let of = error.deviation(&run, 0.5);
            assert!((of - 3.0 * error.deviation(&familiar(), 0.5)).abs() < 1e-12, "{run:?}");
        }
    }
}
