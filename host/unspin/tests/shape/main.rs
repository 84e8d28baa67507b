// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin shape` on a host made of files, whose vCPUs are real threads that sleep: its decisions,
//! settings and refusals, and that it restores everything, for any end.

#[path = "../common/mod.rs"]
mod common;
mod cost;
mod decisions;
mod fake;
mod restores;
mod settings;
