// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of `[host]`.

use crate::schema::host::{HostModel, HostScheduler, LoopDetection};
use crate::schema::key::{integer, table, word, Flag, Integer, Machines, Maybe, Word};
use crate::schema::limits::{COST_MAX_CYCLES, PCPUS_MAX, PERIOD_MAX_MS};
use crate::schema::scenario::Host;

table! { HOST: Host = "[host]", "The host. What only machine sim has is of the host it models.";
    PCPUS: Integer<u32> = "pcpus", integer(1, PCPUS_MAX, " pCPUs") =>
        .needed("how many physical CPUs")
        .help("physical CPUs");
    MODEL: Word<HostModel> = "model", word() =>
        .usually(HostModel::Lab)
        .help("host that machine sim models: the emulated computer (200 MHz) or a server of the \
               papers' time (2.4 GHz); other machines are what they are");
    LOCK_CLOCK_MHZ: Maybe<Integer<u32>> = "lock_clock_mhz",
        Maybe(integer(1, 10_000, " MHz (of the clock the locks' budgets are for)")) =>
        .usually("the machine's own")
        .help("clock at which the locks' budgets, which are times, become cycles");
    SCHEDULER: Word<HostScheduler> = "scheduler", word() =>
        .usually(HostScheduler::Fair)
        .only_on(Machines::Hypervisors, |h| h.scheduler != HostScheduler::Fair)
        .help("the kernel's scheduler or, on machine sim, Xen's Credit; capped: no VM gets more than \
               its weight's share (of the fair scheduler: with cgroups, whose cpu.max says so)");
    PERIOD_MS: Maybe<Integer<u32>> = "period_ms", Maybe(integer(1, PERIOD_MAX_MS, " ms")) =>
        .usually("the scheduler's own")
        .only_on(Machines::Sim, |h| h.period_ms.is_some())
        .help("the scheduler's allocation period");
    LOOP_DETECTION: Word<LoopDetection> = "loop_detection", word() =>
        .usually(LoopDetection::Ple)
        .only_on(Machines::Sim, |h| h.loop_detection != LoopDetection::Ple)
        .help("how the processor sees a loop of PAUSEs: Intel's, cycles at CPL 0, or AMD's, PAUSEs \
               at any level");
    LLC_PCPUS: Maybe<Integer<u32>> = "llc_pcpus", Maybe(integer(1, PCPUS_MAX, " pCPUs")) =>
        .usually("all")
        .only_on(Machines::Sim, |h| h.llc_pcpus.is_some())
        .help("so many pCPUs share a last-level cache");
    THREADS_PER_CORE: Integer<u32> = "threads_per_core", integer(1, 2, " threads") =>
        .usually(1)
        .only_on(Machines::Sim, |h| h.threads_per_core != 1)
        .help("2: pCPUs 0 and 1, 2 and 3, … are the threads of one core");
    THREAD_SPEED_PERCENT: Maybe<Integer<u32>> = "thread_speed_percent", Maybe(integer(50, 100, " %")) =>
        .usually("62")
        .only_on(Machines::Sim, |h| h.thread_speed_percent.is_some())
        .help("how fast a guest works on a thread while the other one of its core is busy, against a \
               core for itself");
    SKEW_TICK: Flag = "skew_tick", Flag =>
        .usually(true)
        .only_on(Machines::Sim, |h| !h.skew_tick)
        .help("pCPUs tick apart, as the emulated computer boots; false: at the same time, as Linux \
               does of itself");
    GROUP_LOAD_LAGS: Flag = "group_load_lags", Flag =>
        .usually(false)
        .only_on(Machines::Sim, |h| h.group_load_lags)
        .help("with cgroups, a VM's weight is divided by what its vCPUs last published of their \
               loads, as Linux 3.8 to 4.2 has it; false: by their loads of now");
    HOUSEKEEPING_PPM: Maybe<Integer<u32>> = "housekeeping_ppm", Maybe(integer(0, 100_000, " millionths")) =>
        .usually("460 of a server, 0 of the lab's computer")
        .only_on(Machines::Sim, |h| h.housekeeping_ppm.is_some())
        .help("time of each pCPU that tasks of the host take; its ticks then come a little late; 0: neither");
    EXIT_CYCLES: Maybe<Integer<u32>> = "exit_cycles", Maybe(integer(0, COST_MAX_CYCLES, " cycles")) =>
        .usually("the model's own")
        .only_on(Machines::Sim, |h| h.costs.exit_cycles.is_some())
        .help("a PLE exit and the entry after it, where KVM selects; where the module does, in proportion");
    YIELD_CYCLES: Maybe<Integer<u32>> = "yield_cycles", Maybe(integer(0, COST_MAX_CYCLES, " cycles")) =>
        .usually("the model's own")
        .only_on(Machines::Sim, |h| h.costs.yield_cycles.is_some())
        .help("one call of yield_to(), successful or not");
    QUEUE_LOCK_CYCLES: Maybe<Integer<u32>> = "queue_lock_cycles", Maybe(integer(0, COST_MAX_CYCLES, " cycles")) =>
        .usually("the model's own, in proportion to yield_cycles")
        .only_on(Machines::Sim, |h| h.costs.queue_lock_cycles.is_some())
        .help("of a call of yield_to(), how long it holds the locks of both run queues; others wait");
    SWITCH_CYCLES: Maybe<Integer<u32>> = "switch_cycles", Maybe(integer(0, COST_MAX_CYCLES, " cycles")) =>
        .usually("the model's own")
        .only_on(Machines::Sim, |h| h.costs.switch_cycles.is_some())
        .help("switching a pCPU from one vCPU to another");
    TICK_CYCLES: Maybe<Integer<u32>> = "tick_cycles", Maybe(integer(0, COST_MAX_CYCLES, " cycles")) =>
        .usually("the model's own")
        .only_on(Machines::Sim, |h| h.costs.tick_cycles.is_some())
        .help("a timer tick of the host, with its exit");
    INTERRUPT_CYCLES: Maybe<Integer<u32>> = "interrupt_cycles", Maybe(integer(0, COST_MAX_CYCLES, " cycles")) =>
        .usually("the model's own")
        .only_on(Machines::Sim, |h| h.costs.interrupt_cycles.is_some())
        .help("an interrupt that takes a running vCPU out of its guest and back");
    IPI_CYCLES: Maybe<Integer<u32>> = "ipi_cycles", Maybe(integer(0, COST_MAX_CYCLES, " cycles")) =>
        .usually("the model's own")
        .only_on(Machines::Sim, |h| h.costs.ipi_cycles.is_some())
        .help("a guest's write to its APIC that sends an interrupt");
    KICK_CYCLES: Maybe<Integer<u32>> = "kick_cycles", Maybe(integer(0, COST_MAX_CYCLES, " cycles")) =>
        .usually("the model's own")
        .only_on(Machines::Sim, |h| h.costs.kick_cycles.is_some())
        .help("a guest's hypercall that wakes a halted vCPU");
    HALT_CYCLES: Maybe<Integer<u32>> = "halt_cycles", Maybe(integer(0, COST_MAX_CYCLES, " cycles")) =>
        .usually("the model's own")
        .only_on(Machines::Sim, |h| h.costs.halt_cycles.is_some())
        .help("HLT, until the vCPU is off its pCPU");
    WAKE_CYCLES: Maybe<Integer<u32>> = "wake_cycles", Maybe(integer(0, COST_MAX_CYCLES, " cycles")) =>
        .usually("the model's own")
        .only_on(Machines::Sim, |h| h.costs.wake_cycles.is_some())
        .help("from running again after a HLT until the guest goes on");
    HANDOFF_CYCLES: Maybe<Integer<u32>> = "handoff_cycles", Maybe(integer(0, COST_MAX_CYCLES, " cycles")) =>
        .usually("the model's own")
        .only_on(Machines::Sim, |h| h.costs.handoff_cycles.is_some())
        .help("from a release of a lock until the next waiter goes on");
    GUEST_SWITCH_CYCLES: Maybe<Integer<u32>> = "guest_switch_cycles", Maybe(integer(0, COST_MAX_CYCLES, " cycles")) =>
        .usually("the model's own")
        .only_on(Machines::Sim, |h| h.costs.guest_switch_cycles.is_some())
        .help("the guest's kernel switching from one thread to another");
    MIGRATION_CYCLES: Maybe<Integer<u32>> = "migration_cycles", Maybe(integer(0, COST_MAX_CYCLES, " cycles")) =>
        .usually("the model's own")
        .only_on(Machines::Sim, |h| h.costs.migration_cycles.is_some())
        .help("what a vCPU misses that comes to another last-level cache");
}
