// SPDX-License-Identifier: MIT OR Apache-2.0
//! All rows as CSV. Unknown values are empty.

use crate::summary::{Document, Summary};
use serde_json::Value;

/// One line per row of every document; machine and kernel come first.
pub fn csv(docs: &[Document]) -> String {
    let header = cells_of([Value::Null, Value::Null, Value::Null], &Value::Null);
    let mut out = line(header.into_iter().map(|(name, _)| name));
    for d in docs {
        for row in &d.summary.arms {
            let Ok(fields) = serde_json::to_value(row) else {
                continue;
            };
            let Summary { machine, kernel, scenario, .. } = &d.summary;
            let first = [machine, kernel, scenario].map(|text| Value::from(text.as_str()));
            out += &line(cells_of(first, &fields).iter().map(|(_, v)| cell(v)));
        }
    }
    out
}

fn line(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<_>>().join(",") + "\n"
}

/// The cells of a row, with their names.
fn cells_of([machine, kernel, scenario]: [Value; 3], fields: &Value) -> Vec<(String, Value)> {
    let names = ["machine", "kernel", "scenario"].map(String::from);
    let mut cells: Vec<_> = names.into_iter().zip([machine, kernel, scenario]).collect();
    for key in KEYS.split(' ') {
        flatten(key, fields.get(key).unwrap_or(&Value::Null), &mut cells);
    }
    cells
}

const KEYS: &str = "\
    profile vms vm_index cgroup lock arm baseline same_as repeats performance performance_low \
    performance_high performance_min performance_max verdict throughput_per_s inefficiency \
    inefficiency_min inefficiency_max inefficiency_change ple_exits exit_handling_cycles \
    yields picks_ran_next picks_ran_next_share window_cycles epoch_ple_exits epochs rounds \
    adapted wait_cycles fairness fairness_vms cpus_used hypercalls_kick hypercalls_sched_yield \
    fail_open_events";

/// Columns of the keys whose values are tables.
const PARTS: &[(&str, &[&str])] = &[
    (
        "yields",
        &["resource_waiter", "lock_waiter", "yielded", "woken", "none", "gave_way", "failed"],
    ),
    ("window_cycles", &["min", "median", "max", "last"]),
    ("wait_cycles", &["p50", "p99", "max"]),
];

fn flatten(key: &str, v: &Value, cells: &mut Vec<(String, Value)>) {
    match PARTS.iter().find(|(k, _)| *k == key) {
        Some((_, parts)) => {
            for p in *parts {
                let inner = v.get(p).cloned().unwrap_or(Value::Null);
                cells.push((format!("{key}_{p}"), inner));
            }
        }
        None => cells.push((key.to_string(), v.clone())),
    }
}

fn cell(v: &Value) -> String {
    match v {
        Value::Null => String::new(),
        Value::String(s) if s.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", s.replace('"', "\"\""))
        }
        Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}
