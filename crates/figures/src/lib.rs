// SPDX-License-Identifier: MIT OR Apache-2.0
//! The papers' figures, made again on the simulator and held against what the papers say.
//!
//! `figures/targets.toml` has every claim; an [`Experiment`] per claim makes its values again and
//! hands them to an [`Entry`], which knows what the paper printed. To add one: a function in the
//! file of its paper (or a new file), and a line in that file's `EXPERIMENTS`.
//!
//! ```text
//! claim    what the papers say            ctx      simulates, on all cores, nothing twice
//! entry    values of ours beside theirs   row      one value: within tolerance, direction
//! summary  counts, summary.json           page     docs/reproduction.md
//! ```

mod apples;
mod asman;
mod ch2;
mod ch4;
mod ch5;
mod claim;
mod ctx;
mod entry;
mod error;
mod experiment;
mod oticket;
mod page;
mod pmtlock;
mod reasons;
mod row;
mod summary;

pub use claim::{Claim, Claims, Kind};
pub use ctx::{Ctx, Runs, Step};
pub use entry::{Entry, Series};
pub use error::Error;
pub use experiment::Experiment;
pub use page::page;
pub use reasons::Reasons;
pub use row::{judge, Judged, Measure, Row};
pub use summary::{EntrySummary, Summary};

/// All experiments there are, a list a paper.
pub const EXPERIMENTS: &[&[Experiment]] = &[
    apples::EXPERIMENTS,
    pmtlock::EXPERIMENTS,
    oticket::EXPERIMENTS,
    asman::EXPERIMENTS,
    ch2::EXPERIMENTS,
    ch4::EXPERIMENTS,
    ch5::EXPERIMENTS,
];

/// The claims asked for by id, all of them if none is.
///
/// # Errors
/// [`Error::Unknown`] names the first id that is none, and the one that may be meant.
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

/// Makes an entry again. One without an experiment has all its values missing: it counts as
/// predicted and not within.
///
/// # Errors
/// What the experiment's runs refuse.
pub fn make(ctx: &Ctx, claim: &Claim) -> Result<Entry, Error> {
    let experiment = EXPERIMENTS.iter().copied().flatten().find(|e| e.id == claim.id);
    let mut entry = Entry::new(claim, ctx.seed());
    if let Some(experiment) = experiment {
        (experiment.run)(ctx, &mut entry)?;
    }
    entry.finish(experiment.is_some());
    Ok(entry)
}
