// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin spinners` without VMs: its refusals, and that it leaves nothing in tracefs.

mod common;

use std::os::unix::fs::MetadataExt;
use unspin_scratch::Scratch;

#[track_caller]
fn fails(args: &[&str], code: i32, words: &str) {
    common::fails(&[&["spinners"], args].concat(), code, words);
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn wrong_usage_and_wrong_files_are_2() {
    fails(&["--kallsyms", "x", "--guest-kernel", "6.12"], 2, "cannot be used with");
    fails(&["--guest-kernel", "2.6"], 2, "allowed: 6.1, 6.12, 7.3");
    for wrong in ["0", "1e9", "five"] {
        fails(&["--seconds", wrong], 2, "--seconds");
    }
    fails(&["--kallsyms", "/nonexistent"], 2, "/nonexistent: No such file");
    let dir = Scratch::new();
    for (text, words) in [
        ("0000000000000000 T _text\n", "kptr_restrict"),
        ("ffffffff81000000 D data\n", "no kernel functions"),
        ("ffffffff81000000 T f\nwhat\n", "line 2: \"what\" is not ADDRESS TYPE NAME"),
    ] {
        let file = dir.write("kallsyms", text);
        fails(&["--kallsyms", file.to_str().unwrap()], 2, words);
    }
}

#[test]
fn what_this_computer_cannot_do_is_77() {
    let words = match is_root() {
        true => "tracefs is not at /nonexistent; mount it",
        false => "only root may see where VMs spin",
    };
    fails(&["--tracefs", "/nonexistent"], 77, words);
}

/// A kernel whose tracefs is a directory has no tracepoint.
#[test]
fn nothing_stays_where_the_kernel_cannot_count() {
    if !is_root() {
        println!("SKIPPED: only root gets as far");
        return;
    }
    let tracefs = Scratch::new();
    tracefs.dir("instances");
    fails(&["--tracefs", tracefs.to_str().unwrap()], 77, "load kvm_intel or kvm_amd");
    assert_eq!(std::fs::read_dir(tracefs.join("instances")).unwrap().count(), 0);
}
