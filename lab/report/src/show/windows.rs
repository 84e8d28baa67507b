// SPDX-License-Identifier: MIT OR Apache-2.0
//! The windows of arms that adapt them: their values, the number of rounds, and arms whose windows
//! never moved.

use crate::show::place::arm_order;
use crate::summary::Row;

/// The rows of arms that adapt their windows.
pub(crate) fn adapting<'a>(rows: &[&'a Row]) -> Vec<&'a Row> {
    rows.iter().copied().filter(|r| r.adapted.is_some()).collect()
}

/// A row's window at the end and its rounds.
pub(crate) fn window(r: &Row) -> String {
    match (r.window_cycles.last, r.rounds) {
        (Some(cycles), Some(rounds)) => format!("{cycles} ({rounds})"),
        _ => "-".to_string(),
    }
}

/// A sentence per arm that only adapts windows and never moved one.
pub(crate) fn still(rows: &[&Row]) -> Vec<String> {
    let sentence = |arm: &str| {
        let of_arm = rows.iter().filter(|r| r.key.arm == arm && r.never_moved());
        let still: Vec<&&Row> = of_arm.filter(|r| r.is_aple_alone).collect();
        let first = still.first()?;
        let profiles: Vec<&str> = still.iter().map(|r| r.key.profile.as_str()).collect();
        let epoch = first.epoch_ple_exits.map(|n| format!(" of {n} PLE exits"));
        let window = first.window_cycles.last.map(|n| format!(" of {n} cycles"));
        Some(format!(
            "{arm} never moved its window at {}: no epoch{} ended while it was measured. Its \
             figures there are those of a fixed window{}.",
            profiles.join(", "),
            epoch.unwrap_or_default(),
            window.unwrap_or_default(),
        ))
    };
    arm_order(rows).into_iter().filter_map(sentence).collect()
}
