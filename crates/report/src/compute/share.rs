// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one VM got of the host: CPU time, and turns of its own.

use crate::compute::measures::{vms, Over};
use crate::stat::{median, round};
use crate::summary::Share;
use unspin_scenario::result::{Begin, RunResult};

/// That of the VM of a row of one VM, in runs on the host that `begin` tells of.
pub(crate) fn share(of: &[&RunResult], begin: &Begin, over: Over) -> Option<Share> {
    over.vm?;
    let all = |f: &dyn Fn(&RunResult) -> Option<f64>| {
        median(&of.iter().filter_map(|r| f(r)).collect::<Vec<_>>()).map(round)
    };
    let any_turns = of.iter().any(|r| makes_turns(r));
    Some(Share {
        cpu: all(&|r| cpu_share(r, begin, over)),
        turn: all(&|r| turn_share(r, begin, over)).filter(|_| any_turns),
    })
}

fn makes_turns(r: &RunResult) -> bool {
    r.vm.iter().filter_map(|v| v.module.as_ref()).any(|m| m.turns > 0 || m.turn_cycles > 0)
}

fn cpu_share(r: &RunResult, begin: &Begin, over: Over) -> Option<f64> {
    let vm = vms(r, over).next().filter(|v| !v.cpu_ns.is_empty())?;
    let cpu_ns: u64 = vm.cpu_ns.iter().sum();
    let host_ns = f64::from(begin.pcpus) * r.window_ns as f64;
    (host_ns > 0.0).then(|| cpu_ns as f64 / host_ns)
}

fn turn_share(r: &RunResult, begin: &Begin, over: Over) -> Option<f64> {
    let cycles = vms(r, over).next()?.module.as_ref()?.turn_cycles;
    let window_cycles = begin.tsc_khz? as f64 * r.window_ns as f64 / 1e6;
    (window_cycles > 0.0).then(|| cycles as f64 / window_cycles)
}
