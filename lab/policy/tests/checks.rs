// SPDX-License-Identifier: MIT OR Apache-2.0
//! The named checks on the code the crate links, and what must fail on KVM's index bug.

#[macro_use]
mod common;

use common::Api;
use std::panic::{catch_unwind, AssertUnwindSafe};

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
fn index_bug_is_caught_by_conformance() {
    let api = Api::linked();
    let result = catch_unwind(AssertUnwindSafe(|| {
        common::kvm_stock_checks::conforms(
            &api,
            common::kvm_stock_checks::INDEX_BUG,
            common::kvm_stock_checks::Rules::V6_19,
        );
    }));
    assert!(result.is_err(), "the selector test passes the bug that 6.13 to 6.18 shipped");
}

#[test]
fn index_bug_is_caught_by_rotation() {
    let api = Api::linked();
    let result = catch_unwind(AssertUnwindSafe(|| {
        common::kvm_stock_checks::rotates(&api, common::kvm_stock_checks::INDEX_BUG);
    }));
    assert!(result.is_err(), "the rotation test passes the bug that 6.13 to 6.18 shipped");
}
