// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the files of a report atomically.

use crate::compute::world_tables;
use crate::show::charts::charts;
use crate::show::csv::csv;
use crate::show::html::html;
use crate::show::place::stem;
use crate::show::svg::SVG_HEAD;
use crate::show::text::text;
use crate::summary::Document;
use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use unspin_text::{sweep, write_atomic, FileError};

/// Writes summary.json, table.txt, table.csv, report.html, the pictures and tables of worlds into `dir`.
/// With several documents, summary.json is that of the last, and each has a summary-NAME-KERNEL.json.
pub fn write_dir(dir: &Path, docs: &[Document]) -> Result<Vec<PathBuf>, FileError> {
    fs::create_dir_all(dir).map_err(|error| FileError { path: dir.to_path_buf(), error })?;
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    if let Some(last) = docs.last() {
        files.push(("summary.json".to_string(), json(last)));
    }
    if docs.len() > 1 {
        for d in docs {
            files.push((format!("summary-{}.json", stem(d)), json(d)));
        }
    }
    files.push(("table.txt".to_string(), text(docs, usize::MAX).into_bytes()));
    files.push(("table.csv".to_string(), csv(docs).into_bytes()));
    for d in docs {
        let prefix = if docs.len() > 1 { format!("{}-", stem(d)) } else { String::new() };
        for c in charts(d) {
            files.push((format!("{prefix}{}.svg", c.name), c.svg.into_bytes()));
        }
        for (name, csv) in &d.tables {
            files.push((format!("{prefix}{name}.csv"), csv.clone()));
        }
    }
    files.push(("report.html".to_string(), html(docs).into_bytes()));
    sweep(dir);
    remove_others(dir, &files.iter().map(|(name, _)| name.as_str()).collect());
    let mut paths = Vec::new();
    for (name, bytes) in files {
        let path = dir.join(name);
        write_atomic(&path, &bytes)?;
        paths.push(path);
    }
    Ok(paths)
}

/// Removes files that an earlier report of other results left in `dir`, because they would look
/// like a part of this one. Files that a report cannot have written stay. Errors are ignored.
fn remove_others(dir: &Path, names: &HashSet<&str>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| !names.contains(name)) else { continue };
        if entry.file_type().is_ok_and(|kind| kind.is_file()) && is_of_report(&entry.path(), name) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Prefixes of the names of pictures, after an optional name of their document.
const PICTURES: [&str; 6] = ["performance", "inefficiency", "yields", "waits", "window", "bands"];

fn is_of_report(path: &Path, name: &str) -> bool {
    let is = |start: &str| name.starts_with(start) || name.contains(&format!("-{start}"));
    let begins = |mark: &str| {
        let mut head = vec![0; mark.len()];
        let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
        read.is_ok() && head == mark.as_bytes()
    };
    match name.rsplit_once('.') {
        Some((_, "svg")) => PICTURES.iter().any(|of| is(&format!("{of}-"))) && begins(SVG_HEAD),
        Some((stem, "csv")) => {
            world_tables::names().any(|of| stem == of || stem.ends_with(&format!("-{of}")))
        }
        Some((_, "json")) => name.starts_with("summary-") && begins("{\n  \"schema\": "),
        _ => false,
    }
}

fn json(d: &Document) -> Vec<u8> {
    // A summary has only string keys and finite numbers, so it always has a JSON form.
    let mut bytes = serde_json::to_vec_pretty(&d.summary).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
