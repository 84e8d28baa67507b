// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tree of cgroups in which CPU time is divided between VMs and others.

use crate::{Cgroup, Groups, Tree};
use std::collections::BTreeSet;

/// A cgroup that competes with its siblings.
#[derive(Debug, Clone, PartialEq)]
pub struct Rival {
    pub group: Cgroup,
    /// The index of its parent in the list; `None` for the root.
    pub within: Option<usize>,
    /// In units of `cpu.weight`; `None` for the root.
    pub weight: Option<f64>,
    pub quota_cpus: Option<f64>,
    /// The CPUs that it has alone: on these it competes with none of its siblings.
    pub own_cpus: Option<String>,
    /// The VM to which it belongs alone.
    pub own: Option<u32>,
    /// VMs whose threads compete in it one by one, with its other tasks and with each other.
    pub threads_of: Vec<u32>,
    /// Whether its children compete and are in the list.
    pub is_divided: bool,
}

impl Rival {
    /// The ancestors of these VMs' cgroups, and the siblings of these that have tasks; parents come before
    /// children. With `inner` also the cgroups within a VM's own. Other VMs of `groups` are listed too, if
    /// they are in one of these.
    pub fn all(tree: &Tree, groups: &Groups, vms: &BTreeSet<u32>, inner: bool) -> Vec<Rival> {
        let mut divided: BTreeSet<Cgroup> = BTreeSet::new();
        let mut roots: BTreeSet<Cgroup> = BTreeSet::new();
        for pid in vms {
            let Ok(place) = groups.place(tree, *pid) else { continue };
            roots.extend(groups.first(*pid));
            let Some(group) = place.group else { continue };
            divided.extend(group.upwards().skip(1));
            if inner && place.is_own {
                divided.extend(groups.inside(*pid, &group));
            }
        }
        let mut all = Vec::new();
        let is_rival = |group: &Cgroup| {
            let has_tasks = || groups.hold(group) || tree.has_tasks(group);
            divided.contains(group) || (tree.is_on(group) && has_tasks())
        };
        for root in roots {
            add(tree, root, None, &divided, &is_rival, &mut all);
        }
        let competing: BTreeSet<u32> = groups.competing().collect();
        for pid in groups.vms() {
            let Ok(place) = groups.place(tree, pid) else { continue };
            // Without vCPUs it is a part of the VM beside it.
            if !competing.contains(&pid) && !place.beside.is_empty() {
                continue;
            }
            let Some(group) = place.group.or_else(|| groups.first(pid)) else { continue };
            match all.iter_mut().find(|rival| rival.group == group) {
                Some(rival) if place.is_own => rival.own = Some(pid),
                Some(rival) => rival.threads_of.push(pid),
                None => {}
            }
        }
        all
    }
}

fn add(
    tree: &Tree,
    group: Cgroup,
    within: Option<usize>,
    divided: &BTreeSet<Cgroup>,
    is_rival: &dyn Fn(&Cgroup) -> bool,
    all: &mut Vec<Rival>,
) {
    let (at, is_divided) = (all.len(), divided.contains(&group));
    let inside = if is_divided { tree.children(&group) } else { Vec::new() };
    all.push(Rival {
        weight: tree.weight(&group),
        quota_cpus: tree.quota_cpus(&group),
        own_cpus: tree.own_cpus(&group),
        within,
        own: None,
        threads_of: Vec::new(),
        is_divided,
        group,
    });
    for child in inside.into_iter().filter(is_rival) {
        add(tree, child, Some(at), divided, is_rival, all);
    }
}
