// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules, on small workspaces that keep or break them.

mod circles;
mod common;
mod floors;
mod pictures;
