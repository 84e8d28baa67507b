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
use std::collections::{BTreeMap, BTreeSet};
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
    /// Changes that are restored, which the file does not say yet: it could not be written.
    finished: BTreeSet<u64>,
    /// The file may end with a part of a line.
    is_torn: bool,
    /// The length from which on it is shortened before more is recorded.
    long: u64,
}

/// A shorter journal is left as it is, in bytes.
const LONG: u64 = 64 << 10;

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
        let mut journal = Journal {
            disk,
            boot: boot.to_string(),
            length: 0,
            open: Vec::new(),
            next: 1,
            finished: BTreeSet::new(),
            is_torn: false,
            long: LONG,
        };
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

    /// Records values that targets have already, because a change of another target set them, too: target, the value
    /// that it would have otherwise, and the present one. Then the same as [`Journal::change`]. All of it is one line:
    /// either all is recorded, or nothing is set. What is no longer there is left out.
    pub fn adopt(
        &mut self,
        hands: &dyn Hands,
        had: &[(Target, String, String)],
        wanted: &[(Target, String)],
    ) -> Result<(), Error> {
        let mut changes = Vec::new();
        for (target, was, set) in had.iter().filter(|(_, was, set)| was != set) {
            changes.extend(Error::if_there(self.as_change(hands, target, was, set))?);
        }
        let first = changes.len();
        for (target, set) in wanted {
            let change = Error::if_there(self.next_change(hands, target, set))?;
            changes.extend(change.filter(|change| change.was != change.set));
        }
        self.record(hands, &changes)?;
        for change in &changes[first..] {
            Error::if_there(make(hands, change))?;
        }
        Ok(())
    }

    fn set<'a>(
        &mut self,
        hands: &dyn Hands,
        wanted: impl Iterator<Item = (&'a Target, Option<&'a String>, &'a String)>,
    ) -> Result<Option<(Target, String)>, Error> {
        let mut changes = Vec::new();
        for (target, is, set) in wanted {
            let change = self.next_change(hands, target, set)?;
            if is.is_some_and(|is| *is != change.was) {
                return Ok(Some((target.clone(), change.was)));
            }
            if change.was != change.set {
                changes.push(change);
            }
        }
        self.record(hands, &changes)?;
        for change in &changes {
            make(hands, change)?;
        }
        Ok(None)
    }

    /// From the present value to this one.
    fn next_change(
        &mut self,
        hands: &dyn Hands,
        target: &Target,
        set: &str,
    ) -> Result<Change, Error> {
        // Whether it is there at all is known first.
        let change = self.as_change(hands, target, "", set)?;
        let was = hands.read(target).map_err(Error::of("read", target))?;
        Ok(Change { was, ..change })
    }

    /// With the next number.
    fn as_change(
        &mut self,
        hands: &dyn Hands,
        target: &Target,
        was: &str,
        set: &str,
    ) -> Result<Change, Error> {
        let key = hands.key(target).map_err(Error::of("look at", target))?;
        let key = key.ok_or_else(|| Error::Gone(target.clone()))?;
        let (id, target) = (self.next, target.clone());
        self.next += 1;
        Ok(Change { id, target, key, was: was.into(), set: set.into() })
    }

    /// Before they are made.
    fn record(&mut self, hands: &dyn Hands, changes: &[Change]) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        if self.length >= self.long && self.shorten(hands).is_err() {
            // It is as before, and there may be room for a line.
            self.long = self.length + LONG;
        }
        self.append(Line::Change(changes.to_vec()))?;
        self.open.extend(changes.iter().cloned());
        Ok(())
    }

    /// Restores all changes that are not restored yet, last one first, and returns the result for each
    /// target. The policy of a thread comes after its other settings: a thread that it starts meanwhile has that
    /// policy, and is found by it. A target that was changed several times is written once, and returned as one
    /// change. If the process is killed meanwhile, it can be repeated.
    pub fn put_back(&mut self, hands: &dyn Hands) -> Result<Vec<(Change, Back)>, Error> {
        self.put_back_those(hands, &|_| true)
    }

    /// The same with the changes of some targets.
    ///
    /// # Errors
    /// What follows from changes is not restored, and no change counts as restored; or the file cannot be written,
    /// which is tried again at the next call.
    pub fn put_back_those(
        &mut self,
        hands: &dyn Hands,
        is_one: &dyn Fn(&Target) -> bool,
    ) -> Result<Vec<(Change, Back)>, Error> {
        let (mut done, mut ids) = (Vec::new(), BTreeSet::new());
        let those: Vec<Change> = self.open.iter().filter(|c| is_one(&c.target)).cloned().collect();
        for all in policies_later(by_target(&those)) {
            let Some(of_it) = all.last().cloned() else { continue };
            let (whole, before_last) = as_one(of_it, &all);
            let back = undo(hands, &whole, &before_last).unwrap_or_else(Back::Failed);
            if !matches!(back, Back::Failed(_)) {
                ids.extend(all.iter().map(|change| change.id));
            }
            done.push((whole, back));
        }
        let rest: Vec<Change> =
            self.open.iter().filter(|change| !ids.contains(&change.id)).cloned().collect();
        hands.restored(&done, &rest).map_err(|source| {
            let what = "what follows from changes".to_string();
            Error::Io { doing: "restore", what, source }
        })?;
        self.open = rest;
        self.finished.extend(ids);
        match self.open.is_empty() {
            true if self.length > 0 || self.is_torn => self.cut(0)?,
            false if !self.finished.is_empty() => {
                self.append(Line::Back(self.finished.iter().copied().collect()))?;
            }
            _ => {}
        }
        self.finished.clear();
        Ok(done)
    }

    /// Drops entries of threads and directories that no longer exist, and joins those of one target. The file then
    /// has only what is left.
    ///
    /// # Errors
    /// The file cannot be written, and is as before.
    pub fn shorten(&mut self, hands: &dyn Hands) -> Result<(), Error> {
        let mut short = Vec::new();
        for all in by_target(&self.open) {
            let Some(of_it) = all.last().cloned() else { continue };
            let key = hands.key(&of_it.target).map_err(Error::of("look at", &of_it.target))?;
            if key != Some(of_it.key) {
                continue;
            }
            // Two entries say as much as many: the value before all, and the last two that may be set.
            let (whole, before_last) = as_one(of_it.clone(), &all);
            let first =
                all.first().filter(|first| first.id != of_it.id && whole.was != before_last);
            short.push(of_it);
            short.extend(first.map(|first| Change { id: first.id, set: before_last, ..whole }));
        }
        short.sort_by_key(|change| change.id);
        let line = (!short.is_empty()).then(|| Line::Change(short.clone()));
        let bytes = match line {
            Some(line) => [self.begin()?, self.bytes(&line)?].concat(),
            None => Vec::new(),
        };
        let path = self.disk.path().to_path_buf();
        self.disk.replace(&bytes).map_err(Error::io("write", &path))?;
        (self.open, self.length, self.is_torn) = (short, bytes.len() as u64, false);
        self.finished.clear();
        self.long = LONG.max(2 * self.length);
        Ok(())
    }

    fn begin(&self) -> Result<Vec<u8>, Error> {
        self.bytes(&Line::Begin { schema: SCHEMA, boot: self.boot.clone() })
    }

    fn bytes(&self, line: &Line) -> Result<Vec<u8>, Error> {
        line.write().map_err(|e| Error::io("write", self.disk.path())(e.into()))
    }

    fn append(&mut self, line: Line) -> Result<(), Error> {
        let path = self.disk.path().to_path_buf();
        if self.is_torn {
            self.cut(self.length)?;
        }
        let mut bytes = match self.length {
            0 => self.begin()?,
            _ => Vec::new(),
        };
        bytes.extend(self.bytes(&line)?);
        if let Err(e) = self.disk.append(&bytes) {
            // Remove the incomplete line, so that no other line follows it. Nothing was changed
            // yet.
            self.is_torn = self.disk.cut(self.length).is_err();
            return Err(Error::io("write", &path)(e));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn cut(&mut self, length: u64) -> Result<(), Error> {
        let path = self.disk.path().to_path_buf();
        self.disk.cut(length).map_err(Error::io("write", &path))?;
        (self.length, self.is_torn) = (length, false);
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

/// All changes of each target, in their order; the target that was changed last comes first.
fn by_target(changes: &[Change]) -> Vec<Vec<Change>> {
    let mut targets: BTreeMap<(&Target, u64), (usize, Vec<Change>)> = BTreeMap::new();
    for (at, change) in changes.iter().enumerate() {
        let (last, all) = targets.entry((&change.target, change.key)).or_default();
        *last = at;
        all.push(change.clone());
    }
    let mut each: Vec<(usize, Vec<Change>)> = targets.into_values().collect();
    each.sort_by_key(|(last, _)| std::cmp::Reverse(*last));
    each.into_iter().map(|(_, all)| all).collect()
}

/// The policy of each thread comes after the thread's other targets, all else is in the same order.
fn policies_later(each: Vec<Vec<Change>>) -> Vec<Vec<Change>> {
    let thread = |all: &[Change]| all.first().and_then(|of| Some((of.target.thread()?, of.key)));
    let mut first: BTreeMap<(u32, u64), usize> = BTreeMap::new();
    let mut keyed = Vec::new();
    for (at, all) in each.into_iter().enumerate() {
        let of_thread = thread(&all).map_or(at, |of| *first.entry(of).or_insert(at));
        let is_policy = all.first().is_some_and(|of| matches!(of.target, Target::Policy { .. }));
        keyed.push((of_thread, is_policy, all));
    }
    keyed.sort_by_key(|(of_thread, is_policy, _)| (*of_thread, *is_policy));
    keyed.into_iter().map(|(.., all)| all).collect()
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
        let is_ours = |set| hands.is_still(target, &is, set);
        if !is_ours(&change.set) && !is_ours(before_last) {
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
