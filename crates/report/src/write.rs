// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes files whole or not at all.

use crate::show::charts::charts;
use crate::show::csv::csv;
use crate::show::html::html;
use crate::show::place::stem;
use crate::show::text::text;
use crate::summary::Document;
use std::fs;
use std::path::{Path, PathBuf};
use unspin_text::{write_atomic, FileError};

/// Writes summary.json, table.txt, table.csv, report.html, the pictures and designs of worlds into `dir`. With
/// several documents, summary.json is the last one's and each has a summary-NAME-KERNEL.json.
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
    files.push(("table.txt".to_string(), text(docs).into_bytes()));
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
    let mut paths = Vec::new();
    for (name, bytes) in files {
        let path = dir.join(name);
        write_atomic(&path, &bytes)?;
        paths.push(path);
    }
    Ok(paths)
}

fn json(d: &Document) -> Vec<u8> {
    // A summary has string keys and finite numbers only: it always has a JSON form.
    let mut bytes = serde_json::to_vec_pretty(&d.summary).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
