// SPDX-License-Identifier: MIT OR Apache-2.0
//! Known reasons for misses: `papers/KEY/reasons.toml`, one reason per entry or value.
//!
//! ```toml
//! apples_fig6_ebizzy = "for the whole entry"
//! "apples_fig6_ebizzy inefficiency_cut.aple" = "for one value"
//! ```

use crate::entry::CONDITION;
use crate::{Claims, Error, Row, Summary};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Reasons by entry, or by entry and value's name separated by a space.
#[derive(Debug, Clone, Default)]
pub struct Reasons(BTreeMap<String, String>);

impl Reasons {
    /// Reads the reasons of all papers; `root` holds `papers/`.
    ///
    /// # Errors
    /// A file that cannot be read, a reason for what its paper does not say.
    pub fn read(root: &Path, claims: &Claims) -> Result<Reasons, Error> {
        let mut reasons = Reasons::default();
        for (paper, _) in &claims.papers {
            let path = root.join("papers").join(paper).join("reasons.toml");
            let text = std::fs::read_to_string(&path)
                .map_err(|error| Error::Read { path: path.clone(), error })?;
            reasons.add(paper, &text, claims).map_err(|text| Error::Wrong { path, text })?;
        }
        Ok(reasons)
    }

    fn add(&mut self, paper: &str, text: &str, claims: &Claims) -> Result<(), String> {
        let read: BTreeMap<String, String> = toml::from_str(text).map_err(|e| e.to_string())?;
        for (key, reason) in read {
            check(&key, paper, claims)?;
            self.0.insert(key, reason);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn of(reasons: &[(&str, &str)]) -> Reasons {
        Reasons(reasons.iter().map(|(key, why)| (key.to_string(), why.to_string())).collect())
    }

    /// The reason for this value alone.
    pub fn of_value(&self, row: &Row) -> Option<&str> {
        self.0.get(&value_key(row)).map(String::as_str)
    }

    /// The reason for all values of an entry without a reason of their own.
    pub fn of_entry(&self, entry: &str) -> Option<&str> {
        self.0.get(entry).map(String::as_str)
    }

    /// Reasons of complete entries for values that do not miss.
    pub fn idle(&self, summary: &Summary) -> Vec<&str> {
        let used: BTreeSet<String> = (summary.rows.iter().filter(|r| r.misses()))
            .map(|r| {
                Some(value_key(r)).filter(|k| self.0.contains_key(k)).unwrap_or(r.entry.clone())
            })
            .collect();
        let entry = |key: &str| key.split(' ').next().unwrap_or(key).to_string();
        let made = |key: &str| summary.entries.iter().any(|e| e.id == entry(key));
        self.0.keys().filter(|k| made(k) && !used.contains(*k)).map(String::as_str).collect()
    }
}

/// The key of a value's own reason.
fn value_key(row: &Row) -> String {
    format!("{} {}", row.entry, row.name)
}

fn check(key: &str, paper: &str, claims: &Claims) -> Result<(), String> {
    let (id, name) = match key.split_once(' ') {
        Some((id, name)) => (id, Some(name)),
        None => (key, None),
    };
    let claim = claims.of(paper).find(|c| c.id == id);
    let claim =
        claim.ok_or_else(|| format!("a reason for {id:?}, which is no claim of {paper}"))?;
    match name.map(|n| n.split(": ").next().unwrap_or(n)) {
        Some(name) if name != CONDITION && claim.get(name).is_none() => {
            Err(format!("a reason for {name:?}; {id} has {}", claim.names().join(", ")))
        }
        _ => Ok(()),
    }
}
