// SPDX-License-Identifier: MIT OR Apache-2.0
//! A choice on the PLE-exit path stays below so many instructions, at every size of VM. The bench
//! `pick` prints how many they are; they depend on the compiler, so there is a tenth to spare.

#[path = "../benches/steps/mod.rs"]
mod steps;

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
