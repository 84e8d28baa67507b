// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asymmetric vCPUs on whole machines.

use super::Sim;
use crate::core::{Host, Kernel};
use crate::engine::{PcpuId, VcpuId};
use crate::setup::tests::two_vms;
use unspin_policy::asym::Params;
use unspin_scenario::plan::{self, Dist, Op, Step};

/// Section 5.4.1's example: of 80 ms that two vCPUs have, one used 35 of its 40 ms and sleeps,
/// the other used 40 and could go on; then they get 35.4 and 44.6 ms.
#[test]
fn the_example_of_the_text_comes_out_of_the_simulator() {
    let mut setup = two_vms();
    setup.host = Host::lab(2, Kernel::V3_19).with_period_ns(40_000_000);
    let costs = &mut setup.host.costs;
    (costs.switch_cycles, costs.tick_cycles, costs.step_cycles) = (0, 0, 0);
    (costs.halt_cycles, costs.timer_cycles) = (0, 0);
    // To the letter of the text: `unspin shape` takes these two for alike.
    (setup.run.arm.asym.time, setup.run.arm.asym.uncorrected) = (true, true);
    setup.vms.truncate(1);
    let vm = &mut setup.vms[0];
    (vm.vcpus, vm.threads) = (2, 2);
    (vm.start_ns, vm.pin) = (0, vec![0, 1]);
    // 3,500,000 iterations of two cycles at 200 MHz.
    vm.program = vec![Step::new(Op::Compute, 3_500_000), Step::new(Op::Block, 0)];
    let mut sim = setup.build().unwrap();
    sim.run_until(1_000_000);
    sim.guest.cpus[VcpuId(1)].run.remaining_ns = 1_000_000_000;
    sim.guest.rearm(&mut sim.core, VcpuId(1));
    sim.run_until(40_000_001);
    let asym = sim.host.asym.as_ref().unwrap();
    let given = [0, 1].map(|v| asym.allocated_ns(VcpuId(v)));
    assert_eq!(given.iter().sum::<u64>(), 80_000_000);
    assert_eq!(given.map(|ns| (ns + 50_000) / 100_000), [354, 446], "{given:?}");
    // 2 x 1024 in that proportion.
    let weights = [0, 1].map(|v| sim.host.entities[VcpuId(v)].weight);
    assert_eq!(weights, [907, 1140]);
}

/// One VM of four vCPUs on two pCPUs: the first `busy` share a pCPU and compute for ever, the
/// others sleep on the other.
fn stacked(parts: plan::Asym, busy: u32) -> Sim {
    let mut setup = two_vms();
    setup.host = Host::lab(2, Kernel::V3_19);
    setup.run.arm.asym = parts;
    setup.vms.truncate(1);
    let vm = &mut setup.vms[0];
    (vm.start_ns, vm.pin) = (0, (0..4).map(|v| u32::from(v >= busy)).collect());
    vm.program = vec![Step::new(Op::Compute, 10_000), Step::new(Op::Block, 0)];
    let mut sim = setup.build().unwrap();
    sim.run_until(50_000);
    for v in VcpuId(0).and_next(busy) {
        sim.guest.cpus[v].run.remaining_ns = 1_000_000_000_000;
        sim.guest.rearm(&mut sim.core, v);
    }
    sim
}

#[test]
fn vcpus_that_need_the_same_core_are_parted() {
    let parts = |resolver| plan::Asym { time: true, resolver, ..plan::Asym::default() };
    for (resolver, parted) in [(false, false), (true, true)] {
        let mut sim = stacked(parts(resolver), 2);
        sim.run_until(200_000_000);
        assert_eq!(sim.core.vcpus[VcpuId(0)].on.pcpu != sim.core.vcpus[VcpuId(1)].on.pcpu, parted);
        let busy_ns: u64 = sim.core.vcpus.iter().map(|v| v.ledger.cpu_ns()).sum();
        assert_eq!(busy_ns > 300_000_000, parted, "{busy_ns} ns of two cores' 400 ms");
    }
}

/// Section 5.4.2: a vCPU that could continue but got less than its weight is late; once its latency
/// is the lowest, those that wake it are hurried.
#[test]
fn the_late_are_hurried_and_then_those_who_wake_them() {
    let mut sim = stacked(plan::Asym { latency: true, ..plan::Asym::default() }, 3);
    let period_ns = sim.host.asym.as_ref().unwrap().period_ns();
    let min_us = sim.core.model.asym.latency_min_us;
    for period in 1..=30 {
        // The host notes that sleeper 3 woke vCPU 0.
        sim.host.note_waker(&sim.core, VcpuId(0), VcpuId(3));
        sim.run_until(period * period_ns + 1);
    }
    let latency = |sim: &Sim| {
        let asym = sim.host.asym.as_ref().unwrap();
        [0, 1, 2, 3].map(|v| asym.latency_us(VcpuId(v)))
    };
    let init_us = Params::default().latency_init_us;
    let [first, second, third, waker] = latency(&sim);
    assert_eq!([first, second, third], [min_us; 3]);
    assert!(waker < init_us, "{waker}");
    assert_eq!(sim.host.entities[VcpuId(0)].wakeup_ns(), u64::from(min_us) * 1000);
    assert_eq!(sim.host.entities[VcpuId(3)].wakeup_ns(), u64::from(waker) * 1000);
}

/// Any vCPU may be moved at any time, whatever it does, and time stays conserved.
#[test]
fn vcpus_in_every_state_can_be_moved() {
    for kernel in Kernel::ALL {
        let mut setup = two_vms();
        setup.host = Host::lab(4, kernel);
        let block = Step { permille: 300, ..setup.vms[0].program[0] };
        let dist = Dist::Const { iterations: 300_000 };
        setup.vms[0].program.push(Step { op: Op::Block, dist, ..block });
        let mut sim = setup.build().unwrap();
        let mut seen = [0; 3];
        for round in 0..600u32 {
            sim.run_until(u64::from(round + 1) * 377_777);
            let v = VcpuId(round % 8);
            let to = PcpuId((sim.core.vcpus[v].on.pcpu.0 + 1 + round % 3) % 4);
            seen[sim.core.vcpus[v].on.state as usize] += 1;
            sim.migrate(v, to);
            assert_eq!(sim.core.vcpus[v].on.pcpu, to);
        }
        sim.run_until(300_000_000);
        assert!(seen.iter().all(|n| *n > 20), "{kernel:?}: {seen:?}");
    }
}
