// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin top --once`: a table, for scripts.

use super::line::{total, Line};
use std::fmt::Write;
use unspin_diagnosis::Cause;

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "?".into(), |share| format!("{:.1}", 100.0 * share))
}

/// A line per VM, below a line of titles. Columns are apart by spaces. The name is last, for it may hold
/// spaces.
pub fn table(lines: &[Line]) -> String {
    let mut text =
        format!("{:>7} {:>5} {:>6} {:>6} {:>6}", "pid", "vcpus", "guest%", "idle%", "lost%");
    for cause in Cause::ALL {
        let _ = write!(text, " {:>12}", format!("{}%", cause.name()));
    }
    let _ = writeln!(text, " {:<11} name", "dominant");
    for line in lines {
        let [guest, idle, lost] = [line.guest, line.idle, total(&line.lost)].map(percent);
        let _ = write!(text, "{:>7} {:>5} {guest:>6} {idle:>6} {lost:>6}", line.id, line.vcpus);
        for lost in &line.lost {
            let _ = write!(text, " {:>12}", percent(*lost));
        }
        let _ = writeln!(text, " {:<11} {}", line.dominant.map_or("-", Cause::name), line.name);
    }
    text
}
