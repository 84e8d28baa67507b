// SPDX-License-Identifier: MIT OR Apache-2.0
//! A profile's steps.

use crate::parse::keys::OfKeys;
use crate::parse::keys::Read;
use crate::schema::key::Integer;
use crate::schema::keys::profile::{self as keys, CHANCES, LENGTH, LENGTH_FORMS};
use crate::schema::limits::ITERATIONS_MAX;
use crate::schema::program::{Dist, Step};
use crate::schema::steps::{Chance, Kind, Length};
use unspin_text::Value;

pub(crate) fn read_step(v: &Value) -> Option<Step> {
    let t = v.table("a [[step]] table")?;
    t.only_of(&keys::STEP);
    let op = t.read(&keys::OP)?;
    let kind = Kind::of(op);
    let name = kind.name;
    let length = t.at(&keys::ITERATIONS);
    let dist = match (kind.length, length) {
        (Length::Must, None) => read_dist(&t.need(keys::ITERATIONS.name, LENGTH_FORMS)?)?,
        (Length::Must | Length::May, Some(v)) => read_dist(&v)?,
        (Length::No, Some(v)) => {
            v.problem(format!("a {name} step has no length"), "no iterations here");
            NO_LENGTH
        }
        (Length::No | Length::May, None) => NO_LENGTH,
    };
    if let Some(v) = t.at(&keys::LOCK).filter(|_| !kind.lock) {
        v.problem(
            format!("a {name} step takes no lock"),
            "only in lock and unlock steps, mutex and mutex-unlock",
        );
    }
    let lock = if kind.lock { t.read(&keys::LOCK)? } else { 0 };
    let permille = match (t.at(&keys::CHANCE), kind.chance) {
        (Some(v), Chance::May) => read_chance(&v)?,
        (Some(v), Chance::No(why)) => {
            v.problem(why, "no chance here");
            1000
        }
        (None, _) => 1000,
    };
    Some(Step { op, dist, lock, permille })
}

const NO_LENGTH: Dist = Dist::Const { iterations: 0 };

fn read_chance(v: &Value) -> Option<u32> {
    let x = v.number(CHANCES)?;
    let permille = (x * 1000.0).round();
    if !(1.0..=1000.0).contains(&permille) || (x * 1000.0 - permille).abs() > 1e-6 {
        v.problem(format!("a chance of {x}"), CHANCES);
        return None;
    }
    Some(permille as u32)
}

fn read_dist(v: &Value) -> Option<Dist> {
    if !v.is_table() {
        if v.is_str() || v.is_array() {
            v.problem("not a length", LENGTH_FORMS);
            return None;
        }
        return Some(Dist::Const { iterations: LENGTH.read(v)? });
    }
    let t = v.table(LENGTH_FORMS)?;
    t.only_of(&keys::DRAWN);
    match (t.at(&keys::UNIFORM), t.at(&keys::EXP_MEAN), t.at(&keys::MAX)) {
        (Some(u), None, None) => {
            let form = keys::UNIFORM.takes.0;
            let ends = u.array(form)?;
            if ends.len() != 2 {
                u.problem(format!("{} numbers", ends.len()), form);
                return None;
            }
            let min = ends[0].u32(0..=ITERATIONS_MAX, "")?;
            let max = ends[1].u32(1..=ITERATIONS_MAX, "")?;
            if min > max {
                u.problem(format!("{min} is more than {max}"), form);
                return None;
            }
            Some(Dist::Uniform { min, max })
        }
        (None, Some(m), cut) => {
            let mean = keys::EXP_MEAN.takes.0.read(&m)?;
            let max = match cut {
                Some(c) => Integer { least: mean, ..keys::MAX.takes.0 }.read(&c)?,
                None => 0,
            };
            Some(Dist::Exp { mean, max })
        }
        _ => {
            v.problem("not one distribution", LENGTH_FORMS);
            None
        }
    }
}
