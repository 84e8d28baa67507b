// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unknown values of a file: `{ range = [1200, 33000], source = "…" }` and `{ any = ["flat", "vm"],
//! source = "…" }` in place of any value.
//!
//! They are replaced in the text before a file is read, so that readers of keys need not support
//! them. Line numbers do not change.

use std::collections::HashSet;
use std::ops::Range;
use unspin_text::Problems;
use unspin_text::{Reader, Table, Value};

/// The possible values.
#[derive(Debug, Clone, PartialEq)]
pub enum Domain {
    /// Uniform between two bounds; whole numbers only if both bounds are. With `log` the logarithm
    /// is uniform.
    Range { least: f64, most: f64, whole: bool, log: bool },
    /// One of these, each as likely, in the file's notation.
    Any(Vec<String>),
}

/// An unknown value of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Unknown {
    /// Dotted path with indices, such as `host.exit_cycles` or `step[2].iterations`.
    pub path: String,
    pub domain: Domain,
    /// The source of the range or choice.
    pub source: String,
    /// The value for a run without draws, in the file's notation.
    pub usual: String,
}

impl Unknown {
    /// The value at the place `at`, 0 to 1, in the file's notation. Equal steps of `at` are equally
    /// likely.
    pub fn value(&self, at: f64) -> String {
        let at = at.clamp(0.0, 1.0);
        match &self.domain {
            Domain::Any(all) => all[below(at, all.len())].clone(),
            Domain::Range { least, most, whole: true, log: false } => {
                written(least + below(at, (most - least) as usize + 1) as f64, true)
            }
            Domain::Range { least, most, whole, log } => {
                let x = match log {
                    _ if at == 1.0 => *most,
                    true => least * (most / least).powf(at),
                    false => least + (most - least) * at,
                };
                written(x.clamp(*least, *most), *whole)
            }
        }
    }
}

impl Unknown {
    /// The places of all values of a choice, and of both ends of a range.
    pub fn extremes(&self) -> Vec<f64> {
        match &self.domain {
            Domain::Range { .. } => vec![0.0, 1.0],
            Domain::Any(all) => {
                (0..all.len()).map(|i| (i as f64 + 0.5) / all.len() as f64).collect()
            }
        }
    }
}

/// Which of `n` equal parts of the range 0 to 1 contains `at`.
fn below(at: f64, n: usize) -> usize {
    ((at * n as f64) as usize).min(n - 1)
}

/// A number in TOML.
fn written(x: f64, whole: bool) -> String {
    match whole {
        true => format!("{:.0}", x.round()),
        false => format!("{x:?}"),
    }
}

/// A file with unknown values.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranges {
    text: String,
    pub unknown: Vec<Unknown>,
    /// The position of each in the text.
    spans: Vec<Range<usize>>,
}

impl Ranges {
    /// Finds the ranges and choices of a file. `file` is its name in errors.
    ///
    /// # Errors
    ///
    /// Reversed ranges and ranges with one value, empty choices, and missing sources, each with its
    /// place. Text that is not TOML has no ranges; the reader of the file reports its errors.
    pub fn read(file: &str, text: &str) -> Result<Ranges, Problems> {
        let none = Ranges { text: text.to_string(), unknown: Vec::new(), spans: Vec::new() };
        let reader = Reader::new(file, text);
        let found = {
            let doc = reader.parse();
            if !reader.is_clean() {
                return Ok(none);
            }
            let mut found = Vec::new();
            let top = Table::top(&reader, &doc);
            top.values().for_each(|v| find(&v, text, &mut found));
            found
        };
        let (unknown, spans) = found.into_iter().unzip();
        reader.finish(Some(Ranges { unknown, spans, ..none }))
    }

    /// The file with the usual values.
    pub fn usual(&self) -> String {
        self.with(|unknown, _| unknown.usual.clone())
    }

    /// The file with the values at these places, 0 to 1, one for each of `unknown`; the usual value
    /// for a place of `None`.
    pub fn at(&self, at: &[Option<f64>]) -> String {
        let place = |i: usize| at.get(i).copied().flatten();
        self.with(|unknown, i| place(i).map_or(unknown.usual.clone(), |at| unknown.value(at)))
    }

    fn with(&self, value: impl Fn(&Unknown, usize) -> String) -> String {
        let mut places: Vec<usize> = (0..self.spans.len()).collect();
        places.sort_by_key(|i| self.spans[*i].start);
        let (mut out, mut from) = (String::new(), 0);
        for i in places {
            let span = &self.spans[i];
            out += &self.text[from..span.start];
            out += &in_place(&self.unknown[i].path, value(&self.unknown[i], i));
            // A list may extend over several lines.
            let lines = self.text[span.clone()].matches('\n').count();
            from = span.end;
            if lines > 0 {
                out += &"\n".repeat(lines);
            }
        }
        out + &self.text[from..]
    }
}

/// A swept key is a list, so a single value becomes a list with one value.
fn in_place(path: &str, value: String) -> String {
    let is_list = path.strip_prefix("sweep.").is_some_and(|key| !key.contains(['.', '[']));
    match is_list && !value.starts_with('[') {
        true => format!("[{value}]"),
        false => value,
    }
}

fn find(v: &Value, text: &str, found: &mut Vec<(Unknown, Range<usize>)>) {
    if v.is_array() {
        v.array("").into_iter().flatten().for_each(|v| find(&v, text, found));
        return;
    }
    let Some(t) = v.is_table().then(|| v.table("")).flatten() else { return };
    let keys = t.keys();
    if keys.contains(&"range") || keys.contains(&"any") {
        found.extend(read(v, &t, text).map(|unknown| (unknown, v.span())));
        return;
    }
    t.values().for_each(|v| find(&v, text, found));
}

fn read(v: &Value, t: &Table, text: &str) -> Option<Unknown> {
    if !text[v.span()].starts_with('{') {
        v.problem(
            "ranges and choices stand in braces",
            "{ range = [least, most], source = \"…\" }",
        );
        return None;
    }
    t.only(&["range", "log", "any", "usual", "source"]);
    let source = t.need("source", "where it comes from: a document, a measurement, or \"a guess\"");
    let source = source.and_then(|s| {
        let said = s.str("a string")?;
        if said.trim().is_empty() {
            s.problem("is empty", "a document, a measurement, or \"a guess\"");
            return None;
        }
        Some(said.to_string())
    });
    let read = match (t.get("range"), t.get("any")) {
        (Some(_), Some(any)) => {
            any.problem("is not allowed with range", "range or any");
            None
        }
        (Some(range), None) => read_range(t, &range, text),
        (None, any) => read_choice(t, &any?, text),
    };
    let (domain, usual) = read?;
    Some(Unknown { path: v.path.clone(), domain, source: source?, usual })
}

/// The range and its usual value: the middle, unless given.
fn read_range(t: &Table, range: &Value, text: &str) -> Option<(Domain, String)> {
    const FORM: &str = "[least, most]";
    let ends = range.array(FORM)?;
    let [a, b] = ends.as_slice() else {
        range.problem(format!("{} numbers", ends.len()), FORM);
        return None;
    };
    let log = t.get("log").map_or(Some(false), |v| v.bool());
    let (least, most) = (number(a)?, number(b)?);
    let whole = a.is_integer() && b.is_integer();
    if least > most {
        let turned = format!("[{}, {}]", &text[b.span()], &text[a.span()]);
        range.problem("the lower end of the range is above the upper end", turned);
        return None;
    }
    if least == most {
        range.problem("a range of one value", format!("{} itself", &text[a.span()]));
        return None;
    }
    let log = log?;
    if log && least <= 0.0 {
        a.problem("a logarithmic range must start above 0", "a positive number, or omit log");
        return None;
    }
    let middle = if log { (least * most).sqrt() } else { (least + most) / 2.0 };
    let usual = match t.get("usual") {
        None => written(middle, whole),
        Some(v) => {
            let usual = number(&v)?;
            if !(least..=most).contains(&usual) || (whole && !v.is_integer()) {
                v.problem("is not in the range", format!("from {least} to {most}"));
                return None;
            }
            text[v.span()].to_string()
        }
    };
    Some((Domain::Range { least, most, whole, log }, usual))
}

fn number(v: &Value) -> Option<f64> {
    let n = match v.is_integer() {
        true => v.integer(0..=1 << 53, "").map(|n| n as f64),
        false => v.number("a number"),
    };
    let finite = n.filter(|n| n.is_finite());
    if n.is_some() && finite.is_none() {
        v.problem("not a finite number", "a number");
    }
    finite
}

/// The choice and its usual value: the first, unless given.
fn read_choice(t: &Table, any: &Value, text: &str) -> Option<(Domain, String)> {
    let all = any.array("a list of values")?;
    let all: Vec<String> = all.iter().map(|v| text[v.span()].to_string()).collect();
    if all.len() < 2 {
        let what = if all.is_empty() { "an empty choice" } else { "a choice of one value" };
        any.problem(what, "two values or more, or the value itself");
        return None;
    }
    let mut seen = HashSet::new();
    if let Some(twice) = all.iter().find(|value| !seen.insert(*value)) {
        any.problem(format!("{twice} is listed twice"), "each once");
        return None;
    }
    if let Some(log) = t.get("log") {
        log.problem("is for ranges", "left out");
    }
    let usual = match t.get("usual") {
        None => all[0].clone(),
        Some(v) if all.contains(&text[v.span()].to_string()) => text[v.span()].to_string(),
        Some(v) => {
            v.problem("is none of them", all.join(", "));
            return None;
        }
    };
    Some((Domain::Any(all), usual))
}
