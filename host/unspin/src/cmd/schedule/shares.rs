// SPDX-License-Identifier: MIT OR Apache-2.0
//! What share of CPU time each VM has beside the others that are taken: as the kernel's tree of cgroups gives it.
//! In each cgroup, children with a VM divide the time of the cgroup by their weights.

use std::collections::BTreeMap;
use unspin_host::{Cgroup, Groups, Tree};
use unspin_schedule::WEIGHT_USUAL;

/// Of a thread, as cgroups have it.
const WEIGHT_OF_THREAD: f64 = 100.0;

/// A step on the way from the root to a VM: a cgroup that has a weight, or the VM's threads in the last of these.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Group(String),
    Threads(u32),
}

/// The shares of VMs, by process: [`WEIGHT_USUAL`] is that of the average. A VM is its process, and its number of
/// vCPUs: where several VMs are in one cgroup, each of their threads has as much as another.
pub fn shares(tree: &Tree, groups: &Groups, vms: &[(u32, u32)]) -> BTreeMap<u32, u32> {
    let ways: Vec<Vec<(Step, f64)>> = vms.iter().map(|vm| way(tree, groups, *vm)).collect();
    // Weights of children, by their parent.
    let mut children: BTreeMap<Option<&Step>, BTreeMap<&Step, f64>> = BTreeMap::new();
    for way in &ways {
        for (at, (step, weight)) in way.iter().enumerate() {
            children.entry(parent(way, at)).or_default().insert(step, *weight);
        }
    }
    let share = |way: &Vec<(Step, f64)>| {
        let part = |(at, (_, weight)): (usize, &(Step, f64))| {
            weight / children[&parent(way, at)].values().sum::<f64>()
        };
        way.iter().enumerate().map(part).product::<f64>()
    };
    let usual = f64::from(WEIGHT_USUAL) * vms.len() as f64;
    let weight = |way| (share(way) * usual).round().max(1.0) as u32;
    vms.iter().zip(&ways).map(|((pid, _), way)| (*pid, weight(way))).collect()
}

/// The step before one, or `None` for the root.
fn parent(way: &[(Step, f64)], at: usize) -> Option<&Step> {
    way[..at].last().map(|(step, _)| step)
}

fn way(tree: &Tree, groups: &Groups, (pid, vcpus): (u32, u32)) -> Vec<(Step, f64)> {
    let place = groups.place(tree, pid).ok();
    let is_own = place.as_ref().is_some_and(|place| place.is_own);
    let group = place.and_then(|place| place.group);
    let mut around: Vec<Cgroup> = group.iter().flat_map(|group| group.upwards()).collect();
    around.reverse();
    let step = |group: &Cgroup| Some((Step::Group(group.path.clone()), tree.weight(group)?));
    let mut way: Vec<(Step, f64)> = around.iter().filter_map(step).collect();
    if !is_own {
        way.push((Step::Threads(pid), WEIGHT_OF_THREAD * f64::from(vcpus.max(1))));
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_cli::fake::Fake;

    /// VMs of these numbers and cgroups, and the weights of cgroups: their shares.
    fn shares_of(vms: &[(u32, &str)], weights: &[(&str, &str)]) -> Vec<u32> {
        let fake = Fake::new();
        fake.write("sys/fs/cgroup/cgroup.controllers", "cpu");
        for (pid, group) in vms {
            fake.vm(&format!("{pid}-0"), &format!("vm{pid}"));
            let comm = format!("proc/{pid}/task/{pid}1");
            fake.write(&format!("{comm}/comm"), "CPU 0/KVM");
            for dir in [format!("proc/{pid}"), format!("proc/{pid}1"), comm] {
                fake.write(&format!("{dir}/cgroup"), &format!("0::{group}"));
            }
            fake.write(&format!("sys/fs/cgroup{group}/cgroup.procs"), "");
        }
        for (group, weight) in weights {
            fake.write(&format!("sys/fs/cgroup{group}/cpu.weight"), weight);
        }
        let host = fake.host();
        let tree = Tree::of(&host);
        let processes = host.vm_processes().unwrap();
        let groups = Groups::of(&tree, &host, &processes);
        let vms: Vec<(u32, u32)> = vms.iter().map(|(pid, _)| (*pid, 2)).collect();
        shares(&tree, &groups, &vms).into_values().collect()
    }

    #[test]
    fn siblings_divide_by_weight() {
        let vms = [(41, "/a.scope"), (42, "/b.scope"), (43, "/c.scope")];
        let weights = [("/a.scope", "100"), ("/b.scope", "200"), ("/c.scope", "400")];
        assert_eq!(shares_of(&vms, &weights), [4286, 8571, 17143], "1 : 2 : 4 of 3 times 10000");
        assert_eq!(shares_of(&vms[..1], &weights), [WEIGHT_USUAL], "alone");
    }

    #[test]
    fn a_group_has_its_share_whatever_is_in_it() {
        let vms = [(41, "/m.slice/a.scope"), (42, "/m.slice/b.scope"), (43, "/c.scope")];
        let weights = [
            ("/m.slice", "200"),
            ("/m.slice/a.scope", "300"),
            ("/m.slice/b.scope", "100"),
            ("/c.scope", "100"),
        ];
        // Two thirds for the slice, of which a has three quarters.
        assert_eq!(shares_of(&vms, &weights), [15000, 5000, 10000]);
        // The controller is off in the slice: it has no weight, and its children are beside c.
        assert_eq!(shares_of(&vms, &weights[1..]), [18000, 6000, 6000]);
    }

    #[test]
    fn vms_without_a_group_of_their_own_divide_by_threads() {
        assert_eq!(shares_of(&[(41, "/"), (42, "/")], &[]), [10000, 10000]);
        let vms = [(41, "/all.slice"), (42, "/all.slice"), (43, "/c.scope")];
        let weights = [("/all.slice", "100"), ("/c.scope", "100")];
        assert_eq!(shares_of(&vms, &weights), [7500, 7500, 15000]);
    }
}
