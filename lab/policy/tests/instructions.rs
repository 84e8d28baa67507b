// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a choice on the PLE-exit path and a turn of gangs may cost, in instructions: `cargo bench -p
//! unspin-policy` has the times. The numbers depend on the compiler, so there is a tenth to spare.

#[path = "common/gang_load.rs"]
mod gang_load;
#[path = "../benches/steps/mod.rs"]
mod steps;

use gang_load::{Layout, Load, LAYOUTS};
use std::hint::black_box;
use steps::instructions;

/// VMs of 8 vCPUs, as many as pCPUs, and the most instructions for each VM: where each vCPU is alone on
/// its pCPU, and, if that is asked, where it is not. It grows with pCPUs: a set of them has a word for each 64.
const TURNS: [(usize, u64, Option<u64>); 3] =
    [(16, 3080, Some(6610)), (64, 3260, Some(6380)), (256, 4420, None)];

#[test]
fn a_turn_costs_no_more_than_its_ceiling() {
    for (count, alone, crowded) in TURNS {
        let set = (0..count).collect();
        for layout in LAYOUTS {
            for known in [false, true] {
                // Each instruction takes microseconds to step, where the processor has no counter.
                if count > 16 && (!known || layout == Layout::OnOne) {
                    continue;
                }
                let ceiling = if layout == Layout::Alone { Some(alone) } else { crowded };
                let Some(per_vm) = ceiling else { continue };
                let mut load = Load::new(count, layout, known, &set);
                assert!(load.one(), "each pCPU has an owner");
                let Some(cost) = instructions(&mut || {
                    black_box(load.one());
                }) else {
                    println!("SKIPPED: what a turn costs: no ptrace on this computer");
                    return;
                };
                let most = count as u64 * per_vm;
                println!("{count} {layout:?} {known}: {cost} of {most}");
                assert!(cost <= most, "{count} VMs, {layout:?}: {cost} instructions, not {most}");
            }
        }
    }
}

/// vCPUs of the VM, all of them ready, and instructions.
const CEILINGS: [(usize, u64); 4] = [(4, 330), (64, 3880), (256, 4750), (4096, 16_400)];

#[test]
fn picks_stay_below_their_ceilings() {
    for (vcpus, ceiling) in CEILINGS {
        let slots = steps::ready(vcpus);
        let counted = match vcpus {
            0..=64 => steps::instructions(&mut steps::pick(&slots)),
            _ => steps::instructions(&mut steps::pick_looked(&slots)),
        };
        let Some(counted) = counted else {
            eprintln!("left out: processes cannot be stepped here");
            return;
        };
        assert!(counted <= ceiling, "{vcpus} vCPUs: {counted} instructions, {ceiling} at most");
    }
}
