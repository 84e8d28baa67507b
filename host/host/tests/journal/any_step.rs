// SPDX-License-Identifier: MIT OR Apache-2.0
//! A journal whose writer is killed at any instant. Afterwards every target has its old value, or
//! one that another program set.

use crate::world::{before, Memory, Tree};
use proptest::prelude::*;
use std::rc::Rc;
use unspin_host::journal::{Back, Error, Hands, Target};

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
    disk: &Memory,
    torn: usize,
    all: &[Do],
    expected: &mut [String],
) -> Result<(), Error> {
    let disk = Memory { left: Rc::clone(&tree.left), torn, ..disk.clone() };
    let mut journal = disk.journal()?;
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
        let disk = Memory::new();
        let mut expected: Vec<String> = (0..5).map(before).collect();
        for (steps, torn, all) in &lives {
            tree.left.set(*steps);
            let _ = live(&tree, &disk, *torn, all, &mut expected);
        }
        tree.left.set(usize::MAX);
        live(&tree, &disk, 0, &[], &mut expected).unwrap();
        let found: Vec<String> = tree.targets().iter().map(|target| tree.value(target)).collect();
        prop_assert_eq!(found, expected);
        prop_assert!(disk.bytes.borrow().is_empty(), "all is put back: nothing is kept");
    }
}
