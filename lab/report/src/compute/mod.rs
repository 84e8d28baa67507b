// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures from records: rows, means, shares of headroom, and the tables of locks.

pub(crate) mod diagnosis;
pub(crate) mod document;
pub(crate) mod ideal;
pub(crate) mod lock_table;
pub(crate) mod means;
pub(crate) mod measures;
pub(crate) mod provenance;
pub(crate) mod response;
pub(crate) mod row;
pub(crate) mod share;
pub(crate) mod slowdown;
pub(crate) mod stalls;
pub(crate) mod wakeups;
pub(crate) mod world_tables;
pub(crate) mod worlds;
