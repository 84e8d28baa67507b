// SPDX-License-Identifier: MIT OR Apache-2.0
//! Costs: in cycles in the description of a host, in ns when the machine charges them.

use crate::engine::Clock;
use unspin_scenario::plan::HostCosts;

/// Costs in cycles of the host. The vCPU for which a switch, an exit and so on happens is charged
/// with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// One iteration of a `compute` or `critical` step.
    pub iteration_cycles: u32,
    /// Additional cost of a step in the guest's interpreter.
    pub step_cycles: u32,
    /// Taking a free lock, including the guest's measurement of the wait.
    pub lock_cycles: u32,
    /// Releasing a lock.
    pub unlock_cycles: u32,
    /// From a release until the next waiter continues.
    pub handoff_cycles: u32,
    /// Additional hand-over cost per further waiter, if all spin on one word (`tas`, `ticket`).
    pub handoff_per_waiter_cycles: u32,
    /// One iteration of a loop that waits with PAUSE.
    pub pause_loop_cycles: u32,
    /// A PLE exit and the entry after it with KVM's selection, without the search of siblings.
    pub ple_exit_cycles: u32,
    /// KVM's selection looking at one sibling.
    pub search_cycles: u32,
    /// As `ple_exit_cycles`, if the module selects.
    pub ple_exit_selected_cycles: u32,
    /// For both selections: from the exit until the decision which vCPU gets the pCPU. If it is 0,
    /// the host decides at the exit or interrupt itself, and the vCPU pays the cost when it
    /// continues.
    pub decide_cycles: u32,
    /// One call of yield_to(), successful or not.
    pub yield_cycles: u32,
    /// The part in which it holds the locks of both run queues.
    pub queue_lock_cycles: u32,
    /// Switching a pCPU from one vCPU's thread to another's.
    pub switch_cycles: u32,
    /// A timer tick of the host: exit, handler, entry.
    pub tick_cycles: u32,
    /// An interrupt that takes a running vCPU out of its guest and back.
    pub interrupt_cycles: u32,
    /// A request to reschedule that arrives while the host handles an exit of the vCPU.
    pub kernel_interrupt_cycles: u32,
    /// A guest's write to its APIC that sends an interrupt.
    pub ipi_cycles: u32,
    /// A guest's hypercall that wakes a halted vCPU: exit, waking its thread, entry.
    pub kick_cycles: u32,
    /// A guest's write to its APIC that sets the timer.
    pub timer_cycles: u32,
    /// HLT, until the thread is off its pCPU.
    pub halt_cycles: u32,
    /// From running again after a HLT until the guest continues.
    pub wake_cycles: u32,
    /// The host's timer interrupt that wakes a halted vCPU. The vCPU that runs there pays it; if
    /// there is none, the woken one does.
    pub timer_wake_cycles: u32,
    /// The guest's kernel switching from one thread to another.
    pub guest_switch_cycles: u32,
    /// Reading a cache line a sibling wrote, from the same last-level cache and from another.
    pub share_near_cycles: u32,
    pub share_far_cycles: u32,
    /// Cache misses of a vCPU that moves to another last-level cache.
    pub migration_cycles: u32,
    /// From one pCPU's request that another reschedules until that one does (is interrupted, if
    /// `decide_cycles` is not 0).
    pub reschedule_cycles: u32,
    pub group: GroupCosts,
}

/// Additional cycles per level of scheduling groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupCosts {
    pub switch_cycles: u32,
    pub tick_cycles: u32,
    pub halt_cycles: u32,
    pub wake_cycles: u32,
}

impl GroupCosts {
    pub const NONE: GroupCosts =
        GroupCosts { switch_cycles: 0, tick_cycles: 0, halt_cycles: 0, wake_cycles: 0 };
}

impl Costs {
    /// The emulated computer of docs/lab.md, where a cycle is an instruction, with kernel 6.1.
    /// Measured there: the cost of a PLE exit (docs/results.md); the rest in traces of the host's
    /// scheduler, exits and interrupts (docs/simulator.md, "Costs"). Counted in the guest's code:
    /// iteration, step, lock, unlock, pause loop.
    pub const LAB: Costs = Costs {
        iteration_cycles: 2,
        step_cycles: 20,
        lock_cycles: 40,
        unlock_cycles: 12,
        handoff_cycles: 8,
        handoff_per_waiter_cycles: 0,
        pause_loop_cycles: 8,
        ple_exit_cycles: 1_216,
        search_cycles: 100,
        ple_exit_selected_cycles: 1_216,
        decide_cycles: 800,
        yield_cycles: 400,
        // From yield_to() (kernel/sched/core.c, 6.1): 1/5 of it is outside of the locks.
        queue_lock_cycles: 320,
        switch_cycles: 3_000,
        tick_cycles: 3_050,
        interrupt_cycles: 1_450,
        kernel_interrupt_cycles: 750,
        ipi_cycles: 1_500,
        kick_cycles: 3_000,
        timer_cycles: 1_200,
        halt_cycles: 2_250,
        wake_cycles: 650,
        timer_wake_cycles: 3_550,
        reschedule_cycles: 150,
        guest_switch_cycles: 1_000,
        share_near_cycles: 0,
        share_far_cycles: 0,
        migration_cycles: 0,
        group: GroupCosts {
            switch_cycles: 1_200,
            tick_cycles: 475,
            halt_cycles: 500,
            wake_cycles: 850,
        },
    };

    /// The same with kernel 6.12.
    pub const LAB_EEVDF: Costs = Costs {
        search_cycles: 125,
        yield_cycles: 430,
        queue_lock_cycles: 344,
        switch_cycles: 3_750,
        tick_cycles: 3_350,
        interrupt_cycles: 1_600,
        timer_cycles: 1_300,
        halt_cycles: 2_650,
        timer_wake_cycles: 4_000,
        ..Costs::LAB
    };

    /// A server of the papers' time (2.4 GHz, section 4.1 of APPLES). A switch of threads with
    /// their caches is a few microseconds (C. Li, C. Ding, K. Shen, "Quantifying the cost of
    /// context switch", ExpCS 2007), as is waking an idle vCPU (J. Shan's dissertation, NJIT 2018,
    /// section 4.2); a contended hand-over is some hundred cycles and grows with the waiters where
    /// all spin on one word (S. Boyd-Wickizer et al., "Non-scalable locks are dangerous", Linux
    /// Symposium 2012); exits after O. Agmon Ben-Yehuda et al., "The Turtles project" (OSDI 2010)
    /// and KVM's own unit tests (vmexit.flat), which lie between 1,000 and 2,000 cycles.
    pub const SERVER: Costs = Costs {
        iteration_cycles: 1,
        step_cycles: 10,
        lock_cycles: 60,
        unlock_cycles: 20,
        handoff_cycles: 100,
        handoff_per_waiter_cycles: 20,
        pause_loop_cycles: 16,
        ple_exit_cycles: 2_500,
        search_cycles: 0,
        ple_exit_selected_cycles: 2_000,
        decide_cycles: 0,
        yield_cycles: 1_000,
        queue_lock_cycles: 800,
        switch_cycles: 5_000,
        tick_cycles: 4_000,
        interrupt_cycles: 2_000,
        kernel_interrupt_cycles: 0,
        ipi_cycles: 2_000,
        kick_cycles: 4_000,
        timer_cycles: 2_000,
        halt_cycles: 3_000,
        wake_cycles: 5_000,
        timer_wake_cycles: 0,
        reschedule_cycles: 2_000,
        // C. Li, C. Ding, K. Shen (ExpCS 2007): a microsecond without cache effects.
        guest_switch_cycles: 2_400,
        // D. Molka et al. (ICPP 2015): about 18 ns within a Sandy Bridge's L3, 100 ns from the
        // other socket's.
        share_near_cycles: 45,
        share_far_cycles: 250,
        // 256 KiB of L2 from the other socket, most of it prefetched.
        migration_cycles: 100_000,
        group: GroupCosts::NONE,
    };

    /// Threads of a Linux program instead of vCPUs (machine `threads`): no exits, halting and kicks
    /// are futex(2), and a switch is between threads of a process. The values are estimates for
    /// system calls and switches of current kernels; none was fitted to the results of a lock.
    pub const THREADS: Costs = Costs {
        pause_loop_cycles: 40,
        switch_cycles: 3_000,
        tick_cycles: 3_000,
        interrupt_cycles: 1_500,
        ipi_cycles: 1_500,
        kick_cycles: 2_500,
        timer_cycles: 1_500,
        halt_cycles: 2_000,
        wake_cycles: 2_500,
        ..Costs::SERVER
    };

    /// The costs that a scenario can set.
    pub fn said(&self) -> HostCosts {
        HostCosts {
            exit_cycles: Some(self.ple_exit_cycles),
            yield_cycles: Some(self.yield_cycles),
            queue_lock_cycles: Some(self.queue_lock_cycles),
            switch_cycles: Some(self.switch_cycles),
            tick_cycles: Some(self.tick_cycles),
            interrupt_cycles: Some(self.interrupt_cycles),
            ipi_cycles: Some(self.ipi_cycles),
            kick_cycles: Some(self.kick_cycles),
            halt_cycles: Some(self.halt_cycles),
            wake_cycles: Some(self.wake_cycles),
            handoff_cycles: Some(self.handoff_cycles),
            guest_switch_cycles: Some(self.guest_switch_cycles),
            migration_cycles: Some(self.migration_cycles),
        }
    }

    /// Applies the costs of a scenario. The exit with the module's selection, and the time until
    /// the decision, scale with the exit; the time of the run queues' locks scales with a yield.
    pub fn with(self, said: &HostCosts) -> Costs {
        let exit = said.exit_cycles.unwrap_or(self.ple_exit_cycles);
        let scaled = |cycles: u32, from: u32, to: u32| {
            (u64::from(cycles) * u64::from(to) / u64::from(from.max(1))) as u32
        };
        let in_proportion = |cycles: u32| scaled(cycles, self.ple_exit_cycles, exit);
        let yields = said.yield_cycles.unwrap_or(self.yield_cycles);
        let locked = scaled(self.queue_lock_cycles, self.yield_cycles, yields);
        Costs {
            ple_exit_cycles: exit,
            ple_exit_selected_cycles: in_proportion(self.ple_exit_selected_cycles),
            decide_cycles: in_proportion(self.decide_cycles),
            yield_cycles: yields,
            queue_lock_cycles: said.queue_lock_cycles.unwrap_or(locked),
            switch_cycles: said.switch_cycles.unwrap_or(self.switch_cycles),
            tick_cycles: said.tick_cycles.unwrap_or(self.tick_cycles),
            interrupt_cycles: said.interrupt_cycles.unwrap_or(self.interrupt_cycles),
            ipi_cycles: said.ipi_cycles.unwrap_or(self.ipi_cycles),
            kick_cycles: said.kick_cycles.unwrap_or(self.kick_cycles),
            halt_cycles: said.halt_cycles.unwrap_or(self.halt_cycles),
            wake_cycles: said.wake_cycles.unwrap_or(self.wake_cycles),
            handoff_cycles: said.handoff_cycles.unwrap_or(self.handoff_cycles),
            guest_switch_cycles: said.guest_switch_cycles.unwrap_or(self.guest_switch_cycles),
            migration_cycles: said.migration_cycles.unwrap_or(self.migration_cycles),
            ..self
        }
    }

    /// The costs without a VMM: interrupts are two writes and a handler. Idling is one instruction,
    /// and less than a microsecond to return from C1 (NJIT 2018, 2.4.1).
    pub fn physical(self) -> Costs {
        let native = self.native_ipi();
        Costs {
            ple_exit_cycles: 0,
            ple_exit_selected_cycles: 0,
            search_cycles: 0,
            decide_cycles: 0,
            yield_cycles: 0,
            queue_lock_cycles: 0,
            timer_wake_cycles: self.timer_wake_cycles.min(1_500),
            tick_cycles: self.tick_cycles.min(1_500),
            timer_cycles: self.timer_cycles.min(100),
            halt_cycles: self.halt_cycles.min(200),
            wake_cycles: self.wake_cycles.min(2_000),
            switch_cycles: self.switch_cycles.min(500),
            reschedule_cycles: self.reschedule_cycles.min(1_000),
            ..native
        }
    }

    /// The costs with tasks in this many levels of groups.
    pub(crate) fn in_groups(self, levels: u32) -> Costs {
        Costs {
            switch_cycles: self.switch_cycles + levels * self.group.switch_cycles,
            tick_cycles: self.tick_cycles + levels * self.group.tick_cycles,
            halt_cycles: self.halt_cycles + levels * self.group.halt_cycles,
            ipi_cycles: self.ipi_cycles + levels * self.group.wake_cycles,
            timer_wake_cycles: self.timer_wake_cycles + levels * self.group.wake_cycles,
            ..self
        }
    }

    /// With the hardware's own interrupts between CPUs.
    pub fn native_ipi(self) -> Costs {
        Costs {
            ipi_cycles: self.ipi_cycles.min(150),
            kick_cycles: self.kick_cycles.min(150),
            interrupt_cycles: self.interrupt_cycles.min(600),
            ..self
        }
    }
}

/// The costs in the host's ns, and in cycles for lengths that are drawn in iterations.
#[derive(Debug, Clone)]
pub struct Prices {
    pub iteration_cycles: u64,
    pub pause_loop_cycles: u64,
    pub step_ns: u64,
    /// The shortest possible work.
    pub unit_ns: u64,
    pub lock_ns: u64,
    pub unlock_ns: u64,
    pub handoff_ns: u64,
    pub handoff_per_waiter_ns: u64,
    pub halt_ns: u64,
    pub wake_ns: u64,
    pub timer_wake_ns: u64,
    pub ipi_ns: u64,
    pub kick_ns: u64,
    pub timer_ns: u64,
    pub interrupt_ns: u64,
    pub kernel_interrupt_ns: u64,
    pub yield_ns: u64,
    pub queue_lock_ns: u64,
    pub switch_ns: u64,
    pub guest_switch_ns: u64,
    pub migration_ns: u64,
    pub tick_ns: u64,
    pub reschedule_ns: u64,
}

impl Prices {
    pub fn of(costs: &Costs, clock: &Clock) -> Prices {
        let ns = |cycles: u32| clock.ns(u64::from(cycles));
        Prices {
            iteration_cycles: u64::from(costs.iteration_cycles),
            pause_loop_cycles: u64::from(costs.pause_loop_cycles.max(1)),
            step_ns: ns(costs.step_cycles),
            unit_ns: ns(1).max(1),
            lock_ns: ns(costs.lock_cycles).max(1),
            unlock_ns: ns(costs.unlock_cycles),
            handoff_ns: ns(costs.handoff_cycles),
            handoff_per_waiter_ns: ns(costs.handoff_per_waiter_cycles),
            halt_ns: ns(costs.halt_cycles),
            wake_ns: ns(costs.wake_cycles),
            timer_wake_ns: ns(costs.timer_wake_cycles),
            ipi_ns: ns(costs.ipi_cycles),
            kick_ns: ns(costs.kick_cycles),
            timer_ns: ns(costs.timer_cycles),
            interrupt_ns: ns(costs.interrupt_cycles),
            kernel_interrupt_ns: ns(costs.kernel_interrupt_cycles),
            yield_ns: ns(costs.yield_cycles),
            queue_lock_ns: ns(costs.queue_lock_cycles),
            switch_ns: ns(costs.switch_cycles),
            guest_switch_ns: ns(costs.guest_switch_cycles),
            migration_ns: ns(costs.migration_cycles),
            tick_ns: ns(costs.tick_cycles),
            reschedule_ns: ns(costs.reschedule_cycles),
        }
    }
}
