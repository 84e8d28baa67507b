// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU-time allocation (dissertation, section 5.4.1), latency adjustment (5.4.2) and the
//! resource conflict resolver (5.4.3).

use super::{any_u32, any_u64, property, Api};
use proptest::prelude::*;
use unspin_policy::asym::{Core, Params, Vcpu};

const MS: u64 = 1_000_000;

fn vcpu(allocated_ms: u64, consumed_ms: u64, ready: u8) -> Vcpu {
    Vcpu {
        allocated_ns: allocated_ms * MS,
        consumed_ns: consumed_ms * MS,
        ready,
        latency_us: 4000,
        ..Vcpu::default()
    }
}

fn allocate(api: &Api, vcpus: &mut [Vcpu], params: &Params, vm_ns: u64, switch_ns: u64) {
    let count = vcpus.len() as u32;
    unsafe { (api.asym_allocate)(vcpus.as_mut_ptr(), count, params, vm_ns, switch_ns) }
}

fn latencies(api: &Api, vcpus: &mut [Vcpu]) -> Vec<u32> {
    let count = vcpus.len() as u32;
    unsafe { (api.asym_latency)(vcpus.as_mut_ptr(), count, &Params::default()) };
    vcpus.iter().map(|vcpu| vcpu.latency_us).collect()
}

fn resolve_time(api: &Api, vcpus: &mut [Vcpu], cores: &mut [Core], params: &Params) -> u32 {
    let (n, m) = (vcpus.len() as u32, cores.len() as u32);
    unsafe { (api.asym_resolve_time)(vcpus.as_mut_ptr(), n, cores.as_mut_ptr(), m, params) }
}

fn resolve_urgency(api: &Api, vcpus: &mut [Vcpu], cores: &[Core], params: &Params) -> u32 {
    let (n, m) = (vcpus.len() as u32, cores.len() as u32);
    unsafe { (api.asym_resolve_urgency)(vcpus.as_mut_ptr(), n, cores.as_ptr(), m, params) }
}

pub fn asym_worked_example(api: &Api) {
    // Section 5.4.1: demands of 35 and 40 × 1.1 = 44 ms share 80 ms as 35.4 and 44.6.
    let params = Params::default();
    let mut vcpus = [vcpu(40, 35, 0), vcpu(40, 40, 1)];
    allocate(api, &mut vcpus, &params, 80 * MS, 0);
    assert_eq!(vcpus.map(|vcpu| vcpu.allocated_ns), [35_443_037, 44_556_963]);
    // What was distributed is the new prediction: 48.2 and, all used but idle, 44.6.
    vcpus[0].consumed_ns = 20 * MS;
    vcpus[0].ready = 1;
    vcpus[1].consumed_ns = 44_556_963;
    vcpus[1].ready = 0;
    allocate(api, &mut vcpus, &params, 38_987_340 + 44_556_963, 0);
    assert_eq!(vcpus.map(|vcpu| vcpu.allocated_ns), [38_987_340, 44_556_963]);
    // Footnote 3: the cost of switching comes off what the VM gets.
    let mut vcpus = [vcpu(40, 35, 0), vcpu(40, 40, 1)];
    allocate(api, &mut vcpus, &params, 80 * MS, MS);
    assert_eq!(vcpus.map(|vcpu| vcpu.allocated_ns), [35 * MS, 44 * MS]);
    // One that got more than its part, in a host with time to spare, grows from there.
    let mut vcpus = [vcpu(40, 60, 1), vcpu(40, 40, 0)];
    allocate(api, &mut vcpus, &params, 106 * MS, 0);
    assert_eq!(vcpus.map(|vcpu| vcpu.allocated_ns), [66 * MS, 40 * MS]);
}

pub fn asym_prediction_follows_demand(api: &Api) {
    // A sequential phase on vCPU 0: it ends up with what the three idle ones leave.
    let params = Params::default();
    let mut vcpus = [vcpu(25, 25, 1), vcpu(25, 0, 0), vcpu(25, 0, 0), vcpu(25, 0, 0)];
    let mut given = Vec::new();
    for _ in 0..20 {
        vcpus[0].consumed_ns = vcpus[0].allocated_ns;
        allocate(api, &mut vcpus, &params, 100 * MS, 0);
        given.push(vcpus[0].allocated_ns);
    }
    assert!(given.windows(2).all(|pair| pair[1] >= pair[0]), "{given:?}");
    assert!(given[19] > 96 * MS && given[19] < 98 * MS, "{given:?}");
    // And back: each could use 25 ms now.
    for _ in 0..60 {
        for vcpu in &mut vcpus {
            vcpu.ready = (vcpu.allocated_ns <= 25 * MS).into();
            vcpu.consumed_ns = vcpu.allocated_ns.min(25 * MS);
        }
        allocate(api, &mut vcpus, &params, 100 * MS, 0);
    }
    assert!(vcpus.iter().all(|vcpu| vcpu.allocated_ns.abs_diff(25 * MS) < 3 * MS), "{vcpus:?}");
}

fn any_vcpus(max: usize) -> impl Strategy<Value = Vec<Vcpu>> {
    let one = (any_u64(), any_u64(), any_u64(), any_u32(), 0..6u32, 0..2u8).prop_map(
        |(allocated_ns, consumed_ns, wakers, latency_us, core, ready)| Vcpu {
            allocated_ns,
            consumed_ns,
            wakers,
            latency_us,
            core,
            ready,
            ..Vcpu::default()
        },
    );
    prop::collection::vec(one, 0..max)
}

/// The VM's time is given out to the nanosecond, each part in proportion to the demand.
pub fn asym_allocations_add_up(api: &Api) {
    let input = (any_vcpus(20), any_u64(), any_u64(), any_u32(), any_u32());
    property(800, input, |(vcpus, vm_ns, switch_ns, grow_ppm, demand_min_us)| {
        let params = Params { grow_ppm, demand_min_us, ..Params::default() };
        let mut after = vcpus.clone();
        allocate(api, &mut after, &params, vm_ns, switch_ns);
        let total = u128::from(vm_ns.saturating_sub(switch_ns));
        let sum: u128 = after.iter().map(|vcpu| u128::from(vcpu.allocated_ns)).sum();
        assert_eq!(sum, if vcpus.is_empty() { 0 } else { total });
        let demands: Vec<u128> = vcpus
            .iter()
            .map(|vcpu| {
                let used = u128::from(vcpu.consumed_ns);
                let demand = match vcpu.ready {
                    0 => used,
                    _ => {
                        let base = used.max(vcpu.allocated_ns.into());
                        base * (1_000_000 + u128::from(grow_ppm)) / 1_000_000
                    }
                };
                demand.max(u128::from(demand_min_us) * 1000).min(1 << 40)
            })
            .collect();
        let whole: u128 = demands.iter().sum();
        for (vcpu, demand) in after.iter().zip(&demands) {
            let exact = match whole {
                0 => total / vcpus.len() as u128,
                _ => total * demand / whole,
            };
            assert!(u128::from(vcpu.allocated_ns).abs_diff(exact) <= 1, "{vcpu:?}: {exact}");
        }
    });
}

pub fn asym_latency_rules(api: &Api) {
    // Late; used up and idle; used up and ready; idle with time left.
    let mut vcpus = [vcpu(40, 39, 1), vcpu(40, 40, 0), vcpu(40, 40, 1), vcpu(40, 39, 0)];
    assert_eq!(latencies(api, &mut vcpus), [2000, 8000, 4000, 4000]);
    assert_eq!(latencies(api, &mut vcpus), [1000, 16000, 4000, 4000]);
    assert_eq!(latencies(api, &mut vcpus), [500, 16000, 4000, 4000]);
    assert_eq!(latencies(api, &mut vcpus), [250, 16000, 4000, 4000]);
    assert_eq!(latencies(api, &mut vcpus), [250, 16000, 4000, 4000]);
}

/// Who woke a vCPU is to blame only once its own latency is the lowest.
pub fn asym_blames_wakers(api: &Api) {
    // vCPU 0 is late and was woken by itself, 1 and 3, and by numbers that are not there.
    let late = Vcpu { wakers: !0b100, latency_us: 500, ..vcpu(40, 10, 1) };
    // 1 alone would be raised, 3 lowered for its own sake, once.
    let mut vcpus = [late, vcpu(40, 40, 0), vcpu(40, 40, 0), vcpu(40, 39, 1)];
    assert_eq!(latencies(api, &mut vcpus), [250, 8000, 8000, 2000]);
    assert_eq!(latencies(api, &mut vcpus), [250, 4000, 16000, 1000]);
    // The 65th vCPU cannot be a source.
    let mut vcpus = vec![vcpu(40, 39, 0); 66];
    vcpus[65] = Vcpu { wakers: !0, latency_us: 250, ..vcpu(40, 10, 1) };
    let after = latencies(api, &mut vcpus);
    assert_eq!((after[0], after[63], after[64], after[65]), (2000, 2000, 4000, 250));
}

pub fn asym_latencies_are_bounded(api: &Api) {
    let input = (any_vcpus(20), any_u32(), any_u32(), any_u32());
    property(800, input, |(mut vcpus, min, max, init)| {
        let params = Params {
            latency_min_us: min,
            latency_max_us: max,
            latency_init_us: init,
            ..Params::default()
        };
        let range = min.min(max).max(1)..=max.max(1);
        let mut new = Vcpu::default();
        unsafe { (api.asym_vcpu_init)(&mut new, &params, 7) };
        assert!(range.contains(&new.latency_us));
        assert_eq!(new, Vcpu { latency_us: new.latency_us, core: 7, ..Vcpu::default() });
        let before = vcpus.clone();
        let count = vcpus.len() as u32;
        unsafe { (api.asym_latency)(vcpus.as_mut_ptr(), count, &params) };
        for (after, before) in vcpus.iter().zip(&before) {
            assert!(range.contains(&after.latency_us), "{after:?} outside {range:?}");
            let kept = Vcpu { latency_us: before.latency_us, change: before.change, ..*after };
            assert_eq!(kept, *before);
        }
    });
}

fn on_core(core: u32, allocated_ms: u64) -> Vcpu {
    Vcpu { core, ..vcpu(allocated_ms, 0, 0) }
}

fn cores_of(vcpus: &[Vcpu]) -> Vec<u32> {
    vcpus.iter().map(|vcpu| vcpu.core).collect()
}

pub fn asym_balances_time(api: &Api) {
    let params = Params::default();
    let resolved = |vcpus: &[Vcpu], cores: usize| {
        let mut vcpus = vcpus.to_vec();
        let moved = resolve_time(api, &mut vcpus, &mut vec![Core::default(); cores], &params);
        (moved, cores_of(&vcpus))
    };
    // Section 5.4.3: two of 50 ms on one core, in a period of 80; 20 and 10 on the other.
    let slots = [on_core(0, 50), on_core(0, 50), on_core(1, 20), on_core(1, 10)];
    assert_eq!(resolved(&slots, 2), (2, vec![1, 0, 0, 1]));
    // Exactly 10 % more is no conflict; beyond it is, where a swap helps.
    let by = |ms: u64| [on_core(0, ms - 50), on_core(0, 50), on_core(1, 52), on_core(1, 48)];
    assert_eq!(resolved(&by(110), 2).0, 0);
    assert_eq!(resolved(&by(111), 2), (2, vec![1, 0, 0, 1]));
    // The most and the least of three cores; the one in between stays.
    let slots = [on_core(1, 60), on_core(2, 30), on_core(0, 45), on_core(1, 20), on_core(2, 10)];
    assert_eq!(resolved(&slots, 3), (2, vec![2, 1, 0, 1, 2]));
    // An idle core takes one alone; a single vCPU on its core stays.
    assert_eq!(resolved(&[on_core(0, 50), on_core(0, 40)], 2), (1, vec![1, 0]));
    assert_eq!(resolved(&[on_core(0, 50)], 2), (0, vec![0]));
    assert_eq!(resolved(&[], 0), (0, vec![]));
    assert_eq!(resolved(&[on_core(9, 50)], 2), (0, vec![9]));
}

/// Any swap or move narrows the gap between the two cores, and touches no others.
pub fn asym_balancing_narrows(api: &Api) {
    property(800, (any_vcpus(24), 0..7usize, any_u32()), |(vcpus, count, imbalance_ppm)| {
        let params = Params { imbalance_ppm, ..Params::default() };
        let time = |vcpus: &[Vcpu]| {
            let mut time = vec![0u128; count];
            for vcpu in vcpus.iter().filter(|vcpu| (vcpu.core as usize) < count) {
                time[vcpu.core as usize] += u128::from(vcpu.allocated_ns);
            }
            time
        };
        let before = time(&vcpus);
        let fits = before.iter().all(|&ns| ns < 1 << 63);
        let mut after = vcpus.clone();
        let moved = resolve_time(api, &mut after, &mut vec![Core::default(); count], &params);
        let changed = vcpus.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert_eq!(changed, moved as usize);
        if !fits {
            return; // sums saturate
        }
        let least = before.iter().min().copied().unwrap_or(0);
        let most = before.iter().max().copied().unwrap_or(0);
        if most * 1_000_000 <= least * (1_000_000 + u128::from(imbalance_ppm)) {
            assert_eq!(moved, 0);
        }
        let gap = |time: &[u128], a: usize, b: usize| time[a].abs_diff(time[b]);
        if let Some(first) = (0..vcpus.len()).find(|&i| vcpus[i] != after[i]) {
            let (a, b) = (vcpus[first].core as usize, after[first].core as usize);
            assert_eq!(gap(&before, a, b), most - least);
            assert!(gap(&time(&after), a, b) < most - least);
        }
    });
}

/// vCPUs of a VM that are on cores of their own stay so, whatever the resolvers do.
pub fn asym_keeps_siblings_apart(api: &Api) {
    let of = |vm, core, ms| Vcpu { vm, ..on_core(core, ms) };
    let mut vcpus = [of(0, 0, 40), of(1, 0, 40), of(0, 1, 30), of(2, 1, 10), of(1, 2, 60)];
    let moved = resolve_time(api, &mut vcpus, &mut [Core::default(); 2], &Params::default());
    assert_eq!((moved, cores_of(&vcpus)), (2, vec![1, 0, 0, 1, 2]), "siblings change places");
    let mut vcpus = [of(1, 0, 20), of(0, 0, 60), of(0, 1, 40)];
    let moved = resolve_time(api, &mut vcpus, &mut [Core::default(); 2], &Params::default());
    assert_eq!((moved, cores_of(&vcpus)), (1, vec![1, 0, 1]), "who has no sibling there");
    let mut vcpus = [of(0, 0, 20), of(1, 0, 60), of(0, 1, 40)];
    let moved = resolve_time(api, &mut vcpus, &mut [Core::default(); 2], &Params::default());
    assert_eq!((moved, cores_of(&vcpus)), (0, vec![0, 0, 1]), "a sibling is there");
    let input = (prop::collection::vec((any_u64(), 0..3000u32), 20), 0..4u64, any_u64());
    property(800, input, |(each, least, most)| {
        // Four VMs of five vCPUs, one a core.
        let mut vcpus: Vec<Vcpu> = (each.iter().enumerate())
            .map(|(i, &(allocated_ns, latency_us))| Vcpu {
                allocated_ns,
                latency_us,
                core: i as u32 % 5,
                vm: (i / 5) as u16,
                ..Vcpu::default()
            })
            .collect();
        let mut cores = [Core::default(); 5];
        (cores[1].conflicts, cores[3].conflicts) = (least, most);
        resolve_time(api, &mut vcpus, &mut cores, &Params::default());
        resolve_urgency(api, &mut vcpus, &cores, &Params::default());
        for vm in vcpus.chunks(5) {
            let mut cores = cores_of(vm);
            cores.sort_unstable();
            assert_eq!(cores, [0, 1, 2, 3, 4]);
        }
    });
}

pub fn asym_parts_urgent_vcpus(api: &Api) {
    let params = Params::default();
    let slot = |core, latency_us| Vcpu { core, latency_us, ..Vcpu::default() };
    // Five of high urgency and one of low on core 0, six of low on core 2.
    let vcpus: Vec<Vcpu> = [(0, 1000); 5]
        .into_iter()
        .chain([(0, 4000)])
        .chain([(1, 250), (1, 4000)])
        .chain([(2, 1001); 6])
        .map(|(core, latency_us)| slot(core, latency_us))
        .collect();
    let resolved = |conflicts: [u64; 3]| {
        let cores = conflicts.map(|conflicts| Core { conflicts, ..Core::default() });
        let mut vcpus = vcpus.clone();
        let moved = resolve_urgency(api, &mut vcpus, &cores, &params);
        (moved, cores_of(&vcpus))
    };
    // Half of five is two.
    let swapped = vec![2, 2, 0, 0, 0, 0, 1, 1, 0, 0, 2, 2, 2, 2];
    assert_eq!(resolved([21, 15, 10]), (4, swapped.clone()));
    assert_eq!(resolved([1, 1, 0]), (4, swapped));
    // Twice as many conflicts is not above the threshold; none at all is none.
    assert_eq!(resolved([20, 15, 10]).0, 0);
    assert_eq!(resolved([0, 0, 0]).0, 0);
    // A vCPU of high urgency is not in the way of others: half of it is none.
    assert_eq!(resolved([10, 40, 15]).0, 0);
    // No more than half of either side.
    assert_eq!(resolved([21, 10, 15]).0, 0);
    assert_eq!(resolve_urgency(api, &mut [], &[], &params), 0);
    property(800, (any_vcpus(24), 0..6usize, any_u32(), any_u64()), |(vcpus, n, ratio, many)| {
        let params = Params { conflict_ratio: ratio, ..Params::default() };
        let mut cores = vec![Core::default(); n];
        if let Some(core) = cores.last_mut() {
            core.conflicts = many;
        }
        let mut after = vcpus.clone();
        let moved = resolve_urgency(api, &mut after, &cores, &params);
        let changed = vcpus.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert_eq!(changed, moved as usize);
        for core in 0..6 {
            let on = |vcpus: &[Vcpu]| vcpus.iter().filter(|vcpu| vcpu.core == core).count();
            assert_eq!(on(&vcpus), on(&after));
        }
    });
}

pub fn asym_params_are_judged(api: &Api) {
    assert_judged!(api.asym_params_check, Params:
        grow_ppm: [1_000_001 => 1, 1_000_000 => 0],
        latency_min_us: [0 => 3],
        latency_max_us: [249 => 4],
        latency_init_us: [249 => 5, 16_001 => 5, 250 => 0],
        urgent_us: [16_000 => 6, 15_999 => 0],
        conflict_ratio: [0 => 8, 1 => 0]);
}
