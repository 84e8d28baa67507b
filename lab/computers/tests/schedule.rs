// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin schedule` in a stock kernel under QEMU. tests/schedule.sh and tests/schedule_*.sh are
//! what runs inside. `UNSPIN_CYCLES` (3) of each way to end it.

mod common;

use common::{Extras, NO_EXTRAS};
use unspin_computers::{Computer, Series, QEMU_TOOLS};

/// How often it is ended in each way.
const ROUNDS: u32 = 3;

/// Modules of /dev/vhost-vsock in the order of loading, with their directories among the kernel's.
const VHOST: [(&str, &str); 5] = [
    ("drivers/vhost", "vhost_iotlb"),
    ("drivers/vhost", "vhost"),
    ("net/vmw_vsock", "vsock"),
    ("net/vmw_vsock", "vmw_vsock_virtio_transport_common"),
    ("drivers/vhost", "vhost_vsock"),
];

/// Boots a script that makes at least so many checks.
fn boot(name: &str, script: &str, checks_min: u32) {
    boot_with(4, &[], name, script, checks_min);
}

/// The same with so many CPUs, and with these modules of the kernel's package in /modules.
fn boot_with(cpus: u32, modules: &[(&str, &str)], name: &str, script: &str, checks_min: u32) {
    let Some(command) = common::built("unspin", "the scheduler for VMs") else { return };
    let _alone = common::alone();
    let computer = Computer::qemu_in_virtual_time(cpus);
    let script = format!("{}{script}", include_str!("ext.sh"));
    common::on_kernels(QEMU_TOOLS, &[Series::V7_3], |lab, kernel| {
        let file = |(dir, module): &(&str, &str)| {
            let contents = lab.kernel_module(kernel, dir, module);
            (format!("modules/{module}.ko"), contents.unwrap_or_else(|e| panic!("{e}")))
        };
        let files = modules.iter().map(file).collect();
        let extras = Extras { programs: vec![command.clone()], files, ..NO_EXTRAS };
        let name = format!("{name}-{}", kernel.series.name());
        common::checked(lab, kernel, &computer, &script, &name, checks_min, extras)
    });
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
    let modules = VHOST.map(|(_, module)| module).join(" ");
    let script = format!("VHOST='{modules}'\n{}", include_str!("schedule_threads.sh"));
    boot_with(4, &VHOST, "schedule-threads", &script, 116);
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
    boot_with(40, &[], "schedule-many", include_str!("schedule_many.sh"), 5);
}

#[test]
fn whatever_ends_it_threads_are_as_before_and_nobody_waits() {
    let rounds = common::cycles(ROUNDS);
    let script = format!("ROUNDS={rounds}\n{}", include_str!("schedule_back.sh"));
    boot("schedule-back", &script, 27);
}
