// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readings of a machine during a run.

use super::Sim;
use crate::core::Change;
use crate::host::{CoschedulingStats, TurnsSeen};
use crate::kvm::Module;
use crate::probe::Reading;
use unspin_scenario::result::EpochSample;

impl Sim {
    /// A reading of every VM.
    pub fn readings(&self) -> Vec<Reading> {
        let of = |vm| {
            let turns = self.host.turns.as_ref();
            Reading::of(&self.core, &self.guest, &self.kvm, vm, |stats| {
                if let Some(turns) = turns {
                    turns.count(&self.core, vm, stats);
                }
            })
        };
        self.core.vms.ids().map(of).collect()
    }

    /// The module's state of every VM.
    pub fn modules(&self) -> impl Iterator<Item = &Module> {
        self.kvm.vms.iter().map(|vm| &vm.module)
    }

    /// Counts of every VM; empty without Credit.
    pub fn coscheduling_stats(&self) -> Vec<CoschedulingStats> {
        self.host.coscheduling_stats()
    }

    /// Counts of turns since the start; empty without turns.
    pub fn turns_seen(&self) -> TurnsSeen {
        self.host.turns_seen(self.core.now_ns)
    }

    /// Watches the vCPUs of the first VM from now on.
    pub fn watch(&mut self) {
        self.core.watch();
    }

    /// What they did since; empty if they are not watched.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.core.changes.take().unwrap_or_default()
    }

    /// Resets the longest wait.
    pub fn forget_longest_waits(&mut self) {
        for vm in self.guest.vms.iter_mut() {
            vm.max_wait_cycles = 0;
        }
    }

    /// The epochs of all VMs in the order in which they ended.
    pub fn take_epochs(&mut self) -> Vec<EpochSample> {
        let of_all = self.kvm.vms.iter_mut().flat_map(|vm| std::mem::take(&mut vm.epochs));
        let mut epochs: Vec<_> = of_all.collect();
        epochs.sort_by_key(|e| (e.at_ns, e.vm));
        epochs
    }

    /// Events handled.
    pub fn events(&self) -> u64 {
        self.events
    }

    #[cfg(test)]
    pub fn kvm(&self) -> &crate::kvm::Kvm {
        &self.kvm
    }
}
