// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of `[[arm]]`.

use crate::schema::arm::{Arm, Asym, Coscheduling, CoschedulingMechanism, Factor, Window, YieldTo};
use crate::schema::key::{
    integer, list, table, word, Flag, Form, Integer, List, Machines, Maybe, Name as Named, Word,
};
use crate::schema::keys::lock::LOCK_FORMS;
use crate::schema::keys::window::WINDOW_FORMS;
use crate::schema::limits::PERIOD_MAX_MS;
use crate::schema::linux::GuestIdle;
use unspin_uapi::Number;

table! { ARM: Arm = "[[arm]]", "A configuration to compare. The names `alone` and `ideal` are \
                                reserved for the report.";
    NAME: Named = "name", Named =>
        .needed("a name")
        .help("its name");
    WINDOW: Form = "window", Form(WINDOW_FORMS) =>
        .usually("`\"stock\"`")
        .only_on(Machines::Hypervisors, |a| a.window != Window::Stock)
        .help("the window of pause-loop exiting: KVM's, none (PLE is off), or the module's");
    YIELD_TO: Word<YieldTo> = "yield_to", word() =>
        .usually(YieldTo::Stock)
        .only_on(Machines::Hypervisors, |a| a.yield_to != YieldTo::Stock)
        .help("which code chooses the vCPU that gets the core: KVM, or the module with this \
               variant of HVS (docs/sysfs.md)");
    QUEUE_AWARE: Flag = "queue_aware", Flag =>
        .usually(false)
        .only_on(Machines::Sim, |a| a.queue_aware)
        .help("the guest exposes its lock queues, and a vCPU that waits for a lock yields to its \
               holder or next waiter");
    OBSERVE: Flag = "observe", Flag =>
        .usually(true)
        .help("whether the module counts PLE exits if window and yield_to are KVM's; false: it is off");
    BASELINE: Flag = "baseline", Flag =>
        .usually(false)
        .help("whether the other arms are compared with this one; if no arm sets it, with the first");
    LOCK: Form = "lock", Form(LOCK_FORMS) =>
        .usually("the VMs'")
        .help("the lock of the guests under this arm; not with sweep.locks");
    GUEST_IDLE: Maybe<Word<GuestIdle>> = "idle", Maybe(word()) =>
        .usually("the VMs'")
        .only_on(Machines::Module, |a| a.idle.is_some())
        .help("what idle vCPUs of Linux guests do under this arm");
    COSCHEDULING: Word<Coscheduling> = "coscheduling", word() =>
        .usually(Coscheduling::None)
        .only_on(Machines::Hypervisors, |a| a.coscheduling != Coscheduling::None)
        .help("which VMs' vCPUs run together. none: no VM's. con: always those of VMs with gang. \
               vcrd-ple, vcrd-user, vcrd-both: those of VMs that waste time in PLE exits, spin in \
               user space, or both (machine sim supports only vcrd-ple). vcrd: those of VMs whose \
               guests report long waits for locks. The module gives them turns, and machine sim \
               models these turns. On a host with Credit, sim models ASMan's coscheduling instead, \
               triggered by waits that the guest sees (vcrd) or by bursts of PLE exits (vcrd-ple)");
    COSCHEDULING_MECHANISM: Word<CoschedulingMechanism> = "coscheduling_mechanism", word() =>
        .usually(CoschedulingMechanism::Park)
        .only_on(Machines::Module, |a| a.coscheduling_mechanism != CoschedulingMechanism::Park)
        .help("how turns are implemented. park: the module parks vCPUs of other VMs (machine sim \
               models it). sched-ext, for comparison: all vCPU threads are under a sched_ext \
               scheduler, Credit with ASMan's coscheduling (docs/sysfs.md; kernel 7.3; with \
               coscheduling = \"none\", which is plain Credit, \"con\" or \"vcrd\"). scheduler: all \
               threads of the VMs are under unspin schedule (docs/schedule.md; kernel 7.3; with \
               coscheduling = \"none\", \"con\", \"vcrd-ple\" or, with yield_to or window of the \
               module, \"vcrd-both\")");
    TURN_US: Maybe<Integer<u32>> = "turn_us", Maybe(integer(
        Number::TURN.least(), Number::TURN.most(), " microseconds")) =>
        .usually("6000")
        .only_on(Machines::Hypervisors, |a| a.turn_us.is_some())
        .help("length of turns; with sched-ext, and on machine sim with scheduler = \"credit\", the \
               length of Credit's slots (default 10 ms; in ASMan's paper 30 ms); not with \
               xen-credit");
    ASYM: Form = "asym", Form("{ time = true, latency = true, resolver = true }") =>
        .usually("off")
        .only_on(Machines::Hypervisors, |a| a.asym != Asym::default())
        .help("asymmetric vCPUs, with the fair scheduler; on machines emulated and kvm by unspin \
               shape");
    PHYSICAL: Flag = "physical", Flag =>
        .usually(false)
        .only_on(Machines::Sim, |a| a.platform.physical)
        .help("no VMM: the only VM runs on the physical machine");
    APICV: Flag = "apicv", Flag =>
        .usually(false)
        .only_on(Machines::Sim, |a| a.platform.apicv)
        .help("the guest receives interrupts without exits");
    HALT_POLL_US: Integer<u32> = "halt_poll_us", integer(0, 1_000_000, " microseconds") =>
        .usually(0)
        .only_on(Machines::Sim, |a| a.platform.halt_poll_us > 0)
        .help("how long KVM polls for a wake-up before a halted vCPU leaves its pCPU; 0: no \
               polling");
    WITHOUT: Maybe<List<Word<Factor>>> = "without", Maybe(list("", word())) =>
        .usually("none")
        .only_on(Machines::Sim, |a| !a.platform.without.is_empty())
        .help("factors of virtualization overhead that are switched off: idle-switch (idle guests \
               poll), spin-switch (no PLE), ipi (IPIs at hardware cost), user-spin (PLE detects it \
               too), cache (all pCPUs share one last-level cache)");
}

table! { ASYM_PARTS: Asym = "asym = { … }", "Which parts of asymmetric vCPUs are on.";
    TIME: Flag = "time", Flag =>
        .usually(false)
        .on(Machines::Hypervisors)
        .help("CPU time allocation (NJIT 2018, 5.4.1)");
    LATENCY: Flag = "latency", Flag =>
        .usually(false)
        .on(Machines::Hypervisors)
        .help("adjustment of scheduling latency (5.4.2)");
    RESOLVER: Flag = "resolver", Flag =>
        .usually(false)
        .on(Machines::Hypervisors)
        .help("the resolver of resource conflicts (5.4.3)");
    WEIGHT: Flag = "weight", Flag =>
        .usually(false)
        .on(Machines::Hypervisors)
        .help("with cgroups, the weight of a VM is raised until the VM gets the CPU time due to its \
               weight; time includes this unless uncorrected. Not in the dissertation");
    UNCORRECTED: Flag = "uncorrected", Flag =>
        .usually(false)
        .on(Machines::Hypervisors)
        .help("as in the dissertation: time leaves the weight of a VM as it is, each period alone \
               decides about the next, and a VM is charged for the switches of its vCPUs");
    ASYM_PERIOD_MS: Maybe<Integer<u32>> = "period_ms", Maybe(integer(1, PERIOD_MAX_MS, " ms")) =>
        .usually("each allocation period; 80 on emulated and kvm")
        .on(Machines::Hypervisors)
        .help("interval between decisions");
}
