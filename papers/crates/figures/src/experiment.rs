// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reproduction of a claim.

use crate::ctx::Ctx;
use crate::entry::Entry;
use crate::error::Error;

/// A claim, and how to reproduce it.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// The claim's id.
    pub id: &'static str,
    /// Runs the simulations, and enters values, settings, series and notes.
    pub run: fn(&Ctx, &mut Entry) -> Result<(), Error>,
}
