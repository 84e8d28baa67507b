// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types of scenarios, profiles, plans and results, and their parsers and writers; no other I/O.
//!
//! ```text
//! schema            the types, their keys, and the values of these
//! plan, result      the input and the output of a machine
//! form              the written form of a run
//! world             the unknown values of a scenario, drawn once, in records
//! module            the module's settings under an arm
//! parse             TOML to schema
//! expand            schema to plan
//! space             spaces from which scenarios are drawn, and their files
//! ```

mod begin;
mod expand;
mod form;
mod parse;
mod responses;
mod schema;
mod world;

pub mod module;
pub mod plan;
pub mod result;
pub mod space;

pub use expand::hash::fingerprint;
pub use expand::points::expand;
pub use expand::select::{ExpandError, Selection};
pub use expand::split::{shard, split};
pub use expand::workload::Workloads;
pub use parse::guest_program::parse_guest_program;
pub use parse::profile::parse_profile;
pub use parse::ranges::{Domain, Ranges, Unknown};
pub use parse::scenario::parse_scenario;
pub use schema::limits::{WINDOW_MAX_CYCLES, WINDOW_MIN_CYCLES};
pub use schema::names::{is_name, Named, ALONE_ARM, IDEAL_ARM};
pub use schema::program::{Calibration, Profile};
pub use schema::reference::reference;
pub use schema::refused::Refused;
pub use schema::scenario::{Host, Measure, Pin, Scenario, Sweep, Trace, VmGroup};
pub use unspin_text::{problem_at, Problem, Problems, Reader, Table, Value};
