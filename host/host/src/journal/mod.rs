// SPDX-License-Identifier: MIT OR Apache-2.0
//! A record of changes on this host, from which a later process can restore them. The process that
//! made them may be killed at any moment.
//!
//! A change is on the disk before it is made, with the previous and the new value. If the present value
//! equals neither, another program has set it, and it stays. If a target was changed several times, the
//! last two values count as ours, because the last change may not have been made. An entry is valid for
//! one boot, and for one thread or directory: another one with the same name is not touched.

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

/// The journal's file. /run is empty after a boot, and so are the changes.
pub const JOURNAL: &str = "/run/unspin/journal";

/// The changes that are not restored yet.
pub struct Journal {
    disk: Box<dyn Disk>,
    boot: String,
    /// Bytes of complete lines in the file.
    length: u64,
    /// In the order in which they were recorded.
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
    /// Locks the journal at `path` (see [`JOURNAL`]) for this process. `proc` shows the id of the present
    /// boot. Entries of an earlier boot are dropped, because a boot undoes their changes.
    pub fn open(path: &Path, proc: &Path) -> Result<Journal, Error> {
        let boot_id = proc.join("sys/kernel/random/boot_id");
        let boot = read_kernel_text(&boot_id).map_err(Error::io("read", &boot_id))?;
        Journal::on(Box::new(Held::open(path)?), boot.trim())
    }

    /// The journal on a disk, for the boot with this id.
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
        // Remove what is no longer needed before anything is appended.
        let keep = if journal.open.is_empty() { 0 } else { whole };
        if keep < bytes.len() as u64 {
            journal.cut(keep)?;
        }
        journal.length = keep;
        Ok(journal)
    }

    /// The changes that are not restored yet, in order.
    pub fn changes(&self) -> &[Change] {
        &self.open
    }

    /// Records these values, and then sets them, in order. A target that already has its value is
    /// skipped. After an error some may be set: [`Journal::put_back`] restores those.
    pub fn change(&mut self, hands: &dyn Hands, wanted: &[(Target, String)]) -> Result<(), Error> {
        let each = wanted.iter().map(|(target, set)| (target, None, set));
        self.set(hands, each).map(drop)
    }

    /// The same, if each target has the first of its two values. Otherwise records and sets nothing, and
    /// returns a target with another value, and that value.
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

    /// Restores all changes that are not restored yet, last one first, and returns the result for each
    /// target. A target that was changed several times is written once, and returned as one change. If the
    /// process is killed meanwhile, it can be repeated.
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
            // Remove the incomplete line, so that no other line follows it. Nothing was changed
            // yet.
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

/// Sets a value, and checks that the kernel accepted it. Otherwise the value would later look like
/// one of another program.
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

/// Merges all changes of one target, and returns the value before the last of them. The last may not
/// have been made, so the target may still have that value. If another program set a value between two
/// changes, that is the value before.
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

/// Restores the previous value if the target has the value that was set, or `before_last`
/// ([`as_one`]).
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
        // The target disappeared meanwhile.
        Err(_) if is_gone()? => Ok(Back::Gone),
        other => other,
    }
}
