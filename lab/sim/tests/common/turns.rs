// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must hold of turns, of numbers alone: tests from outside and from inside ask the same.

/// The largest debt in turns, of a VM or to it (kmod/turns.c).
const CLAMP_TURNS: u64 = 2;

/// VMs of `vcpus` vCPUs each, on the same pCPUs, whose vCPUs all want to run all the time, get CPU
/// time by weight. At either end of the measuring time each may be off by the clamp and by the turn
/// in progress.
pub fn shares_are_by_weight(
    cpu_ns: &[u64],
    weights: &[u32],
    vcpus: u32,
    turn_ns: u64,
) -> Result<(), String> {
    let off_ns = 2 * (CLAMP_TURNS + 1) * turn_ns * u64::from(vcpus);
    let (all_ns, whole): (u64, u64) =
        (cpu_ns.iter().sum(), weights.iter().copied().map(u64::from).sum());
    for (got_ns, weight) in cpu_ns.iter().zip(weights) {
        let part_ns = all_ns * u64::from(*weight) / whole;
        if got_ns.abs_diff(part_ns) > off_ns {
            return Err(format!(
                "{cpu_ns:?} ns by {weights:?}: {part_ns} is more than {off_ns} off"
            ));
        }
    }
    Ok(())
}

/// kmod/park.c.
pub fn nobody_waits_for_long(longest_ns: u64) -> Result<(), String> {
    match longest_ns {
        0..=200_000_000 => Ok(()),
        ns => Err(format!("somebody waited {ns} ns for a turn")),
    }
}

/// No two vCPUs of a turn's owner are on one pCPU while another of its pCPUs is free.
pub fn nobody_is_crowded(ends: u64) -> Result<(), String> {
    match ends {
        0 => Ok(()),
        ends => Err(format!("two of an owner's vCPUs shared a pCPU at {ends} ends of turns")),
    }
}

/// VMs that never spin.
pub fn no_turns(turns: u64) -> Result<(), String> {
    match turns {
        0 => Ok(()),
        turns => Err(format!("{turns} turns for who never spins")),
    }
}
