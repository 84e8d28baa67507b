// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of a VM: from its VMM, and from its cgroups and container.

use crate::names::{Kind, Names};
use crate::{placed, Host, Monitor, Name, Records, Started, Vcpu};

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
        let is_of_user = placed::is_of_user(&cgroups);
        let is_in_container = placed::is_in_container(&cgroups);
        let is_others = is_of_user || is_in_container;
        let is_believed = |kind| kind != Kind::Vmid || !is_others;
        let given = monitor.names(program, args);
        for (kind, name) in given.iter().filter(|(kind, _)| is_believed(*kind)) {
            names.add(kind, name.as_bytes());
        }
        // In a container it has another process id.
        if monitor == Monitor::Kvmtool && !is_in_container {
            names.add(Kind::Name, format!("guest-{pid}"));
        }
        let container = names.get(Kind::ContainerId).map(Name::to_text);
        let user = placed::user(&cgroups).filter(|_| container.is_some());
        let home = user.and_then(|uid| self.user(uid)).map(|(_, home)| home);
        if let Some(id) = container {
            records.add_names(home.as_deref(), &id, &mut names);
        }
        // An id in a command line may be that of another pod.
        let is_its = |records: &mut Records, id: &str| match names.get(Kind::PodUid) {
            Some(uid) => !is_of_user && records.is_of_pod(id, uid),
            None => !is_others,
        };
        if let Some(id) = names.sandbox().filter(|id| is_its(records, id)) {
            records.add_names(None, &id, &mut names);
        }
        if names.get(Kind::Libvirt).is_some() || !is_others {
            records.add_nova(&mut names);
        }
        names.add(Kind::Kubevirt, names.kubevirt().unwrap_or_default());
        names
    }
}
