// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenario, profile, plan and result types. Parsing and formatting only; no other I/O.

mod arm;
mod expand;
mod problem;
mod profile;
mod reader;
mod scenario;
mod vm;

pub mod module;
pub mod plan;
pub mod result;

pub use expand::{expand, shard, split, ExpandError, Selection, ALONE_ARM, IDEAL_ARM};
pub use problem::{Problem, Problems};
pub use profile::{parse_profile, Profile};
pub use reader::{is_name, problem_at, Reader, Table, Value};
pub use scenario::{
    parse_scenario, Host, Measure, Pin, Scenario, Sweep, Trace, VmGroup, WINDOW_MAX_CYCLES,
    WINDOW_MIN_CYCLES,
};
