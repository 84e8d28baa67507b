// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module's settings in an arm.

use crate::kvm::Module;
use unspin_policy::{aple, hvs};
use unspin_scenario::module::{sets_window, ModuleSettings};
use unspin_scenario::plan::{Arm, Run};
use unspin_scenario::result::ModuleStats;
use unspin_uapi::Mode;

/// As in the module: the number of exits that a vCPU collects before it touches shared data.
const REPORT_BATCH_MAX: u32 = 64;

/// The module under this arm.
pub(super) fn module(run: &Run, arm: &Arm, vcpus: u32) -> Module {
    let settings = ModuleSettings::of(run, arm);
    let set = settings.aple;
    let params = aple::Params {
        window_init_cycles: set.window_init_cycles,
        window_min_cycles: set.window_min_cycles,
        window_max_cycles: set.window_max_cycles,
        delta_cycles: set.delta_cycles,
        delta_max_cycles: set.delta_max_cycles,
        epoch_ple_exits: set.epoch_ple_exits,
        epoch_min_us: set.epoch_min_us,
    };
    let aple = aple::State::new(&params);
    Module {
        counts: settings.mode != Mode::OFF,
        queue_aware: arm.queue_aware,
        window_on: sets_window(arm),
        coscheduling: settings.coscheduling,
        turn_us: settings.turn_us,
        select: arm.yield_to.variant().map(hvs::Flags::from),
        params,
        window_cycles: aple.window_cycles,
        aple,
        report_batch: (params.epoch_ple_exits / (8 * vcpus)).clamp(1, REPORT_BATCH_MAX),
        epoch_exits: 0,
        epoch_min_until_ns: 0,
        epoch_base: aple::Epoch::default(),
        last_ppm: 0,
        switched_out_ns: 0,
        stats: ModuleStats::default(),
    }
}
