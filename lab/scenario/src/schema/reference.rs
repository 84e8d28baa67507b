// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reference of keys, for people: docs/scenario-keys.md.

use crate::schema::key::{Machines, Row, Table};
use crate::schema::keys::{arm, guest_program, host, lock, profile, scenario, vm, window};
use crate::schema::limits::STEPS_MAX;
use crate::schema::lock::LockKind;
use crate::schema::names::Named;
use crate::schema::steps::{Chance, Kind, Length, KINDS};

const HEAD: &str = "\
<!-- Generated from lab/scenario/src/schema by `make scenario-keys`; do not edit. -->
# Keys of scenarios, profiles and programs

This page is for authors of scenarios and profiles. It lists every key with its values, its default, \
and the machines that support it. A machine refuses unsupported keys before anything runs. \
[scenarios/README.md](../scenarios/README.md) has examples. Any value may be a range or a choice with a \
source instead ([simulator.md](simulator.md#worlds)).
";

/// A table of a file.
struct Section {
    /// The heading of the file, if the table begins one.
    title: &'static str,
    heading: &'static str,
    about: &'static str,
    rows: Vec<Row>,
}

fn section<Of>(title: &'static str, table: &Table<Of>) -> Section {
    Section { title, heading: table.heading, about: table.about, rows: table.rows() }
}

/// All tables, by the file that has them: scenarios, profiles, and programs of Linux guests.
fn files() -> [Vec<Section>; 3] {
    let of_scenario = vec![
        section("Scenario", &scenario::SCENARIO),
        section("", &host::HOST),
        section("", &vm::VM),
        section("", &scenario::CASE_TABLE),
        section("", &scenario::SWEEP),
        section("", &scenario::MEASURE),
        section("", &scenario::TRACE),
        section("", &arm::ARM),
        section("", &window::WINDOW),
        section("", &window::ADAPTED),
        section("", &arm::ASYM_PARTS),
        section("", &lock::LOCK),
        section("", &lock::PV_TICKET),
    ];
    let of_profile = vec![
        section("Profile", &profile::PROFILE),
        section("", &profile::RECORD),
        section("", &profile::STEP),
        section("", &profile::DRAWN),
    ];
    let of_program = vec![section("Program of Linux guests", &guest_program::GUEST_PROGRAM)];
    [of_scenario, of_profile, of_program]
}

/// The reference, in Markdown.
pub fn reference() -> String {
    let [scenario, profile, program] = files().map(|tables| tables.iter().map(text).collect());
    let parts: [String; 6] = [HEAD.to_string(), scenario, locks(), profile, steps(), program];
    parts.concat()
}

/// A table. The keys at a file's top have their own heading.
fn text(table: &Section) -> String {
    let title = match table.title {
        "" => format!("\n### `{}`\n", table.heading),
        title => format!("\n## {title}\n"),
    };
    let head = "\n\n| key | meaning | values | default | machines |\n|---|---|---|---|---|\n";
    let rows: String = table.rows.iter().map(line).collect();
    title + table.about + head + &rows
}

fn line(row: &Row) -> String {
    let Row { name, takes, usual, machines, help } = row;
    let usual = usual.as_deref().unwrap_or("(needed)");
    format!("| `{name}` | {help} | {takes} | {usual} | {} |\n", on(*machines))
}

fn on(machines: Machines) -> String {
    match machines {
        Machines::All => "all".to_string(),
        some => some.names().join(", "),
    }
}

fn locks() -> String {
    let names = |halts: bool| {
        let all = LockKind::choices().into_iter().filter(|(_, kind)| kind.halts() == halts);
        all.map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    format!(
        "\n### Locks\nSpinning: {}. With waiters that halt, for `cpl = 0`: {}. \
         [locks.md](locks.md) describes each.\n",
        names(false),
        names(true)
    )
}

fn steps() -> String {
    let mut out = format!(
        "\n### Steps\nA program is 1 to {STEPS_MAX} of these. Inside a lock no step may wait for other \
         threads. Programs with sockets may have no step that waits for all threads.\n\n\
         | op | what it does | length | lock | chance | machines |\n|---|---|---|---|---|---|\n"
    );
    for Kind { name, length, lock, chance, machines, help, .. } in KINDS {
        let length = match length {
            Length::No => "–",
            Length::May => "optional",
            Length::Must => "required",
        };
        let lock = if *lock { "optional" } else { "–" };
        let chance = if *chance == Chance::May { "optional" } else { "–" };
        let machines = on(*machines);
        out += &format!("| `{name}` | {help} | {length} | {lock} | {chance} | {machines} |\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::key::{Declared, Kind as _};
    use std::collections::BTreeSet;
    use unspin_uapi::Number;

    /// One phrase, no full stop, as uapi/unspin.h asks of its own.
    #[test]
    fn keys_are_declared_in_full() {
        for Section { rows, .. } in files().into_iter().flatten() {
            let names: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
            assert_eq!(names.len(), rows.len(), "a key twice: {names:?}");
            for row in rows {
                let said = |text: &str| !text.is_empty() && !text.contains('|');
                assert!(said(row.help) && !row.help.ends_with('.'), "{row:?}");
                assert!(said(&row.takes) && row.usual.as_deref().is_none_or(said), "{row:?}");
            }
        }
        assert_eq!(profile::STEP_TABLES.takes.describe(), format!("1 to {STEPS_MAX} tables"));
        for (key, number) in
            [(scenario::EPOCH, Number::EPOCH), (scenario::EPOCH_MIN, Number::EPOCH_MIN)]
        {
            let usual = key.row().usual.unwrap();
            assert!(usual.starts_with(&number.default().to_string()), "{usual}");
        }
        let names: BTreeSet<&str> = KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), KINDS.len());
        assert!(KINDS.iter().all(|kind| Kind::of(kind.op).name == kind.name));
        assert!(KINDS.iter().all(|kind| !kind.help.is_empty() && !kind.help.contains('|')));
    }
}
