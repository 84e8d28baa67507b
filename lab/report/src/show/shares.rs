// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each VM got from the host, in arms with turns.

use crate::one_vm::Share;
use crate::summary::{Place, Row, Summary};
use serde::Serialize;

/// The shares of all VMs of a row, each in %.
#[derive(Serialize)]
pub(crate) struct Shares<'a> {
    #[serde(flatten)]
    row: &'a Row,
    cpu_shares: String,
    turn_shares: String,
}

/// The shares of all rows whose arms have turns.
pub(crate) fn shares(s: &Summary) -> Vec<Shares<'_>> {
    let whole = s.arms.iter().filter(|r| r.key.is_whole() && has_turns(s, r));
    let of = |row| Shares { row, cpu_shares: cpu_shares(s, row), turn_shares: turn_shares(s, row) };
    whole.map(of).collect()
}

/// Whether the row's arm has turns.
pub(crate) fn has_turns(s: &Summary, whole: &Row) -> bool {
    of_vms(s, whole).any(|share| share.turn.is_some())
}

/// CPU time of each of the row's VMs.
pub(crate) fn cpu_shares(s: &Summary, whole: &Row) -> String {
    joined(of_vms(s, whole).map(|share| share.cpu))
}

/// The time of each VM's own turns.
pub(crate) fn turn_shares(s: &Summary, whole: &Row) -> String {
    match has_turns(s, whole) {
        true => joined(of_vms(s, whole).map(|share| share.turn)),
        false => "-".to_string(),
    }
}

/// Which VMs have no turns, and why.
pub(crate) fn refusals(s: &Summary, place: &Place) -> Vec<String> {
    let of_vm = |r: &Row| {
        let (key, reason) = (&r.key, r.turns.refused.as_ref()?);
        let vm = key.vm_index.filter(|_| key.place() == *place)?;
        Some(format!("{}, {}: VM {vm} has no turns: {reason}", key.profile, key.arm))
    };
    s.arms.iter().filter_map(of_vm).collect()
}

fn of_vms<'a>(s: &'a Summary, whole: &'a Row) -> impl Iterator<Item = Share> + 'a {
    let of = &whole.key;
    let is_of = move |r: &&Row| {
        let key = &r.key;
        (&key.arm, &key.profile, key.place()) == (&of.arm, &of.profile, of.place())
    };
    s.arms.iter().filter(is_of).filter_map(|r| r.share)
}

fn joined(shares: impl Iterator<Item = Option<f64>>) -> String {
    let percent = |x: Option<f64>| x.map_or("-".to_string(), |x| format!("{:.0}", 100.0 * x));
    match shares.map(percent).collect::<Vec<_>>() {
        none if none.is_empty() => "-".to_string(),
        all => all.join("+"),
    }
}
