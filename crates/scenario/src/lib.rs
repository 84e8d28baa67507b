// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenario, profile, plan and result types. Parsing and formatting only; no other I/O.

pub mod plan;
pub mod result;
