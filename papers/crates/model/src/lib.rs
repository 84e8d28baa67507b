// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far an application scales on a physical machine and in a VM that shares it (J. Shan's
//! dissertation, NJIT 2018, chapter 4), from a profile of the application alone: its workload
//! parallelism over time and how often its threads block.
//!
//! ```text
//! app      the profile, as a file      speedup  sections 4.2 to 4.4 as formulas
//! confirm  the same on the simulator       record   the profile of a VM that runs
//! ```

mod app;
mod confirm;
mod record;
mod speedup;

pub use app::{App, AppError, Phase, Sequential};
pub use confirm::{confirm, program, setup, Confirmed, TOLERANCE};
pub use record::{Counts, OfVcpu, RecordError, Recorded};
pub use speedup::{Allocation, Kind, Prediction};
