// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decisions of a traced scheduler: struct decision of bpf/shared.h in Rust.

use crate::Error;
use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use std::cell::RefCell;
use std::rc::Rc;
use unspin_uapi::schedule_trace::{Candidate, Line, Next, Ready, Then, Turn, Unit, Yield};

/// The sizes of a decision's head, and of each candidate or slot after it, in bytes.
const HEAD: usize = 40;
const ENTRY: usize = 16;
const NOBODY: u32 = u32::MAX;
const OWED: u32 = 1;
const GANG: u32 = 2;
/// What the callback returns to end the reading of the ring buffer.
const ENOUGH: i32 = -libc::EAGAIN;

/// The decisions of a scheduler that was loaded with [`Options::is_traced`](crate::Options::is_traced).
pub struct Trace {
    ring: RingBuffer<'static>,
    told: Rc<RefCell<Told>>,
    lost: MapHandle,
}

/// What was read since the last [`Trace::take`], and its size in the ring buffer.
#[derive(Default)]
struct Told {
    lines: Vec<Line>,
    bytes: usize,
}

impl Trace {
    /// `decisions` is the scheduler's ring buffer, `lost` the section that counts decisions that found no room there.
    pub(crate) fn new(decisions: &MapHandle, lost: MapHandle) -> Result<Trace, Error> {
        let told = Rc::<RefCell<Told>>::default();
        let (to, size) = (Rc::clone(&told), decisions.max_entries() as usize);
        let mut builder = RingBufferBuilder::new();
        let add = move |bytes: &[u8]| {
            let mut told = to.borrow_mut();
            told.lines.extend(line(bytes));
            told.bytes += bytes.len();
            if told.bytes < size {
                0
            } else {
                ENOUGH
            }
        };
        builder.add(decisions, add).map_err(Error::Map)?;
        Ok(Trace { ring: builder.build().map_err(Error::Map)?, told, lost })
    }

    /// The decisions since the last call, and how many were lost since the scheduler was loaded. All decisions that are
    /// in the ring buffer are read, but not many more than it holds: so the call ends even if they come faster than it
    /// reads them.
    ///
    /// # Errors
    /// The ring buffer or the count cannot be read.
    pub fn take(&self) -> Result<(Vec<Line>, u64), Error> {
        let read = self.ring.consume_raw();
        if read < 0 && read != ENOUGH {
            return Err(Error::Map(libbpf_rs::Error::from_raw_os_error(-read)));
        }
        let lost = self.lost.lookup(&[0; 4], MapFlags::ANY).map_err(Error::Map)?;
        let lost = lost.as_deref().and_then(<[u8]>::first_chunk).map(|of| u64::from_ne_bytes(*of));
        Ok((self.told.take().lines, lost.unwrap_or_default()))
    }
}

/// A decision from its bytes; `None` if its kind is unknown, or if it is cut off.
pub fn line(bytes: &[u8]) -> Option<Line> {
    let count = bytes.len().checked_sub(HEAD)? / ENTRY;
    let (at_ns, beside) = (long(bytes, 0), long(bytes, 8));
    let [kind, at, who, answer, counted, flags] =
        [16, 20, 24, 28, 32, 36].map(|at| word(bytes, at));
    if counted as usize != count {
        return None;
    }
    let entries = bytes[HEAD..].chunks_exact(ENTRY);
    let wishes = entries.map(|of| (long(of, 0), word(of, 8), word(of, 12)));
    match kind {
        1 => {
            let of = wishes.map(|(vt, id, flags)| {
                let has = |flag: u32| flags & flag != 0;
                Candidate { unit: unit(id), vt, owed: has(OWED), gang: has(GANG) }
            });
            let (before, is) = (known(who).map(unit), known(answer).map(unit));
            Some(Line::Next(Next { at_ns, cpu: at, before, vnow: beside, of: of.collect(), is }))
        }
        2 => {
            let of =
                wishes.map(|(vt, vm, flags)| Ready { vm: vm as u8, vt, owed: flags & OWED != 0 });
            let then = match who {
                0 => Then::Holds,
                1 => Then::Begins,
                2 => Then::Waits,
                3 => Then::Apart,
                _ => return None,
            };
            let is = known(answer).map(|vm| vm as u8);
            Some(Line::Turn(Turn { at_ns, left: at, of: of.collect(), is, needs: beside, then }))
        }
        3 => {
            let digit = |of: u8| char::from(b"0123456789abcdef"[usize::from(of)]);
            let slots = bytes[HEAD..].iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
            let slots = slots.collect();
            let (caller, excluded, pick) = (unit(who), beside, answer as i32);
            Some(Line::Yield(Yield { at_ns, cpu: at, caller, excluded, flags, pick, slots }))
        }
        _ => None,
    }
}

/// The 8 bytes at an offset as a number. They must be there.
fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// The 4 bytes at an offset as a number. They must be there.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn known(id: u32) -> Option<u32> {
    (id != NOBODY).then_some(id)
}

fn unit(id: u32) -> Unit {
    ((id >> 6) as u8, (id & 63) as u8)
}
