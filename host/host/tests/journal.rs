// SPDX-License-Identifier: MIT OR Apache-2.0
//! A journal whose writer is killed at any instant. Afterwards every target has its old value, or
//! one that another program set.

use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use unspin_host::journal::{Back, Disk, Error, Hands, Journal, Target};
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

/// A file in memory that outlives its writer. Appended data may be torn.
struct Memory {
    bytes: Rc<RefCell<Vec<u8>>>,
    left: Left,
    torn: usize,
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
        let alive = self.left.get() > 0;
        if let Err(e) = step(&self.left) {
            self.bytes.borrow_mut().extend(&bytes[..self.torn % bytes.len()]);
            return Err(e);
        }
        assert!(alive);
        self.bytes.borrow_mut().extend(bytes);
        // It has written, and is killed before it returns.
        step(&self.left)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        step(&self.left)?;
        self.bytes.borrow_mut().truncate(length as usize);
        step(&self.left)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        step(&self.left)?;
        *self.bytes.borrow_mut() = bytes.to_vec();
        step(&self.left)
    }
}

/// A tree of files in a temporary directory, and threads' CPUs in a table.
struct Tree {
    dir: Scratch,
    threads: RefCell<BTreeMap<u32, (u64, String)>>,
    left: Left,
}

impl Tree {
    fn new() -> Tree {
        let dir = Scratch::new();
        let tree = Tree { dir, threads: RefCell::default(), left: Rc::new(Cell::new(usize::MAX)) };
        for (index, target) in tree.targets().iter().enumerate() {
            if let Target::File { path } = target {
                tree.dir.line(path, &before(index));
            } else if let Some(tid) = target.thread() {
                tree.threads.borrow_mut().insert(tid, (1, before(index)));
            }
        }
        tree
    }

    fn targets(&self) -> Vec<Target> {
        let file = |path: &str| Target::File { path: self.dir.join(path) };
        let files = ["sys/module/kvm/halt_poll_ns", "sys/vms/1-0/mode", "cgroup/v0/cpu.weight"];
        let threads = [Target::Affinity { tid: 3 }, Target::Nice { tid: 4 }];
        files.into_iter().map(file).chain(threads).collect()
    }

    /// Replaces a target by another one of the same name: a thread with a reused id, or a recreated
    /// cgroup.
    fn replace(&self, target: &Target, value: &str) {
        if let Target::File { path } = target {
            let dir = path.parent().unwrap();
            // Keep the old directory elsewhere, so that its inode is not reused.
            let name = format!("old-{}", fs::read_dir(&self.dir).unwrap().count());
            fs::rename(dir, self.dir.join(name)).unwrap();
            self.dir.write(path, value);
        } else if let Some(tid) = target.thread() {
            let mut threads = self.threads.borrow_mut();
            let (start, is) = threads.get_mut(&tid).unwrap();
            (*start, *is) = (*start + 1, value.into());
        }
    }

    fn host(&self) -> Host {
        Host::at(&self.dir.join("proc"))
    }
}

impl Hands for Tree {
    fn key(&self, target: &Target) -> io::Result<Option<u64>> {
        step(&self.left)?;
        match target.thread() {
            None => self.host().key(target),
            Some(tid) => Ok(self.threads.borrow().get(&tid).map(|thread| thread.0)),
        }
    }

    fn read(&self, target: &Target) -> io::Result<String> {
        step(&self.left)?;
        match target.thread() {
            None => self.host().read(target),
            Some(tid) => Ok(self.threads.borrow()[&tid].1.clone()),
        }
    }

    fn write(&self, target: &Target, value: &str) -> io::Result<()> {
        step(&self.left)?;
        match target.thread() {
            None => self.host().write(target, value)?,
            Some(tid) => self.threads.borrow_mut().get_mut(&tid).unwrap().1 = value.into(),
        }
        step(&self.left)
    }
}

fn before(index: usize) -> String {
    format!("{index}")
}

/// Actions until a process is killed.
#[derive(Debug, Clone)]
enum Do {
    /// Changes the targets in this bit set to a value.
    Change(u8, u8),
    PutBack,
    /// Restores the targets in this bit set.
    PutBackThose(u8),
    Shorten,
    /// Another program sets a target.
    Other(usize, u8),
    /// Another target of the same name appears.
    Replace(usize, u8),
}

fn what() -> impl Strategy<Value = Do> {
    prop_oneof![
        4 => (1..32u8, 0..4u8).prop_map(|(which, value)| Do::Change(which, value)),
        1 => Just(Do::PutBack),
        1 => (1..32u8).prop_map(Do::PutBackThose),
        2 => Just(Do::Shorten),
        1 => (0..5usize, 0..4u8).prop_map(|(which, value)| Do::Other(which, value)),
        1 => (0..5usize, 0..4u8).prop_map(|(which, value)| Do::Replace(which, value)),
    ]
}

/// One process: it opens the journal, restores what it finds, performs these actions, and restores. An
/// error ends it.
fn live(
    tree: &Tree,
    disk: &Rc<RefCell<Vec<u8>>>,
    torn: usize,
    all: &[Do],
    expected: &mut [String],
) -> Result<(), Error> {
    let memory = Memory { bytes: Rc::clone(disk), left: Rc::clone(&tree.left), torn };
    let mut journal = Journal::on(Box::new(memory), "boot")?;
    journal.put_back(tree)?;
    let targets = tree.targets();
    for what in all {
        match what {
            Do::Change(which, value) => {
                let bits = (0..targets.len()).filter(|bit| which >> bit & 1 == 1);
                let wanted: Vec<(Target, String)> =
                    bits.map(|bit| (targets[bit].clone(), format!("set-{value}"))).collect();
                journal.change(tree, &wanted)?;
            }
            Do::PutBack => drop(journal.put_back(tree)?),
            Do::PutBackThose(which) => {
                let is_one = |target: &Target| {
                    targets
                        .iter()
                        .position(|of| of == target)
                        .is_some_and(|bit| which >> bit & 1 == 1)
                };
                let back = journal.put_back_those(tree, &is_one)?;
                assert!(back.iter().all(|(change, _)| is_one(&change.target)));
            }
            Do::Shorten => journal.shorten(tree)?,
            // Other programs are not killed, and write distinct values.
            Do::Other(which, value) => {
                let left = tree.left.replace(usize::MAX);
                expected[*which] = format!("other-{value}");
                tree.write(&targets[*which], &expected[*which]).unwrap();
                tree.left.set(left);
            }
            Do::Replace(which, value) => {
                // The value may equal the one that the process set; it is another program's
                // nevertheless.
                expected[*which] = format!("set-{value}");
                tree.replace(&targets[*which], &expected[*which]);
            }
        }
    }
    let back = journal.put_back(tree)?;
    match back.iter().find(|(_, back)| matches!(back, Back::Failed(_))) {
        Some(_) => Err(Error::Gone(targets[0].clone())),
        None => Ok(()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Three processes are killed one after the other, each at any step; a fourth runs to its end.
    #[test]
    fn killed_at_any_step_it_is_put_back(
        lives in proptest::collection::vec(
            (0..60usize, 0..400usize, proptest::collection::vec(what(), 0..6)),
            3,
        ),
    ) {
        let tree = Tree::new();
        let disk = Rc::new(RefCell::new(Vec::new()));
        let mut expected: Vec<String> = (0..5).map(before).collect();
        for (steps, torn, all) in &lives {
            tree.left.set(*steps);
            let _ = live(&tree, &disk, *torn, all, &mut expected);
        }
        tree.left.set(usize::MAX);
        live(&tree, &disk, 0, &[], &mut expected).unwrap();
        let found: Vec<String> =
            tree.targets().iter().map(|target| tree.read(target).unwrap()).collect();
        prop_assert_eq!(found, expected);
        prop_assert!(disk.borrow().is_empty(), "all is put back: nothing is kept");
    }
}

fn proc(tree: &Tree, boot: &str) -> PathBuf {
    let proc = tree.dir.join("proc");
    tree.dir.line("proc/sys/kernel/random/boot_id", boot);
    proc
}

#[test]
fn a_file_is_held_by_one_and_kept_from_others() {
    let tree = Tree::new();
    let proc = proc(&tree, "this");
    let path = tree.dir.join("run/journal");
    let mut journal = Journal::open(&path, &proc).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let busy = Journal::open(&path, &proc).err().unwrap();
    let words = busy.to_string();
    assert!(matches!(busy, Error::Busy { .. }), "{words}");
    assert!(words.contains(&format!("process {}", std::process::id())), "{words}");
    let target = tree.targets()[0].clone();
    journal.change(&tree, &[(target.clone(), "5".into())]).unwrap();
    drop(journal);

    let mut journal = Journal::open(&path, &proc).unwrap();
    assert_eq!(journal.changes().len(), 1);
    let back = journal.put_back(&tree).unwrap();
    assert!(matches!(back[0].1, Back::Restored), "{back:?}");
    assert_eq!(tree.read(&target).unwrap(), "0");
    assert!(journal.put_back(&tree).unwrap().is_empty());
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    drop(journal);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    let open = Journal::open(&path, &proc).err().unwrap();
    assert!(open.to_string().contains("chmod go-w"), "{open}");
}

/// Threads come and go: the file keeps those that are there, and stays locked.
#[test]
fn a_long_journal_is_shortened() {
    let tree = Tree::new();
    let path = tree.dir.join("run/journal");
    let proc = proc(&tree, "this");
    let mut journal = Journal::open(&path, &proc).unwrap();
    let length = || fs::metadata(&path).unwrap().len();
    let stays = (Target::Affinity { tid: 3 }, "5".to_string());
    journal.change(&tree, &[stays]).unwrap();
    let mut longest = 0;
    for tid in 100..3100 {
        tree.threads.borrow_mut().insert(tid, (1, "0".into()));
        journal.change(&tree, &[(Target::Affinity { tid }, "5".into())]).unwrap();
        tree.threads.borrow_mut().remove(&tid);
        longest = longest.max(length());
    }
    assert!((50_000..70_000).contains(&longest), "{longest}");
    journal.shorten(&tree).unwrap();
    assert_eq!(journal.changes().len(), 1);
    assert!(length() < 300, "{}", length());
    assert!(matches!(Journal::open(&path, &proc).err().unwrap(), Error::Busy { .. }));
    drop(journal);
    let mut journal = Journal::open(&path, &proc).unwrap();
    let back = journal.put_back(&tree).unwrap();
    assert!(matches!(&back[..], [(_, Back::Restored)]), "{back:?}");
    assert_eq!(tree.read(&Target::Affinity { tid: 3 }).unwrap(), "3");
}

/// One of two targets has an unexpected value: neither is set, and nothing is recorded.
#[test]
fn values_are_exchanged_all_or_none() {
    let tree = Tree::new();
    let path = tree.dir.join("run/journal");
    let mut journal = Journal::open(&path, &proc(&tree, "this")).unwrap();
    let [first, second] = [0, 1].map(|which| tree.targets()[which].clone());
    let each = |second_is: &str| {
        let of = |target: &Target, is: &str| (target.clone(), is.to_string(), "5".to_string());
        [of(&first, "0"), of(&second, second_is)]
    };
    let other = journal.exchange(&tree, &each("4")).unwrap();
    assert_eq!(other, Some((second.clone(), "1".into())));
    assert_eq!((tree.read(&first).unwrap(), journal.changes().len()), ("0".into(), 0));
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    assert_eq!(journal.exchange(&tree, &each("1")).unwrap(), None);
    assert_eq!([&first, &second].map(|target| tree.read(target).unwrap()), ["5", "5"]);
    assert_eq!(journal.changes().len(), 2);
}

#[test]
fn entries_of_an_earlier_boot_are_dropped() {
    let tree = Tree::new();
    let path = tree.dir.join("run/journal");
    let target = tree.targets()[1].clone();
    let mut journal = Journal::open(&path, &proc(&tree, "first")).unwrap();
    journal.change(&tree, &[(target.clone(), "5".into())]).unwrap();
    drop(journal);
    let mut journal = Journal::open(&path, &proc(&tree, "second")).unwrap();
    assert!(journal.put_back(&tree).unwrap().is_empty());
    assert_eq!(tree.read(&target).unwrap(), "5");
}

#[test]
fn a_damaged_journal_names_itself() {
    let tree = Tree::new();
    let proc = proc(&tree, "this");
    let path = tree.dir.join("run/journal");
    let change = |value: &str| {
        let mut journal = Journal::open(&path, &proc).unwrap();
        journal.change(&tree, &[(tree.targets()[0].clone(), value.into())]).unwrap();
    };
    change("5");
    change("6");
    let mut bytes = fs::read(&path).unwrap();
    let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 12;
    bytes[second] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let e = Journal::open(&path, &proc).err().unwrap();
    assert!(matches!(e, Error::Damaged { line: 2, .. }), "{e}");
    assert!(e.to_string().contains(path.to_str().unwrap()), "{e}");
    assert_eq!(fs::read(&path).unwrap(), bytes, "it stays for who looks at it");
}

#[test]
fn a_target_that_was_changed_often_is_put_back_once() {
    let tree = Tree::new();
    let proc = proc(&tree, "this");
    let path = tree.dir.join("run/journal");
    let mut journal = Journal::open(&path, &proc).unwrap();
    let [target, other] = [0, 1].map(|index| tree.targets()[index].clone());
    for value in ["5", "6", "5", "7"] {
        journal.change(&tree, &[(target.clone(), value.into())]).unwrap();
    }
    journal.change(&tree, &[(other, "5".into())]).unwrap();
    drop(journal);
    // The last change was recorded, but not made.
    tree.write(&target, "5").unwrap();
    let mut journal = Journal::open(&path, &proc).unwrap();
    assert_eq!(journal.changes().len(), 5);
    let back = journal.put_back(&tree).unwrap();
    assert!(matches!(&back[..], [(_, Back::Restored), (_, Back::Restored)]), "{back:?}");
    assert_eq!((back[1].0.was.as_str(), back[1].0.set.as_str()), ("0", "7"));
    assert_eq!(tree.read(&target).unwrap(), "0");
    for value in ["5", "6"] {
        journal.change(&tree, &[(target.clone(), value.into())]).unwrap();
        tree.write(&target, &format!("theirs-{value}")).unwrap();
    }
    let back = journal.put_back(&tree).unwrap();
    assert!(matches!(&back[0].1, Back::Theirs(is) if is == "theirs-6"), "{back:?}");
    assert_eq!((back.len(), fs::metadata(&path).unwrap().len()), (1, 0));
}

#[test]
fn what_the_kernel_does_not_take_is_an_error_and_put_back() {
    struct Rounds(Tree);
    impl Hands for Rounds {
        fn key(&self, target: &Target) -> io::Result<Option<u64>> {
            self.0.key(target)
        }
        fn read(&self, target: &Target) -> io::Result<String> {
            self.0.read(target)
        }
        fn write(&self, target: &Target, value: &str) -> io::Result<()> {
            self.0.write(target, if value == "99" { "100" } else { value })
        }
    }
    let tree = Rounds(Tree::new());
    let mut journal =
        Journal::open(&tree.0.dir.join("run/journal"), &proc(&tree.0, "this")).unwrap();
    let target = tree.0.targets()[2].clone();
    let e = journal.change(&tree, &[(target.clone(), "99".into())]).unwrap_err();
    assert!(e.to_string().contains("was set to \"99\", and is \"100\""), "{e}");
    assert_eq!(tree.read(&target).unwrap(), "2");
    assert!(matches!(journal.put_back(&tree).unwrap()[0].1, Back::AsBefore));
}

#[test]
fn a_thread_that_is_gone_cannot_be_changed() {
    let tree = Tree::new();
    let mut journal = Journal::open(&tree.dir.join("run/journal"), &proc(&tree, "this")).unwrap();
    let gone = Target::Affinity { tid: 77 };
    let e = journal.change(&tree, &[(gone, "1".into())]).unwrap_err();
    assert_eq!(e.to_string(), "cannot change the CPUs of thread 77: it no longer exists");
    let file = Target::File { path: tree.dir.join("no/file") };
    assert!(matches!(journal.change(&tree, &[(file, "1".into())]), Err(Error::Gone(_))));
}

/// A file in memory. While it is full it has room for a part of a line, and with `stuck` the part stays.
struct Full {
    bytes: Rc<RefCell<Vec<u8>>>,
    is_full: Rc<Cell<bool>>,
    is_stuck: Rc<Cell<bool>>,
}

impl Disk for Full {
    fn path(&self) -> &Path {
        "/journal".as_ref()
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.bytes.borrow().clone())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let part = if self.is_full.get() { 7 } else { bytes.len() };
        self.bytes.borrow_mut().extend(&bytes[..part]);
        if self.is_full.get() {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        if self.is_stuck.get() {
            return Err(io::Error::other("stuck"));
        }
        self.bytes.borrow_mut().truncate(length as usize);
        Ok(())
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        *self.bytes.borrow_mut() = bytes.to_vec();
        Ok(())
    }
}

/// What is restored while the disk is full is written once there is room, and no line follows a part of one.
#[test]
fn a_full_disk_is_tried_again() {
    for stuck in [false, true] {
        let tree = Tree::new();
        let bytes = Rc::new(RefCell::new(Vec::new()));
        let (is_full, is_stuck) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let disk = || {
            let (is_full, is_stuck) = (Rc::clone(&is_full), Rc::clone(&is_stuck));
            Box::new(Full { bytes: Rc::clone(&bytes), is_full, is_stuck })
        };
        let mut journal = Journal::on(disk(), "boot").unwrap();
        let [cpus, nice] = [Target::Affinity { tid: 3 }, Target::Nice { tid: 4 }];
        let set = |value: &str| [&cpus, &nice].map(|of| (of.clone(), value.to_string()));
        journal.change(&tree, &set("5")).unwrap();
        is_full.set(true);
        is_stuck.set(stuck);
        let is_one = |target: &Target| *target == cpus;
        let e = journal.put_back_those(&tree, &is_one).unwrap_err();
        assert!(e.to_string().contains("cannot write /journal"), "{e}");
        assert_eq!([&cpus, &nice].map(|of| tree.read(of).unwrap()), ["3", "5"]);
        assert_eq!(journal.changes().len(), 1);
        assert!(journal.change(&tree, &set("6")).is_err());
        let had = [(nice.clone(), "3".to_string(), "5".to_string())];
        assert!(journal.adopt(&tree, &had, &set("6")).unwrap_err().is_of_journal());
        assert_eq!(journal.changes().len(), 1);
        assert_eq!([&cpus, &nice].map(|of| tree.read(of).unwrap()), ["3", "5"], "nothing is set");
        is_full.set(false);
        is_stuck.set(false);
        assert!(journal.put_back_those(&tree, &is_one).unwrap().is_empty());
        let targets = |journal: &Journal| -> Vec<Target> {
            journal.changes().iter().map(|change| change.target.clone()).collect()
        };
        assert_eq!(targets(&journal), *std::slice::from_ref(&nice));
        assert_eq!(
            targets(&Journal::on(disk(), "boot").unwrap()),
            *std::slice::from_ref(&nice),
            "{stuck}"
        );
        journal.put_back(&tree).unwrap();
        assert!(bytes.borrow().is_empty());
    }
}

/// Threads that start meanwhile inherit both: those with the policy can be found.
#[test]
fn the_policy_of_a_thread_is_put_back_last() {
    struct Order(RefCell<BTreeMap<Target, String>>, RefCell<Vec<Target>>);
    impl Hands for Order {
        fn key(&self, _: &Target) -> io::Result<Option<u64>> {
            Ok(Some(1))
        }
        fn read(&self, target: &Target) -> io::Result<String> {
            Ok(self.0.borrow().get(target).cloned().unwrap_or("0".into()))
        }
        fn write(&self, target: &Target, value: &str) -> io::Result<()> {
            self.0.borrow_mut().insert(target.clone(), value.into());
            self.1.borrow_mut().push(target.clone());
            Ok(())
        }
    }
    let hands = Order(RefCell::default(), RefCell::default());
    let bytes = Rc::new(RefCell::new(Vec::new()));
    let memory = Memory { bytes, left: Rc::new(Cell::new(usize::MAX)), torn: 0 };
    let mut journal = Journal::on(Box::new(memory), "boot").unwrap();
    let of = |tid: u32| [Target::Affinity { tid }, Target::Policy { tid }];
    for tid in [3, 4] {
        let [cpus, policy] = of(tid);
        journal.change(&hands, &[(policy, "7".into()), (cpus, "2-3".into())]).unwrap();
    }
    // Another program took the policy of the first from it, which it got once more.
    hands.write(&of(3)[1], "0").unwrap();
    journal.change(&hands, &[(of(3)[1].clone(), "7".into())]).unwrap();
    hands.1.borrow_mut().clear();
    journal.put_back(&hands).unwrap();
    assert_eq!(*hands.1.borrow(), [of(3), of(4)].concat());
}

/// A thread has values from the one that started it: they are recorded, and not set.
#[test]
fn what_a_target_has_already_is_put_back_as_well() {
    let tree = Tree::new();
    let path = tree.dir.join("run/journal");
    let mut journal = Journal::open(&path, &proc(&tree, "this")).unwrap();
    let [cpus, nice] = [Target::Affinity { tid: 3 }, Target::Nice { tid: 4 }];
    let had =
        |target: &Target, was: &str, is: &str| (target.clone(), was.to_string(), is.to_string());
    let gone = Target::Nice { tid: 77 };
    let all = [had(&cpus, "0-7", "3"), had(&nice, "4", "4"), had(&gone, "0", "5")];
    journal.adopt(&tree, &all, &[(gone, "6".into())]).unwrap();
    assert_eq!((tree.read(&cpus).unwrap(), journal.changes().len()), ("3".into(), 1));
    // The CPUs are also set: before that they were those that it has already.
    let set = [&cpus, &nice].map(|of| (of.clone(), "5".to_string()));
    journal.adopt(&tree, &[], &set).unwrap();
    assert_eq!([&cpus, &nice].map(|of| tree.read(of).unwrap()), ["5", "5"]);
    let back = journal.put_back(&tree).unwrap();
    assert!(matches!(&back[..], [(_, Back::Restored), (_, Back::Restored)]), "{back:?}");
    assert_eq!([&cpus, &nice].map(|of| tree.read(of).unwrap()), ["0-7", "4"]);
}
