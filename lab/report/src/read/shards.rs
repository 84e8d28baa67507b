// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins shares of one plan, from different computers, into one stream.

use crate::read::input::Stream;
use std::collections::BTreeSet;
use unspin_scenario::result::{Begin, Shard};

/// Joins the streams of one plan's shares at the place of the first, with the runs in the plan's
/// order. Also returns the missing shares.
pub(crate) fn join(streams: &[Stream]) -> (Vec<Stream>, Vec<String>) {
    let mut groups: Vec<(Option<Begin>, Vec<&Stream>)> = Vec::new();
    for s in streams {
        let whole = whole_of(&s.begin);
        match groups.iter_mut().find(|(w, _)| whole.is_some() && *w == whole) {
            Some((_, group)) => group.push(s),
            None => groups.push((whole, vec![s])),
        }
    }
    let mut notices = Vec::new();
    let joined = groups.into_iter().map(|(whole, group)| match whole {
        Some(begin) => one(begin, &group, &mut notices),
        None => group[0].clone(),
    });
    (joined.collect(), notices)
}

/// The common part of all shares of a plan; `None` for a stream that is not a share.
fn whole_of(begin: &Begin) -> Option<Begin> {
    let shard = begin.shard?;
    Some(Begin { shard: Some(Shard { index: 0, ..shard }), ..begin.clone() })
}

fn one(whole: Begin, group: &[&Stream], notices: &mut Vec<String>) -> Stream {
    let shard = whole.shard.unwrap_or(Shard { index: 0, of: 0, runs: 0 });
    let mut runs: Vec<_> = group.iter().flat_map(|s| s.runs.iter().cloned()).collect();
    runs.sort_by_key(|r| r.run.id);
    let mut failed: Vec<_> = group.iter().flat_map(|s| s.failed.iter().cloned()).collect();
    failed.sort();
    let have: BTreeSet<u32> = group.iter().filter_map(|s| s.begin.shard.map(|s| s.index)).collect();
    let missing: Vec<String> =
        (1..=shard.of).filter(|i| !have.contains(i)).map(|i| format!("{i}/{}", shard.of)).collect();
    let made = runs.iter().map(|r| r.run.id).collect::<BTreeSet<_>>().len();
    if !missing.is_empty() {
        notices.push(format!(
            "{} on {}: shard {} missing: {made} of {} runs are here and count",
            whole.scenario,
            whole.kernel,
            missing.join(", "),
            shard.runs,
        ));
    }
    Stream {
        begin: Begin { shard: None, ..whole },
        ended: missing.is_empty() && group.iter().all(|s| s.ended),
        runs,
        failed,
        total: Some(shard.runs),
    }
}
