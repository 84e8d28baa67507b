// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every key of scenarios and profiles, declared once.

pub(crate) mod arm;
pub(crate) mod guest_program;
pub(crate) mod host;
pub(crate) mod lock;
pub(crate) mod profile;
pub(crate) mod scenario;
pub(crate) mod vm;
pub(crate) mod window;
