// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the host at both ends of the measuring time: the module's counts of each VM, and the idle
//! time.

use unspin_scenario::plan::{Run, Vm};
use unspin_scenario::result::{ModuleStats, VmTurns};

use crate::host::Idle;
use crate::known_vms::difference;
use crate::module::{self, Module};
use crate::Error;

/// The host and its module at one end of the measuring time.
pub(crate) struct End {
    idle: Option<Idle>,
    vms: Vec<VmEnd>,
}

/// The module's view of one VM at one end of the measuring time.
#[derive(Default)]
struct VmEnd {
    /// Its counters, if the module counts.
    stats: Option<ModuleStats>,
    /// The reason why it has no turns.
    refused: Option<String>,
}

/// The module's counts of a VM in the measuring time, and the effects of turns on it.
#[derive(Default)]
pub(crate) struct Counted {
    pub(crate) module: Option<ModuleStats>,
    pub(crate) turns: Option<VmTurns>,
}

impl End {
    /// Reads the present values, for the VMs of these processes.
    pub(crate) fn read(module: Option<&Module>, run: &Run, pids: &[u32]) -> Result<End, Error> {
        let module = module.filter(|_| module::counts(run));
        let of_vm = |&pid: &u32| match module {
            Some(module) => {
                Ok(VmEnd { stats: module.stats(pid)?, refused: module.turns_refused(pid)? })
            }
            None => Ok(VmEnd::default()),
        };
        let vms = pids.iter().map(of_vm).collect::<Result<_, Error>>()?;
        Ok(End { idle: Idle::now(), vms })
    }

    /// The counts of each VM since `first`. The module does not count VMs that it leaves alone, but
    /// these may wait for turns of others.
    pub(crate) fn counted_since(&self, first: &End, run: &Run) -> Result<Vec<Counted>, Error> {
        let of_vm = |(vm, (first, last)): (&Vm, (&VmEnd, &VmEnd))| {
            let (Some(a), Some(b)) = (&first.stats, &last.stats) else {
                return Ok(Counted::default());
            };
            let counted = difference(a, b)?;
            let (parks, parks_late) = (counted.parks, counted.parks_late);
            let turns = Some(VmTurns { parks, parks_late, refused: last.refused.clone() });
            Ok(Counted { module: Some(counted).filter(|_| !vm.mode_off), turns })
        };
        run.vms.iter().zip(first.vms.iter().zip(&self.vms)).map(of_vm).collect()
    }

    pub(crate) fn idle_share_since(&self, first: &End) -> Option<f64> {
        self.idle?.share_since(&first.idle?)
    }
}
