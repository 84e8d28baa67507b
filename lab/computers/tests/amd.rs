// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated computer with AMD's pause filter: its exits are exact to the PAUSE (tests/amd.sh), a boot
//! gives the same values again.

mod common;

use common::plans::{boots_are_alike, planned, with_another_seed};
use unspin_computers::{Computer, Emulator, Kernel, Lab, Series, Topology, QEMU_TOOLS};

const SCENARIO: &str = r#"
title = "two VMs on four CPUs"
seed = 1
repeats = 1
epoch_ple_exits = 50
epoch_min_us = 3000
vm = [{ vcpus = 4, pin = "one-per-pcpu", lock = "ticket" }]
arm = [{ name = "apples", window = "aple", yield_to = "hvs", baseline = true }]
[host]
pcpus = 4
[sweep]
profiles = ["dbench"]
vms = [2]
[measure]
warmup_ms = 20
window_ms = 50
alone = false
"#;

/// The lab with its emulator and kernel; or `None`, with the reason printed.
fn lab() -> Option<(Lab, Kernel)> {
    let lab = common::lab(QEMU_TOOLS)?;
    let program = common::going(|go| lab.program(Emulator::QemuAmd, go));
    common::say(&common::prepared("the lab's QEMU", program)?.name());
    let kernel = common::kernel(&lab, Series::V6_12)?;
    Some((lab, kernel))
}

#[test]
fn the_pause_filter_is_exact() {
    let _alone = common::alone();
    if let Some((lab, kernel)) = lab() {
        checks(&lab, &kernel, &Computer::qemu_amd(1), include_str!("amd.sh"), "amd-truth", 29);
    }
}

fn checks(lab: &Lab, kernel: &Kernel, computer: &Computer, script: &str, name: &str, min: u32) {
    let wrong = common::checked(lab, kernel, computer, script, name, min, common::NO_EXTRAS);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_same_boot_gives_the_same_values() {
    let _alone = common::alone();
    if let Some((lab, kernel)) = lab() {
        let plan = with_another_seed(planned("amd", SCENARIO, &["dbench"]));
        let computer = Computer::qemu_amd(plan.host.pcpus);
        let results = boots_are_alike(&lab, &kernel, &computer, &plan, ["amd-one", "amd-other"]);
        for vm in results.iter().flat_map(|result| &result.vm) {
            let module = vm.module.as_ref().expect("counters of the module");
            assert!(module.ple_exits > 0 && module.fail_open_events == 0, "{module:?}");
        }
    }
}

#[test]
fn sockets_cores_and_threads_are_seen() {
    let _alone = common::alone();
    if let Some((lab, kernel)) = lab() {
        let topology = Topology { sockets: 2, cores: 2, threads: 2 };
        let computer = Computer { topology: Some(topology), ..Computer::qemu_amd(topology.cpus()) };
        checks(&lab, &kernel, &computer, include_str!("topology.sh"), "amd-topology", 9);
    }
}
