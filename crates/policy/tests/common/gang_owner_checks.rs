// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who owns which pCPUs in a turn (policy/gang.h).

use super::gang_checks::{Host, LOW, NONE};
use super::{property, Api};
use proptest::prelude::*;
use std::collections::BTreeSet;
use unspin_policy::gang::{CpuSet, Vcpu, Vm};

pub type Cpus = BTreeSet<usize>;

/// Where the vCPUs of a VM may run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Freedom {
    /// Only where they are.
    None,
    /// On the same pCPUs, all of them.
    Alike,
    /// Each where it is, or anywhere.
    NoneOrAll,
    /// Each on pCPUs of its own.
    Any,
}

#[derive(Clone, Debug)]
struct VmPlan {
    vm: Vm,
    freedom: Freedom,
    /// pCPU, wants, and where it may run.
    vcpus: Vec<(u32, bool, u16)>,
}

/// A host whose vCPUs are on its last eight pCPUs, and one more that is not there.
#[derive(Clone, Debug)]
struct Plan {
    cpus: usize,
    vms: Vec<VmPlan>,
    turn: u32,
    low_ages: u32,
}

impl Plan {
    fn from(&self) -> usize {
        self.cpus.saturating_sub(8)
    }

    fn sets(&self) -> Vec<Option<CpuSet>> {
        let of_bits = |bits: u16| -> Option<CpuSet> {
            Some(
                (0..self.cpus)
                    .filter(|cpu| bits >> (cpu - self.from().min(*cpu)) & 1 == 1)
                    .collect(),
            )
        };
        let mut sets = Vec::new();
        for plan in &self.vms {
            let first = plan.vcpus.first().map_or(0, |vcpu| vcpu.2);
            sets.extend(plan.vcpus.iter().map(|vcpu| match plan.freedom {
                Freedom::None => None,
                Freedom::Alike => of_bits(first),
                Freedom::NoneOrAll => (vcpu.2 & 1 == 1).then(|| (0..self.cpus).collect()),
                Freedom::Any => of_bits(vcpu.2),
            }));
        }
        sets
    }

    fn host<'a>(&self, sets: &'a [Option<CpuSet>]) -> Host<'a> {
        let mut sets = sets.iter();
        let vms: Vec<(Vm, Vec<Vcpu>)> = self
            .vms
            .iter()
            .map(|plan| {
                let vcpus = plan.vcpus.iter().zip(&mut sets).map(|(&(cpu, wants, _), set)| Vcpu {
                    wants: wants.into(),
                    allowed: set.as_ref(),
                    ..Vcpu::new(self.from() as u32 + cpu, 1)
                });
                (plan.vm, vcpus.collect())
            })
            .collect();
        let mut host = Host::new(self.cpus, &vms);
        // After the last that can be counted comes the first; none is 0.
        let before = |turns| self.turn.checked_sub(turns).unwrap_or(u32::MAX - turns + self.turn);
        host.turn = self.turn;
        for (i, cpu) in host.cpus.iter_mut().enumerate() {
            cpu.low_last_turn = before((self.low_ages >> (i % 16)) & 3);
        }
        for i in 0..host.vms.len() {
            host.vms[i].last_turn = before(host.vms[i].last_turn);
            host.vms[i].wanting = host.wanting(i).len() as u32;
        }
        host
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    let freedom =
        prop::sample::select(vec![Freedom::None, Freedom::Alike, Freedom::NoneOrAll, Freedom::Any]);
    let vcpu = (0..9u32, (0..8u8).prop_map(|n| n > 0), any::<u16>());
    let owed = prop_oneof![-4..5i64, (-3..4i64).prop_map(|n| n << 38)];
    let vm = (owed, 0..4u32, (0..4u8).prop_map(|n| (n > 0).into()));
    let vm = vm.prop_map(|(owed, age, high)| Vm { owed, last_turn: age, high, ..Vm::default() });
    let plan = (vm, freedom, prop::collection::vec(vcpu, 0..10))
        .prop_map(|(vm, freedom, vcpus)| VmPlan { vm, freedom, vcpus });
    let cpus = prop_oneof![3 => 1..9usize, 1 => 62..71usize];
    let turn = prop_oneof![10..100u32, 0..5u32, (0..3u32).prop_map(|n| u32::MAX - n)];
    (cpus, prop::collection::vec(plan, 0..7), turn, any::<u32>())
        .prop_map(|(cpus, vms, turn, low_ages)| Plan { cpus, vms, turn, low_ages })
}

/// Where each vCPU of a VM that wants to run may do so.
pub fn reaches(host: &Host, vm: usize) -> Vec<Cpus> {
    let reach = |v: usize| {
        let vcpu = &host.vcpus[v];
        let allowed = |cpu: &usize| vcpu.allowed.is_some_and(|set| set.has(*cpu));
        (0..host.cpus.len()).filter(|cpu| *cpu == vcpu.cpu as usize || allowed(cpu)).collect()
    };
    host.wanting(vm).into_iter().map(reach).collect()
}

/// Where those vCPUs are.
pub fn homes(host: &Host, vm: usize) -> Vec<usize> {
    host.wanting(vm).into_iter().map(|v| host.vcpus[v].cpu as usize).collect()
}

/// Finds the vCPU a pCPU among "free"; others move for it (Kuhn's algorithm).
fn place(
    v: usize,
    reaches: &[Cpus],
    free: &Cpus,
    at: &mut [Option<usize>],
    seen: &mut Cpus,
) -> bool {
    for &cpu in reaches[v].intersection(free) {
        if !seen.insert(cpu) {
            continue;
        }
        let holder = at.iter().position(|&held| held == Some(cpu));
        if holder.is_none_or(|holder| place(holder, reaches, free, at, seen)) {
            at[v] = Some(cpu);
            return true;
        }
    }
    false
}

/// A pCPU among "free" for as many vCPUs as can have one for themselves, besides those that do.
pub fn placed(mut at: Vec<Option<usize>>, reaches: &[Cpus], free: &Cpus) -> Vec<Option<usize>> {
    for v in 0..reaches.len() {
        if at[v].is_none() {
            place(v, reaches, free, &mut at, &mut Cpus::new());
        }
    }
    at
}

fn most_placed(reaches: &[Cpus], free: &Cpus) -> usize {
    placed(vec![None; reaches.len()], reaches, free).iter().flatten().count()
}

/// VMs that want to run, most owed first; of equals, those that have had no turn for longer.
fn candidates(host: &Host) -> Vec<usize> {
    let age = |last: u32| (i64::from(host.turn) - i64::from(last)).rem_euclid(u32::MAX.into());
    let waited = |vm: usize| match host.vms[vm].high {
        0 => homes(host, vm).iter().map(|&cpu| age(host.cpus[cpu].low_last_turn)).max(),
        _ => Some(age(host.vms[vm].last_turn)),
    };
    let owed_to = |a: usize, of: usize| -> i128 {
        i128::from(host.vms[a].owed) * i128::from(host.vms[of].wanting)
    };
    let mut all: Vec<usize> = (0..host.vms.len()).filter(|&vm| host.vms[vm].wanting > 0).collect();
    all.sort_by(|&a, &b| owed_to(b, a).cmp(&owed_to(a, b)).then(waited(b).cmp(&waited(a))));
    all
}

fn owned(host: &Host, who: u32) -> Cpus {
    (0..host.cpus.len()).filter(|&cpu| host.cpus[cpu].owner == who).collect()
}

/// Checks a VM's pCPUs, of those that were free when it came, and takes them off.
fn check_vm(before: &Host, after: &Host, vm: usize, first: bool, exact: bool, free: &mut Cpus) {
    let own = owned(after, vm as u32);
    let reaches = reaches(before, vm);
    let homes: Cpus = homes(before, vm).into_iter().collect();
    let asleep: Cpus = before.of(vm).map(|v| before.vcpus[v].cpu as usize).collect();
    // For vCPUs that want to run, and maybe for ones that sleep there.
    let (maybe, surely): (Cpus, Cpus) =
        own.iter().partition(|cpu| !homes.contains(cpu) && asleep.contains(cpu));
    let used = most_placed(&reaches, &own);
    assert_eq!(most_placed(&reaches, &surely), surely.len(), "a pCPU without a vCPU for it");
    if first || !own.is_empty() {
        let there = |cpu: &usize| !free.contains(cpu) || own.contains(cpu);
        assert!(homes.iter().all(there), "not where they are");
    }
    let most = most_placed(&reaches, free);
    if first {
        assert!(used > 0 && (used == most || !exact), "{used} placed, not {most}");
    } else {
        assert!(own.is_empty() || used == reaches.len(), "neither all nor nothing");
        assert!(!own.is_empty() || most < reaches.len() || !exact, "left out");
    }
    let only_kept = |cpu: &usize| used == surely.len() && maybe.contains(cpu);
    free.retain(|cpu| !own.contains(cpu) || only_kept(cpu));
}

fn check_turn(plan: &Plan, before: &Host, after: &Host) {
    let mut free: Cpus = (0..before.cpus.len()).collect();
    let mut of_group = Cpus::new();
    for (place, &vm) in candidates(before).iter().enumerate() {
        if before.vms[vm].high == 0 {
            of_group.extend(homes(before, vm).iter().filter(|cpu| free.contains(cpu)));
            free.retain(|cpu| !of_group.contains(cpu));
        } else {
            let exact = plan.vms[vm].freedom != Freedom::Any;
            check_vm(before, after, vm, place == 0, exact, &mut free);
        }
    }
    assert_eq!(owned(after, LOW), of_group);
    for (cpu, was) in after.cpus.iter().zip(&before.cpus) {
        let expected = if cpu.owner == LOW { after.turn } else { was.low_last_turn };
        assert_eq!(cpu.low_last_turn, expected);
    }
    for (i, (vm, was)) in after.vms.iter().zip(&before.vms).enumerate() {
        let has_turn = !owned(after, i as u32).is_empty();
        let last_turn = if has_turn { after.turn } else { was.last_turn };
        assert_eq!(*vm, Vm { last_turn, ..*was });
    }
    check_sleepers(before, after);
}

/// pCPUs that are left are kept for vCPUs that sleep there and whose VM has a turn.
fn check_sleepers(before: &Host, after: &Host) {
    for vm in 0..before.vms.len() {
        let has_turn = before.vms[vm].high != 0 && !owned(after, vm as u32).is_empty();
        assert!(!has_turn || before.vms[vm].wanting > 0, "VM {vm} sleeps");
        let left = |v: &usize| {
            after.cpus.get(before.vcpus[*v].cpu as usize).is_some_and(|cpu| cpu.owner == NONE)
        };
        assert!(!has_turn || !before.of(vm).any(|v| left(&v)), "VM {vm} has none when it wakes");
    }
    assert!(after.owners().iter().all(|&owner| {
        owner >= LOW || before.vms.get(owner as usize).is_some_and(|vm| vm.high != 0)
    }));
}

/// In order of what they are owed: the first has what it needs, others all or nothing, and the
/// group what is left where those of its VMs want to run whose turn it is.
pub fn gang_owners_are_placed_in_order(api: &Api) {
    property(4000, plans(), |plan| {
        let sets = plan.sets();
        let before = plan.host(&sets);
        let mut after = before.clone();
        let any = after.turn(api);
        let candidates = candidates(&before);
        assert_eq!(
            any,
            candidates.len() > 1 && candidates.iter().any(|&i| before.vms[i].high != 0)
        );
        if any {
            assert_eq!(after.turn, before.turn.checked_add(1).unwrap_or(1));
            check_turn(&plan, &before, &after);
        } else {
            assert_eq!((after.turn, &after.vms), (before.turn, &before.vms));
            assert!(after.owners().iter().all(|&owner| owner == NONE));
        }
    });
}
