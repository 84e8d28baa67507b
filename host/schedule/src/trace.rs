// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decisions that the scheduler tells: struct decision of bpf/shared.h in Rust.

use crate::form::{Candidate, Line, Next, Ready, Then, Turn, Unit, Yield};
use crate::Error;
use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;

/// Of a decision, the bytes before what was considered, and of each that was.
const HEAD: usize = 40;
const ENTRY: usize = 16;
const NOBODY: u32 = u32::MAX;
const OWED: u32 = 1;
const GANG: u32 = 2;

/// What a scheduler tells that was loaded to be traced.
pub struct Trace {
    ring: RingBuffer<'static>,
    told: Rc<RefCell<Vec<Line>>>,
    lost: MapHandle,
}

impl Trace {
    /// `decisions` is its ring buffer, `lost` the section that counts what this had no room for.
    pub(crate) fn new(decisions: &MapHandle, lost: MapHandle) -> Result<Trace, Error> {
        let told = Rc::<RefCell<Vec<Line>>>::default();
        let to = Rc::clone(&told);
        let mut builder = RingBufferBuilder::new();
        let add = move |bytes: &[u8]| {
            to.borrow_mut().extend(line(bytes));
            0
        };
        builder.add(decisions, add).map_err(Error::Map)?;
        Ok(Trace { ring: builder.build().map_err(Error::Map)?, told, lost })
    }

    /// The decisions since the last call, and how many were lost since the scheduler was loaded.
    ///
    /// # Errors
    /// The kernel does not give them.
    pub fn take(&self) -> Result<(Vec<Line>, u64), Error> {
        self.ring.consume().map_err(Error::Map)?;
        let lost = self.lost.lookup(&[0; 4], MapFlags::ANY).map_err(Error::Map)?;
        let lost = lost.map(|bytes| number(&bytes, 0)).unwrap_or_default();
        Ok((self.told.take(), lost))
    }
}

/// A decision by its bytes; `None` if it is of no kind that is known, or cut.
pub fn line(bytes: &[u8]) -> Option<Line> {
    let count = bytes.len().checked_sub(HEAD)? / ENTRY;
    let (at_ns, beside) = (number(bytes, 0), number(bytes, 8));
    let word = |at: usize| number(bytes, at) as u32;
    let (kind, at, who, answer) = (word(16), word(20), word(24), word(28));
    if word(32) as usize != count {
        return None;
    }
    let entries = bytes[HEAD..].chunks_exact(ENTRY);
    let wishes = entries.clone().map(|of| (number(of, 0), number(of, 8) as u32, number(of, 12)));
    match kind {
        1 => {
            let of = wishes.map(|(vt, id, flags)| {
                let has = |flag: u32| flags as u32 & flag != 0;
                Candidate { unit: unit(id), vt, owed: has(OWED), gang: has(GANG) }
            });
            let (before, is) = (known(who).map(unit), known(answer).map(unit));
            Some(Line::Next(Next { at_ns, cpu: at, before, vnow: beside, of: of.collect(), is }))
        }
        2 => {
            let of = wishes.map(|(vt, vm, flags)| Ready {
                vm: vm as u8,
                vt,
                owed: flags as u32 & OWED != 0,
            });
            let then = match who {
                0 => Then::Holds,
                1 => Then::Begins,
                2 => Then::Waits,
                _ => Then::Apart,
            };
            let is = known(answer).map(|vm| vm as u8);
            Some(Line::Turn(Turn { at_ns, left: at, of: of.collect(), is, needs: beside, then }))
        }
        3 => {
            let slots = bytes[HEAD..].iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
            let (caller, excluded, flags, pick) = (unit(who), beside, word(36), answer as i32);
            Some(Line::Yield(Yield { at_ns, cpu: at, caller, excluded, flags, pick, slots }))
        }
        _ => None,
    }
}

/// Eight bytes as a number, and 0 for those that are not there.
fn number(bytes: &[u8], at: usize) -> u64 {
    let mut of = [0; 8];
    for (to, from) in of.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    u64::from_ne_bytes(of)
}

fn known(id: u32) -> Option<u32> {
    (id != NOBODY).then_some(id)
}

fn unit(id: u32) -> Unit {
    ((id >> 6) as u8, (id & 63) as u8)
}
