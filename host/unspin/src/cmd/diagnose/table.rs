// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of a diagnosis, as wide as the terminal.

use crate::cmd::top::line::{total, Line};
use crate::fit::{percent, table, table_of_vms, Column};
use unspin_diagnosis::{Cause, Did, Loss, State};
use unspin_text::printable;

/// States with a smaller share of the wall time are in --json only; top does not show them.
pub const STATE_SHARE_MIN: f64 = 0.0005;

fn or_unknown(number: Option<f64>, text: impl Fn(f64) -> String) -> String {
    number.map_or("?".into(), text)
}

fn in_percent(share: Option<f64>) -> String {
    or_unknown(share, |share| format!("{:.1}", 100.0 * share))
}

const OF_ALL: [Column; 7] = [
    Column::number("lost%", 1),
    Column::text("cause", 3),
    Column::number("%RDY", 2),
    Column::number("%CSTP", 4),
    Column::number("%MLMTD", 8),
    Column::number("guest%", 6),
    Column::number("idle%", 7),
];

/// Columns of VMs or of vCPUs: `first`, those of both, and one per cause.
fn columns(first: &[Column]) -> Vec<Column> {
    let causes = Cause::ALL.map(|cause| Column::number(cause.name(), 9));
    [first, &OF_ALL, &causes].concat()
}

/// The cells after the first columns.
fn cells(row: &Line) -> Vec<String> {
    let plain = |number: f64| format!("{number:.1}");
    let words = &row.words;
    let mut cells = vec![
        in_percent(total(&row.lost)),
        row.mostly().to_string(),
        or_unknown(words.ready_pct, plain),
        or_unknown(words.costop_pct, plain),
        or_unknown(words.limit_pct, plain),
        in_percent(row.guest),
        in_percent(row.idle),
    ];
    cells.extend(row.lost.iter().map(|lost| in_percent(*lost)));
    cells
}

pub fn of_vms(rows: &[&Line], width: usize) -> String {
    let mut columns = columns(&[Column::text("VM", 0), Column::number("vCPUs", 5)]);
    columns.push(Column::number("pid", 10));
    let line = |row: &&Line| {
        let first = vec![printable(&row.name), row.vcpus.to_string()];
        [first, cells(row), vec![row.id.to_string()]].concat()
    };
    let selectors: Vec<String> = rows.iter().map(|row| format!("pid:{}", row.id)).collect();
    table_of_vms(&columns, &rows.iter().map(line).collect::<Vec<_>>(), &selectors, width)
}

pub fn of_vcpus(rows: &[Line], width: usize) -> String {
    let line = |row: &Line| [vec![printable(&row.name)], cells(row)].concat();
    let rows: Vec<Vec<String>> = rows.iter().map(line).collect();
    table(&columns(&[Column::text("vCPU", 0)]), &rows, width)
}

pub fn of_causes(causes: &[Loss], width: usize) -> String {
    let columns = [
        Column::text("cause", 0),
        Column::number("lost s/s", 2),
        Column::number("share", 1),
        Column::text("certainty", 3),
        Column::text("based on", 4),
    ];
    let line = |cause: &Loss| {
        vec![
            cause.cause.name().to_string(),
            or_unknown(cause.lost_s_per_s, |lost| format!("{lost:.3}")),
            or_unknown(cause.share, percent),
            cause.sure.name().to_string(),
            cause.stands_on.clone(),
        ]
    };
    table(&columns, &causes.iter().map(line).collect::<Vec<_>>(), width)
}

pub fn of_states(did: &Did, width: usize) -> String {
    let columns = [
        Column::text("state", 0),
        Column::number("vCPU-seconds", 2),
        Column::number("share", 1),
        Column::text("meaning", 3),
    ];
    let line = |(state, time): (State, u64)| {
        let share = did.share(&[state]);
        (share >= STATE_SHARE_MIN).then(|| {
            vec![
                state.name().to_string(),
                format!("{:.3}", time as f64 / 1e9),
                percent(share),
                state.meaning().to_string(),
            ]
        })
    };
    table(&columns, &did.times.spent().filter_map(line).collect::<Vec<_>>(), width)
}
