// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loss of a watched VM, by cause.

use crate::compute::measures::{vms, Over};
use crate::diagnosis::{Diagnosis, Lost};
use crate::stat::round;
use unspin_diagnosis::{dominant, losses, remainder, user_spin_share, Did, Loss};
use unspin_scenario::result::{Begin, ModuleStats, RunResult};

/// The diagnosis of the VM of a row of one VM; `None` if a run did not watch it.
pub(crate) fn diagnosis(of: &[&RunResult], begin: &Begin, over: Over) -> Option<Diagnosis> {
    over.vm?;
    let did = did(of, begin, over)?;
    let losses = losses(&did);
    Some(Diagnosis {
        injected: of[0].run.inject.clone(),
        dominant: dominant(&losses),
        causes: losses.iter().map(lost).collect(),
        states: did.times.spent().map(|(state, ns)| (state.name(), ns as f64 / 1e9)).collect(),
        remainder: round(remainder(&did)),
    })
}

fn lost(loss: &Loss) -> Lost {
    Lost {
        cause: loss.cause,
        lost_s_per_s: loss.lost_s_per_s.map(round),
        share: loss.share.map(round),
        sure: loss.sure,
    }
}

/// What its vCPUs did in the measuring times of all repeats.
fn did(of: &[&RunResult], begin: &Begin, over: Over) -> Option<Did> {
    let mut did = Did::default();
    let mut module: Vec<Option<&ModuleStats>> = Vec::new();
    for vm in of.iter().flat_map(|r| vms(r, over)) {
        let states = vm.states.as_ref().filter(|states| !states.is_empty())?;
        for vcpu in states {
            did.times += &vcpu.ns;
            did.exits += &vcpu.exits;
        }
        did.vcpus = states.len();
        module.push(vm.module.as_ref());
    }
    did.window_ns = did.times.total() / did.vcpus as u64;
    let module: Option<Vec<&ModuleStats>> = module.into_iter().collect();
    let sum = |count: fn(&ModuleStats) -> u64| -> Option<u64> {
        Some(module.as_ref()?.iter().map(|stats| count(stats)).sum())
    };
    let exits = sum(|stats| stats.ple_exits).filter(|exits| *exits > 0);
    let spun = sum(|stats| stats.wasteful_spin_cycles).filter(|cycles| *cycles > 0);
    let ns_per_cycle = begin.tsc_khz.filter(|khz| *khz > 0).map(|khz| 1e6 / khz as f64);
    did.spin_ns_per_exit = spun
        .zip(exits)
        .zip(ns_per_cycle)
        .map(|((cycles, exits), ns)| cycles as f64 / exits as f64 * ns);
    let looks = sum(|stats| stats.user_samples).zip(sum(|stats| stats.user_spins));
    did.user_spin_share = looks.and_then(|(looks, spins)| user_spin_share(looks, spins));
    Some(did)
}
