// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one VM got from the host (CPU time, and its own turns), and its role.

use crate::compute::measures::{vms, Over};
use crate::one_vm::Share;
use crate::one_vm::Standing;
use crate::stat::{median, round};
use unspin_scenario::plan::{Asym, Role};
use unspin_scenario::result::{Begin, RunResult};

/// The share of the VM of a row of one VM, in runs on the host that `begin` describes.
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

/// The role of one VM in these runs, at least one; `all` are the runs of the scenario.
pub(crate) fn standing(of: &[&RunResult], all: &[&RunResult], over: Over) -> Option<Standing> {
    let (run, vm) = (&of[0].run, over.vm?);
    if all.iter().all(|r| r.run.arm.asym == Asym::default()) {
        return None;
    }
    let others = || (0..).zip(&run.vms).filter(|(other, _)| *other != vm);
    let is = |role| others().any(|(_, other)| other.role == role);
    let beside = match (is(Role::Hog), is(Role::Shaped)) {
        (true, _) => "hogs",
        (_, true) => "alike",
        _ => "none",
    };
    let role = run.vms.get(vm as usize)?.role;
    Some(Standing { role, beside })
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
