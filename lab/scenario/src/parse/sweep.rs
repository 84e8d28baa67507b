// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[sweep]`: the points at which every arm runs.

use crate::parse::keys::read_list;
use crate::parse::keys::OfKeys;
use crate::parse::vm::{read_lock, Swept};
use crate::schema::host::CgroupLayout;
use crate::schema::keys::scenario as keys;
use crate::schema::linux::GuestLock;
use crate::schema::lock::LockChoice;
use crate::schema::scenario::{usual_layout, vms_beside, Beside, Role, Sweep, VmGroup};
use unspin_text::{Table, Value};

/// The keys of `[sweep]`; `None` if not given.
#[derive(Default)]
pub(crate) struct SweepKeys {
    profiles: Option<Vec<String>>,
    vms: Option<Vec<u32>>,
    pub(crate) cgroups: Option<Vec<CgroupLayout>>,
    pub(crate) locks: Option<Vec<LockChoice>>,
    pub(crate) guest_locks: Option<Vec<GuestLock>>,
    pub(crate) beside: Option<Vec<Beside>>,
    pub(crate) quota_on: Option<Vec<String>>,
    pub(crate) says: Swept,
}

impl SweepKeys {
    /// The sweep. Values that are not swept are those of the VMs.
    pub(crate) fn of(self, groups: &[VmGroup]) -> Sweep {
        let workload = || groups[0].workload.clone().into_iter().collect();
        let beside = self.beside.unwrap_or_default();
        let count = || match &beside[..] {
            [] => vec![groups.iter().map(|g| g.count).sum()],
            all => all.iter().map(|who| vms_beside(groups, *who).len() as u32).collect(),
        };
        Sweep {
            profiles: self.profiles.unwrap_or_else(workload),
            vms: self.vms.unwrap_or_else(count),
            cgroups: self.cgroups.unwrap_or_else(|| vec![usual_layout(groups.iter())]),
            locks: self.locks.unwrap_or_default(),
            guest_locks: self.guest_locks.unwrap_or_default(),
            beside,
            quota_on: self.quota_on.unwrap_or_default(),
        }
    }
}

pub(crate) fn read_sweep(v: Value) -> SweepKeys {
    let Some(t) =
        v.table("[sweep] with profiles, vms, cgroups, locks, guest_locks, beside or quota_on")
    else {
        return SweepKeys::default();
    };
    t.only_of(&keys::SWEEP);
    let says = Swept { profiles: t.at(&keys::PROFILES).is_some(), vms: t.at(&keys::VMS).is_some() };
    SweepKeys {
        says,
        profiles: t.read(&keys::PROFILES).flatten(),
        vms: t.read(&keys::VMS).flatten(),
        cgroups: t.read(&keys::CGROUPS).flatten(),
        guest_locks: t.read(&keys::GUEST_LOCKS).flatten(),
        beside: t.read(&keys::BESIDE).flatten(),
        quota_on: t.read(&keys::QUOTA_ON).flatten(),
        locks: t.at(&keys::LOCKS).and_then(|v| read_list(&v, &keys::LOCKS.takes.0, read_lock)),
    }
}

/// Checks that each point has shaped VMs and hogs, and that their numbers determine the neighbours
/// of the shaped VM.
pub(crate) fn check_beside(top: &Table, groups: &[VmGroup], sweep: &SweepKeys) {
    let (Some(_), Some(at)) = (&sweep.beside, top.get("sweep")) else { return };
    let of = |role| groups.iter().filter(move |g| g.role == role).map(|g| g.count).sum::<u32>();
    let [shaped, hogs] = [Role::Shaped, Role::Hog].map(of);
    if (shaped, groups.len()) != (1, 2) || hogs < 2 {
        at.problem(
            "sweep.beside needs 2 [[vm]] with roles",
            "two [[vm]]: one with role = \"shaped\", and one with role = \"hog\" and a count of 2 or more",
        );
    }
    if sweep.vms.is_some() {
        at.problem("sweep.beside already sets the number of VMs", "no vms in [sweep]");
    }
}
