// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the journal's file keeps, and what is put back from it.

use crate::world::{Memory, Tree, NOT_TAKEN, OF_THREADS};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use unspin_host::journal::{Back, Error, Hands, Target};

#[test]
fn a_file_is_held_by_one_and_kept_from_others() {
    let tree = Tree::new();
    let path = tree.path();
    let mut journal = tree.open().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let busy = tree.open().err().unwrap();
    let words = busy.to_string();
    assert!(matches!(busy, Error::Busy { .. }), "{words}");
    assert!(words.contains(&format!("process {}", std::process::id())), "{words}");
    let target = tree.targets()[0].clone();
    journal.change(&tree, &[(target.clone(), "5".into())]).unwrap();
    drop(journal);

    let mut journal = tree.open().unwrap();
    assert_eq!(journal.changes().len(), 1);
    let back = journal.put_back(&tree).unwrap();
    assert!(matches!(back[0].1, Back::Restored), "{back:?}");
    assert_eq!(tree.value(&target), "0");
    assert!(journal.put_back(&tree).unwrap().is_empty());
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    drop(journal);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    let open = tree.open().err().unwrap();
    assert!(open.to_string().contains("chmod go-w"), "{open}");
}

/// Threads come and go: the file keeps those that are there, and stays locked.
#[test]
fn a_long_journal_is_shortened() {
    let tree = Tree::new();
    let mut journal = tree.open().unwrap();
    let length = || fs::metadata(tree.path()).unwrap().len();
    let [stays, _] = OF_THREADS;
    journal.change(&tree, &[(stays.clone(), "5".into())]).unwrap();
    let mut longest = 0;
    for target in (100..3100).map(|tid| Target::Affinity { tid }) {
        tree.add(target.clone(), "0");
        journal.change(&tree, &[(target.clone(), "5".into())]).unwrap();
        tree.threads.borrow_mut().remove(&target);
        longest = longest.max(length());
    }
    assert!((50_000..70_000).contains(&longest), "{longest}");
    journal.shorten(&tree).unwrap();
    assert_eq!(journal.changes().len(), 1);
    assert!(length() < 300, "{}", length());
    assert!(matches!(tree.open().err().unwrap(), Error::Busy { .. }));
    drop(journal);
    let back = tree.open().unwrap().put_back(&tree).unwrap();
    assert!(matches!(&back[..], [(_, Back::Restored)]), "{back:?}");
    assert_eq!(tree.value(&stays), "3");
}

/// One of two targets has an unexpected value: neither is set, and nothing is recorded.
#[test]
fn values_are_exchanged_all_or_none() {
    let tree = Tree::new();
    let mut journal = tree.open().unwrap();
    let [first, second] = [0, 1].map(|which| tree.targets()[which].clone());
    let each = |second_is: &str| {
        let of = |target: &Target, is: &str| (target.clone(), is.to_string(), "5".to_string());
        [of(&first, "0"), of(&second, second_is)]
    };
    let other = journal.exchange(&tree, &each("4")).unwrap();
    assert_eq!(other, Some((second.clone(), "1".into())));
    assert_eq!((tree.value(&first), journal.changes().len()), ("0".into(), 0));
    assert_eq!(fs::metadata(tree.path()).unwrap().len(), 0);
    assert_eq!(journal.exchange(&tree, &each("1")).unwrap(), None);
    assert_eq!([&first, &second].map(|target| tree.value(target)), ["5", "5"]);
    assert_eq!(journal.changes().len(), 2);
}

#[test]
fn entries_of_an_earlier_boot_are_dropped() {
    let tree = Tree::new();
    let target = tree.targets()[1].clone();
    let mut journal = tree.open_in("first").unwrap();
    journal.change(&tree, &[(target.clone(), "5".into())]).unwrap();
    drop(journal);
    let mut journal = tree.open_in("second").unwrap();
    assert!(journal.put_back(&tree).unwrap().is_empty());
    assert_eq!(tree.value(&target), "5");
}

#[test]
fn a_damaged_journal_names_itself() {
    let tree = Tree::new();
    let path = tree.path();
    for value in ["5", "6"] {
        let target = tree.targets()[0].clone();
        tree.open().unwrap().change(&tree, &[(target, value.into())]).unwrap();
    }
    let mut bytes = fs::read(&path).unwrap();
    let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 12;
    bytes[second] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let e = tree.open().err().unwrap();
    assert!(matches!(e, Error::Damaged { line: 2, .. }), "{e}");
    assert!(e.to_string().contains(path.to_str().unwrap()), "{e}");
    assert_eq!(fs::read(&path).unwrap(), bytes, "it stays for who looks at it");
}

#[test]
fn a_target_that_was_changed_often_is_put_back_once() {
    let tree = Tree::new();
    let mut journal = tree.open().unwrap();
    let [target, other] = [0, 1].map(|index| tree.targets()[index].clone());
    for value in ["5", "6", "5", "7"] {
        journal.change(&tree, &[(target.clone(), value.into())]).unwrap();
    }
    journal.change(&tree, &[(other, "5".into())]).unwrap();
    drop(journal);
    // The last change was recorded, but not made.
    tree.write(&target, "5").unwrap();
    let mut journal = tree.open().unwrap();
    assert_eq!(journal.changes().len(), 5);
    let back = journal.put_back(&tree).unwrap();
    assert!(matches!(&back[..], [(_, Back::Restored), (_, Back::Restored)]), "{back:?}");
    assert_eq!((back[1].0.was.as_str(), back[1].0.set.as_str()), ("0", "7"));
    assert_eq!(tree.value(&target), "0");
    for value in ["5", "6"] {
        journal.change(&tree, &[(target.clone(), value.into())]).unwrap();
        tree.write(&target, &format!("theirs-{value}")).unwrap();
    }
    let back = journal.put_back(&tree).unwrap();
    assert!(matches!(&back[0].1, Back::Theirs(is) if is == "theirs-6"), "{back:?}");
    assert_eq!((back.len(), fs::metadata(tree.path()).unwrap().len()), (1, 0));
}

#[test]
fn what_the_kernel_does_not_take_is_an_error_and_put_back() {
    let tree = Tree::new();
    let mut journal = tree.open().unwrap();
    let target = tree.targets()[2].clone();
    let (set, is) = NOT_TAKEN;
    let e = journal.change(&tree, &[(target.clone(), set.into())]).unwrap_err();
    assert!(e.to_string().contains(&format!("was set to {set:?}, and is {is:?}")), "{e}");
    assert_eq!(tree.value(&target), "2");
    assert!(matches!(journal.put_back(&tree).unwrap()[0].1, Back::AsBefore));
}

#[test]
fn a_thread_that_is_gone_cannot_be_changed() {
    let tree = Tree::new();
    let mut journal = tree.open().unwrap();
    let gone = Target::Affinity { tid: 77 };
    let e = journal.change(&tree, &[(gone, "1".into())]).unwrap_err();
    assert_eq!(e.to_string(), "cannot change the CPUs of thread 77: it no longer exists");
    let file = Target::File { path: tree.dir.join("no/file") };
    assert!(matches!(journal.change(&tree, &[(file, "1".into())]), Err(Error::Gone(_))));
}

/// Threads that start meanwhile inherit both: those with the policy can be found.
#[test]
fn the_policy_of_a_thread_is_put_back_last() {
    let tree = Tree::new();
    let mut journal = Memory::new().journal().unwrap();
    let of = |tid: u32| [Target::Affinity { tid }, Target::Policy { tid }];
    for tid in [3, 4] {
        of(tid).into_iter().for_each(|target| tree.add(target, "0"));
        let [cpus, policy] = of(tid);
        journal.change(&tree, &[(policy, "7".into()), (cpus, "2-3".into())]).unwrap();
    }
    // Another program took the policy of the first from it, which it got once more.
    tree.write(&of(3)[1], "0").unwrap();
    journal.change(&tree, &[(of(3)[1].clone(), "7".into())]).unwrap();
    tree.written.borrow_mut().clear();
    journal.put_back(&tree).unwrap();
    assert_eq!(*tree.written.borrow(), [of(3), of(4)].concat());
}

/// A thread has values from the one that started it: they are recorded, and not set.
#[test]
fn what_a_target_has_already_is_put_back_as_well() {
    let tree = Tree::new();
    let mut journal = tree.open().unwrap();
    let [cpus, nice] = OF_THREADS;
    let values = || [&cpus, &nice].map(|of| tree.value(of));
    let had =
        |target: &Target, was: &str, is: &str| (target.clone(), was.to_string(), is.to_string());
    let gone = Target::Nice { tid: 77 };
    let all = [had(&cpus, "0-7", "3"), had(&nice, "4", "4"), had(&gone, "0", "5")];
    journal.adopt(&tree, &all, &[(gone, "6".into())]).unwrap();
    assert_eq!((tree.value(&cpus), journal.changes().len()), ("3".into(), 1));
    // The CPUs are also set: before that they were those that it has already.
    let set = [&cpus, &nice].map(|of| (of.clone(), "5".to_string()));
    journal.adopt(&tree, &[], &set).unwrap();
    assert_eq!(values(), ["5", "5"]);
    let back = journal.put_back(&tree).unwrap();
    assert!(matches!(&back[..], [(_, Back::Restored), (_, Back::Restored)]), "{back:?}");
    assert_eq!(values(), ["0-7", "4"]);
}
