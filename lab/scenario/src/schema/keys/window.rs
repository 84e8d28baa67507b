// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of an arm's window and of APLE's parameters. They are the module's; comments explain where
//! scenarios are stricter.

use crate::schema::arm::{ApleParams, Window};
use crate::schema::key::{integer, table, Form, Integer, Machines, Maybe};
use crate::schema::keys::scenario::{EPOCH_EXITS, EPOCH_LEAST};
use crate::schema::limits::{WINDOW_MAX_CYCLES, WINDOW_MIN_CYCLES};
use unspin_uapi::Number;

pub(crate) const WINDOW_FORMS: &str =
    "\"stock\", \"off\", { fixed_cycles = N } or { aple = { delta_cycles = N, … } }";

const CYCLES: Integer<u32> = integer(WINDOW_MIN_CYCLES, WINDOW_MAX_CYCLES, " TSC cycles");

table! { WINDOW: Window = "window = { … }", "A window of the module; one of these.";
    FIXED: Maybe<Integer<u32>> = "fixed_cycles", Maybe(CYCLES) =>
        .usually("(needed without `aple`)")
        .on(Machines::Hypervisors)
        .help("a constant window for all vCPUs");
    APLE: Form = "aple", Form("{ delta_cycles = N, … }") =>
        .usually("(needed without `fixed_cycles`)")
        .on(Machines::Hypervisors)
        .help("an adaptive window; `window = \"aple\"` uses the defaults");
}

table! { ADAPTED: ApleParams = "window = { aple = { … } }",
    "An adaptive window. `window_min_cycles` <= `window_init_cycles` <= `window_max_cycles`, and \
     steps are at most `window_max_cycles`; a lower `window_max_cycles` also lowers defaults above \
     it.";
    WINDOW_INIT: Integer<u32> = Number::WINDOW_INIT.file(), CYCLES =>
        .usually(Number::WINDOW_INIT.default())
        .on(Machines::Hypervisors)
        .help(Number::WINDOW_INIT.meaning());
    WINDOW_MIN: Integer<u32> = Number::WINDOW_MIN.file(), CYCLES =>
        .usually(Number::WINDOW_MIN.default())
        .on(Machines::Hypervisors)
        .help(Number::WINDOW_MIN.meaning());
    WINDOW_MAX: Integer<u32> = Number::WINDOW_MAX.file(), CYCLES =>
        .usually(Number::WINDOW_MAX.default())
        .on(Machines::Hypervisors)
        .help(Number::WINDOW_MAX.meaning());
    // The module accepts 0, a scenario does not: a fixed window has its own key.
    DELTA: Integer<u32> = Number::DELTA.file(),
        integer(1, Number::DELTA.most(), " TSC cycles (a window that stays is fixed_cycles)") =>
        .usually(Number::DELTA.default())
        .on(Machines::Hypervisors)
        .help("smallest step of APLE");
    DELTA_MAX: Integer<u32> = Number::DELTA_MAX.file(),
        integer(Number::DELTA_MAX.least(), Number::DELTA_MAX.most(),
            " TSC cycles (up to delta_cycles: the step never changes, and windows are compared as in the paper)") =>
        .usually(Number::DELTA_MAX.default())
        .on(Machines::Hypervisors)
        .help("largest step of APLE, and its first; steps adapt");
    EPOCH: Integer<u32> = Number::EPOCH.file(), EPOCH_EXITS =>
        .usually(Number::EPOCH.default())
        .on(Machines::Hypervisors)
        .help("PLE exits per epoch; default: epoch_ple_exits of the scenario, if set");
    EPOCH_MIN: Integer<u32> = Number::EPOCH_MIN.file(), EPOCH_LEAST =>
        .usually(Number::EPOCH_MIN.default())
        .on(Machines::Hypervisors)
        .help("shortest length of an epoch; 0: only exits end it, as in the paper; default: \
               epoch_min_us of the scenario, if set");
}
