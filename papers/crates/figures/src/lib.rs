// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reproduces the papers' figures on the simulator, and compares them with the papers.
//!
//! `papers/KEY/claims.toml` has every claim of a paper. An [`Experiment`] per claim computes its
//! values and passes them to an [`Entry`], which has the paper's values. To add a claim: a function in
//! the file of its paper (or a new file), and a line in that file's `EXPERIMENTS`. To add a paper: a
//! line in [`PAPERS`].
//!
//! ```text
//! claim    what the papers say            ctx      simulates, on all cores, nothing twice
//! entry    values of ours beside theirs   row      one value: within tolerance, direction
//! within   how far ours may lie from theirs
//! summary  counts, summary.json           page     reproduction.md
//! ```

mod apples;
mod asman;
mod claim;
mod ctx;
mod dissertation;
mod entry;
mod error;
mod oticket;
mod page;
mod paper;
mod pmtlock;
mod reasons;
mod row;
mod summary;
mod text;
mod within;

pub use claim::{Claim, Claims, Kind};
pub use ctx::{Ctx, Runs, Step};
pub use entry::{Entry, Series};
pub use error::Error;
pub use page::page;
pub use reasons::Reasons;
pub use row::{judge, Judged, Row};
pub use summary::{EntrySummary, Summary};
pub use within::{Measure, Rule, Span, TIE};

/// A claim, and how to reproduce it.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// The claim's id.
    pub id: &'static str,
    /// Runs the simulations, and enters values, settings, series and notes.
    pub run: fn(&Ctx, &mut Entry) -> Result<(), Error>,
}

/// A paper whose claims are reproduced.
#[derive(Debug, Clone, Copy)]
pub struct Paper {
    /// One of `paper::KEYS`.
    pub key: &'static str,
    pub experiments: &'static [&'static [Experiment]],
}

/// All papers, in the order of `paper::KEYS`.
pub const PAPERS: &[Paper] = &[
    Paper { key: paper::APPLES, experiments: &[apples::EXPERIMENTS] },
    Paper { key: paper::PMTLOCK, experiments: &[pmtlock::EXPERIMENTS] },
    Paper { key: paper::OTICKET, experiments: &[oticket::EXPERIMENTS] },
    Paper { key: paper::ASMAN, experiments: &[asman::EXPERIMENTS] },
    Paper { key: paper::DISSERTATION, experiments: dissertation::EXPERIMENTS },
];

/// All experiments.
pub fn experiments() -> impl Iterator<Item = &'static Experiment> {
    PAPERS.iter().flat_map(|paper| paper.experiments.iter().copied().flatten())
}

/// The claims with these ids; all claims if there are none.
///
/// # Errors
///
/// [`Error::Unknown`] names the first unknown id, and a similar one.
pub fn select<'c>(claims: &'c Claims, ids: &[String]) -> Result<Vec<&'c Claim>, Error> {
    for id in ids {
        if !claims.all.iter().any(|c| c.id == *id) {
            let known: Vec<&str> = claims.all.iter().map(|c| c.id.as_str()).collect();
            let near = known.iter().find(|k| k.contains(id.as_str()) || id.contains(**k));
            return Err(Error::Unknown {
                id: id.clone(),
                hint: near.map(|k| format!(" (did you mean {k:?}?)")).unwrap_or_default(),
                known: known.join(", "),
            });
        }
    }
    Ok(claims.all.iter().filter(|c| ids.is_empty() || ids.contains(&c.id)).collect())
}

/// Reproduces an entry. Without an experiment all its values are missing: the entry then counts as
/// predicted and not within tolerance.
///
/// # Errors
///
/// Runs that are refused.
pub fn make(ctx: &Ctx, claim: &Claim) -> Result<Entry, Error> {
    let experiment = experiments().find(|e| e.id == claim.id);
    let mut entry = Entry::new(claim, Ctx::SEED);
    if let Some(experiment) = experiment {
        (experiment.run)(ctx, &mut entry)?;
    }
    entry.finish(experiment.is_some());
    Ok(entry)
}
