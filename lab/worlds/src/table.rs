// SPDX-License-Identifier: MIT OR Apache-2.0
//! Designs and outcomes as CSV. Columns of inputs have coordinates from 0 to 1, so SALib's problems
//! have bounds of 0 and 1. Columns of outcomes have logarithms of ratios.

use std::collections::BTreeSet;

/// An error of a design.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("not CSV: {0}")]
    Csv(#[from] csv::Error),
    #[error("the design has other columns: {}; the inputs are {}", said(.missing, .unknown), .inputs.join(", "))]
    Columns { missing: Vec<String>, unknown: Vec<String>, inputs: Vec<String> },
    #[error("line {line}, column {column}: {value:?} is not a number from 0 to 1")]
    Value { line: u64, column: String, value: String },
    #[error("the design has no worlds")]
    Empty,
}

fn said(missing: &[String], unknown: &[String]) -> String {
    let part = |what: &str, names: &[String]| match names {
        [] => None,
        names => Some(format!("{what} {}", names.join(", "))),
    };
    let parts = [part("without", missing), part("with", unknown)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

/// The worlds of a design.
#[derive(Debug, Clone, PartialEq)]
pub struct Design {
    /// A coordinate from 0 to 1 for each input, by world.
    pub points: Vec<Vec<f64>>,
}

impl Design {
    /// Reads a design whose columns are the inputs, in any order.
    ///
    /// # Errors
    /// Missing, unknown or repeated columns, and values that are not coordinates.
    pub fn read(text: &str, inputs: &[String]) -> Result<Design, TableError> {
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
        let columns: Vec<String> = reader.headers()?.iter().map(str::to_string).collect();
        let is_twice = |at: usize| columns[..at].contains(&columns[at]);
        let unknown: Vec<String> = (0..columns.len())
            .filter(|i| !inputs.contains(&columns[*i]) || is_twice(*i))
            .map(|i| columns[i].clone())
            .collect();
        let have: BTreeSet<&String> = columns.iter().collect();
        let missing: Vec<String> = inputs.iter().filter(|i| !have.contains(i)).cloned().collect();
        if !missing.is_empty() || !unknown.is_empty() {
            return Err(TableError::Columns { missing, unknown, inputs: inputs.to_vec() });
        }
        let at: Vec<usize> =
            inputs.iter().filter_map(|i| columns.iter().position(|c| c == i)).collect();
        let mut points = Vec::new();
        for record in reader.records() {
            let record = record?;
            let line = record.position().map_or(0, csv::Position::line);
            let value = |column: &usize| {
                let text = record.get(*column).unwrap_or_default();
                let x = text.parse().ok().filter(|x| (0.0..=1.0).contains(x));
                let wrong = || TableError::Value {
                    line,
                    column: columns[*column].clone(),
                    value: text.to_string(),
                };
                x.ok_or_else(wrong)
            };
            points.push(at.iter().map(value).collect::<Result<Vec<f64>, _>>()?);
        }
        if points.is_empty() {
            return Err(TableError::Empty);
        }
        Ok(Design { points })
    }
}

/// Columns of a CSV file, each with a value per world; `None` gives an empty cell.
#[derive(Debug, Clone, Default)]
pub struct Columns(Vec<(String, Vec<Option<String>>)>);

impl Columns {
    /// Adds a column.
    pub fn add(&mut self, name: &str, values: impl IntoIterator<Item = Option<String>>) {
        self.0.push((name.to_string(), values.into_iter().collect()));
    }

    /// The contents of the file.
    ///
    /// # Errors
    /// Only errors of the CSV writer.
    pub fn write(&self) -> Result<Vec<u8>, TableError> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(self.0.iter().map(|(name, _)| name))?;
        let rows = self.0.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
        for row in 0..rows {
            let value = |(_, values): &(String, Vec<Option<String>>)| {
                values.get(row).cloned().flatten().unwrap_or_default()
            };
            writer.write_record(self.0.iter().map(value))?;
        }
        writer.into_inner().map_err(|e| TableError::Csv(csv::Error::from(e.into_error())))
    }
}
