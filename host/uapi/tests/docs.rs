// SPDX-License-Identifier: MIT OR Apache-2.0
//! docs/sysfs.md agrees with uapi/unspin.h: it has every name once, with its bounds, its default
//! and, as the first words about it, its meaning.

use std::collections::{BTreeMap, BTreeSet};
use unspin_uapi::{Coscheduling, Counter, Mode, ModuleValue, Number, Refusal, Value, Variant};

const DOC: &str = include_str!("../../../docs/sysfs.md");

/// Rows of the tables, by the first cell.
fn rows() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut rows = BTreeMap::new();
    // A mode and a variant may have the same name, and so may a coscheduling and a file. The second has
    // the later row.
    for line in DOC.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let name = cells.next().unwrap().trim_matches('`');
        let section = match name {
            "hvs" if rows.contains_key(name) => "variant hvs",
            "vcrd" if rows.contains_key(name) => "file vcrd",
            name => name,
        };
        assert!(rows.insert(section, cells.collect()).is_none(), "{name} has two rows");
    }
    rows
}

fn meanings() -> Vec<(&'static str, &'static str)> {
    let variant = |v: &Variant| match v.name() {
        "hvs" => ("variant hvs", v.meaning()),
        name => (name, v.meaning()),
    };
    let value = |v: &Value| match v.file() {
        "vcrd" => ("file vcrd", v.meaning()),
        file => (file, v.meaning()),
    };
    let mut all: Vec<_> = Mode::ALL.iter().map(|m| (m.name(), m.meaning())).collect();
    all.extend(Variant::ALL.iter().map(variant));
    all.extend(Coscheduling::ALL.iter().map(|c| (c.name(), c.meaning())));
    all.extend(Number::ALL.iter().map(|n| (n.file(), n.meaning())));
    all.extend(Counter::ALL.iter().map(|c| (c.file(), c.meaning())));
    all.extend(Value::ALL.iter().map(value));
    all.extend(ModuleValue::ALL.iter().map(|v| (v.file(), v.meaning())));
    all
}

/// One phrase, no full stop, as uapi/unspin.h asks.
#[test]
fn meanings_are_phrases() {
    let units = Number::ALL.iter().map(|n| n.unit());
    let mut all = meanings().into_iter().map(|(_, meaning)| meaning).chain(units);
    assert!(all.all(|text| !text.is_empty() && !text.ends_with('.')));
}

#[test]
fn every_name_has_its_row_and_meaning() {
    let rows = rows();
    for (name, meaning) in meanings() {
        let cells = rows.get(name).unwrap_or_else(|| panic!("docs/sysfs.md has no row of {name}"));
        let said = cells.last().unwrap();
        assert!(said.starts_with(meaning), "{name}: {said:?} does not begin with {meaning:?}");
    }
    let known: BTreeSet<&str> = meanings().into_iter().map(|(name, _)| name).collect();
    let unknown: Vec<_> = rows.keys().filter(|name| !known.contains(*name)).collect();
    assert!(unknown.is_empty(), "docs/sysfs.md has rows of what is not there: {unknown:?}");
}

#[test]
fn numbers_have_their_bounds_and_defaults() {
    let rows = rows();
    let shown = |n: u32| match n.is_power_of_two() && n > 1 << 20 {
        true => format!("2^{}", n.ilog2()),
        false => n.to_string(),
    };
    for number in Number::ALL {
        let most = match number {
            Number::DELTA | Number::DELTA_MAX => format!("`{}`", Number::WINDOW_MAX.file()),
            _ => shown(number.most()),
        };
        let bounds = format!("{} … {most}", number.least());
        let expected = [bounds, number.default().to_string()];
        assert_eq!(rows[number.file()][..2], expected, "{}", number.file());
    }
}

#[test]
fn words_have_their_defaults() {
    for (file, default) in [
        ("mode", Mode::OFF.name()),
        ("hvs_variant", Variant::DEFAULT.name()),
        ("coscheduling", Coscheduling::DEFAULT.name()),
    ] {
        assert!(DOC.contains(&format!("`{file}` (default `{default}`)")), "{file}");
    }
}

#[test]
fn reasons_why_a_vm_has_no_turns_have_their_rows() {
    let (_, table) = DOC.split_once("| the file says | what it means |").expect("the table's head");
    let (table, _) = table.trim_start().split_once("\n\n").expect("the table's end");
    let said: Vec<_> = table
        .lines()
        .filter(|line| !line.starts_with("|---"))
        .map(|line| line.trim_matches('|').split('|').next().unwrap().trim())
        .collect();
    let given: Vec<_> = Refusal::ALL
        .iter()
        .filter(|refusal| **refusal != Refusal::NONE)
        .map(|refusal| refusal.reason())
        .collect();
    assert_eq!(said, given, "docs/sysfs.md, uapi/unspin.h");
    assert!(DOC.contains(&format!("it says `{}`", Refusal::NONE.reason())));
}
