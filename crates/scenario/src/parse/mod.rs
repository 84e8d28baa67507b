// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading scenarios and profiles out of TOML.

pub(crate) mod arm;
pub(crate) mod case;
pub(crate) mod guest_program;
pub(crate) mod host;
pub(crate) mod keys;
pub(crate) mod linux;
pub(crate) mod profile;
pub(crate) mod program;
pub(crate) mod quota;
pub(crate) mod ranges;
pub(crate) mod scenario;
pub(crate) mod step;
pub(crate) mod sweep;
pub(crate) mod vm;
pub(crate) mod window;
