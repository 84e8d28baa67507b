// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of a VM: from its VMM, and from its cgroups and container.

use crate::names::{Kind, Names};
use crate::{placed, Host, Records, Started, Vcpu};

impl Host {
    pub(crate) fn names(
        &self,
        pid: u32,
        vcpu: Option<&Vcpu>,
        (monitor, program, args): Started,
        records: &mut Records,
    ) -> Names {
        // Kata's runtime has only the vCPUs in the pod's cgroup.
        let of = |tid| self.text(tid, "cgroup").unwrap_or_default();
        let cgroups = of(pid) + &vcpu.map(|vcpu| of(vcpu.tid)).unwrap_or_default();
        let mut names = placed::names(&cgroups);
        // Any user, also of a container, may write a VMID of the host's into a command line.
        let is_others = placed::is_of_user(&cgroups) || placed::is_in_container(&cgroups);
        let is_believed = |kind| kind != Kind::Vmid || !is_others;
        let given = monitor.names(program, args);
        for (kind, name) in given.iter().filter(|(kind, _)| is_believed(*kind)) {
            names.add(kind, name.as_bytes());
        }
        let ids = names.containers();
        let user = placed::user(&cgroups).filter(|_| !ids.is_empty());
        let home = user.and_then(|uid| self.user(uid)).map(|(_, home)| home);
        for id in ids {
            records.add_names(home.as_deref(), &id, &mut names);
        }
        records.add_nova(&mut names);
        names.add(Kind::Kubevirt, names.kubevirt().unwrap_or_default());
        names
    }
}
