// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin schedule` in a stock kernel under QEMU. tests/schedule.sh and tests/schedule_*.sh are
//! what runs inside. `UNSPIN_CYCLES` (3) of each way to end it.

mod common;

use common::{Extras, NO_EXTRAS};
use unspin_computers::{Computer, Series, QEMU_TOOLS};

/// How often it is ended in each way.
const ROUNDS: u32 = 3;

/// Boots a script that makes at least so many checks.
fn boot(name: &str, script: &str, checks_min: u32) {
    boot_with(4, name, script, checks_min);
}

fn boot_with(cpus: u32, name: &str, script: &str, checks_min: u32) {
    let Some(command) = common::built("unspin", "the scheduler for VMs") else { return };
    let _alone = common::alone();
    let extras = Extras { programs: vec![command], ..NO_EXTRAS };
    let computer = Computer::qemu_in_virtual_time(cpus);
    let script = format!("{}{script}", include_str!("ext.sh"));
    common::checks(name, QEMU_TOOLS, &[Series::V7_3], &computer, &script, checks_min, extras);
}

#[test]
fn vms_are_scheduled_and_given_back() {
    boot("schedule", include_str!("schedule.sh"), 97);
}

#[test]
fn shares_are_those_of_cgroups_and_strangers_have_little() {
    boot("schedule-shares", include_str!("schedule_shares.sh"), 57);
}

#[test]
fn threads_that_start_and_tasks_of_the_host() {
    boot("schedule-threads", include_str!("schedule_threads.sh"), 92);
}

#[test]
fn no_thread_waits_until_the_kernel_ends_it() {
    boot("schedule-edges", include_str!("schedule_edges.sh"), 102);
}

#[test]
fn a_vm_that_spins_in_user_space_is_a_gang() {
    boot("schedule-spins", include_str!("schedule_spins.sh"), 20);
}

#[test]
fn forty_cpus_are_accepted() {
    boot_with(40, "schedule-many", include_str!("schedule_many.sh"), 5);
}

#[test]
fn whatever_ends_it_threads_are_as_before_and_nobody_waits() {
    let rounds = common::cycles(ROUNDS);
    let script = format!("ROUNDS={rounds}\n{}", include_str!("schedule_back.sh"));
    boot("schedule-back", &script, 27);
}
