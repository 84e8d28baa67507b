// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a turn of gangs may cost, in instructions: `cargo bench -p unspin-policy` has the times.

#[path = "common/gang_load.rs"]
mod gang_load;
#[path = "common/steps.rs"]
mod steps;

use gang_load::{everywhere, Layout, Load, LAYOUTS};
use std::hint::black_box;
use steps::instructions;

/// For one more VM of 8 vCPUs and one more pCPU; of them alone on their pCPUs, else.
const ALONE_PER_VM: u64 = 3400;
const CROWDED_PER_VM: u64 = 6800;

#[test]
fn a_turn_costs_no_more_than_its_ceiling() {
    for count in [16, 64, 256] {
        let set = everywhere(count);
        for layout in LAYOUTS {
            for known in [false, true] {
                // Each instruction takes microseconds to step.
                if count > 16 && (!known || layout == Layout::OnOne) {
                    continue;
                }
                let mut load = Load::new(count, layout, known, &set);
                assert!(load.one(), "each pCPU has an owner");
                let Some(cost) = instructions(&mut || {
                    black_box(load.one());
                }) else {
                    println!("SKIPPED: what a turn costs: no ptrace on this computer");
                    return;
                };
                let alone = layout == Layout::Alone;
                let most = count as u64 * if alone { ALONE_PER_VM } else { CROWDED_PER_VM };
                println!("{count} {layout:?} {known}: {cost} of {most}");
                assert!(cost <= most, "{count} VMs, {layout:?}: {cost} instructions, not {most}");
            }
        }
    }
}
