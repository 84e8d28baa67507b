// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repeats every decision in a trace of `unspin schedule --trace`, with the same functions in user space
//! (host/schedule/bpf/decide.h, core/policy/hvs.h). Each result must be the same.

use crate::hex_slots;
use anyhow::{anyhow, bail, Context};
use serde::de::DeserializeOwned;
use serde::Deserialize;
use std::fmt;
use unspin_policy::hvs::{decide, Flags};
use unspin_uapi::schedule_trace::{
    Begin, Candidate, Line, Next, Ready, Turn, Unit, Yield, SCHEMA, TRACE,
};

const NOBODY: u32 = u32::MAX;
const OWED: u32 = 1;
const GANG: u32 = 2;

/// A candidate: struct wish of decide.h.
#[repr(C)]
struct Wish {
    vt: u64,
    id: u32,
    flags: u32,
}

impl Wish {
    fn new(vt: u64, id: u32, is_owed: bool, is_gang: bool) -> Wish {
        let flags = if is_owed { OWED } else { 0 } + if is_gang { GANG } else { 0 };
        Wish { vt, id, flags }
    }
}

extern "C" {
    fn decide_next(wishes: *const Wish, count: u32, vnow: u64) -> u32;
    fn decide_turn(wishes: *const Wish, count: u32) -> u32;
}

/// Counts of the repeated decisions.
#[derive(Debug, Default, PartialEq)]
pub struct Tally {
    pub next: u64,
    pub turns: u64,
    pub yields: u64,
    /// Decisions of the scheduler that are missing in the trace.
    pub lost: u64,
    /// Traces without a last line.
    pub broken_off: u64,
    pub different: u64,
    /// The first decision with another result, and its line.
    pub first: Option<String>,
}

impl Tally {
    pub fn decisions(&self) -> u64 {
        self.next + self.turns + self.yields
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { next, turns, yields, lost, broken_off, different, .. } = self;
        let decisions = self.decisions();
        write!(
            f,
            "{decisions} decisions of unspin schedule repeated (who runs next: {next}, who has the next turn: \
             {turns}, who gets the CPU of a vCPU that spins: {yields}): {} alike, {different} differ",
            decisions - different
        )?;
        if *lost > 0 {
            write!(f, "; {lost} are missing, because they came faster than they were written")?;
        }
        if *broken_off > 0 {
            write!(f, "; traces that were broken off: {broken_off}")?;
        }
        Ok(())
    }
}

/// What the first line has in every version.
#[derive(Deserialize)]
struct Version {
    trace: String,
    schema: u32,
}

/// Whether a file is such a trace, by its beginning.
pub fn is_trace(text: &str) -> bool {
    text.starts_with("{\"trace\":")
}

/// Repeats the decisions of a trace, and adds them to `tally`.
///
/// # Errors
/// A line is cut off or damaged, or the trace is of another kind or schema.
pub fn replay(text: &str, tally: &mut Tally) -> anyhow::Result<()> {
    let mut lines = (1..).zip(text.lines());
    let (_, first) = lines.next().context("the trace is empty")?;
    let version: Version = read(1, first)?;
    if version.trace != TRACE {
        bail!("line 1: a trace of {:?}, not of {TRACE:?}", version.trace);
    }
    if version.schema != SCHEMA {
        let is = version.schema;
        bail!("line 1: schema {is}, not {SCHEMA}: use the unspin-lab of the unspin that wrote it");
    }
    read::<Begin>(1, first)?;
    let (before, mut is_whole) = (tally.decisions(), false);
    for (number, line) in lines {
        if is_whole {
            bail!("line {number}: it comes after the last line of the trace");
        }
        let is_other = match read(number, line)? {
            Line::Vm(_) => None,
            Line::Next(next) => again_next(&next, tally),
            Line::Turn(turn) => again_turn(&turn, tally),
            Line::Yield(of) => again_yield(&of, tally).with_context(|| format!("line {number}"))?,
            Line::Lost(decisions) => {
                tally.lost = tally.lost.saturating_add(decisions);
                None
            }
            Line::End { decisions, .. } => {
                let has = tally.decisions() - before;
                if decisions != has {
                    bail!("line {number}: the trace had {decisions} decisions, and has {has}");
                }
                is_whole = true;
                None
            }
        };
        if let Some(what) = is_other {
            tally.different += 1;
            tally.first.get_or_insert_with(|| format!("line {number}: {what}"));
        }
    }
    tally.broken_off += u64::from(!is_whole);
    Ok(())
}

fn read<T: DeserializeOwned>(number: u64, line: &str) -> anyhow::Result<T> {
    serde_json::from_str(line).map_err(|e| match e.is_eof() {
        true => anyhow!("line {number} is cut off: {e}; remove it to repeat those before it"),
        false => anyhow!("line {number}: {e}"),
    })
}

fn again_next(next: &Next, tally: &mut Tally) -> Option<String> {
    tally.next += 1;
    let wish = |of: &Candidate| Wish::new(of.vt, id(of.unit), of.owed, of.gang);
    let wishes: Vec<Wish> = next.of.iter().map(wish).collect();
    // SAFETY: so many wishes are there to read.
    let here = unsafe { decide_next(wishes.as_ptr(), wishes.len() as u32, next.vnow) };
    let theirs = next.is.map_or(NOBODY, id);
    let is = |id: u32| match id {
        NOBODY => "nobody".to_string(),
        _ => format!("unit {} of VM {}", id & 63, id >> 6),
    };
    let on = format!("next on CPU {} at {} ns", next.cpu, next.at_ns);
    (here != theirs).then(|| format!("{on}: {}, here {}", is(theirs), is(here)))
}

fn again_turn(turn: &Turn, tally: &mut Tally) -> Option<String> {
    tally.turns += 1;
    let wish = |of: &Ready| Wish::new(of.vt, of.vm.into(), of.owed, false);
    let wishes: Vec<Wish> = turn.of.iter().map(wish).collect();
    // SAFETY: so many wishes are there to read.
    let here = unsafe { decide_turn(wishes.as_ptr(), wishes.len() as u32) };
    let theirs = turn.is.map_or(NOBODY, u32::from);
    let is = |vm: u32| if vm == NOBODY { "nobody".into() } else { format!("VM {vm}") };
    let at = format!("next in the plan at {} ns", turn.at_ns);
    (here != theirs).then(|| format!("{at}: {}, here {}", is(theirs), is(here)))
}

fn again_yield(of: &Yield, tally: &mut Tally) -> anyhow::Result<Option<String>> {
    tally.yields += 1;
    let slots = hex_slots(&of.slots)?;
    let (vm, caller) = of.caller;
    let here = decide(&slots, caller.into(), of.excluded, Flags(of.flags)).number();
    let at = format!("who gets CPU {} of VM {vm} at {} ns", of.cpu, of.at_ns);
    Ok((here != of.pick).then(|| format!("{at}: {}, here {here}", of.pick)))
}

fn id((vm, unit): Unit) -> u32 {
    u32::from(vm) << 6 | u32::from(unit)
}
