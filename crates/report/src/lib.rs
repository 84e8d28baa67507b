// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results become tables, CSV, pictures, summary.json and a page.

mod aggregate;
mod chart;
mod check;
mod csv;
mod file;
mod heat;
mod html;
mod ideal;
mod input;
mod matrix;
mod means;
mod measures;
mod plot;
mod shards;
mod slowdown;
mod stalls;
mod stat;
mod summary;
mod text;

pub use aggregate::{documents, Document, EpochTrace};
pub use check::printable_lines;
pub use csv::csv;
pub use file::{write_atomic, write_dir, FileError};
pub use html::html;
pub use input::{read_files, read_str, Input, Stream};
pub use matrix::{matrix, Matrix, MatrixError};
pub use plot::{plot_svg, Plot, PlotSeries};
pub use stalls::{StallCount, StallRow};
pub use summary::{Headroom, Mean, Provenance, Row, Summary, WaitCycles, WindowCycles, Yields};
pub use text::text;
