// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of figures: tables for a terminal, CSV, pictures, a page, and the page of locks.

pub(crate) mod bands;
pub(crate) mod bars;
pub(crate) mod charts;
pub(crate) mod csv;
pub(crate) mod curves;
pub(crate) mod diagnoses;
pub(crate) mod heat;
pub(crate) mod html;
pub(crate) mod matrix;
pub(crate) mod place;
pub(crate) mod plot;
pub(crate) mod shares;
pub(crate) mod svg;
pub(crate) mod text;
pub(crate) mod verdict;
pub(crate) mod windows;
