// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The example, as it is.

include!("../examples/counter.rs");

#[test]
fn the_example_counts() {
    main();
    assert_eq!(*COUNTER.lock(), 200_000);
}
