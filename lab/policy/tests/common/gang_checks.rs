// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns for gangs (policy/gang.h): who may run and fill, and that any numbers do no harm. What VMs are
//! owed is in `gang_account_checks`, who owns pCPUs in `gang_owner_checks`, long runs are in
//! `gang_run_checks`.

use super::{any_u32, any_u64, property, Api};
use proptest::prelude::*;
use std::sync::LazyLock;
use unspin_policy::gang::{
    Cpu, CpuSet, Filler, Pool, RawHost, Vcpu, Vm, FILLERS_MAX, POOLS_MAX, TIME_MAX,
};

pub const NONE: u32 = u32::MAX;
pub const LOW: u32 = u32::MAX - 1;

/// What a caller keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host<'a> {
    pub vms: Vec<Vm>,
    pub vcpus: Vec<Vcpu<'a>>,
    pub cpus: Vec<Cpu>,
    pub order: Vec<u32>,
    pub free: Vec<u64>,
    pub pools: Vec<Pool>,
    pub turn: u32,
}

impl<'a> Host<'a> {
    /// VMs with these vCPUs in a row, on a host without owners.
    pub fn new(cpus: usize, vms: &[(Vm, Vec<Vcpu<'a>>)]) -> Self {
        let mut host = Host { cpus: vec![Cpu::default(); cpus], ..Host::default() };
        for (vm, vcpus) in vms {
            let (first, count) = (host.vcpus.len() as u32, vcpus.len() as u32);
            host.vms.push(Vm { first, count, ..*vm });
            host.vcpus.extend(vcpus);
        }
        (host.order, host.free) = (vec![!0; vms.len()], vec![!0; cpus.div_ceil(64)]);
        host.pools = vec![Pool { scratch: [!0; 15] }; POOLS_MAX];
        host
    }

    fn raw(&mut self) -> RawHost<'a> {
        RawHost {
            vms: self.vms.as_mut_ptr(),
            vcpus: self.vcpus.as_mut_ptr(),
            cpus: self.cpus.as_mut_ptr(),
            order: self.order.as_mut_ptr(),
            free: self.free.as_mut_ptr(),
            pools: self.pools.as_mut_ptr(),
            vm_count: self.vms.len() as u32,
            vcpu_count: self.vcpus.len() as u32,
            cpu_count: self.cpus.len() as u32,
            turn: self.turn,
            free_count: !0,
            whole_count: !0,
        }
    }

    pub fn account(&mut self, api: &Api, turn: u64) {
        unsafe { (api.gang_account)(&mut self.raw(), turn) }
    }

    pub fn turn(&mut self, api: &Api) -> bool {
        let mut raw = self.raw();
        let any = unsafe { (api.gang_turn)(&mut raw) };
        self.turn = raw.turn;
        assert!(any <= 1);
        any == 1
    }

    pub fn may_run(&mut self, api: &Api, vm: u32, cpu: u32) -> bool {
        unsafe { (api.gang_may_run)(&self.raw(), vm, cpu) != 0 }
    }

    /// Which of these vCPUs, given with their VMs, fills a hole.
    pub fn fill(&self, api: &Api, parked: &[(usize, usize)]) -> Option<usize> {
        let candidate = |&(vm, v): &(usize, usize)| Filler {
            owed: self.vms[vm].owed,
            vcpu: v as u32,
            ..Filler::default()
        };
        let all: Vec<Filler> = parked.iter().map(candidate).collect();
        let index = unsafe { (api.gang_fill)(all.as_ptr(), all.len() as u32) };
        (index != NONE).then(|| all[index as usize].vcpu as usize)
    }

    /// A VM's vCPUs, as indexes.
    pub fn of(&self, vm: usize) -> std::ops::Range<usize> {
        let vm = &self.vms[vm];
        vm.first as usize..(vm.first + vm.count) as usize
    }

    /// Those of them that want to run and are there.
    pub fn wanting(&self, vm: usize) -> Vec<usize> {
        let wants = |v: &usize| {
            let vcpu = &self.vcpus[*v];
            vcpu.wants != 0 && vcpu.held_back == 0 && self.is_there(*v)
        };
        self.of(vm).filter(wants).collect()
    }

    pub fn is_there(&self, vcpu: usize) -> bool {
        (self.vcpus[vcpu].cpu as usize) < self.cpus.len()
    }

    pub fn owners(&self) -> Vec<u32> {
        self.cpus.iter().map(|cpu| cpu.owner).collect()
    }
}

pub fn high() -> Vm {
    Vm { high: 1, ..Vm::default() }
}

/// vCPUs of weight 1 that want to run.
pub fn wanting_on(cpus: &[u32]) -> Vec<Vcpu<'static>> {
    cpus.iter().map(|&cpu| Vcpu { wants: 1, ..Vcpu::new(cpu, 1) }).collect()
}

/// Two VMs that spin and one that does not, on two pCPUs, by hand.
pub fn gang_worked_example(api: &Api) {
    let vms = [(high(), wanting_on(&[0, 1])), (high(), wanting_on(&[0, 1]))];
    let mut host = Host::new(2, &[vms.as_slice(), &[(Vm::default(), wanting_on(&[1]))]].concat());
    host.vcpus[4].weight = 2;
    let account = |host: &mut Host, got: [u64; 5]| {
        host.vcpus.iter_mut().zip(got).for_each(|(vcpu, got)| vcpu.got = got);
        host.account(api, 50);
        host.vms.iter().map(|vm| vm.owed).collect::<Vec<_>>()
    };
    // pCPU 0 gave 12, 6 for each; pCPU 1 gave 12, 3 to each that spins.
    assert_eq!(account(&mut host, [10, 0, 2, 4, 8]), [-1, 3, -2]);
    assert_eq!(host.vms.iter().map(|vm| vm.wanting).collect::<Vec<_>>(), [2, 2, 1]);
    assert!(host.turn(api));
    assert_eq!(host.owners(), [1, 1]);
    // 4 for each vCPU are owed to the first and to the third, and neither had a turn.
    assert_eq!(account(&mut host, [0, 0, 12, 12, 0]), [8, -12, 4]);
    assert!(host.turn(api));
    assert_eq!(host.owners(), [0, 0]);
    // Now the third VM gets none: the first finds no two pCPUs, and the scheduler has the rest.
    host.vms[0].owed = 8;
    assert!(host.turn(api));
    assert_eq!((host.owners(), host.turn), (vec![NONE, LOW], 3));
    assert_eq!(host.vms.iter().map(|vm| vm.last_turn).collect::<Vec<_>>(), [2, 1, 0]);
    assert_eq!(host.cpus.iter().map(|cpu| cpu.low_last_turn).collect::<Vec<_>>(), [0, 3]);
}

/// Sets of four pCPUs: more that are of several than there are pools.
static SETS: LazyLock<Vec<CpuSet>> = LazyLock::new(|| {
    (1..32).map(|bits| (0..5).filter(|cpu| bits >> cpu & 1 == 1).collect()).collect()
});

/// Few pCPUs, so that many vCPUs meet, and some of vCPUs elsewhere; some asleep, idle or both.
pub fn hosts() -> impl Strategy<Value = Host<'static>> {
    let got = prop_oneof![Just(0), 0..1000u64, any_u64()];
    let weight = prop_oneof![1..10u32, any_u32()];
    let held = (0..6u8).prop_map(|n| u8::from(n == 0) * 3);
    let set = prop_oneof![
        2 => Just(None),
        1 => Just(SETS.last()),
        2 => (0..SETS.len()).prop_map(|set| Some(&SETS[set])),
    ];
    let vcpu = (got, weight, 0..5u32, 0..3u8, held, set).prop_map(
        |(got, weight, cpu, wants, held_back, allowed)| Vcpu {
            got,
            allowed,
            wants,
            held_back,
            ..Vcpu::new(cpu, weight)
        },
    );
    let owed = prop_oneof![-3..3i64, -(1i64 << 40)..1 << 40];
    let high = prop::sample::select(vec![(0, 0), (0, 1), (1, 0), (1, 0), (1, 1)]);
    let vm = (owed.clone(), owed, high, prop::collection::vec(vcpu, 0..7)).prop_map(
        |(owed, behind, (high, unplaced), vcpus)| {
            (Vm { owed, behind, high, unplaced, ..Vm::default() }, vcpus)
        },
    );
    (1..5usize, prop::collection::vec(vm, 0..6)).prop_map(|(cpus, vms)| Host::new(cpus, &vms))
}

fn with_some_owners((mut host, owners): (Host<'static>, u64)) -> Host<'static> {
    let all: Vec<u32> = (0..host.vms.len() as u32 + 1).chain([LOW, NONE]).collect();
    for (i, cpu) in host.cpus.iter_mut().enumerate() {
        cpu.owner = all[(owners >> (8 * i)) as usize % all.len()];
    }
    host
}

/// Owners keep rivals off their pCPUs, and no other vCPUs.
pub fn gang_keeps_rivals_off(api: &Api) {
    let hosts = || (hosts(), any::<u64>()).prop_map(with_some_owners);
    property(500, hosts(), |mut host| {
        for (cpu, owner) in host.owners().into_iter().enumerate() {
            for vm in 0..host.vms.len() as u32 {
                let is_high = host.vms[vm as usize].is_high();
                let rival = owner != NONE && owner != if is_high { vm } else { LOW };
                assert_eq!(host.may_run(api, vm, cpu as u32), !rival);
            }
        }
    });
    // Who does not take part is left alone.
    property(500, hosts(), |mut host| {
        let (vms, beyond) = (host.vms.len() as u32, host.cpus.len() as u32);
        for cpu in 0..beyond {
            assert!(host.may_run(api, vms, cpu) && host.may_run(api, NONE, cpu));
        }
        assert!((0..=vms).all(|vm| [beyond, NONE].iter().all(|&cpu| host.may_run(api, vm, cpu))));
    });
}

/// A hole goes to the most owed VM that can use it; of equals, to the first. The search stops at
/// its bound.
pub fn gang_fills_holes(api: &Api) {
    let candidate = (-3..3i64, any::<u32>(), (0..3u8).prop_map(|n| u8::from(n == 0) * 7));
    property(1500, prop::collection::vec(candidate, 0..40), |all| {
        let all: Vec<Filler> = all
            .into_iter()
            .map(|(owed, vcpu, lock)| Filler { owed, vcpu, lock, ..Filler::default() })
            .collect();
        let can: Vec<usize> =
            (0..all.len().min(FILLERS_MAX)).filter(|&i| all[i].lock == 0).collect();
        let most = can.iter().map(|&i| all[i].owed).max();
        let first = can.into_iter().find(|&i| Some(all[i].owed) == most);
        let index = unsafe { (api.gang_fill)(all.as_ptr(), all.len() as u32) };
        assert_eq!(index, first.map_or(NONE, |i| i as u32));
    });
}

/// No HIGH VM wants to run, or no other VM does: the scheduler has the host.
pub fn gang_needs_rivals(api: &Api) {
    property(1500, (hosts(), any::<u32>(), any::<bool>()), |(mut host, turn, alone)| {
        let mut seen = false;
        for i in 0..host.vms.len() {
            let sleeps = if alone { seen } else { host.vms[i].high != 0 };
            host.vms[i].unplaced = 0;
            seen |= !host.wanting(i).is_empty();
            for v in host.of(i).filter(|_| sleeps) {
                host.vcpus[v].wants = 0;
            }
        }
        host.turn = turn;
        for cpu in &mut host.cpus {
            cpu.owner = 0;
        }
        host.account(api, 1000);
        let vms = host.vms.clone();
        assert!(!host.turn(api));
        assert!(host.owners().iter().all(|&owner| owner == NONE));
        assert!(host.vcpus.iter().all(|vcpu| vcpu.target().is_none()));
        let plain = |vm: &Vm| Vm { unplaced: 0, waited: 0, ..*vm };
        assert_eq!(host.turn, turn);
        assert!(host.vms.iter().zip(&vms).all(|(vm, was)| plain(vm) == plain(was)));
    });
}

/// Any numbers: nothing outside the counts, and no field that is the caller's, is written.
pub fn gang_is_bounded(api: &Api) {
    let everywhere: CpuSet = (0..1024).collect();
    let vm = (any_u64(), prop_oneof![0..9u32, any_u32()], any_u32(), any_u32(), 0..2u8, any_u32());
    let vcpu = (any_u64(), any_u32(), prop_oneof![0..9u32, any_u32()], any::<u16>());
    let number = || prop_oneof![4 => 0..9u32, 1 => any_u32()];
    let cpu = (number(), number(), number(), (0..4u8).prop_map(|n| n.min(1)));
    let vms = prop::collection::vec(vm, 9);
    let vcpus = (prop::collection::vec(vcpu, 9), prop::collection::vec(cpu, 9));
    let counts = (0..9u32, 0..9u32, 0..9u32);
    property(3000, (vms, vcpus, counts, any_u64(), any_u32()), |(vms, vcpus, counts, clamp, n)| {
        let (vcpus, cpus) = vcpus;
        let vms = vms.into_iter().map(|(owed, first, count, last_turn, high, wanting)| Vm {
            owed: owed as i64,
            behind: owed as i64,
            last_turn,
            high,
            wanting,
            ..Vm::new(first, count)
        });
        let vcpus = vcpus.into_iter().map(|(got, weight, cpu, bits)| Vcpu {
            got,
            allowed: (bits & 8 != 0).then_some(&everywhere),
            wants: (bits & 1) as u8,
            held_back: (bits >> 1 & bits >> 2 & 1) as u8,
            ..Vcpu::new(cpu, weight)
        });
        let mut host = Host {
            vms: vms.collect(),
            vcpus: vcpus.collect(),
            cpus: cpus.into_iter().map(|cpu| some_cpu(cpu, !n)).collect(),
            order: vec![77; 9],
            free: vec![77; 2],
            pools: vec![Pool::default(); POOLS_MAX],
            turn: n,
        };
        let before = host.clone();
        let mut raw = host.raw();
        (raw.vm_count, raw.vcpu_count, raw.cpu_count) = counts;
        unsafe {
            (api.gang_turn)(&mut raw);
            (api.gang_account)(&mut raw, clamp);
            (api.gang_turn)(&mut raw);
            (api.gang_may_run)(&raw, n, clamp as u32);
        }
        check_bounded(&before, &host, counts);
    });
}

fn some_cpu((core, cache, node, usable): (u32, u32, u32, u8), low_last_turn: u32) -> Cpu {
    Cpu { owner: 77, low_last_turn, core, cache, node, usable, ..Cpu::default() }
}

fn check_bounded(before: &Host, after: &Host, (vms, vcpus, cpus): (u32, u32, u32)) {
    for (i, (vm, was)) in after.vms.iter().zip(&before.vms).enumerate() {
        let Vm { owed, behind, apart, last_turn, wanting, apart_enough, unplaced, waited, .. } =
            *was;
        let kept =
            Vm { owed, behind, apart, last_turn, wanting, apart_enough, unplaced, waited, ..*vm };
        assert_eq!(kept, *was);
        assert!(i < vms as usize || vm == was, "VM {i} of {vms}");
        let most = TIME_MAX * 64;
        for balance in [vm.owed, vm.behind] {
            assert!(i >= vms as usize || balance.unsigned_abs() <= most, "{balance}");
        }
    }
    for (i, (vcpu, was)) in after.vcpus.iter().zip(&before.vcpus).enumerate() {
        assert_eq!(Vcpu { placed: was.placed, pool: was.pool, target: was.target, ..*vcpu }, *was);
        assert!(i < vcpus as usize || vcpu == was, "vCPU {i} of {vcpus}");
        assert!(vcpu.target < cpus || vcpu.target == NONE, "target {}", vcpu.target);
    }
    for (i, (cpu, was)) in after.cpus.iter().zip(&before.cpus).enumerate() {
        let ours = i < cpus as usize;
        assert!(ours || cpu == was, "pCPU {i} of {cpus}");
        assert!(!ours || cpu.owner < vms || cpu.owner >= LOW, "owner {}", cpu.owner);
        assert!(cpu.usable != 0 || !ours || cpu.owner == NONE, "nobody may own pCPU {i}");
        let topology = |cpu: &Cpu| (cpu.core, cpu.cache, cpu.node, cpu.usable);
        assert_eq!(topology(cpu), topology(was));
    }
    assert!(after.order[vms as usize..].iter().all(|&entry| entry == 77));
    assert!(after.free[(cpus as usize).div_ceil(64)..].iter().all(|&word| word == 77));
}
