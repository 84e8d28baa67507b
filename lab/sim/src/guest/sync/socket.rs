// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages over stream sockets, as in hackbench: groups of twenty senders and twenty receivers, in
//! which each sender sends to each receiver in turn.
//!
//! A socket has its own spin-lock, taken to queue a message and to take one. Its buffer is bounded.
//! A sender that finds it full sleeps until it has drained to a quarter (unix_writable() of
//! net/unix/af_unix.c), and a receiver that finds it empty sleeps until a message comes. That
//! bounds the queue for a socket's lock: once its buffer is full, no further sender takes it.

use super::super::lock::LOCKS;
use super::super::state::{Doing, Guest};
use super::state::{FAN, GROUP};
use crate::core::Core;
use crate::engine::{ThreadId, VcpuId};

impl Guest {
    /// The socket that the thread on `v` is about to use, and whether it sends.
    fn socket_of(&self, v: VcpuId) -> (u32, bool) {
        let thread = self.thread_index(v);
        let (group, member) = (thread / GROUP, thread % GROUP);
        let sends = member < FAN;
        let nth = match sends {
            true => (self.cpus[v].run.passes % u64::from(FAN)) as u32,
            false => member - FAN,
        };
        (group * FAN + nth, sends)
    }

    /// Number of this socket's lock among those of its VM.
    pub fn socket_lock(&self, v: VcpuId) -> u32 {
        LOCKS + self.socket_of(v).0
    }

    /// Whether there is room for a message of the thread on `v`, or one for it; else it sleeps, and
    /// looks again when it is woken.
    pub fn socket_wait(&mut self, core: &mut Core, v: VcpuId, capacity: u32) -> bool {
        let (number, sends) = self.socket_of(v);
        let vcpu = &mut self.cpus[v];
        let t = vcpu.thread;
        let socket = &mut self.vms[core.vcpus[v].vm].sockets[number as usize];
        match sends {
            true if socket.queued < capacity => return true,
            true => socket.writers.push(t),
            false if socket.queued > 0 => return true,
            false => socket.reader = t,
        }
        vcpu.run.pc -= 1;
        vcpu.run.taken = true;
        vcpu.run.doing = Doing::Work;
        vcpu.run.remaining_ns = core.prices.guest_switch_ns.max(core.prices.unit_ns);
        self.park(core, v);
        false
    }

    /// The thread on `v`, which has released the lock, has queued its message or taken one: wakes
    /// who waited for that.
    pub fn socket_moved(&mut self, core: &mut Core, v: VcpuId, capacity: u32) {
        let (number, sends) = self.socket_of(v);
        let vm = core.vcpus[v].vm;
        let socket = &mut self.vms[vm].sockets[number as usize];
        if sends {
            socket.queued += 1;
            let reader = std::mem::replace(&mut socket.reader, ThreadId::NONE);
            if reader != ThreadId::NONE {
                self.wake_thread(core, Some(v), reader);
            }
            return;
        }
        socket.queued -= 1;
        if socket.queued > capacity / 4 {
            return;
        }
        while let Some(writer) = self.vms[vm].sockets[number as usize].writers.pop() {
            self.wake_thread(core, Some(v), writer);
        }
    }
}
