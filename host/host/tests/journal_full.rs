// SPDX-License-Identifier: MIT OR Apache-2.0
//! A journal whose disk has no room for a new file beside it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use unspin_host::journal::{Disk, Hands, Journal, Target};

/// A file in memory, and how often there was no room.
#[derive(Clone, Default)]
struct Narrow {
    bytes: Rc<RefCell<Vec<u8>>>,
    tries: Rc<Cell<usize>>,
}

impl Disk for Narrow {
    fn path(&self) -> &Path {
        "/journal".as_ref()
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.bytes.borrow().clone())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.borrow_mut().extend(bytes);
        Ok(())
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.bytes.borrow_mut().truncate(length as usize);
        Ok(())
    }

    fn replace(&mut self, _: &[u8]) -> io::Result<()> {
        self.tries.set(self.tries.get() + 1);
        Err(io::ErrorKind::StorageFull.into())
    }
}

/// The CPUs of threads.
struct Threads(RefCell<BTreeMap<u32, String>>);

impl Hands for Threads {
    fn key(&self, target: &Target) -> io::Result<Option<u64>> {
        Ok(target.thread().map(u64::from))
    }

    fn read(&self, target: &Target) -> io::Result<String> {
        let tid = target.thread().ok_or(io::ErrorKind::NotFound)?;
        Ok(self.0.borrow()[&tid].clone())
    }

    fn write(&self, target: &Target, value: &str) -> io::Result<()> {
        let tid = target.thread().ok_or(io::ErrorKind::NotFound)?;
        self.0.borrow_mut().insert(tid, value.into());
        Ok(())
    }
}

#[test]
fn a_journal_that_cannot_be_shortened_keeps_all_and_takes_more() {
    let before: BTreeMap<u32, String> = (100..2100).map(|tid| (tid, "0".into())).collect();
    let threads = Threads(RefCell::new(before.clone()));
    let disk = Narrow::default();
    let mut journal = Journal::on(Box::new(disk.clone()), "boot").unwrap();
    for tid in before.keys().copied() {
        journal.change(&threads, &[(Target::Affinity { tid }, "5".into())]).unwrap();
    }
    let (tries, most) = (disk.tries.get(), disk.bytes.borrow().len() >> 16);
    assert!(0 < tries && tries <= most, "{tries} times, at most {most}");
    assert_eq!(journal.changes().len(), before.len());
    let mut later = Journal::on(Box::new(disk.clone()), "boot").unwrap();
    assert_eq!(later.changes(), journal.changes());
    later.put_back(&threads).unwrap();
    assert_eq!(*threads.0.borrow(), before);
}
