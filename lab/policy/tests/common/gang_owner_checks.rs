// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who owns which pCPUs in a turn, and where each vCPU should run (policy/gang.h).

use super::gang_checks::{Host, LOW, NONE};
use super::{property, Api};
use proptest::prelude::*;
use std::collections::BTreeSet;
use unspin_policy::gang::{Cpu, CpuSet, Vcpu, Vm, APART_TURNS};

type Cpus = BTreeSet<usize>;

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
    /// pCPU, wants, is held back, and where it may run.
    vcpus: Vec<(u32, bool, bool, u16)>,
}

/// A host whose vCPUs are on its last eight pCPUs, and one more that is not there.
#[derive(Clone, Debug)]
struct Plan {
    cpus: usize,
    vms: Vec<VmPlan>,
    turn: u32,
    low_ages: u32,
    topology: Topology,
    /// Bit n: the nth of every 16 pCPUs may not be used.
    unusable: u16,
}

/// Threads per core, cores per cache and caches per node; or nothing is known.
type Topology = Option<(usize, usize, usize)>;

pub fn topologies() -> impl Strategy<Value = Topology> {
    prop_oneof![
        1 => Just(None),
        4 => (1..3usize, 1..5usize, 1..3usize).prop_map(Some),
    ]
}

pub fn set_topology(cpus: &mut [Cpu], topology: Topology) {
    let Some((threads, cores, caches)) = topology else { return };
    for (i, cpu) in cpus.iter_mut().enumerate() {
        let first = |size: usize| (i / size * size) as u32;
        cpu.core = first(threads);
        cpu.cache = first(threads * cores);
        cpu.node = first(threads * cores * caches);
    }
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
            let first = plan.vcpus.first().map_or(0, |vcpu| vcpu.3);
            sets.extend(plan.vcpus.iter().map(|vcpu| match plan.freedom {
                Freedom::None => None,
                Freedom::Alike => of_bits(first),
                Freedom::NoneOrAll => (vcpu.3 & 1 == 1).then(|| (0..self.cpus).collect()),
                Freedom::Any => of_bits(vcpu.3),
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
                let vcpus = plan.vcpus.iter().zip(&mut sets);
                let vcpus = vcpus.map(|(&(cpu, wants, held, _), set)| Vcpu {
                    wants: wants.into(),
                    held_back: held.into(),
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
        set_topology(&mut host.cpus, self.topology);
        for (i, cpu) in host.cpus.iter_mut().enumerate() {
            cpu.low_last_turn = before((self.low_ages >> (i % 16)) & 15);
            cpu.usable = u8::from(self.unusable >> (i % 16) & 1 == 0);
        }
        for i in 0..host.vms.len() {
            host.vms[i].last_turn = before(host.vms[i].last_turn);
            host.vms[i].unplaced = (i % 2) as u8;
            host.vms[i].wanting = host.wanting(i).len() as u32;
        }
        host
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    let freedom =
        prop::sample::select(vec![Freedom::None, Freedom::Alike, Freedom::NoneOrAll, Freedom::Any]);
    let seldom = |of: u8| (0..of).prop_map(|n| n == 0);
    let vcpu = (0..9u32, seldom(8).prop_map(|not| !not), seldom(12), any::<u16>());
    let owed = prop_oneof![-4..5i64, (-3..4i64).prop_map(|n| n << 38)];
    let age = prop_oneof![0..4u32, 6..11u32];
    let vm = (owed, age, (0..4u8).prop_map(|n| (n > 0).into()), 0..2u8);
    let vm = vm.prop_map(|(owed, last_turn, high, apart_enough)| Vm {
        owed,
        last_turn,
        high,
        apart_enough,
        ..Vm::default()
    });
    let plan = (vm, freedom, prop::collection::vec(vcpu, 0..10))
        .prop_map(|(vm, freedom, vcpus)| VmPlan { vm, freedom, vcpus });
    let cpus = prop_oneof![3 => 1..9usize, 1 => 62..71usize];
    let turn = prop_oneof![10..100u32, 0..5u32, (0..3u32).prop_map(|n| u32::MAX - n)];
    let unusable =
        prop_oneof![2 => Just(0), 1 => (any::<u16>(), any::<u16>()).prop_map(|(a, b)| a & b)];
    let vms = prop::collection::vec(plan, 0..7);
    (cpus, vms, turn, any::<u32>(), topologies(), unusable).prop_map(
        |(cpus, vms, turn, low_ages, topology, unusable)| Plan {
            cpus,
            vms,
            turn,
            low_ages,
            topology,
            unusable,
        },
    )
}

/// Where a vCPU may be sent.
fn reach(host: &Host, v: usize) -> Cpus {
    let vcpu = &host.vcpus[v];
    let allowed = |cpu: &usize| vcpu.allowed.is_some_and(|set| set.has(*cpu));
    let all = (0..host.cpus.len()).filter(|&cpu| host.cpus[cpu].usable != 0);
    all.filter(|cpu| *cpu == vcpu.cpu as usize || allowed(cpu)).collect()
}

fn reaches(host: &Host, vm: usize) -> Vec<Cpus> {
    host.wanting(vm).into_iter().map(|v| reach(host, v)).collect()
}

/// Where the vCPUs of a VM are that want to run.
fn homes(host: &Host, vm: usize) -> Vec<usize> {
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

/// How many vCPUs can have a pCPU among "free" for themselves.
fn most_placed(reaches: &[Cpus], free: &Cpus) -> usize {
    let mut at = vec![None; reaches.len()];
    for v in 0..reaches.len() {
        place(v, reaches, free, &mut at, &mut Cpus::new());
    }
    at.iter().flatten().count()
}

/// VMs that want to run. First those that are HIGH, had a turn's time apart, and no turn for long; then those
/// that are owed most; of equals, those that have had no turn for longer.
fn candidates(host: &Host) -> Vec<usize> {
    let age = |last: u32| (i64::from(host.turn) - i64::from(last)).rem_euclid(u32::MAX.into());
    let waited = |vm: usize| match host.vms[vm].is_high() {
        false => homes(host, vm).iter().map(|&cpu| age(host.cpus[cpu].low_last_turn)).max(),
        true => Some(age(host.vms[vm].last_turn)),
    };
    let owed_to = |a: usize, of: usize| -> i128 {
        i128::from(host.vms[a].owed) * i128::from(host.vms[of].wanting)
    };
    let mut all: Vec<usize> = (0..host.vms.len()).filter(|&vm| host.vms[vm].wanting > 0).collect();
    let later = |vm: usize| {
        let row = &host.vms[vm];
        !(row.is_high() && row.apart_enough != 0 && waited(vm) >= Some(APART_TURNS.into()))
    };
    all.sort_by(|&a, &b| {
        let owed = owed_to(b, a).cmp(&owed_to(a, b));
        later(a).cmp(&later(b)).then(owed).then(waited(b).cmp(&waited(a)))
    });
    all
}

fn owned(host: &Host, who: u32) -> Cpus {
    (0..host.cpus.len()).filter(|&cpu| host.cpus[cpu].owner == who).collect()
}

/// A turn that is checked step by step: its plan, the host before and after it, and the pCPUs that
/// are still free.
struct Check<'c, 'a> {
    plan: &'c Plan,
    before: &'c Host<'a>,
    after: &'c Host<'a>,
    free: Cpus,
    of_group: Cpus,
}

impl Check<'_, '_> {
    fn target(&self, v: usize) -> Option<usize> {
        self.after.vcpus[v].target()
    }

    fn home(&self, v: usize) -> usize {
        self.before.vcpus[v].cpu as usize
    }

    /// A vCPU has a pCPU for itself, which was free.
    fn takes(&mut self, v: usize, owner: u32) {
        let cpu = self.target(v).unwrap_or_else(|| panic!("vCPU {v} has no target"));
        assert!(self.free.remove(&cpu), "pCPU {cpu} of vCPU {v} is not free");
        assert!(reach(self.before, v).contains(&cpu), "vCPU {v} may not run on {cpu}");
        assert_eq!((self.after.cpus[cpu].owner, self.after.cpus[cpu].vcpu), (owner, v as u32));
        if owner == LOW {
            self.of_group.insert(cpu);
        }
    }

    /// Another thread of its core has an owner.
    fn is_shared(&self, cpu: usize) -> bool {
        let core = |cpu: usize| self.after.cpus[cpu].core;
        let is_taken = |&other: &usize| other != cpu && core(other) == core(cpu);
        (0..self.after.cpus.len()).filter(is_taken).any(|other| {
            let row = &self.after.cpus[other];
            row.usable == 0 || row.owner != NONE
        })
    }

    /// A vCPU that is alone on its pCPU stays there. A VM with such a vCPU keeps one of its shared
    /// vCPUs in place, too. A second thread may be left.
    fn stays(&self, wanting: &[usize], free: &Cpus) {
        let here = |cpu: usize| wanting.iter().filter(|&&v| self.home(v) == cpu).count();
        let is_alone = |v: usize| here(self.home(v)) == 1 && free.contains(&self.home(v));
        let any_alone = wanting.iter().any(|&v| is_alone(v));
        for &v in wanting {
            let home = self.home(v);
            if self.is_shared(home) {
                continue;
            }
            if is_alone(v) {
                assert_eq!(self.target(v), Some(home), "vCPU {v} is moved for nothing");
            } else if any_alone && free.contains(&home) {
                assert!(wanting.iter().any(|&v| self.target(v) == Some(home)), "{home} is left");
            }
        }
    }

    fn high(&mut self, vm: usize, first: bool) {
        let wanting = self.before.wanting(vm);
        let has: Vec<bool> = wanting.iter().map(|&v| self.target(v).is_some()).collect();
        let exact = self.plan.vms[vm].freedom != Freedom::Any;
        if !has[0] {
            assert!(has.iter().all(|has| !has), "neither all nor nothing");
            let most = most_placed(&reaches(self.before, vm), &self.free);
            assert!(!first, "the first has no turn");
            assert!(most < wanting.len() || !exact, "left out");
            return;
        }
        self.stays(&wanting, &self.free.clone());
        wanting.iter().for_each(|&v| self.takes(v, vm as u32));
    }

    /// Who shares a pCPU of the group, or has lost its own, has a free one if there is one.
    fn spreads(&mut self, v: usize) -> bool {
        let finds = !self.free.is_disjoint(&reach(self.before, v));
        if finds {
            self.takes(v, LOW);
        }
        finds
    }

    fn low(&mut self, vm: usize) {
        let wanting = self.before.wanting(vm);
        let mut behind = Vec::new();
        for &v in &wanting {
            if self.free.contains(&self.home(v)) {
                assert_eq!(self.target(v), Some(self.home(v)));
                self.takes(v, LOW);
            } else if self.of_group.contains(&self.home(v)) {
                behind.push(v);
            }
        }
        for v in behind {
            if !self.spreads(v) {
                assert_eq!(self.target(v), Some(self.home(v)));
            }
        }
    }

    fn sleepers(&mut self, anywhere: bool) {
        for vm in 0..self.before.vms.len() {
            let has_turn = self.after.vms[vm].is_high()
                && self.before.wanting(vm).first().is_some_and(|&v| self.target(v).is_some());
            for v in self.before.of(vm).filter(|_| has_turn) {
                let vcpu = &self.before.vcpus[v];
                if vcpu.wants != 0 || vcpu.held_back != 0 || !self.before.is_there(v) {
                    continue;
                }
                let home = self.home(v);
                if self.free.contains(&home) {
                    assert!(!anywhere && self.target(v) == Some(home), "vCPU {v} sleeps there");
                    self.takes(v, vm as u32);
                } else if anywhere && self.target(v).is_none_or(|cpu| self.free.contains(&cpu)) {
                    assert_eq!(
                        self.target(v).is_some(),
                        !self.free.is_disjoint(&reach(self.before, v))
                    );
                    if self.target(v).is_some() {
                        self.takes(v, vm as u32);
                    }
                }
            }
        }
    }

    /// After all that want to run were asked in order.
    fn rest(&mut self, candidates: &[usize]) {
        self.sleepers(false);
        for &vm in candidates.iter().filter(|&&vm| !self.after.vms[vm].is_high()) {
            for v in self.before.wanting(vm) {
                if self.after.cpus[self.home(v)].owner != LOW {
                    assert_eq!(self.spreads(v), self.target(v).is_some());
                }
            }
        }
        self.sleepers(true);
        for (cpu, of) in self.after.cpus.iter().enumerate() {
            let is_free = self.free.contains(&cpu) || self.before.cpus[cpu].usable == 0;
            assert_eq!(of.owner == NONE, is_free, "pCPU {cpu}");
            assert_eq!(of.vcpu == NONE, is_free, "pCPU {cpu}");
        }
    }

    /// Whose target a pCPU is, its VM owns it, or the group.
    fn targets(&self) {
        for vm in 0..self.before.vms.len() {
            let is_high = self.after.vms[vm].is_high();
            for v in self.before.of(vm) {
                let home_is_low = self.before.is_there(v)
                    && self.after.cpus[self.home(v)].owner == LOW
                    && !is_high;
                assert!(!home_is_low || self.target(v).is_some(), "vCPU {v} may stay");
                let Some(cpu) = self.target(v) else { continue };
                let of = &self.after.cpus[cpu];
                assert_eq!(of.owner, if is_high { vm as u32 } else { LOW });
                assert!(of.vcpu == v as u32 || !is_high && cpu == self.home(v));
            }
        }
    }
}

fn check_turn(plan: &Plan, before: &Host, after: &Host, candidates: &[usize]) {
    let free = (0..before.cpus.len()).filter(|&cpu| before.cpus[cpu].usable != 0).collect();
    let mut check = Check { plan, before, after, free, of_group: Cpus::new() };
    for (place, &vm) in candidates.iter().enumerate() {
        if after.vms[vm].is_high() {
            check.high(vm, place == 0);
        } else {
            check.low(vm);
        }
    }
    check.rest(candidates);
    check.targets();
    for (cpu, was) in after.cpus.iter().zip(&before.cpus) {
        let expected = if cpu.owner == LOW { after.turn } else { was.low_last_turn };
        assert_eq!(cpu.low_last_turn, expected);
    }
    for (i, (vm, was)) in after.vms.iter().zip(&before.vms).enumerate() {
        let has_turn = after.owners().contains(&(i as u32));
        let last_turn = if has_turn { after.turn } else { was.last_turn };
        let Vm { unplaced, waited, .. } = *vm;
        assert_eq!(*vm, Vm { last_turn, unplaced, waited, ..*was });
    }
}

/// VMs with more vCPUs that want to run than pCPUs for them, each on a host of its own.
fn check_unplaced(plan: &Plan, before: &Host, after: &Host) {
    let usable: Cpus = (0..before.cpus.len()).collect();
    for (i, vm) in before.vms.iter().enumerate() {
        let asks = vm.high != 0 && vm.wanting > 0;
        let lacks = most_placed(&reaches(before, i), &usable) < before.wanting(i).len();
        let unplaced = after.vms[i].unplaced != 0;
        assert!(!unplaced || asks, "VM {i} asks for nothing");
        assert!(!asks || !lacks || unplaced, "VM {i} is too large");
        assert!(!unplaced || lacks || plan.vms[i].freedom == Freedom::Any, "VM {i} fits");
    }
}

/// In order of their debts, each HIGH VM has a pCPU for each of its vCPUs, or none. The group has
/// the other pCPUs, where VMs want to run that have a turn.
pub fn gang_owners_are_placed_in_order(api: &Api) {
    property(4000, plans(), |plan| {
        let sets = plan.sets();
        let before = plan.host(&sets);
        let mut after = before.clone();
        let any = after.turn(api);
        check_unplaced(&plan, &before, &after);
        let mut known = before.clone();
        for (vm, of) in known.vms.iter_mut().zip(&after.vms) {
            vm.unplaced = of.unplaced;
        }
        let candidates = candidates(&known);
        let any_high = candidates.iter().any(|&i| after.vms[i].is_high());
        assert_eq!(any, candidates.len() > 1 && any_high);
        if any {
            assert_eq!(after.turn, before.turn.checked_add(1).unwrap_or(1));
            check_turn(&plan, &before, &after, &candidates);
        } else {
            assert_eq!(after.turn, before.turn);
            assert!(after.owners().iter().all(|&owner| owner == NONE));
            assert!(after.vcpus.iter().all(|vcpu| vcpu.target().is_none()));
        }
    });
}
