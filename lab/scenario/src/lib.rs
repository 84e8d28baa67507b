// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenario, profile, plan and result types. Parsing and formatting only; no other I/O.
//!
//! ```text
//! schema            the types, their keys and what those take; knows nothing above it
//! plan, result      what a machine is asked, and what it answers
//! form              how a run is written
//! world             what a scenario does not know, drawn once, as records name it
//! module            what the module is set to under an arm
//! parse             TOML to schema
//! expand            schema to plan
//! space             what scenarios are drawn from, and their files
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
