// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells and links of pages in Markdown.

use serde_json::Value;

/// A percentage in brackets, to follow a count; empty if there is none.
pub fn share(n: u32, of: u32) -> String {
    match of {
        0 => String::new(),
        _ => format!(" ({:.0} %)", 100.0 * f64::from(n) / f64::from(of)),
    }
}

/// The text with a full stop.
pub fn closed(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

/// The anchor of a heading on GitHub.
pub fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || ['-', '_', ' '].contains(c);
    heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

/// The text as a cell of a table.
pub fn cell(s: &str) -> String {
    s.replace('|', "\\|").replace('\n', " ")
}

/// Shows a value of a claim, or one of ours.
pub fn show(v: &Value) -> String {
    match v {
        Value::Null => "-".to_string(),
        Value::String(s) => s.clone(),
        Value::Bool(b) => if *b { "holds" } else { "does not hold" }.to_string(),
        Value::Array(all) => all.iter().map(show).collect::<Vec<_>>().join(" and "),
        Value::Number(n) => match n.as_f64() {
            Some(x) if n.is_f64() => figure(x),
            _ => n.to_string(),
        },
        Value::Object(_) => v.to_string(),
    }
}

/// Three significant digits, or the whole number, as papers print them.
pub fn figure(x: f64) -> String {
    match x.abs() {
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        _ => {
            let text = format!("{x:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
    }
}
