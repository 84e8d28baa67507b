// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles as a whole.

use crate::parse::problem::Problems;
use crate::parse::program::check_program;
use crate::parse::reader::{Reader, Table};
use crate::parse::step::read_step;
use crate::schema::keys::profile as keys;
use crate::schema::limits::STEPS_MAX;
use crate::schema::program::{Profile, Step};

/// Reads a profile. `file` is what errors call it; `name` what the scenario does.
pub fn parse_profile(file: &str, name: &str, text: &str) -> Result<Profile, Problems> {
    let reader = Reader::new(file, text);
    let doc = reader.parse();
    let top = Table::top(&reader, &doc);
    let profile = read_profile(&top, name);
    reader.finish(profile)
}

fn read_profile(top: &Table, expected_name: &str) -> Option<Profile> {
    top.only_of(&keys::PROFILE);
    let name = top.needed(&keys::NAME).and_then(|v| {
        let s = v.str("a string")?;
        if s != expected_name {
            v.problem(format!("{s:?} is not the file's name"), format!("{expected_name:?}"));
        }
        Some(s.to_string())
    });
    let spin_intensive = top.read(&keys::SPIN_INTENSIVE);
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
    Some(Profile { name: name?, spin_intensive: spin_intensive?, program: whole })
}
