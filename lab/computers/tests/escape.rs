// SPDX-License-Identifier: MIT OR Apache-2.0
//! What VMs keep beside one that leaves its CPUs all the time, while VMs have turns, on the emulated
//! computer that is measured on: scenarios/gangs-escape.toml, each arm once. `make test-acceptance`.

mod common;

use common::once::{plan, share};
use common::plans::{boot, lab};

/// What a VM must keep of its weight's share.
const WEIGHT_KEEPS: f64 = 0.95;

#[test]
fn nobody_takes_time_from_others_by_leaving_all_the_time() {
    let Some((lab, kernel)) = lab() else { return };
    let results = boot(&lab, &kernel, &plan("gangs-escape"), "escape");
    let mut wrong = Vec::new();
    for r in &results {
        let due = WEIGHT_KEEPS / f64::from(r.run.vm_count());
        for (vm, group) in (0..).zip(r.run.vms.iter().map(|vm| &vm.group)) {
            let line = format!("{} {group}: {:.1} %", r.run.arm.name, 100.0 * share(r, vm));
            common::say(&line);
            if group != "exits" && share(r, vm) < due {
                wrong.push(line);
            }
        }
    }
    assert!(wrong.is_empty(), "less than {WEIGHT_KEEPS} of a third:\n{}", wrong.join("\n"));
}
