// SPDX-License-Identifier: MIT OR Apache-2.0
//! The named checks on the code the crate links, and what must fail on KVM's index bug, which 6.13 to 6.18 shipped.

use crate::common::kvm_stock_checks::{conforms, rotates, Rules, INDEX_BUG};
use crate::common::{self, Api};

macro_rules! tests {
    ($($module:ident: $name:ident,)*) => {
        $(#[test]
        fn $name() {
            common::$module::$name(&Api::linked());
        })*
    };
}

for_each_check!(tests);

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn index_bug_is_caught_by_conformance() {
    conforms(&Api::linked(), INDEX_BUG, Rules::V6_19);
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn index_bug_is_caught_by_rotation() {
    rotates(&Api::linked(), INDEX_BUG);
}
