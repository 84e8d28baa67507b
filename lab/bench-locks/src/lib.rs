// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks of `locks/` against the locks programs use today, on real cores.
//!
//! * [`bench`]: one measurement of one lock.
//! * [`campaign`]: many, interleaved, that may be stopped and gone on with.
//! * [`counts`]: what waiting was like, with the locks built to count it.
//! * [`figures`]: medians, ratios and summary.json of what was measured.

pub mod bench;
pub mod campaign;
pub mod counts;
pub mod figures;
mod parking;
