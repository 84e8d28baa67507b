// SPDX-License-Identifier: MIT OR Apache-2.0
//! Designs of worlds and their outcomes as CSV, with a line per world in the design's order, in
//! SALib's format: X of a problem with bounds 0 and 1, and a column Y for each comparison.

use crate::compute::measures::Over;
use crate::compute::worlds::{first_repeat, name, outcome, Seen, Worlds, DESIGNS};
use crate::summary::Point;
use std::collections::BTreeMap;
use unspin_scenario::result::{RunResult, WorldDesign};
use unspin_scenario::Named;
use unspin_worlds::Columns;

/// A comparison: the name of its column, the arm's run and the baseline's, and the VMs.
struct Compared<'a> {
    name: String,
    ids: (u32, u32),
    over: Over<'a>,
}

/// Two files for each design: `worlds-DESIGN-design` and `worlds-DESIGN-outcomes`. Outcomes are
/// logarithms of ratios to the baseline; empty if a world has none.
pub(crate) fn tables(
    worlds: &Worlds,
    points: &[Point],
    runs: &[&RunResult],
) -> Vec<(String, Vec<u8>)> {
    let compared: Vec<Compared> = points.iter().flat_map(|p| compared(p, runs)).collect();
    let mut files = Vec::new();
    for (design, worlds) in &worlds.designs {
        let [of_design, of_outcomes] = names_of(*design);
        // Writing CSV into memory cannot fail.
        let csv = |columns: Columns| columns.write().unwrap_or_default();
        files.push((of_design, csv(places(worlds))));
        files.push((of_outcomes, csv(outcomes(worlds, &compared))));
    }
    files
}

fn names_of(design: WorldDesign) -> [String; 2] {
    ["design", "outcomes"].map(|table| format!("worlds-{}-{table}", name(design)))
}

/// The names that tables of worlds can have.
pub(crate) fn names() -> impl Iterator<Item = String> {
    DESIGNS.into_iter().flat_map(names_of)
}

fn places(worlds: &BTreeMap<u32, Seen>) -> Columns {
    let mut columns = Columns::default();
    let first = worlds.values().next().map_or(&[][..], |w| &w.world.inputs[..]);
    for (i, input) in first.iter().enumerate() {
        let at = |w: &Seen| w.world.inputs.get(i).map(|input| format!("{:?}", input.at));
        columns.add(&input.name, worlds.values().map(at));
    }
    columns
}

fn outcomes(worlds: &BTreeMap<u32, Seen>, compared: &[Compared]) -> Columns {
    let mut columns = Columns::default();
    for c in compared {
        let of = |w: &Seen| outcome(w, c.ids, c.over).map(|x| format!("{x:?}"));
        columns.add(&c.name, worlds.values().map(of));
    }
    columns
}

fn compared<'a>(p: &Point, runs: &[&'a RunResult]) -> Vec<Compared<'a>> {
    let Some((first, base)) = first_repeat(p, runs) else { return Vec::new() };
    let mut all = Vec::new();
    for arm in first.iter().filter(|r| r.run.id != base) {
        for group in arm.run.groups() {
            let place = &p.place;
            let lock = match place.lock.as_str() {
                "" => String::new(),
                lock => format!(" {lock}"),
            };
            let at = format!("{} VM {}{lock}", place.vms, place.cgroup.called());
            all.push(Compared {
                name: format!("{group}, {at}: {}", arm.run.arm.name),
                ids: (arm.run.id, base),
                over: Over { group: Some(group), vm: None },
            });
        }
    }
    all
}
