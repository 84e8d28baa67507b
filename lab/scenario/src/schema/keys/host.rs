// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of `[host]`.

use crate::schema::host::{HostModel, HostScheduler, LoopDetection};
use crate::schema::key::{integer, table, word, Flag, Integer, Key, Machines, Maybe, Word};
use crate::schema::limits::{COST_MAX_CYCLES, PCPUS_MAX, PERIOD_MAX_MS};
use crate::schema::scenario::Host;

/// What each cost takes.
pub(crate) const COST: Maybe<Integer<u32>> = Maybe(integer(0, COST_MAX_CYCLES, " cycles"));

impl Key<Host, Maybe<Integer<u32>>> {
    /// A cost of the model.
    const fn cost(self, asks: fn(&Host) -> bool) -> Self {
        self.usually("the model's own").only_on(Machines::Sim, asks)
    }
}

table! { HOST: Host = "[host]", "The host. Keys that only machine sim has describe the host \
                                 that it models.";
    PCPUS: Integer<u32> = "pcpus", integer(1, PCPUS_MAX, " pCPUs") =>
        .needed("how many physical CPUs")
        .help("physical CPUs");
    MODEL: Word<HostModel> = "model", word() =>
        .usually(HostModel::Lab)
        .help("host that machine sim models: the emulated computer (200 MHz) or a server of the \
               papers' time (2.4 GHz); other machines ignore it");
    LOCK_CLOCK_MHZ: Maybe<Integer<u32>> = "lock_clock_mhz",
        Maybe(integer(1, 10_000, " MHz (of the clock the locks' budgets are for)")) =>
        .usually("the machine's own")
        .help("clock rate that converts the time budgets of locks to cycles");
    SCHEDULER: Word<HostScheduler> = "scheduler", word() =>
        .usually(HostScheduler::Fair)
        .only_on(Machines::Hypervisors, |h| h.scheduler != HostScheduler::Fair)
        .help("the kernel's scheduler or, on machine sim, Credit. credit: the vCPU with the most \
               credit first, as coscheduling_mechanism = \"sched-ext\" has it on other machines. \
               xen-credit: the ranks of Xen 3.3. capped: no VM gets more than the share of its \
               weight (for the fair scheduler by cpu.max, which needs cgroups)");
    PERIOD_MS: Maybe<Integer<u32>> = "period_ms", Maybe(integer(1, PERIOD_MAX_MS, " ms")) =>
        .usually("the scheduler's own")
        .only_on(Machines::Sim, |h| h.period_ms.is_some())
        .help("the scheduler's allocation period");
    LOOP_DETECTION: Word<LoopDetection> = "loop_detection", word() =>
        .usually(LoopDetection::Ple)
        .only_on(Machines::Sim, |h| h.loop_detection != LoopDetection::Ple)
        .help("how the processor detects a PAUSE loop: ple (Intel: cycles at CPL 0), or \
               pause-filter (AMD: PAUSEs at any level)");
    LLC_PCPUS: Maybe<Integer<u32>> = "llc_pcpus", Maybe(integer(1, PCPUS_MAX, " pCPUs")) =>
        .usually("all")
        .only_on(Machines::Sim, |h| h.llc_pcpus.is_some())
        .help("number of pCPUs that share a last-level cache");
    THREADS_PER_CORE: Integer<u32> = "threads_per_core", integer(1, 2, " threads") =>
        .usually(1)
        .only_on(Machines::Sim, |h| h.threads_per_core != 1)
        .help("2: pCPUs 0 and 1, 2 and 3, … are the threads of one core");
    THREAD_SPEED_PERCENT: Maybe<Integer<u32>> = "thread_speed_percent", Maybe(integer(50, 100, " %")) =>
        .usually("62")
        .only_on(Machines::Sim, |h| h.thread_speed_percent.is_some())
        .help("speed of a guest on a hardware thread while the sibling thread is busy, relative to \
               a whole core");
    SKEW_TICK: Flag = "skew_tick", Flag =>
        .usually(true)
        .only_on(Machines::Sim, |h| !h.skew_tick)
        .help("pCPUs tick at different times, as on the emulated computer; false: at the same \
               time, the default of Linux");
    GROUP_LOAD_LAGS: Flag = "group_load_lags", Flag =>
        .usually(false)
        .only_on(Machines::Sim, |h| h.group_load_lags)
        .help("with cgroups, the weight of a VM is divided by the last published loads of its \
               vCPUs, as in Linux 3.8 to 4.2; false: by their present loads");
    HOUSEKEEPING_PPM: Maybe<Integer<u32>> = "housekeeping_ppm", Maybe(integer(0, 100_000, " millionths")) =>
        .usually("460 for a server, 0 for the lab's computer")
        .only_on(Machines::Sim, |h| h.housekeeping_ppm.is_some())
        .help("share of each pCPU that tasks of the host use; they also delay its ticks a little; \
               0: no such tasks");
    EXIT_CYCLES: Maybe<Integer<u32>> = "exit_cycles", COST =>
        .cost(|h| h.costs.exit_cycles.is_some())
        .help("cost of a PLE exit with the entry after it, if KVM selects the target; scaled if the \
               module selects it");
    YIELD_CYCLES: Maybe<Integer<u32>> = "yield_cycles", COST =>
        .cost(|h| h.costs.yield_cycles.is_some())
        .help("cost of one call of yield_to(), successful or not");
    QUEUE_LOCK_CYCLES: Maybe<Integer<u32>> = "queue_lock_cycles", COST =>
        .cost(|h| h.costs.queue_lock_cycles.is_some())
        .usually("the model's own, in proportion to yield_cycles")
        .help("part of yield_to() that holds the locks of both run queues");
    SWITCH_CYCLES: Maybe<Integer<u32>> = "switch_cycles", COST =>
        .cost(|h| h.costs.switch_cycles.is_some())
        .help("cost of a switch of a pCPU from one vCPU to another");
    TICK_CYCLES: Maybe<Integer<u32>> = "tick_cycles", COST =>
        .cost(|h| h.costs.tick_cycles.is_some())
        .help("cost of a timer tick of the host, with its exit");
    INTERRUPT_CYCLES: Maybe<Integer<u32>> = "interrupt_cycles", COST =>
        .cost(|h| h.costs.interrupt_cycles.is_some())
        .help("cost of an interrupt that makes a running vCPU leave and re-enter its guest");
    IPI_CYCLES: Maybe<Integer<u32>> = "ipi_cycles", COST =>
        .cost(|h| h.costs.ipi_cycles.is_some())
        .help("cost of a guest's APIC write that sends an interrupt");
    KICK_CYCLES: Maybe<Integer<u32>> = "kick_cycles", COST =>
        .cost(|h| h.costs.kick_cycles.is_some())
        .help("cost of a guest's hypercall that wakes a halted vCPU");
    HALT_CYCLES: Maybe<Integer<u32>> = "halt_cycles", COST =>
        .cost(|h| h.costs.halt_cycles.is_some())
        .help("cost of HLT, until the vCPU has left its pCPU");
    WAKE_CYCLES: Maybe<Integer<u32>> = "wake_cycles", COST =>
        .cost(|h| h.costs.wake_cycles.is_some())
        .help("cost of a wake-up after HLT, from the vCPU's first run until the guest continues");
    HANDOFF_CYCLES: Maybe<Integer<u32>> = "handoff_cycles", COST =>
        .cost(|h| h.costs.handoff_cycles.is_some())
        .help("cost of a lock handoff, from the release until the next waiter continues");
    GUEST_SWITCH_CYCLES: Maybe<Integer<u32>> = "guest_switch_cycles", COST =>
        .cost(|h| h.costs.guest_switch_cycles.is_some())
        .help("cost of a thread switch in the guest kernel");
    MIGRATION_CYCLES: Maybe<Integer<u32>> = "migration_cycles", COST =>
        .cost(|h| h.costs.migration_cycles.is_some())
        .help("cost of cache misses after a vCPU moves to another last-level cache");
}
