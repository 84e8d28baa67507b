// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files and threads to change, and the journal's file in memory, with the faults of a disk.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use unspin_host::journal::{Disk, Error, Hands, Journal, Target};
use unspin_host::Host;
use unspin_scratch::Scratch;

/// Number of steps until everything stops.
type Left = Rc<Cell<usize>>;

fn step(left: &Left) -> io::Result<()> {
    match left.get() {
        0 => Err(io::Error::other("killed")),
        n => {
            left.set(n - 1);
            Ok(())
        }
    }
}

#[derive(Clone, Copy, Default, PartialEq)]
pub enum Fault {
    #[default]
    None,
    /// There is room for a part of a line.
    Full,
    /// The same, and the part cannot be removed.
    Stuck,
    /// There is no room for a new file beside it.
    Narrow,
}

/// A file in memory that outlives its writer.
#[derive(Clone)]
pub struct Memory {
    pub bytes: Rc<RefCell<Vec<u8>>>,
    pub left: Left,
    /// How much of a line a writer writes that is killed meanwhile.
    pub torn: usize,
    pub fault: Rc<Cell<Fault>>,
    /// How often it was to be replaced.
    pub replaced: Rc<Cell<usize>>,
}

impl Memory {
    pub fn new() -> Memory {
        Memory {
            bytes: Rc::default(),
            left: Rc::new(Cell::new(usize::MAX)),
            torn: 0,
            fault: Rc::default(),
            replaced: Rc::default(),
        }
    }

    pub fn journal(&self) -> Result<Journal, Error> {
        Journal::on(Box::new(self.clone()), "boot")
    }
}

impl Disk for Memory {
    fn path(&self) -> &Path {
        "/journal".as_ref()
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        step(&self.left)?;
        Ok(self.bytes.borrow().clone())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if matches!(self.fault.get(), Fault::Full | Fault::Stuck) {
            self.bytes.borrow_mut().extend(&bytes[..7]);
            return Err(ErrorKind::StorageFull.into());
        }
        if let Err(e) = step(&self.left) {
            self.bytes.borrow_mut().extend(&bytes[..self.torn % bytes.len()]);
            return Err(e);
        }
        self.bytes.borrow_mut().extend(bytes);
        // It has written, and is killed before it returns.
        step(&self.left)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        if self.fault.get() == Fault::Stuck {
            return Err(io::Error::other("stuck"));
        }
        step(&self.left)?;
        self.bytes.borrow_mut().truncate(length as usize);
        step(&self.left)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.replaced.set(self.replaced.get() + 1);
        if self.fault.get() == Fault::Narrow {
            return Err(ErrorKind::StorageFull.into());
        }
        step(&self.left)?;
        *self.bytes.borrow_mut() = bytes.to_vec();
        step(&self.left)
    }
}

/// This value becomes another one when it is set.
pub const NOT_TAKEN: (&str, &str) = ("99", "100");

/// A tree of files in a temporary directory, and settings of threads in a table.
pub struct Tree {
    pub dir: Scratch,
    /// When the thread started, and the value.
    pub threads: RefCell<BTreeMap<Target, (u64, String)>>,
    pub left: Left,
    /// The targets that were set, in order.
    pub written: RefCell<Vec<Target>>,
}

impl Tree {
    pub fn new() -> Tree {
        let tree = Tree {
            dir: Scratch::new(),
            threads: RefCell::default(),
            left: Rc::new(Cell::new(usize::MAX)),
            written: RefCell::default(),
        };
        for (index, target) in tree.targets().into_iter().enumerate() {
            match target {
                Target::File { path } => drop(tree.dir.line(path, &before(index))),
                of_thread => tree.add(of_thread, &before(index)),
            }
        }
        tree
    }

    pub fn targets(&self) -> Vec<Target> {
        let file = |path: &str| Target::File { path: self.dir.join(path) };
        let files = ["sys/module/kvm/halt_poll_ns", "sys/vms/1-0/mode", "cgroup/v0/cpu.weight"];
        files.into_iter().map(file).chain(OF_THREADS).collect()
    }

    /// A setting of a thread that has just started.
    pub fn add(&self, target: Target, value: &str) {
        self.threads.borrow_mut().insert(target, (1, value.to_string()));
    }

    /// Replaces a target by another one of the same name: a thread with a reused id, or a recreated
    /// cgroup.
    pub fn replace(&self, target: &Target, value: &str) {
        if let Target::File { path } = target {
            let dir = path.parent().unwrap();
            // Keep the old directory elsewhere, so that its inode is not reused.
            let name = format!("old-{}", fs::read_dir(&self.dir).unwrap().count());
            fs::rename(dir, self.dir.join(name)).unwrap();
            self.dir.write(path, value);
        } else {
            let mut threads = self.threads.borrow_mut();
            let (start, is) = threads.get_mut(target).unwrap();
            (*start, *is) = (*start + 1, value.into());
        }
    }

    pub fn value(&self, target: &Target) -> String {
        self.read(target).unwrap()
    }

    pub fn path(&self) -> PathBuf {
        self.dir.join("run/journal")
    }

    /// Opens the journal.
    pub fn open(&self) -> Result<Journal, Error> {
        self.open_in("this")
    }

    /// The same in the boot with this id.
    pub fn open_in(&self, boot: &str) -> Result<Journal, Error> {
        self.dir.line("proc/sys/kernel/random/boot_id", boot);
        Journal::open(&self.path(), &self.dir.join("proc"))
    }

    fn host(&self) -> Host {
        Host::at(&self.dir.join("proc"))
    }
}

/// The settings of threads among [`Tree::targets`].
pub const OF_THREADS: [Target; 2] = [Target::Affinity { tid: 3 }, Target::Nice { tid: 4 }];

impl Hands for Tree {
    fn key(&self, target: &Target) -> io::Result<Option<u64>> {
        step(&self.left)?;
        match target.thread() {
            None => self.host().key(target),
            Some(_) => Ok(self.threads.borrow().get(target).map(|thread| thread.0)),
        }
    }

    fn read(&self, target: &Target) -> io::Result<String> {
        step(&self.left)?;
        match target.thread() {
            None => self.host().read(target),
            Some(_) => Ok(self.threads.borrow()[target].1.clone()),
        }
    }

    fn write(&self, target: &Target, value: &str) -> io::Result<()> {
        step(&self.left)?;
        let value = if value == NOT_TAKEN.0 { NOT_TAKEN.1 } else { value };
        match target.thread() {
            None => self.host().write(target, value)?,
            Some(_) => self.threads.borrow_mut().get_mut(target).unwrap().1 = value.into(),
        }
        self.written.borrow_mut().push(target.clone());
        step(&self.left)
    }
}

/// The first value of the target with this index.
pub fn before(index: usize) -> String {
    format!("{index}")
}
