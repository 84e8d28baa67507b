// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles as a whole.

use crate::parse::keys::{read_own_name, OfKeys};
use crate::parse::program::check_program;
use crate::parse::ranges::Ranges;
use crate::parse::step::read_step;
use crate::schema::key::{Form, Key};
use crate::schema::keys::profile as keys;
use crate::schema::limits::STEPS_MAX;
use crate::schema::program::{Calibration, Profile, Step};
use unspin_text::Problems;
use unspin_text::{Reader, Table, Value};

/// Reads a profile, with the usual values of ranges and choices. `file` is its name in errors,
/// `name` in the scenario.
pub fn parse_profile(file: &str, name: &str, text: &str) -> Result<Profile, Problems> {
    let text = Ranges::read(file, text)?.usual();
    let reader = Reader::new(file, &text);
    let doc = reader.parse();
    let top = Table::top(&reader, &doc);
    let profile = read_profile(&top, name);
    reader.finish(profile)
}

fn read_profile(top: &Table, expected_name: &str) -> Option<Profile> {
    top.only_of(&keys::PROFILE);
    let name = top.needed(&keys::NAME).and_then(|v| read_own_name(&v, expected_name));
    let spin_intensive = top.read(&keys::SPIN_INTENSIVE);
    let calibration = top.at(&keys::CALIBRATION).map(|v| read_calibration(&v));
    let steps = top.needed(&keys::STEP_TABLES).and_then(|v| {
        let all = v.array("[[step]] tables")?;
        if all.is_empty() || all.len() > STEPS_MAX {
            v.problem(format!("{} steps", all.len()), format!("1 to {STEPS_MAX} steps"));
        }
        Some(all)
    })?;
    let read: Vec<Option<Step>> = steps.iter().map(read_step).collect();
    let whole: Vec<Step> = read.iter().copied().flatten().collect();
    if whole.len() == steps.len() {
        check_program(&whole, &steps);
    }
    Some(Profile {
        name: name?,
        spin_intensive: spin_intensive?,
        program: whole,
        calibration: match calibration {
            Some(record) => Some(record?),
            None => None,
        },
    })
}

fn read_calibration(v: &Value) -> Option<Calibration> {
    let t = v.table(keys::CALIBRATION.takes.0)?;
    t.only_of(&keys::RECORD);
    let text = |key: &Key<Calibration, Form>| {
        let v = t.needed(key)?;
        let s = v.str(key.takes.0)?;
        if s.trim().is_empty() {
            v.problem("empty", key.takes.0);
        }
        Some(s.to_string())
    };
    let (date, how, sha256) = (text(&keys::DATE), text(&keys::HOW), text(&keys::SHA256));
    let is_hash = |s: &String| s.len() == 64 && s.bytes().all(|b| b.is_ascii_hexdigit());
    if let Some(v) = t.at(&keys::SHA256).filter(|_| sha256.as_ref().is_some_and(|s| !is_hash(s))) {
        v.problem("not a SHA-256", keys::SHA256.takes.0);
    }
    let entries = t.needed(&keys::ENTRIES)?.array(keys::ENTRIES.takes.0)?;
    let entries = entries.iter().map(|id| id.str("a claim's id").map(str::to_string));
    let entries: Vec<Option<String>> = entries.collect();
    Some(Calibration {
        date: date?,
        entries: entries.into_iter().collect::<Option<_>>()?,
        how: how?,
        sha256: sha256?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"x\"\nspin_intensive = true\n[[step]]\nop = \"wake\"\n\
        [calibration]\ndate = \"2026-11-22\"\nentries = [\"a_fig1\"]\nhow = \"by hand\"\n\
        sha256 = \"0000000000000000000000000000000000000000000000000000000000000000\"\n";

    #[test]
    fn a_wrong_record_is_refused() {
        assert_eq!(parse_profile("x.toml", "x", GOOD).unwrap().calibration.unwrap().how, "by hand");
        let refused = |from: &str, to: &str, why: &str| {
            assert!(GOOD.contains(from), "{from}");
            let said = parse_profile("x.toml", "x", &GOOD.replace(from, to)).unwrap_err();
            assert!(said.to_string().contains(why), "{said}");
        };
        refused("\"by hand\"", "\" \"", "`calibration.how`: empty");
        refused("[\"a_fig1\"]", "[1]", "`calibration.entries[0]`");
        refused("[\"a_fig1\"]", "\"a_fig1\"", "`calibration.entries`");
        refused("entries = [\"a_fig1\"]\n", "", "entries");
        refused("\"000", "\"x00", "not a SHA-256");
        refused("\"000", "\"0000", "not a SHA-256");
        refused("date", "day", "unknown key");
        refused("[calibration]", "[calibrations]", "unknown key");
    }
}
