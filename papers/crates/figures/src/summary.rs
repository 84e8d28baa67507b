// SPDX-License-Identifier: MIT OR Apache-2.0
//! summary.json: every value, and counts that follow from the rows.

use crate::claim::Kind;
use crate::entry::Entry;
use crate::row::Row;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The contents of `summary.json` by `unspin-lab figures`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Always `sim`: nothing here is a measurement.
    pub machine: String,
    pub version: String,
    /// Its share of the entries, as in `--shard`; null: all requested entries.
    pub shard: Option<String>,
    /// Requested ids, of all shards together.
    pub asked: Vec<String>,
    /// Entries of kind `predict`.
    pub predicted: u32,
    /// Entries of kind `predict` with all values within tolerance.
    pub within: u32,
    /// Entries of kind `predict` with the right direction of all values.
    pub direction_right: u32,
    pub entries: Vec<EntrySummary>,
    /// Every value, by entry in the order of the claims.
    pub rows: Vec<Row>,
}

/// One entry of kind `calibrate` or `predict`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntrySummary {
    pub id: String,
    pub kind: Kind,
    /// Whether there is an experiment for it.
    pub reproduced: bool,
    pub within: bool,
    pub direction_right: bool,
    /// For kind `predict`: our value was known when one of its programs was chosen, so it is not
    /// blind.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub seen: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Summary {
    /// The summary of complete entries. Definitions have no rows and are left out.
    pub fn new(
        entries: &[Entry],
        version: &str,
        asked: &[String],
        shard: Option<String>,
    ) -> Summary {
        let measured = || entries.iter().filter(|e| e.claim.kind != Kind::Define);
        let rows: Vec<Row> = measured().flat_map(|e| e.rows.clone()).collect();
        let entries = measured()
            .map(|e| EntrySummary {
                id: e.claim.id.clone(),
                kind: e.claim.kind,
                reproduced: e.reproduced,
                within: e.within(),
                direction_right: all(&e.rows, |r| r.direction_right),
                seen: !e.claim.seen.is_empty(),
                notes: e.notes.clone(),
            })
            .collect();
        let mut summary = Summary {
            machine: "sim".to_string(),
            version: version.to_string(),
            shard,
            asked: asked.to_vec(),
            predicted: 0,
            within: 0,
            direction_right: 0,
            entries,
            rows,
        };
        (summary.predicted, summary.within, summary.direction_right) = summary.counts();
        summary
    }

    /// Predicted entries, those within tolerance, and those with the right direction, from the rows
    /// alone.
    pub fn counts(&self) -> (u32, u32, u32) {
        let predicted = self.rows.iter().filter(|r| r.kind == Kind::Predict);
        let ids: BTreeSet<&str> = predicted.map(|r| r.entry.as_str()).collect();
        let count = |is: fn(&Row) -> bool| {
            let all = |id: &&&str| self.rows.iter().filter(|r| r.entry == **id).all(is);
            ids.iter().filter(all).count() as u32
        };
        (ids.len() as u32, count(|r| r.within), count(|r| r.direction_right))
    }

    /// Checks that everything in it follows from its rows' values.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), String> {
        if let Some(r) = self.rows.iter().find(|r| !r.is_honest()) {
            return Err(format!("{} {}: its verdict is not what its values say", r.entry, r.name));
        }
        for e in &self.entries {
            let rows: Vec<&Row> = self.rows.iter().filter(|r| r.entry == e.id).collect();
            if rows.is_empty() {
                return Err(format!("{}: no values", e.id));
            }
            if rows.iter().any(|r| r.kind != e.kind) {
                return Err(format!("{}: rows of another kind", e.id));
            }
            let verdict = (rows.iter().all(|r| r.within), rows.iter().all(|r| r.direction_right));
            if verdict != (e.within, e.direction_right) {
                return Err(format!("{}: its verdict is not what its rows say", e.id));
            }
        }
        if let Some(r) = self.rows.iter().find(|r| !self.entries.iter().any(|e| e.id == r.entry)) {
            return Err(format!("{}: rows of an entry that is not listed", r.entry));
        }
        let said = (self.predicted, self.within, self.direction_right);
        if self.counts() != said {
            return Err(format!("counts {said:?}; the rows give {:?}", self.counts()));
        }
        Ok(())
    }

    /// Combines shards, in the order of `asked`.
    ///
    /// # Errors
    ///
    /// Shards of different programs or questions, an entry that occurs twice, one that occurs in no
    /// shard.
    pub fn merge(shards: &[Summary]) -> Result<Summary, String> {
        let first = shards.first().ok_or("no summaries to merge")?;
        let mut merged = Summary { shard: None, entries: vec![], rows: vec![], ..first.clone() };
        for s in shards {
            s.check()?;
            if (&s.version, &s.asked) != (&first.version, &first.asked) {
                return Err("these summaries are of different versions or entries".to_string());
            }
        }
        for id in &first.asked {
            let mut with = shards.iter().filter(|s| s.entries.iter().any(|e| e.id == *id));
            let of =
                with.next().ok_or_else(|| format!("no shard has made {id}: one is missing"))?;
            if with.next().is_some() {
                return Err(format!("{id} is in two shards"));
            }
            merged.entries.extend(of.entries.iter().filter(|e| e.id == *id).cloned());
            merged.rows.extend(of.rows.iter().filter(|r| r.entry == *id).cloned());
        }
        (merged.predicted, merged.within, merged.direction_right) = merged.counts();
        merged.check()?;
        Ok(merged)
    }
}

fn all(rows: &[Row], is: fn(&Row) -> bool) -> bool {
    !rows.is_empty() && rows.iter().all(is)
}
