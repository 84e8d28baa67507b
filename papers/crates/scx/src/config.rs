// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes the scheduler's settings from the arguments.

use unspin_guest_abi::rng::splitmix64;
use unspin_host::{place, Host};

use crate::arguments::Arguments;
use crate::error::Error;
use crate::shared::{Config, VcpuConfig, PCPUS_MAX, VCPUS_MAX};

/// VM of a vCPU that does not exist.
const NO_VM: u32 = u32::MAX;

pub fn config(asked: &Arguments) -> Result<Config, Error> {
    let slot_ns = u64::from(asked.slot_us) * 1000;
    let mut config = Config {
        slot_ns,
        phase_ns: phases(asked.seed, slot_ns),
        gang: asked.gang as u32,
        vcpu_count: 0,
        vm_count: asked.vms.len() as u32,
        pcpu_count: asked.pcpus,
        capped: asked.capped.into(),
        slots_per_assignment: slots_per_assignment(asked.slot_us),
        vms: Default::default(),
        vcpus: [VcpuConfig { vm: NO_VM, ..VcpuConfig::default() }; VCPUS_MAX],
    };
    let host = Host::at(&place::proc());
    let mut at = 0;
    for (vm, of) in asked.vms.iter().enumerate() {
        config.vms[vm].weight = of.weight;
        config.vms[vm].named = of.named.into();
        for (i, &tid) in of.tids.iter().enumerate() {
            let allowed = host.allowed_cpus(tid);
            let allowed: Vec<u32> = allowed.range(..asked.pcpus).copied().collect();
            let (pcpu, pinned) = first_pcpu(tid, &allowed, i as u32, asked.pcpus)?;
            config.vcpus[at] = VcpuConfig { tid, vm: vm as u32, pcpu, pinned: pinned.into() };
            at += 1;
        }
    }
    config.vcpu_count = at as u32;
    Ok(config)
}

/// Credits are handed out every 30 ms (section 3.3), or after each slot if that is longer.
fn slots_per_assignment(slot_us: u32) -> u32 {
    const ASSIGNMENT_US: u32 = 30_000;
    (ASSIGNMENT_US / slot_us.max(1)).max(1)
}

/// The pCPU on which a VM's vCPU with this number waits first, and whether it is pinned there.
fn first_pcpu(tid: u32, allowed: &[u32], number: u32, pcpus: u32) -> Result<(u32, bool), Error> {
    match allowed {
        [pcpu] => Ok((*pcpu, true)),
        all if all.len() == pcpus as usize => Ok((number % pcpus, false)),
        some => Err(Error::Affinity { tid, allowed: some.len() as u32, pcpus }),
    }
}

/// End of the first slot of each pCPU: a part of a slot, but not zero.
fn phases(seed: u64, slot_ns: u64) -> [u64; PCPUS_MAX] {
    std::array::from_fn(|pcpu| 1 + splitmix64(seed ^ splitmix64(pcpu as u64)) % slot_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Vm;
    use crate::shared::Gang;

    #[test]
    fn vcpus_are_where_they_may_be() {
        assert_eq!(first_pcpu(1, &[2], 0, 4).unwrap(), (2, true));
        assert_eq!(first_pcpu(1, &[0, 1, 2, 3], 5, 4).unwrap(), (1, false));
        assert!(first_pcpu(1, &[0, 1], 0, 4).unwrap_err().to_string().contains("2 of 4 pCPUs"));
        assert!(first_pcpu(1, &[], 0, 4).is_err());
    }

    #[test]
    fn slots_of_pcpus_end_apart_and_as_the_seed_says() {
        let one = phases(1, 10_000_000);
        assert!(one.iter().all(|ns| (1..=10_000_000).contains(ns)));
        let mut apart = one.to_vec();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!(apart.len(), PCPUS_MAX);
        assert_eq!(phases(1, 10_000_000), one);
        assert_ne!(phases(2, 10_000_000), one);
    }

    #[test]
    fn credits_are_handed_out_every_30_ms() {
        let slots = [10_000, 30_000, 6_000, 40_000, 0].map(slots_per_assignment);
        assert_eq!(slots, [3, 1, 5, 1, 30_000]);
    }

    #[test]
    fn a_thread_that_is_not_there_is_named() {
        let vms = vec![Vm { weight: 1, named: true, tids: vec![4_194_305] }];
        let asked =
            Arguments { gang: Gang::Named, capped: false, slot_us: 1000, pcpus: 1, seed: 1, vms };
        assert!(config(&asked).unwrap_err().to_string().contains("thread 4194305"));
    }
}
