// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns results into tables, CSV, pictures, summary.json and a page.
//!
//! `read` turns files into records, `compute` records into figures, and `show` figures into output.
//! The types between them are in `summary` and `lock_table`, which use none of the three.

mod compute;
mod diagnosis;
mod lock_table;
mod one_vm;
mod place;
mod read;
mod show;
mod stat;
mod summary;
mod worlds;
mod write;

pub use compute::document::documents;
pub use compute::lock_table::{lock_tables, MatrixError};
pub use compute::worlds::off as off_by_model_error;
pub use diagnosis::{Diagnosis, Lost};
pub use lock_table::LockTable;
pub use read::input::{read_files, read_str, Input, Stream};
pub use show::charts::charts;
pub use show::csv::csv;
pub use show::html::html;
pub use show::matrix::{matrix, Matrix};
pub use show::plot::{plot_svg, Plot, PlotSeries};
pub use show::svg::{Chart, Kind};
pub use show::text::text;
pub use stat::median;
pub use summary::{
    Document, EpochTrace, Headroom, Key, Mean, Performance, Place, Point, Provenance, Row,
    SlowdownRow, StallCount, StallRow, Summary, TimeShares, WaitCycles, WakeupRow, WindowCycles,
    Yields,
};
pub use worlds::{Bands, Decides, OrderRow, WorldsMade};
pub use write::write_dir;
