// SPDX-License-Identifier: MIT OR Apache-2.0
//! Credit assignment (ASMan, section 4.4, Algorithm 3) and scheduling (4.5, Algorithm 4).

use super::{any_u32, any_u64, property, Api};
use proptest::prelude::*;
use unspin_policy::credit::{Decision, Params, Pcpu, RawHost, Vcpu, Vm};

fn host(vcpus: &mut [Vcpu], vms: &mut [Vm], params: &Params) -> RawHost {
    RawHost {
        vcpus: vcpus.as_mut_ptr(),
        vms: vms.as_mut_ptr(),
        pcpus: std::ptr::null_mut(),
        params,
        count: vcpus.len() as u32,
        vm_count: vms.len() as u32,
        pcpu_count: 0,
        reserved: 0,
    }
}

fn assign(api: &Api, vcpus: &mut [Vcpu], vms: &mut [Vm], pcpus: usize, params: &Params) -> u32 {
    let host = host(vcpus, vms, params);
    let mut scratch = vec![Pcpu::default(); pcpus];
    let host = RawHost { pcpus: scratch.as_mut_ptr(), pcpu_count: pcpus as u32, ..host };
    unsafe { (api.credit_assign)(&host) }
}

fn pick(api: &Api, vcpus: &mut [Vcpu], vms: &[Vm], pcpu: u32, raise: u8, capped: u32) -> Decision {
    pick_after(api, vcpus, vms, pcpu, u32::MAX, raise, capped)
}

fn pick_after(
    api: &Api,
    vcpus: &mut [Vcpu],
    vms: &[Vm],
    pcpu: u32,
    last: u32,
    raise: u8,
    capped: u32,
) -> Decision {
    let (params, mut decision) = (Params { capped, ..Params::default() }, Decision::NOBODY);
    let mut vms = vms.to_vec();
    let host = host(vcpus, &mut vms, &params);
    unsafe { (api.credit_pick)(&host, pcpu, last, raise, &mut decision) };
    decision
}

fn with(credit: i64, vm: u32, pcpu: u32) -> Vcpu {
    Vcpu { credit, ..Vcpu::new(vm, pcpu) }
}

fn high(weight: u32) -> Vm {
    Vm { high: 1, ..Vm::new(weight) }
}

/// Section 5.2: V0 has weight 256 and 8 vCPUs, V1 has 4; 8 PCPUs; Equations 1 and 2.
pub fn credit_online_rates(api: &Api) {
    let params = Params { credit_max: 1 << 30, ..Params::default() };
    for (weight, per_mille) in [(256, 1000), (128, 667), (64, 400), (32, 222)] {
        let mut vms = [Vm::new(256), Vm::new(weight)];
        let mut vcpus: Vec<Vcpu> = (0..12).map(|i| Vcpu::new(u32::from(i >= 8), i % 8)).collect();
        assert_eq!(assign(api, &mut vcpus, &mut vms, 8, &params), 0);
        for vcpu in &vcpus[8..] {
            assert_eq!((vcpu.credit + 15) * 1000 / 30_000, per_mille, "weight {weight}");
        }
        let sum: i64 = vcpus.iter().map(|vcpu| vcpu.credit).sum();
        assert_eq!(sum, 8 * 30_000);
    }
}

fn any_vcpus() -> impl Strategy<Value = Vec<Vcpu>> {
    let credit = prop_oneof![-5..5i64, any::<i64>(), Just(i64::MIN), Just(i64::MAX)];
    let one = (credit, 0..5u32, 0..6u32, 0..2u8, 0..4u8, 0..4u8).prop_map(
        |(credit, vm, pcpu, runnable, running, raised)| Vcpu {
            credit,
            runnable,
            running: (running == 0).into(),
            raised: (raised == 0).into(),
            ..Vcpu::new(vm, pcpu)
        },
    );
    prop::collection::vec(one, 0..24)
}

/// What an assignment yields is handed out whole, by weight, equally within a VM.
pub fn credit_is_conserved(api: &Api) {
    let weights = prop::collection::vec(any_u32(), 1..6);
    let input = (weights, prop::collection::vec(0..6u32, 0..30), 0..9usize, 1..9000u32);
    property(800, input, |(weights, owners, pcpus, per_slot)| {
        let params = Params { credit_per_slot: per_slot, credit_max: 1 << 30, ..Params::default() };
        let mut vms: Vec<Vm> = weights.iter().map(|&weight| Vm::new(weight)).collect();
        let mut vcpus: Vec<Vcpu> = owners.iter().map(|&vm| Vcpu::new(vm, 0)).collect();
        assign(api, &mut vcpus, &mut vms, pcpus, &params);
        let total = pcpus as u128 * u128::from(per_slot) * 3;
        let whole: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
        for (vm, &weight) in weights.iter().enumerate() {
            let got: Vec<i64> = vcpus
                .iter()
                .filter(|vcpu| vcpu.vm as usize == vm)
                .map(|vcpu| vcpu.credit)
                .collect();
            if got.is_empty() {
                continue;
            }
            let exact = match whole {
                0 => total / weights.len() as u128,
                _ => total * u128::from(weight) / whole,
            };
            assert!((got.iter().sum::<i64>() as u128).abs_diff(exact) <= 1);
            assert!(got.iter().max().unwrap() - got.iter().min().unwrap() <= 1);
        }
    });
}

/// Any credits, parameters and run times: within the bounds.
pub fn credit_is_bounded(api: &Api) {
    let params = (any_u32(), any_u32(), any_u32(), any_u32());
    property(800, (any_vcpus(), params, any_u64()), |(mut vcpus, (a, b, c, max), ran_us)| {
        let params = Params {
            slot_us: a,
            slots_per_assignment: b,
            credit_per_slot: c,
            credit_max: max,
            capped: 0,
        };
        let limit = i64::from(max.clamp(1, 1 << 30));
        let mut vms = [high(1), Vm::new(0), Vm::new(u32::MAX)];
        let before = vcpus.clone();
        assign(api, &mut vcpus, &mut vms, 4, &params);
        for (after, before) in vcpus.iter().zip(&before) {
            assert!(after.vm < 3 || after == before);
            assert!(after.vm >= 3 || (-limit..=limit).contains(&after.credit));
        }
        for vcpu in &mut vcpus {
            unsafe { (api.credit_charge)(vcpu, &params, ran_us) };
            assert!((-limit..=limit).contains(&vcpu.credit));
        }
    });
    let mut vcpu = with(0, 0, 0);
    unsafe { (api.credit_charge)(&mut vcpu, &Params::default(), 12_345) };
    assert_eq!(vcpu.credit, -12_345);
    let mut vcpu = with(i64::MIN, 0, 0);
    unsafe { (api.credit_charge)(&mut vcpu, &Params::default(), 1) };
    assert_eq!(vcpu.credit, -30_000);
}

/// Algorithm 3, lines 8 to 15.
pub fn credit_spreads_high_vms(api: &Api) {
    let params = Params::default();
    // VM 0 fills PCPU 0 and 1; PCPU 3 is empty, PCPU 2 has one vCPU of VM 1.
    let placed = [(0, 0), (0, 0), (0, 1), (0, 1), (1, 2)];
    let mut vcpus = placed.map(|(vm, pcpu)| Vcpu::new(vm, pcpu));
    vcpus[0].running = 1;
    let mut vms = [Vm::new(1), Vm::new(1)];
    assert_eq!(assign(api, &mut vcpus, &mut vms, 4, &params), 0);
    vms[0].high = 1;
    assert_eq!(assign(api, &mut vcpus, &mut vms, 4, &params), 2);
    assert_eq!(vcpus.map(|vcpu| vcpu.pcpu), [0, 3, 2, 1, 2]);
    // Once, when it becomes high.
    vcpus[3].pcpu = 0;
    assert_eq!(assign(api, &mut vcpus, &mut vms, 4, &params), 0);
    // As far as there are PCPUs; and any placement ends with no two on one where it can.
    let input = (any_vcpus(), 0..7usize);
    property(800, input, |(mut vcpus, pcpus)| {
        for vcpu in &mut vcpus {
            vcpu.running = 0;
            vcpu.pcpu = vcpu.pcpu.min(pcpus.saturating_sub(1) as u32);
        }
        let mut vms = [high(1), Vm::new(1)];
        assign(api, &mut vcpus, &mut vms, pcpus, &params);
        let mut on: Vec<u32> =
            vcpus.iter().filter(|vcpu| vcpu.vm == 0).map(|vcpu| vcpu.pcpu).collect();
        let all = on.len();
        on.sort_unstable();
        on.dedup();
        assert!(pcpus == 0 || on.len() == all.min(pcpus), "{on:?} of {all}");
    });
}

/// Algorithm 4, lines 2 to 5 and 9: who runs.
pub fn credit_picks_the_head(api: &Api) {
    let vms = [Vm::new(1), high(1)];
    let one = |vcpus: &mut [Vcpu], capped| {
        let decision = pick(api, vcpus, &vms, 0, 0, capped);
        (decision.vcpu(), decision.migrated)
    };
    // The largest credit in its own queue, also 0, before a larger one elsewhere.
    assert_eq!(one(&mut [with(0, 0, 0), with(3, 0, 0), with(9, 0, 1)], 0), (Some(1), 0));
    assert_eq!(one(&mut [with(0, 0, 0), with(9, 0, 1)], 1), (Some(0), 0));
    // No vCPU has credit here: the largest credit elsewhere is taken.
    assert_eq!(one(&mut [with(-1, 0, 0), with(3, 0, 1), with(9, 0, 2)], 0), (Some(2), 1));
    // Not of a high VM that is here already.
    assert_eq!(one(&mut [with(-1, 1, 0), with(3, 0, 1), with(9, 1, 2)], 0), (Some(1), 1));
    assert_eq!(one(&mut [with(-1, 0, 0), with(3, 0, 1), with(9, 1, 2)], 0), (Some(2), 1));
    // No vCPU has credit at all: a capped host idles, another one takes the largest.
    assert_eq!(one(&mut [with(-5, 0, 0), with(-3, 0, 1)], 1), (None, 0));
    assert_eq!(one(&mut [with(-5, 0, 0), with(-3, 0, 1)], 0), (Some(1), 1));
    assert_eq!(one(&mut [with(-3, 0, 0), with(-3, 0, 1)], 0), (Some(0), 0));
    assert_eq!(one(&mut [], 0), (None, 0));
    // Neither running nor blocked ones.
    let busy = Vcpu { running: 1, ..with(9, 0, 0) };
    let blocked = Vcpu { runnable: 0, ..with(9, 0, 1) };
    assert_eq!(one(&mut [busy, blocked], 0), (None, 0));
    // Equal credits go round.
    for (last, next) in [(u32::MAX, 0), (0, 1), (1, 2), (2, 0)] {
        let mut vcpus = [with(3, 0, 0); 3];
        assert_eq!(pick_after(api, &mut vcpus, &vms, 0, last, 0, 0).index, next);
        assert_eq!(vcpus[next as usize].running, 1);
    }
}

/// Algorithm 4, lines 5 to 7: the others of a high VM come along, once a slot.
pub fn credit_coschedules(api: &Api) {
    let vms = [Vm::new(1), high(1)];
    let blocked = Vcpu { runnable: 0, ..with(5, 1, 3) };
    let slots = [with(9, 1, 0), with(-2, 1, 1), with(7, 0, 1), with(1, 1, 2), blocked];
    let mut vcpus = slots;
    assert_eq!(pick(api, &mut vcpus, &vms, 0, 1, 1).raised, 2);
    assert_eq!(vcpus.map(|vcpu| vcpu.raised), [0, 1, 0, 1, 0]);
    // A raised vCPU overtakes all, whatever its credit, and no other PCPU takes it away.
    assert_eq!(pick(api, &mut vcpus.clone(), &vms, 3, 0, 1).vcpu(), Some(2));
    assert_eq!(pick_after(api, &mut vcpus.clone(), &vms, 1, 1, 0, 1).vcpu(), Some(1));
    let decision = pick(api, &mut vcpus, &vms, 1, 0, 1);
    assert_eq!((decision.vcpu(), decision.raised, vcpus[1].raised), (Some(1), 0, 0));
    // Without the mutex, and for a VM that is LOW: no sibling is raised.
    assert_eq!(pick(api, &mut slots.clone(), &vms, 0, 0, 1).raised, 0);
    assert_eq!(pick(api, &mut slots.clone(), &[Vm::new(1); 2], 0, 1, 1).raised, 0);
}

/// 100 assignments of busy VMs on a capped host: CPU time by weight, plain or coscheduled.
pub fn credit_shares_by_weight(api: &Api) {
    for vm_high in [0, 1] {
        let params = Params { capped: 1, ..Params::default() };
        let mut vms = [Vm::new(256), Vm { high: vm_high, ..Vm::new(128) }];
        let mut vcpus: Vec<Vcpu> = (0..8).map(|i| Vcpu::new(i / 4, i % 4)).collect();
        let mut slots = [0u32; 2];
        for slot in 0..300 {
            if slot % 3 == 0 {
                assign(api, &mut vcpus, &mut vms, 4, &params);
            }
            let mut may_raise = 1;
            for pcpu in 0..4 {
                let decision = pick(api, &mut vcpus, &vms, pcpu, may_raise, 1);
                may_raise &= u8::from(decision.raised == 0);
            }
            for vcpu in vcpus.iter_mut().filter(|vcpu| vcpu.running == 1) {
                vcpu.running = 0;
                slots[vcpu.vm as usize] += 1;
                unsafe { (api.credit_charge)(vcpu, &params, 10_000) };
            }
        }
        assert!(slots[0].abs_diff(800) <= 24 && slots[1].abs_diff(400) <= 24, "{slots:?}");
    }
}

pub fn credit_params_are_judged(api: &Api) {
    assert_judged!(api.credit_params_check, Params:
        slot_us: [0 => 1],
        slots_per_assignment: [0 => 2],
        credit_per_slot: [0 => 3],
        credit_max: [0 => 4, (1 << 30) + 1 => 4, 1 << 30 => 0],
        capped: [1 => 0, 2 => 5]);
}
