// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loss of each watched VM, by cause.

use crate::diagnosis::Diagnosis;
use crate::summary::{Row, Summary};
use unspin_diagnosis::Cause;

/// The names of the columns.
pub(crate) fn head() -> Vec<&'static str> {
    let mut head = vec!["profile", "VM", "arm", "injected", "dominant"];
    head.extend(Cause::ALL.iter().map(|cause| cause.name()));
    head
}

/// A line per watched VM.
pub(crate) fn lines(s: &Summary) -> Vec<Vec<String>> {
    s.arms.iter().filter_map(|row| Some(line(row, row.diagnosis.as_ref()?))).collect()
}

fn line(row: &Row, diagnosis: &Diagnosis) -> Vec<String> {
    let injected = match &diagnosis.injected {
        None => "-".to_string(),
        Some(causes) if causes.is_empty() => "nothing".to_string(),
        Some(causes) => causes.iter().map(|c| c.name()).collect::<Vec<_>>().join(", "),
    };
    let mut line = vec![
        row.key.profile.clone(),
        row.key.vm_index.map_or("-".to_string(), |vm| vm.to_string()),
        row.key.arm.clone(),
        injected,
        diagnosis.dominant.map_or("nothing", Cause::name).to_string(),
    ];
    let share = |share: Option<f64>| share.map_or("?".into(), |x| format!("{:.1} %", 100.0 * x));
    line.extend(diagnosis.causes.iter().map(|lost| share(lost.share)));
    line
}
