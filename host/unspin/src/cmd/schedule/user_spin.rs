// SPDX-License-Identifier: MIT OR Apache-2.0
//! VMs whose vCPUs spin in user space, as the module finds: pause-loop exits of Intel processors do not show it.
//! vCPUs that run together no longer spin, so such a VM is a gang for some time, and then it is seen whether it
//! spins again.

use crate::sysfs::Module;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use unspin_host::module::Whose;
use unspin_host::Host;
use unspin_uapi::Coscheduling;

/// For how long the VM is a gang at first, and twice as long each time it spins again soon after.
const HOLD: Duration = Duration::from_secs(4);
const HOLD_MAX: Duration = Duration::from_secs(64);
/// The module samples a VM that did not spin once a second.
const SOON: Duration = Duration::from_secs(4);

#[derive(Debug)]
struct Hold {
    until: Instant,
    length: Duration,
}

#[derive(Debug)]
pub struct UserSpins {
    sysfs: PathBuf,
    /// By process of the VM.
    holds: BTreeMap<u32, Hold>,
}

impl UserSpins {
    pub fn new(sysfs: PathBuf) -> UserSpins {
        UserSpins { sysfs, holds: BTreeMap::new() }
    }

    /// The processes of VMs that are gangs for now. None if the module is not loaded.
    pub fn look(&mut self, now: Instant, host: &Host) -> BTreeSet<u32> {
        let spinning = self.spinning(host);
        self.held(now, &spinning)
    }

    fn spinning(&self, host: &Host) -> BTreeSet<u32> {
        let Ok(module) = Module::open_same_version(&self.sysfs) else { return BTreeSet::new() };
        let file = |id: &str, name| module.file(Whose::Vm(id), name).unwrap_or_default();
        let of_user = [Coscheduling::VCRD_USER, Coscheduling::VCRD_BOTH].map(Coscheduling::name);
        let is_high = |id: &String| {
            file(id, "vcrd") == "1" && of_user.contains(&file(id, "coscheduling").as_str())
        };
        let high = module.ids().unwrap_or_default().into_iter().filter(is_high);
        high.filter_map(|id| Some(host.of_module_id(&id)?.pid)).collect()
    }

    fn held(&mut self, now: Instant, spinning: &BTreeSet<u32>) -> BTreeSet<u32> {
        self.holds.retain(|_, hold| now < hold.until + SOON);
        for pid in spinning {
            let hold = self.holds.entry(*pid).or_insert(Hold { until: now, length: HOLD / 2 });
            if now >= hold.until {
                hold.length = (hold.length * 2).min(HOLD_MAX);
                hold.until = now + hold.length;
            }
        }
        let is_held = |(pid, hold): (&u32, &Hold)| (now < hold.until).then_some(*pid);
        self.holds.iter().filter_map(is_held).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_that_spins_again_is_a_gang_for_twice_as_long() {
        let start = Instant::now();
        let mut spins = UserSpins::new(PathBuf::new());
        let mut held = |second: u64, pid: Option<u32>| {
            let spinning = pid.into_iter().collect();
            spins.held(start + Duration::from_secs(second), &spinning).contains(&7)
        };
        for (second, spinning, is_held) in [
            (0, None, false),
            (1, Some(7), true),
            (2, None, true),
            (4, None, true),
            (5, None, false),
            (6, Some(7), true),
            (13, None, true),
            (14, None, false),
            // It did not spin for some time.
            (18, Some(7), true),
            (21, None, true),
            (22, None, false),
        ] {
            assert_eq!(held(second, spinning), is_held, "second {second}");
        }
        let mut second = 22;
        for _ in 0..8 {
            assert!(held(second, Some(7)));
            while held(second, None) {
                second += 1;
            }
        }
        assert!(held(second, Some(7)) && held(second + 63, None) && !held(second + 64, None));
    }
}
