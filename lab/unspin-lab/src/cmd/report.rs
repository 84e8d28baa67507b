// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab report`: shows existing results, in any form.

use crate::exit::{unread, Usage};
use crate::out;
use anyhow::bail;
use std::path::{Path, PathBuf};
use unspin_report::{csv, documents, lock_tables, matrix, read_files, text, write_dir, Input};
use unspin_text::fit::terminal_width;
use unspin_text::{shown, write_atomic};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// results.jsonl files, or directories with such a file.
    #[arg(required = true, value_name = "RESULTS")]
    results: Vec<PathBuf>,
    /// Print summaries as JSON, one line per scenario and kernel.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print every row as CSV.
    #[arg(long)]
    csv: bool,
    /// Also write summary.json, tables, pictures and the page to this directory.
    #[arg(long, short, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Instead of the report, write a table of locks against host policies to this Markdown file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv", "out"])]
    matrix: Option<PathBuf>,
    /// Directory for the pictures of --matrix, relative to the page.
    #[arg(long, value_name = "DIR", default_value = ".", requires = "matrix")]
    pictures: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let input = read_files(&args.results).map_err(unread)?;
    if let Some(page) = &args.matrix {
        return write_matrix(&input, page, &args.pictures);
    }
    let docs = documents(&input);
    if args.json || args.csv || docs.is_empty() {
        // The tables and the page contain the notices themselves.
        for n in &input.notices {
            say!("note: {n}");
        }
    }
    if docs.is_empty() {
        return Err(Usage("no results to report".to_string()).into());
    }
    if let Some(dir) = &args.out {
        write_dir(dir, &docs)?;
        say!("page: {}", shown(&dir.join("report.html")));
    }
    let printed = match args.json {
        true => docs.iter().try_for_each(|d| out::json(&d.summary)),
        false => out::print(&if args.csv { csv(&docs) } else { text(&docs, terminal_width()) }),
    };
    // The exit code does not depend on who reads the output.
    if docs.iter().all(|d| d.summary.arms.is_empty()) {
        bail!("no run is left to report; the notes say why");
    }
    printed
}

fn write_matrix(input: &Input, page: &Path, pictures: &Path) -> anyhow::Result<()> {
    for n in &input.notices {
        say!("note: {n}");
    }
    let stem = page.file_stem().and_then(|s| s.to_str()).unwrap_or("matrix");
    let matrix = matrix(&lock_tables(input).map_err(|e| Usage(e.to_string()))?, stem);
    let mut text = matrix.page;
    for (name, svg) in &matrix.pictures {
        let beside = pictures.join(name);
        write_atomic(&page.with_file_name(&beside), svg.as_bytes())?;
        let beside = beside.strip_prefix(".").unwrap_or(&beside).display();
        text = text.replace(&format!("]({name})"), &format!("]({beside})"));
    }
    write_atomic(page, text.as_bytes())?;
    say!("page: {}", shown(page));
    Ok(())
}
