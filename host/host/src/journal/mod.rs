// SPDX-License-Identifier: MIT OR Apache-2.0
//! A record of changes on this host. A later process can restore them, because the process that made
//! them may be killed at any instant.
//!
//! A change is on the disk before it is made, with the value before and the value that is set. A value
//! set by another program equals neither, and stays. Of a target that was changed several times the last
//! two values that were set count, for the last change may not have been made. An entry holds for one
//! boot, and for one thread or directory: what has only the same name is not touched.

mod change;
mod disk;
mod error;
mod hands;
mod lines;

pub use change::{Change, Target};
pub use disk::Disk;
pub use error::Error;
pub use hands::Hands;

use disk::Held;
use lines::{Line, SCHEMA};
use std::io;
use std::path::Path;
use unspin_text::read_kernel_text;

/// Where it is kept. What /run has is gone with the boot, as are the changes.
pub const JOURNAL: &str = "/run/unspin/journal";

/// The changes that are not put back yet.
pub struct Journal {
    disk: Box<dyn Disk>,
    boot: String,
    /// Bytes of the file that are whole lines.
    length: u64,
    /// In the order in which they were noted.
    open: Vec<Change>,
    next: u64,
}

/// The result of restoring a change.
#[derive(Debug)]
pub enum Back {
    /// The value before was restored.
    Restored,
    /// The value before was written, and the kernel changed it to this: for example, a CPU is offline.
    Nearly(String),
    /// The value before was already set, or the change was never made.
    AsBefore,
    /// Another program has set this value meanwhile; it stays.
    Theirs(String),
    /// The thread or the directory no longer exists.
    Gone,
    /// The value stays changed, and stays in the journal.
    Failed(io::Error),
}

impl Journal {
    /// Holds the journal at `path` (see [`JOURNAL`]) for this process. `proc` is where the kernel says which
    /// boot this is. Entries of an earlier boot are dropped: nothing is left of them.
    pub fn open(path: &Path, proc: &Path) -> Result<Journal, Error> {
        let boot_id = proc.join("sys/kernel/random/boot_id");
        let boot = read_kernel_text(&boot_id).map_err(Error::io("read", &boot_id))?;
        Journal::on(Box::new(Held::open(path)?), boot.trim())
    }

    /// The journal on a disk, of the boot with this id.
    pub fn on(disk: Box<dyn Disk>, boot: &str) -> Result<Journal, Error> {
        let boot = boot.to_string();
        let mut journal = Journal { disk, boot, length: 0, open: Vec::new(), next: 1 };
        let path = journal.disk.path().to_path_buf();
        let bytes = journal.disk.read().map_err(Error::io("read", &path))?;
        let (lines, whole) = lines::read(&path, &bytes)?;
        let mut is_of_this_boot = false;
        for line in lines {
            match line {
                Line::Begin { boot, .. } => is_of_this_boot = boot == journal.boot,
                Line::Change(changes) => journal.open.extend(changes),
                Line::Back(ids) => journal.open.retain(|change| !ids.contains(&change.id)),
            }
        }
        if !is_of_this_boot {
            journal.open.clear();
        }
        journal.next = journal.open.iter().map(|change| change.id + 1).max().unwrap_or(1);
        // What is not needed any more goes before anything is added to it.
        let keep = if journal.open.is_empty() { 0 } else { whole };
        if keep < bytes.len() as u64 {
            journal.cut(keep)?;
        }
        journal.length = keep;
        Ok(journal)
    }

    /// The changes that are not put back yet, first to last.
    pub fn changes(&self) -> &[Change] {
        &self.open
    }

    /// Notes these values, and sets them when that is on the disk, first to last. A target that has its
    /// value already is no change. At an error some may be set: [`Journal::put_back`] undoes those.
    pub fn change(&mut self, hands: &dyn Hands, wanted: &[(Target, String)]) -> Result<(), Error> {
        let each = wanted.iter().map(|(target, set)| (target, None, set));
        self.set(hands, each).map(drop)
    }

    /// The same, where each target has the value that is given first of the two. Otherwise nothing is noted or
    /// set, and the answer is a target that has another, and what it has.
    pub fn exchange(
        &mut self,
        hands: &dyn Hands,
        wanted: &[(Target, String, String)],
    ) -> Result<Option<(Target, String)>, Error> {
        self.set(hands, wanted.iter().map(|(target, is, set)| (target, Some(is), set)))
    }

    fn set<'a>(
        &mut self,
        hands: &dyn Hands,
        wanted: impl Iterator<Item = (&'a Target, Option<&'a String>, &'a String)>,
    ) -> Result<Option<(Target, String)>, Error> {
        let mut changes = Vec::new();
        for (target, is, set) in wanted {
            let key = hands.key(target).map_err(Error::of("look at", target))?;
            let key = key.ok_or_else(|| Error::Gone(target.clone()))?;
            let was = hands.read(target).map_err(Error::of("read", target))?;
            if is.is_some_and(|is| *is != was) {
                return Ok(Some((target.clone(), was)));
            }
            if was != *set {
                let (target, set) = (target.clone(), set.clone());
                changes.push(Change { id: self.next, target, key, was, set });
                self.next += 1;
            }
        }
        if changes.is_empty() {
            return Ok(None);
        }
        self.append(Line::Change(changes.clone()))?;
        self.open.extend(changes.iter().cloned());
        for change in &changes {
            make(hands, change)?;
        }
        Ok(None)
    }

    /// Puts back what is not put back yet, and says of each target what became of it: the one changed last
    /// comes first. A target that was changed several times is written once, and told as one change. It may
    /// be killed meanwhile, and done again.
    pub fn put_back(&mut self, hands: &dyn Hands) -> Result<Vec<(Change, Back)>, Error> {
        let (mut done, mut stays, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(last) = self.open.last() {
            let of_it = last.clone();
            let is_its = |c: &Change| c.target == of_it.target && c.key == of_it.key;
            let (all, others): (Vec<Change>, _) = self.open.drain(..).partition(is_its);
            self.open = others;
            let (whole, before_last) = as_one(of_it, &all);
            let back = undo(hands, &whole, &before_last).unwrap_or_else(Back::Failed);
            match back {
                Back::Failed(_) => stays.splice(0..0, all).for_each(drop),
                _ => ids.extend(all.iter().map(|change| change.id)),
            }
            done.push((whole, back));
        }
        self.open = stays;
        match self.open.is_empty() {
            true if self.length > 0 => self.cut(0)?,
            false if !ids.is_empty() => self.append(Line::Back(ids))?,
            _ => {}
        }
        Ok(done)
    }

    fn append(&mut self, line: Line) -> Result<(), Error> {
        let path = self.disk.path().to_path_buf();
        let mut bytes = Vec::new();
        if self.length == 0 {
            let begin = Line::Begin { schema: SCHEMA, boot: self.boot.clone() };
            bytes.extend(begin.write().map_err(|e| Error::io("write", &path)(e.into()))?);
        }
        bytes.extend(line.write().map_err(|e| Error::io("write", &path)(e.into()))?);
        if let Err(e) = self.disk.append(&bytes) {
            // What was written of it must not be followed by another line. Nothing was changed yet.
            let _ = self.disk.cut(self.length);
            return Err(Error::io("write", &path)(e));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn cut(&mut self, length: u64) -> Result<(), Error> {
        let path = self.disk.path().to_path_buf();
        self.disk.cut(length).map_err(Error::io("write", &path))?;
        self.length = length;
        Ok(())
    }
}

/// Sets a value, and checks that the kernel accepted it: otherwise it would later look like another
/// program's.
fn make(hands: &dyn Hands, change: &Change) -> Result<(), Error> {
    let target = &change.target;
    hands.write(target, &change.set).map_err(Error::of("set", target))?;
    let is = hands.read(target).map_err(Error::of("read", target))?;
    if is == change.set {
        return Ok(());
    }
    hands.write(target, &change.was).map_err(Error::of("put back", target))?;
    Err(Error::NotTaken { target: target.clone(), set: change.set.clone(), is })
}

/// All changes of one target as one, and the value before the last of them. That one may not have been
/// made, so the target may still have it. If another program set a value between two of them, that is
/// the value before.
fn as_one(last: Change, all: &[Change]) -> (Change, String) {
    let before_last = last.was.clone();
    let earlier = all.split_last().map_or(&[][..], |(_, earlier)| earlier);
    let mut whole = last;
    for change in earlier.iter().rev() {
        if change.set != whole.was && change.was != whole.was {
            break;
        }
        whole.was.clone_from(&change.was);
    }
    (whole, before_last)
}

/// Sets the value before, where the target has what was set, or `before_last` ([`as_one`]).
fn undo(hands: &dyn Hands, change: &Change, before_last: &str) -> io::Result<Back> {
    let target = &change.target;
    let is_gone = || hands.key(target).map(|key| key != Some(change.key));
    if is_gone()? {
        return Ok(Back::Gone);
    }
    let result = hands.read(target).and_then(|is| {
        if is == change.was {
            return Ok(Back::AsBefore);
        }
        if is != change.set && is != before_last {
            return Ok(Back::Theirs(is));
        }
        hands.write(target, &change.was)?;
        match hands.read(target)? {
            is if is == change.was => Ok(Back::Restored),
            is => Ok(Back::Nearly(is)),
        }
    });
    match result {
        // It went meanwhile.
        Err(_) if is_gone()? => Ok(Back::Gone),
        other => other,
    }
}
