// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where vCPUs spin, and where the host interrupts them, by the guest's own symbols.
//!
//! The host's kernel counts in histograms of its tracepoint `kvm_exit`. Nothing is installed in the
//! guest, and the module need not be loaded. [`Samples`] are guest addresses with their counts,
//! [`Symbols`] a guest's `/proc/kallsyms`; [`by_symbol`] joins both.

mod error;
mod histogram;
mod instance;
mod samples;
mod symbols;
mod table;
mod threads;

pub use error::{Error, SymbolsError};
pub use instance::TRACEFS;
pub use samples::{entries, Collector, Counts, Ready, Samples};
pub use symbols::{is_user, Place, Symbols};
pub use table::{by_symbol, fit, symbol_of, Fit, Line, USER};
