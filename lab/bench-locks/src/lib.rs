// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the locks of `core/locks/` against locks that programs use today, on real cores.
//!
//! * [`bench`]: one measurement of one lock.
//! * [`campaign`]: many measurements, interleaved; an interrupted campaign can be continued.
//! * [`counts`]: how threads waited, from locks that are built to count it.
//! * [`figures`], [`table`]: medians, ratios and summary.json.
//! * [`machine`]: what else ran on the computer meanwhile.
//! * [`programs`]: whole programs under `unspin run`.
//! * [`workload`]: the workloads and their order.

pub mod bench;
pub mod campaign;
pub mod counts;
pub mod figures;
pub mod machine;
pub mod median;
mod parking;
pub mod programs;
pub mod table;
pub mod workload;
