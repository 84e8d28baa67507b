// SPDX-License-Identifier: MIT OR Apache-2.0
//! A journal whose disk has no room.

use crate::world::{Fault, Memory, Tree, OF_THREADS};
use unspin_host::journal::{Journal, Target};

/// What is restored while the disk is full is written once there is room, and no line follows a part of one.
#[test]
fn a_full_disk_is_tried_again() {
    for fault in [Fault::Full, Fault::Stuck] {
        let (tree, disk) = (Tree::new(), Memory::new());
        let mut journal = disk.journal().unwrap();
        let [cpus, nice] = OF_THREADS;
        let set = |value: &str| [&cpus, &nice].map(|of| (of.clone(), value.to_string()));
        let values = || [&cpus, &nice].map(|of| tree.value(of));
        journal.change(&tree, &set("5")).unwrap();
        disk.fault.set(fault);
        let is_one = |target: &Target| *target == cpus;
        let e = journal.put_back_those(&tree, &is_one).unwrap_err();
        assert!(e.to_string().contains("cannot write /journal"), "{e}");
        assert_eq!(values(), ["3", "5"]);
        assert_eq!(journal.changes().len(), 1);
        assert!(journal.change(&tree, &set("6")).is_err());
        let had = [(nice.clone(), "3".to_string(), "5".to_string())];
        assert!(journal.adopt(&tree, &had, &set("6")).unwrap_err().is_of_journal());
        assert_eq!(journal.changes().len(), 1);
        assert_eq!(values(), ["3", "5"], "nothing is set");
        disk.fault.set(Fault::None);
        assert!(journal.put_back_those(&tree, &is_one).unwrap().is_empty());
        let targets = |journal: &Journal| -> Vec<Target> {
            journal.changes().iter().map(|change| change.target.clone()).collect()
        };
        let one = std::slice::from_ref(&nice);
        assert_eq!(targets(&journal), *one);
        assert_eq!(targets(&disk.journal().unwrap()), *one);
        journal.put_back(&tree).unwrap();
        assert!(disk.bytes.borrow().is_empty());
    }
}

#[test]
fn a_journal_that_cannot_be_shortened_keeps_all_and_takes_more() {
    let (tree, disk) = (Tree::new(), Memory::new());
    disk.fault.set(Fault::Narrow);
    let targets: Vec<Target> = (100..2100).map(|tid| Target::Affinity { tid }).collect();
    targets.iter().for_each(|target| tree.add(target.clone(), "0"));
    let before = tree.threads.borrow().clone();
    let mut journal = disk.journal().unwrap();
    for target in &targets {
        journal.change(&tree, &[(target.clone(), "5".into())]).unwrap();
    }
    let (tries, most) = (disk.replaced.get(), disk.bytes.borrow().len() >> 16);
    assert!(0 < tries && tries <= most, "{tries} times, at most {most}");
    assert_eq!(journal.changes().len(), targets.len());
    let mut later = disk.journal().unwrap();
    assert_eq!(later.changes(), journal.changes());
    later.put_back(&tree).unwrap();
    assert_eq!(*tree.threads.borrow(), before);
}
