// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages over stream sockets, as hackbench sends them: groups of twenty senders and twenty
//! receivers, each sender to each receiver of its group in turn.
//!
//! A socket has a spin-lock of its own, taken to queue a message and to take one. Its buffer is
//! bounded: who finds it full sleeps until it has drained to a quarter (unix_writable() of
//! net/unix/af_unix.c), who finds nothing to read until something comes. That bounds how long a
//! queue for one socket's lock can last: once its buffer is full, nobody else comes for it.

use crate::engine::{ThreadId, VcpuId};
use crate::lock::{LOCKS, LOCKS_WITH_SOCKETS};
use crate::machine::Sim;
use crate::state::Doing;

/// Senders, and receivers, of a group (hackbench.c: num_fds).
const FAN: u32 = 20;
/// Threads of a group.
pub const GROUP: u32 = 2 * FAN;
/// Most groups of a VM: a lock for each socket.
pub const GROUPS_MAX: u32 = (LOCKS_WITH_SOCKETS - LOCKS) / FAN;

#[derive(Debug, Clone)]
pub struct Socket {
    /// Messages in its buffer.
    queued: u32,
    /// Its receiver, if that sleeps for a message.
    reader: ThreadId,
    /// Senders that sleep for room.
    writers: Vec<ThreadId>,
}

/// The sockets of that many threads.
pub fn sockets(threads: u32) -> Vec<Socket> {
    let empty =
        || Socket { queued: 0, reader: ThreadId::NONE, writers: Vec::with_capacity(FAN as usize) };
    (0..threads / GROUP * FAN).map(|_| empty()).collect()
}

impl Sim {
    /// The socket that the thread on `v` is about to use, and whether it sends.
    fn socket_of(&self, v: VcpuId) -> (u32, bool) {
        let thread = self.thread_index(v);
        let (group, member) = (thread / GROUP, thread % GROUP);
        let sends = member < FAN;
        let nth = match sends {
            true => (self.vcpus[v].passes % u64::from(FAN)) as u32,
            false => member - FAN,
        };
        (group * FAN + nth, sends)
    }

    /// Number of the lock of that socket among its VM's.
    pub(crate) fn socket_lock(&self, v: VcpuId) -> u32 {
        LOCKS + self.socket_of(v).0
    }

    /// Whether there is room for a message of the thread on `v`, or one for it; else it sleeps, and
    /// looks again when it is woken.
    pub(crate) fn socket_wait(&mut self, v: VcpuId, capacity: u32) -> bool {
        let (number, sends) = self.socket_of(v);
        let vcpu = &mut self.vcpus[v];
        let t = vcpu.thread;
        let socket = &mut self.vms[vcpu.vm].sockets[number as usize];
        match sends {
            true if socket.queued < capacity => return true,
            true => socket.writers.push(t),
            false if socket.queued > 0 => return true,
            false => socket.reader = t,
        }
        vcpu.pc -= 1;
        vcpu.taken = true;
        vcpu.doing = Doing::Work;
        vcpu.remaining_ns = self.guest_switch_ns.max(self.unit_ns);
        self.park(v);
        false
    }

    /// The thread on `v`, which has released the lock, has queued its message or taken one: wakes
    /// who waited for that.
    pub(crate) fn socket_moved(&mut self, v: VcpuId, capacity: u32) {
        let (number, sends) = self.socket_of(v);
        let vm = self.vcpus[v].vm;
        let socket = &mut self.vms[vm].sockets[number as usize];
        if sends {
            socket.queued += 1;
            let reader = std::mem::replace(&mut socket.reader, ThreadId::NONE);
            if reader != ThreadId::NONE {
                self.wake_thread(Some(v), reader);
            }
            return;
        }
        socket.queued -= 1;
        if socket.queued > capacity / 4 {
            return;
        }
        while let Some(writer) = self.vms[vm].sockets[number as usize].writers.pop() {
            self.wake_thread(Some(v), writer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::VmId;
    use crate::setup::tests::two_vms;
    use crate::thread::ThreadState;
    use unspin_scenario::plan::{Dist, LockKind, Op, Step};

    fn messages(capacity: u32, kind: LockKind) -> crate::Setup {
        let step =
            |op, iterations| Step { op, dist: Dist::Const { iterations }, lock: 0, permille: 1000 };
        let mut setup = two_vms();
        for vm in &mut setup.vms {
            vm.threads = 2 * GROUP;
            vm.lock.kind = kind;
            vm.program = vec![
                Step { dist: Dist::Exp { mean: 500, max: 0 }, ..step(Op::Compute, 0) },
                step(Op::SocketWait, capacity),
                step(Op::SocketLock, 0),
                step(Op::Critical, 50),
                step(Op::SocketUnlock, 0),
            ];
        }
        setup
    }

    /// Passes of a VM's senders and of its receivers.
    fn passes(sim: &Sim, vm: VmId) -> [u64; 2] {
        let mut sums = [0; 2];
        let (first, count) = (sim.vms[vm].first_thread, sim.vms[vm].threads);
        for t in first.and_next(count) {
            let thread = &sim.threads[t];
            let runs = thread.state == ThreadState::Running;
            let passes = if runs { sim.vcpus[thread.home].passes } else { thread.away.passes };
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
            for vm in sim.vms.ids() {
                let [sent, received] = passes(&sim, vm);
                let sockets = &sim.vms[vm].sockets;
                let queued: u64 = sockets.iter().map(|s| u64::from(s.queued)).sum();
                assert!(received > 1000, "{received} messages");
                // Who has moved its message may yet have to end its pass.
                let threads = u64::from(sim.vms[vm].threads);
                assert!(sent.abs_diff(received + queued) <= threads, "{sent} {received} {queued}");
                // Each sender may have found the same room.
                assert!(sockets.iter().all(|s| s.queued < capacity + FAN));
                let asleep = |t: &ThreadId| sim.threads[*t].state == ThreadState::Asleep;
                assert!(sockets.iter().flat_map(|s| &s.writers).all(asleep));
                assert!(sockets
                    .iter()
                    .filter(|s| s.reader != ThreadId::NONE)
                    .all(|s| s.queued == 0));
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
}
