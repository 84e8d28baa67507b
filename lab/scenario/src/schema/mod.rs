// SPDX-License-Identifier: MIT OR Apache-2.0
//! What scenarios and profiles are made of: the ground everything else here stands on.

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
