// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types of scenarios and profiles, on which the rest of this crate is based.

pub(crate) mod arm;
pub(crate) mod costs;
pub(crate) mod countable;
pub(crate) mod host;
pub(crate) mod key;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod linux;
pub(crate) mod lock;
pub(crate) mod names;
pub(crate) mod program;
pub(crate) mod reference;
pub(crate) mod refused;
pub(crate) mod scenario;
pub(crate) mod steps;
