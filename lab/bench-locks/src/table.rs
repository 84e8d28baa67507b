// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table on the terminal.

use crate::figures::Row;

/// The rows as a table. Waits are in us; "by time" is the mean weighted by time, "cut" counts waits that
/// the window ended, and "CPU" is CPU seconds per million acquisitions.
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<22} {:>9} {:>10} {:>10} {:>10} {:>6} {:>9} {:>9} {:>10} {:>10} {:>4} {:>7}\n",
        "lock",
        "part",
        "per s",
        "min",
        "max",
        "CPU",
        "p99",
        "p99.9",
        "longest",
        "by time",
        "cut",
        "max/min"
    );
    let shown = |figure: Option<f64>| figure.map_or("-".to_string(), |m| format!("{m:.2}"));
    for r in rows {
        text += &format!(
            "{:<22} {:>9} {:>10.0} {:>10.0} {:>10.0} {:>6} {:>9.2} {:>9.2} {:>10.1} {:>10.1} {:>4} {:>7}\n",
            r.lock,
            r.part.name(),
            r.throughput_per_s,
            r.throughput_min,
            r.throughput_max,
            shown(r.cpu_s_per_million),
            r.p99_wait_ns / 1e3,
            r.p999_wait_ns / 1e3,
            r.max_wait_ns / 1e3,
            r.wait_by_time_ns / 1e3,
            r.unfinished_waits,
            shown(r.max_min)
        );
    }
    text
}
