// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything is restored, for any end.

use crate::common::said;
use crate::common::vm_host::{
    allowed, comes_to, ends_well, fails, guard_if_any, guard_of, signal, started,
};
use crate::fake::Fake;
use std::fs;

#[test]
fn another_hands_cpus_stay() {
    let fake = Fake::new();
    let now = || fake.vcpus.map(allowed);
    let before = now();
    if before[0] == "0" {
        eprintln!("SKIPPED: this computer has one CPU");
        return;
    }
    let pinned = || now().iter().all(|cpus| cpus.parse::<u32>().is_ok());
    let child = started(fake.shape(&["--parts", "resolver"]), pinned);
    let cpus = unspin_host::cpus::parse(&before[1]).unwrap();
    unspin_host::cpus::set_affinity(fake.vcpus[1], &cpus).unwrap();
    fails(child, &format!("to {}, which was", before[1]));
    assert_eq!(now(), before);
    fake.is_as_before();
}

#[test]
fn signals_end_it_well_after_putting_back() {
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let fake = Fake::new();
        let child = fake.shapes();
        let weights: Vec<u32> = fake.weights().iter().map(|text| text.parse().unwrap()).collect();
        assert!(weights[0] > 120 && weights[1] < 80, "{weights:?}");
        let busy = fake.shape(&[]).output().unwrap();
        assert_eq!(busy.status.code(), Some(1));
        assert!(said(&busy).contains(&format!("(process {}) is changing", child.id())), "{busy:?}");
        let out = ends_well(child, number);
        assert!(said(&out).contains("cpu.weight is 100 again"), "{}", said(&out));
        fake.is_as_before();
    }
}

#[test]
fn killed_it_is_put_back_by_its_guard() {
    let fake = Fake::new();
    let mut child = fake.shapes();
    child.kill().unwrap();
    child.wait().unwrap();
    fake.comes_back();
}

#[test]
fn killed_with_its_guard_it_is_put_back_by_the_next() {
    let fake = Fake::new();
    let mut child = fake.shapes();
    signal(guard_of(&child), libc::SIGKILL);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(fake.weights()[0], "100");
    let next = started(fake.shape(&[]), || true);
    // It handles signals before it restores.
    fake.comes_back();
    signal(next.id(), libc::SIGTERM);
    let out = next.wait_with_output().unwrap();
    assert!(said(&out).contains("restored changes of an earlier unspin: "), "{}", said(&out));
    fake.is_as_before();
}

#[test]
fn another_hands_weight_stays() {
    let fake = Fake::new();
    let child = fake.shapes();
    fake.write(&fake.of_vcpu(1, "cpu.weight"), "777");
    fails(child, "cpu.weight to 777, which was");
    assert_eq!(fake.weights(), ["100", "777", "100"]);
    assert_eq!(fake.journal(), "");
}

#[test]
fn a_vm_that_ends_leaves_nothing_to_put_back() {
    let fake = Fake::new();
    let child = fake.shapes();
    fs::remove_dir_all(fake.dir.join(format!("proc/{}", fake.vm))).unwrap();
    fs::remove_dir_all(fake.dir.join("sys/fs/cgroup/machine.slice")).unwrap();
    fails(child, "no VM runs on this host");
    assert_eq!(fake.journal(), "");
}

/// It is killed `UNSPIN_KILLS` (25) times at some instant, together with its guard, and the next start
/// restores.
#[test]
fn killed_at_any_instant_the_next_puts_back() {
    let kills = std::env::var("UNSPIN_KILLS").map_or(25, |n| n.parse().expect("a number"));
    let fake = Fake::new();
    let mut were_set = 0;
    for kill in 0..kills {
        let mut child = started(fake.shape(&[]), || true);
        // At some instant of its start, or after its first change.
        let until_us = match kill % 2 {
            0 => 100_000 + kill * 7_919 % 200_000,
            _ => {
                comes_to("nothing is set", || !fake.journal().is_empty());
                kill * 7_919 % 60_000
            }
        };
        std::thread::sleep(std::time::Duration::from_micros(until_us));
        if let Some(guard) = guard_if_any(&child) {
            signal(guard, libc::SIGKILL);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        were_set += u32::from(fake.weights() != ["100", "100", "100"]);
        let back = fake.command(&["diagnose", "--put-back"], &[]).output().unwrap();
        assert!(back.status.success(), "kill {kill}: {}", said(&back));
        assert_eq!(fake.weights(), ["100", "100", "100"], "kill {kill}");
        assert_eq!(fake.journal(), "");
    }
    println!("{kills} kills, {were_set} of them while something was set");
    assert!(were_set > 0);
}
