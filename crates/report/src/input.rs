// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads results.jsonl: streams of records, possibly cut off. What stands before a cut counts.

use crate::check::{clean, printable, wrong_in};
use std::path::{Path, PathBuf};
use unspin_scenario::plan::SCHEMA;
use unspin_scenario::result::{Begin, Record, RunResult};

/// One agent's records: from its Begin to its End, or to where they stop.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    pub begin: Begin,
    pub runs: Vec<RunResult>,
    pub failed: Vec<(u32, String)>,
    /// Runs the plan had, if a progress record said so.
    pub total: Option<u32>,
    pub ended: bool,
}

/// What was read, and what was wrong with it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Input {
    pub streams: Vec<Stream>,
    pub notices: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {error}")]
pub struct ReadError {
    pub path: PathBuf,
    pub error: std::io::Error,
}

/// Reads files, or directories that hold a results.jsonl.
pub fn read_files(paths: &[PathBuf]) -> Result<Input, ReadError> {
    let mut input = Input::default();
    for path in paths {
        let path = if path.is_dir() { path.join("results.jsonl") } else { path.clone() };
        let bytes =
            std::fs::read(&path).map_err(|error| ReadError { path: path.clone(), error })?;
        let part = read_str(&path, &String::from_utf8_lossy(&bytes));
        input.streams.extend(part.streams);
        input.notices.extend(part.notices);
    }
    Ok(input)
}

/// Reads the text of one file. Runs no unspin can have written are left out; text is made fit for a
/// terminal.
pub fn read_str(path: &Path, text: &str) -> Input {
    let mut input = Input::default();
    let mut open: Option<Stream> = None;
    let shown = path.display();
    let lines = text.lines().count();
    let mut records = 0;
    for (n, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let record: Record = match serde_json::from_str(line) {
            Ok(r) => r,
            Err(e) => {
                let what = if n == lines && (e.is_eof() || !text.ends_with('\n')) {
                    format!("{shown}:{n}: the last record is cut off and lost; records before it: {records}")
                } else {
                    format!("{shown}:{n}: not a record, left out: {e}")
                };
                input.notices.push(what);
                continue;
            }
        };
        records += 1;
        if let Record::Run(r) = &record {
            if let Some(wrong) = wrong_in(r) {
                input.notices.push(format!("{shown}:{n}: run {} left out: {wrong}", r.run.id));
                continue;
            }
        }
        match record {
            Record::Begin(b) if b.schema != SCHEMA => {
                close(&mut input, open.take(), path);
                input.notices.push(format!(
                    "{shown}:{n}: records of schema {}, this program reads {SCHEMA}; left out",
                    b.schema
                ));
            }
            Record::Begin(mut begin) => {
                clean(&mut begin);
                close(&mut input, open.take(), path);
                open = Some(Stream {
                    begin,
                    runs: Vec::new(),
                    failed: Vec::new(),
                    total: None,
                    ended: false,
                });
            }
            Record::End { .. } => {
                if let Some(s) = &mut open {
                    s.ended = true;
                }
                close(&mut input, open.take(), path);
            }
            other => match &mut open {
                Some(s) => add(s, other),
                None => input.notices.push(format!(
                    "{shown}:{n}: a record outside begin and end, left out: nothing says where it is from"
                )),
            },
        }
    }
    close(&mut input, open.take(), path);
    if input.streams.is_empty() && input.notices.is_empty() {
        input.notices.push(format!("{shown}: no records"));
    }
    for n in &mut input.notices {
        *n = printable(n);
    }
    input
}

fn add(s: &mut Stream, record: Record) {
    match record {
        Record::Run(mut r) => {
            for error in r.vm.iter_mut().filter_map(|v| v.error.as_mut()) {
                *error = printable(error);
            }
            s.runs.push(*r);
        }
        Record::Failed { id, error } => s.failed.push((id, error)),
        Record::Progress(p) => s.total = Some(p.total),
        Record::Log { .. } | Record::Begin(_) | Record::End { .. } => {}
    }
}

fn close(input: &mut Input, stream: Option<Stream>, path: &Path) {
    let Some(s) = stream else {
        return;
    };
    let from = format!("{}: {} on {}", path.display(), s.begin.scenario, s.begin.kernel);
    if !s.ended {
        let of = s.total.map(|t| format!(" of {t}")).unwrap_or_default();
        input.notices.push(format!(
            "{from}: no end record: {}{of} runs are here and count, the rest was lost; `unspin bench --resume` makes it",
            s.runs.len()
        ));
    }
    for (id, error) in &s.failed {
        input.notices.push(format!("{from}: run {id} failed: {error}"));
    }
    input.streams.push(s);
}
