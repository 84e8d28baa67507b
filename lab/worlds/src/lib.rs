// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worlds: random draws of what a prediction does not know, and statistics of their outcomes.
//!
//! A world is a point in the unit cube, with a coordinate from 0 to 1 for each input. The caller
//! converts coordinates to values. An outcome is the logarithm of a ratio, so that twice and half are
//! equally far from 1. No I/O here.
//!
//! ```text
//! random    numbers that follow from a seed
//! quantile  quantiles of a sample
//! sample    the worlds of a plain sample, low-discrepancy and nested
//! share     what an input decides, with its interval
//! band      quantiles of outcomes and the probability of a gain
//! order     in which order the arms come, and how probably
//! given     shares of variance from a plain sample
//! score     how good a band was, once it was measured
//! table     designs and outcomes as CSV, as SALib has them
//! ```

mod band;
mod given;
mod order;
mod quantile;
mod random;
mod sample;
mod score;
mod share;
mod table;

pub use band::Band;
pub use given::shares;
pub use order::{order, Order, Pair};
pub use quantile::{normal_quantile, quantile};
pub use sample::{point, DIMENSIONS_MAX, SAMPLES_MAX};
pub use score::{covers, interval_score, no_change_score, share_interval};
pub use share::Share;
pub use table::{Columns, Design, TableError};
