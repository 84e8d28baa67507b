// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of the modelled module, the same as the agent's for the real one.

use super::Setup;
use crate::error::Error;
use crate::kvm::Module;
use unspin_policy::hvs;
use unspin_scenario::module::ModuleSettings;
use unspin_scenario::plan::ApleParams;
use unspin_uapi::{Mode, Variant};

impl Setup {
    /// The settings in force in the machine as it is built, VM by VM.
    ///
    /// # Errors
    /// What cannot be simulated.
    pub fn module_settings(&self) -> Result<Vec<ModuleSettings>, Error> {
        Ok(self.build()?.modules().map(settings).collect())
    }
}

fn settings(module: &Module) -> ModuleSettings {
    let mode = match (module.window_on, module.select) {
        (true, Some(_)) => Mode::APPLES,
        (true, None) => Mode::APLE,
        (false, Some(_)) => Mode::HVS,
        (false, None) if module.counts => Mode::OBSERVE,
        (false, None) => Mode::OFF,
    };
    let is = |flags| Variant::ALL.iter().copied().find(|v| hvs::Flags::from(*v) == flags);
    let params = &module.params;
    ModuleSettings {
        mode,
        variant: module.select.and_then(is).unwrap_or(Variant::DEFAULT),
        aple: ApleParams {
            window_init_cycles: params.window_init_cycles,
            window_min_cycles: params.window_min_cycles,
            window_max_cycles: params.window_max_cycles,
            delta_cycles: params.delta_cycles,
            delta_max_cycles: params.delta_max_cycles,
            epoch_min_us: params.epoch_min_us,
            epoch_ple_exits: params.epoch_ple_exits,
        },
        coscheduling: module.coscheduling,
        turn_us: module.turn_us,
        wait_for_turns: true,
    }
}
