// SPDX-License-Identifier: MIT OR Apache-2.0
//! All pictures of a document.

use crate::show::place::{count, file_part, places, profile_order, rows_at};
use crate::show::svg::Chart;
use crate::show::{bands, bars, curves};
use crate::summary::{Document, Place, Summary};
use unspin_scenario::Named;

/// All pictures of the document, point by point.
pub fn charts(d: &Document) -> Vec<Chart> {
    let s = &d.summary;
    let mut out = Vec::new();
    for place in &places(s) {
        let rows = rows_at(s, place);
        let (at, name) = (file_part(place), caption(s, place));
        out.push(bars::performance(&rows, &at, &name));
        out.extend(bands::chart(s, place, &at, &name));
        out.extend(bars::inefficiency(&rows, &at, &name));
        out.extend(bars::yields(&rows, &at, &name));
        for profile in profile_order(&rows) {
            out.extend(curves::waits(&rows, profile, &at, &name));
            out.extend(curves::windows(&d.traces, s, profile, place, &name));
        }
    }
    out
}

/// A point in the title of a picture.
fn caption(s: &Summary, place: &Place) -> String {
    let lock = match place.lock.as_str() {
        "" => String::new(),
        lock => format!(", lock {lock}"),
    };
    let cgroups = place.cgroup.called();
    let vms = count(place.vms, "VM");
    format!("{vms}, cgroups {cgroups}{lock} ({}, {})", s.machine, s.kernel)
}
