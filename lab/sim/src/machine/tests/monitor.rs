// SPDX-License-Identifier: MIT OR Apache-2.0
//! ASMan's Monitoring Module on a whole machine.

use crate::core::State;
use crate::guest::Doing;
use crate::setup::tests::two_vms;
use crate::{Host, Kernel};
use unspin_scenario::plan::Coscheduling;

/// Over 2^20 cycles of 200 MHz, and each wait once.
#[test]
fn a_wait_is_reported_once_and_while_it_goes_on() {
    let mut setup = two_vms();
    setup.host = Host::lab(4, Kernel::V3_19).with_xen_credit(false);
    setup.run.arm.coscheduling = Coscheduling::Vcrd;
    let mut sim = setup.build().unwrap();
    let threshold_ns = (1 << 20) * 5;
    let (mut open, mut going_on) = (0, 0);
    for ms in 1..3000 {
        sim.run_until(ms * 1_000_000);
        open = 0;
        for v in sim.core.vcpus.ids().filter(|v| sim.guest.cpus[*v].run.doing == Doing::SpinLock) {
            let (cpu, v) = (&sim.guest.cpus[v], &sim.core.vcpus[v]);
            let waited_ns = sim.core.now_ns - cpu.wait.began_ns;
            assert!(!cpu.wait.reported || waited_ns >= threshold_ns, "{waited_ns} ns");
            // Who runs reports at once; it may have just come back, or be in an exit.
            let in_guest = v.on.state == State::Running && v.ledger.host_ns() == 0;
            assert!(cpu.wait.reported || !in_guest || waited_ns <= threshold_ns + 1);
            open += u64::from(cpu.wait.reported);
        }
        going_on += open;
    }
    let stats = sim.host.coscheduling_stats();
    let stats = stats.iter();
    let (events, ended) = stats.fold((0, 0), |(e, l), s| (e + s.events, l + s.long_waits));
    assert!(going_on > 0 && ended > 50, "{going_on}, {ended}");
    assert_eq!(events, ended + open);
}
