// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads results.jsonl: streams of records. If a stream is cut off, the records before the cut
//! count.

use crate::read::check::{clean, wrong_in};
use std::path::{Path, PathBuf};
use unspin_scenario::plan::SCHEMA;
use unspin_scenario::result::{Begin, Record, RunResult};
use unspin_text::{printable, read_file, ReadError, RESULTS_MAX};

/// The records of one agent: from its Begin to its End, or to the last one.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    pub begin: Begin,
    pub runs: Vec<RunResult>,
    pub failed: Vec<(u32, String)>,
    /// Number of runs of the plan, if a progress record has it.
    pub total: Option<u32>,
    pub ended: bool,
}

/// The streams that were read, and the errors found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Input {
    pub streams: Vec<Stream>,
    pub notices: Vec<String>,
}

/// Reads files, or directories with a results.jsonl.
pub fn read_files(paths: &[PathBuf]) -> Result<Input, ReadError> {
    let mut input = Input::default();
    for path in paths {
        let path = if path.is_dir() { path.join("results.jsonl") } else { path.clone() };
        let bytes = read_file(&path, RESULTS_MAX)?;
        let part = read_str(&path, &String::from_utf8_lossy(&bytes));
        input.streams.extend(part.streams);
        input.notices.extend(part.notices);
    }
    Ok(input)
}

/// Reads the text of one file. Leaves out runs that unspin cannot have written, and makes text safe
/// for a terminal.
pub fn read_str(path: &Path, text: &str) -> Input {
    let mut file = Reader { path, input: Input::default(), open: None };
    let lines = text.lines().count();
    let mut records = 0;
    for (n, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        match Record::from_json(line.as_bytes()) {
            Ok(record) => {
                records += 1;
                file.take(n, record);
            }
            Err(e) if n == lines && (e.is_eof() || !text.ends_with('\n')) => {
                let before = format!("records before it: {records}");
                file.note(n, format!("the last record is cut off and lost; {before}"));
            }
            Err(e) => file.note(n, format!("not a record, left out: {e}")),
        }
    }
    file.close();
    let mut input = file.input;
    if input.streams.is_empty() && input.notices.is_empty() {
        input.notices.push(format!("{}: no records", path.display()));
    }
    for n in &mut input.notices {
        *n = printable(n);
    }
    input
}

/// A file, as far as it was read.
struct Reader<'a> {
    path: &'a Path,
    input: Input,
    /// The present stream, without an End so far.
    open: Option<Stream>,
}

impl Reader<'_> {
    /// Records a note about line `n`.
    fn note(&mut self, n: usize, what: String) {
        self.input.notices.push(format!("{}:{n}: {what}", self.path.display()));
    }

    fn take(&mut self, n: usize, record: Record) {
        match record {
            Record::Begin(begin) => self.begin(n, begin),
            Record::Run(mut r) => {
                if let Some(wrong) = wrong_in(&r) {
                    return self.note(n, format!("run {} left out: {wrong}", r.run.id));
                }
                for error in r.vm.iter_mut().filter_map(|v| v.error.as_mut()) {
                    *error = printable(error);
                }
                self.add(n, |s| s.runs.push(*r));
            }
            Record::Failed { id, error } => self.add(n, |s| s.failed.push((id, error))),
            Record::Progress(p) => self.add(n, |s| s.total = Some(p.total)),
            Record::Log { .. } => self.add(n, |_| ()),
            Record::End { .. } => {
                if let Some(s) = &mut self.open {
                    s.ended = true;
                }
                self.close();
            }
        }
    }

    fn begin(&mut self, n: usize, mut begin: Begin) {
        self.close();
        if begin.schema != SCHEMA {
            let theirs = begin.schema;
            let what = format!("records of schema {theirs}, this program reads {SCHEMA}; left out");
            return self.note(n, what);
        }
        clean(&mut begin);
        self.open =
            Some(Stream { begin, runs: Vec::new(), failed: Vec::new(), total: None, ended: false });
    }

    fn add(&mut self, n: usize, to: impl FnOnce(&mut Stream)) {
        match &mut self.open {
            Some(s) => to(s),
            None => {
                let what = "a record outside begin and end, left out: its source is unknown";
                self.note(n, what.to_string());
            }
        }
    }

    /// Ends the open stream, if any.
    fn close(&mut self) {
        let Some(s) = self.open.take() else {
            return;
        };
        let from = format!("{}: {} on {}", self.path.display(), s.begin.scenario, s.begin.kernel);
        if !s.ended {
            let of = s.total.map(|t| format!(" of {t}")).unwrap_or_default();
            self.input.notices.push(format!(
                "{from}: no end record: {}{of} runs are here and count, the rest was lost; `unspin-lab bench --resume` makes it",
                s.runs.len()
            ));
        }
        // For worlds the report counts them.
        let failed = s.failed.iter().filter(|_| s.begin.world.is_none());
        for (id, error) in failed {
            self.input.notices.push(format!("{from}: run {id} failed: {error}"));
        }
        self.input.streams.push(s);
    }
}
