// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events, and the timers of the queue for them. Each timer has at most one pending event.

use super::ids::{PcpuId, ThreadId, VcpuId, VmId};
use super::queue::{Queue, Timer};

/// The purpose of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The action of the vCPU on this pCPU ends.
    ActionEnd(PcpuId),
    /// The pCPU's timer tick.
    Tick(PcpuId),
    /// This pCPU was asked to reschedule.
    Reschedule(PcpuId),
    /// A thread's sleep ends.
    SleepEnd(ThreadId),
    VmStart(VmId),
    /// The machine has reached the end of its simulated time.
    Stop,
    /// An allocation period ends: Credit's.
    CreditPeriod,
    /// An allocation period ends: of asymmetric vCPUs.
    AsymPeriod,
    /// A period of caps begins.
    BandwidthPeriod,
    /// A turn ends.
    TurnEnd,
    /// The time limit of a parked vCPU may be reached.
    ParkEnd,
    /// A wait for a lock is long enough to count as a stall.
    Stall(VcpuId),
    /// A tick of the guest's kernel.
    GuestTick(VcpuId),
    /// A wait for a lock is long enough for the guest to report it.
    Report(VcpuId),
    /// One of the host's own tasks wants this pCPU.
    HostTask(PcpuId),
}

/// First timer of each kind of event.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    ticks: u32,
    reschedules: u32,
    sleeps: u32,
    starts: u32,
    stop: u32,
    stalls: u32,
    guest_ticks: u32,
    reports: u32,
    host_tasks: u32,
    end: u32,
}

/// Timers from `Stop` to `ParkEnd`.
const SINGLE: u32 = 6;

impl Layout {
    /// Timers for a machine of this size. `watched`: waits for locks are watched, or guests'
    /// kernels tick. `has_tasks`: the host has its own tasks. Other machines do not need these
    /// timers.
    pub fn new(
        pcpus: u32,
        threads: u32,
        vms: u32,
        vcpus: u32,
        watched: bool,
        has_tasks: bool,
    ) -> Layout {
        let sleeps = 3 * pcpus;
        let starts = sleeps + threads;
        let stop = starts + vms;
        let stalls = stop + SINGLE;
        let each = if watched { vcpus } else { 0 };
        Layout {
            ticks: pcpus,
            reschedules: 2 * pcpus,
            sleeps,
            starts,
            stop,
            stalls,
            guest_ticks: stalls + each,
            reports: stalls + 2 * each,
            host_tasks: stalls + 3 * each,
            end: stalls + 3 * each + if has_tasks { pcpus } else { 0 },
        }
    }

    /// Number of timers.
    pub fn timers(&self) -> usize {
        self.end as usize
    }

    #[inline]
    fn encode(&self, event: Event) -> Timer {
        match event {
            Event::ActionEnd(p) => p.0,
            Event::Tick(p) => self.ticks + p.0,
            Event::Reschedule(p) => self.reschedules + p.0,
            Event::SleepEnd(t) => self.sleeps + t.0,
            Event::VmStart(vm) => self.starts + vm.0,
            Event::Stop => self.stop,
            Event::CreditPeriod => self.stop + 1,
            Event::AsymPeriod => self.stop + 2,
            Event::BandwidthPeriod => self.stop + 3,
            Event::TurnEnd => self.stop + 4,
            Event::ParkEnd => self.stop + 5,
            Event::Stall(v) => self.stalls + v.0,
            Event::GuestTick(v) => self.guest_ticks + v.0,
            Event::Report(v) => self.reports + v.0,
            Event::HostTask(p) => self.host_tasks + p.0,
        }
    }

    #[inline]
    fn decode(&self, timer: Timer) -> Event {
        if timer < self.ticks {
            Event::ActionEnd(PcpuId(timer))
        } else if timer < self.reschedules {
            Event::Tick(PcpuId(timer - self.ticks))
        } else if timer < self.sleeps {
            Event::Reschedule(PcpuId(timer - self.reschedules))
        } else if timer < self.starts {
            Event::SleepEnd(ThreadId(timer - self.sleeps))
        } else if timer < self.stop {
            Event::VmStart(VmId(timer - self.starts))
        } else if timer < self.stalls {
            self.decode_single(timer)
        } else if timer < self.guest_ticks {
            Event::Stall(VcpuId(timer - self.stalls))
        } else if timer < self.reports {
            Event::GuestTick(VcpuId(timer - self.guest_ticks))
        } else if timer < self.host_tasks {
            Event::Report(VcpuId(timer - self.reports))
        } else {
            Event::HostTask(PcpuId(timer - self.host_tasks))
        }
    }

    fn decode_single(&self, timer: Timer) -> Event {
        match timer - self.stop {
            0 => Event::Stop,
            1 => Event::CreditPeriod,
            2 => Event::AsymPeriod,
            3 => Event::BandwidthPeriod,
            4 => Event::TurnEnd,
            _ => Event::ParkEnd,
        }
    }
}

/// The pending events of a machine.
#[derive(Debug, Clone)]
pub struct Events {
    queue: Queue,
    layout: Layout,
}

impl Events {
    pub fn new(layout: Layout) -> Events {
        Events { queue: Queue::new(layout.timers()), layout }
    }

    /// Sets the time of `event`, which replaces an earlier setting; see [`Queue::arm`].
    #[inline]
    pub fn arm(&mut self, event: Event, time_ns: u64) {
        self.queue.arm(self.layout.encode(event), time_ns);
    }

    pub fn cancel(&mut self, event: Event) {
        self.queue.cancel(self.layout.encode(event));
    }

    /// The time of `event`, if it is pending.
    pub fn time_of(&self, event: Event) -> Option<u64> {
        self.queue.time_of(self.layout.encode(event))
    }

    /// The next event and its time.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, Event)> {
        let (now_ns, timer) = self.queue.pop()?;
        Some((now_ns, self.layout.decode(timer)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_a_timer_of_its_own() {
        let layout = Layout::new(3, 7, 2, 5, true, true);
        for timer in 0..layout.timers() as Timer {
            assert_eq!(layout.encode(layout.decode(timer)), timer);
        }
        let last = layout.encode(Event::HostTask(PcpuId(2)));
        assert_eq!(last as usize + 1, layout.timers());
        let few = Layout::new(3, 7, 2, 5, false, false);
        assert_eq!(few.timers(), 3 * 3 + 7 + 2 + SINGLE as usize);
    }
}
