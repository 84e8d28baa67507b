// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages over sockets on whole machines.

use super::Sim;
use crate::engine::{ThreadId, VmId};
use crate::guest::{ThreadState, FAN, GROUP};
use crate::setup::tests::two_vms;
use unspin_scenario::plan::{Dist, LockKind, Op, Step};

fn messages(capacity: u32, kind: LockKind) -> crate::Setup {
    let mut setup = two_vms();
    for vm in &mut setup.vms {
        vm.threads = 2 * GROUP;
        vm.lock.kind = kind;
        vm.program = vec![
            Step { dist: Dist::Exp { mean: 500, max: 0 }, ..Step::new(Op::Compute, 0) },
            Step::new(Op::SocketWait, capacity),
            Step::new(Op::SocketLock, 0),
            Step::new(Op::Critical, 50),
            Step::new(Op::SocketUnlock, 0),
        ];
    }
    setup
}

/// Passes of a VM's senders and of its receivers.
fn passes(sim: &Sim, vm: VmId) -> [u64; 2] {
    let mut sums = [0; 2];
    let (first, count) = (sim.guest.vms[vm].first_thread, sim.guest.vms[vm].threads);
    for t in first.and_next(count) {
        let thread = &sim.guest.threads[t];
        let runs = thread.state == ThreadState::Running;
        let passes = if runs { sim.guest.cpus[thread.home].run.passes } else { thread.away.passes };
        sums[usize::from(thread.index % GROUP >= FAN)] += passes;
    }
    sums
}

#[test]
fn no_message_is_lost_and_no_socket_overflows() {
    for (capacity, kind) in
        [(1, LockKind::Ticket), (7, LockKind::PvTicket), (100, LockKind::PvPreemptable)]
    {
        let mut sim = messages(capacity, kind).build().unwrap();
        sim.run_until(200_000_000);
        for vm in sim.core.vms.ids() {
            let [sent, received] = passes(&sim, vm);
            let sockets = &sim.guest.vms[vm].sockets;
            let queued: u64 = sockets.iter().map(|s| u64::from(s.queued())).sum();
            assert!(received > 1000, "{received} messages");
            // Who has moved its message may yet have to end its pass.
            let threads = u64::from(sim.guest.vms[vm].threads);
            assert!(sent.abs_diff(received + queued) <= threads, "{sent} {received} {queued}");
            // Each sender may have found the same room.
            assert!(sockets.iter().all(|s| s.queued() < capacity + FAN));
            let asleep = |t: &ThreadId| sim.guest.threads[*t].state == ThreadState::Asleep;
            assert!(sockets.iter().flat_map(|s| s.writers()).all(asleep));
            assert!(sockets
                .iter()
                .filter(|s| s.reader() != ThreadId::NONE)
                .all(|s| s.queued() == 0));
        }
    }
}

#[test]
fn who_sends_messages_comes_in_groups() {
    let refused = |change: fn(&mut crate::Setup), why: &str| {
        let mut setup = messages(7, LockKind::Ticket);
        change(&mut setup);
        let error = crate::simulate_setup(&setup).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(|s| s.vms[0].threads = 41, "41 threads send messages; they are 40 to 200 threads");
    refused(|s| s.vms[1].threads = 240, "240 threads send messages");
    refused(
        |s| {
            s.vms[0].program.remove(1);
        },
        "one socket-wait, with the number",
    );
    refused(|s| s.vms[0].program.truncate(4), "never released");
}
