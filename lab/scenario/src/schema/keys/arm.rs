// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of `[[arm]]`.

use crate::schema::arm::{Arm, Asym, Coscheduling, CoschedulingMechanism, Factor, Window, YieldTo};
use crate::schema::key::{
    integer, list, table, word, Flag, Form, Integer, List, Machines, Maybe, Name as Named, Word,
};
use crate::schema::keys::lock::LOCK_FORMS;
use crate::schema::keys::window::WINDOW_FORMS;
use crate::schema::limits::PERIOD_MAX_MS;
use unspin_uapi::Number;

table! { ARM: Arm = "[[arm]]", "A way of treating the VMs. `alone` and `ideal` are the report's own names.";
    NAME: Named = "name", Named =>
        .needed("a name")
        .help("what it is called");
    WINDOW: Form = "window", Form(WINDOW_FORMS) =>
        .usually("`\"stock\"`")
        .only_on(Machines::Hypervisors, |a| a.window != Window::Stock)
        .help("the window of pause-loop exiting: KVM's own, none at all, or the module's");
    YIELD_TO: Word<YieldTo> = "yield_to", word() =>
        .usually(YieldTo::Stock)
        .only_on(Machines::Hypervisors, |a| a.yield_to != YieldTo::Stock)
        .help("who chooses the vCPU that gets the core: KVM, or the module by this variant of HVS \
               (docs/sysfs.md)");
    QUEUE_AWARE: Flag = "queue_aware", Flag =>
        .usually(false)
        .only_on(Machines::Sim, |a| a.queue_aware)
        .help("the guest shows its lock queues, and a vCPU that waits for a lock yields to who has \
               it or is next");
    OBSERVE: Flag = "observe", Flag =>
        .usually(true)
        .help("the module counts where window and yield_to are KVM's own; false: it is off");
    BASELINE: Flag = "baseline", Flag =>
        .usually(false)
        .help("the others are compared with this arm; the first, where no arm says so");
    LOCK: Form = "lock", Form(LOCK_FORMS) =>
        .usually("the VMs'")
        .help("the guests' lock under this arm; not with sweep.locks");
    COSCHEDULING: Word<Coscheduling> = "coscheduling", word() =>
        .usually(Coscheduling::None)
        .only_on(Machines::Hypervisors, |a| a.coscheduling != Coscheduling::None)
        .help("whose vCPUs run together: nobody's, always those of VMs that gang (con), or those of VMs \
               that waste time in PLE exits, that spin in user space, or both (vcrd-ple, vcrd-user, \
               vcrd-both; machine sim has the first), or whose guests report long waits for locks \
               (vcrd). The module makes turns for them, and machine sim as the module does; on a host \
               with Credit sim has ASMan's coscheduling instead, by what the guest sees of waits \
               (vcrd) or by bursts of PLE exits (vcrd-ple)");
    COSCHEDULING_MECHANISM: Word<CoschedulingMechanism> = "coscheduling_mechanism", word() =>
        .usually(CoschedulingMechanism::Park)
        .only_on(Machines::Module, |a| a.coscheduling_mechanism != CoschedulingMechanism::Park)
        .help("what makes the turns: the module, which keeps others' vCPUs from running (park, which \
               machine sim has too), or, to be compared with it, whoever runs the VMs, who makes the \
               threads of a VM's vCPUs SCHED_FIFO for a turn (fifo, with coscheduling = \"con\" only; \
               docs/sysfs.md), or gives all of them to Xen's Credit as ASMan has it, a scheduler of \
               sched_ext (sched-ext, kernel 7.3, with coscheduling = \"none\", which is plain Credit, \
               \"con\" or \"vcrd\")");
    TURN_US: Maybe<Integer<u32>> = "turn_us", Maybe(integer(
        Number::TURN.least(), Number::TURN.most(), " microseconds")) =>
        .usually("6000")
        .only_on(Machines::Hypervisors, |a| a.turn_us.is_some())
        .help("length of turns; with sched-ext of Credit's slots, usually 10 ms; on machine sim not with \
               Credit");
    ASYM: Form = "asym", Form("{ time = true, latency = true, resolver = true }") =>
        .usually("none of it")
        .only_on(Machines::Hypervisors, |a| a.asym != Asym::default())
        .help("asymmetric vCPUs, with the fair scheduler; on machines emulated and kvm unspin shape makes \
               them");
    PHYSICAL: Flag = "physical", Flag =>
        .usually(false)
        .only_on(Machines::Sim, |a| a.platform.physical)
        .help("no VMM: the one VM runs on the machine itself");
    APICV: Flag = "apicv", Flag =>
        .usually(false)
        .only_on(Machines::Sim, |a| a.platform.apicv)
        .help("interrupts are received without exits");
    HALT_POLL_US: Integer<u32> = "halt_poll_us", integer(0, 1_000_000, " microseconds") =>
        .usually(0)
        .only_on(Machines::Sim, |a| a.platform.halt_poll_us > 0)
        .help("so long KVM polls for a wake-up before it takes a halted vCPU off its pCPU; 0: not");
    WITHOUT: Maybe<List<Word<Factor>>> = "without", Maybe(list("", word())) =>
        .usually("none")
        .only_on(Machines::Sim, |a| !a.platform.without.is_empty())
        .help("factors of virtualization's cost that are switched off: idle-switch (guests idle \
               polling), spin-switch (no PLE), ipi (at the hardware's cost), user-spin (PLE sees it \
               too), cache (all pCPUs share one)");
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
    UNCORRECTED: Flag = "uncorrected", Flag =>
        .usually(false)
        .only_on(Machines::Sim, |a| a.uncorrected)
        .help("a VM's own weight stays as it is, as in the text; otherwise, with cgroups, it is raised until \
               the VM gets what is due to it by weight");
    ASYM_PERIOD_MS: Maybe<Integer<u32>> = "period_ms", Maybe(integer(1, PERIOD_MAX_MS, " ms")) =>
        .usually("each allocation period; 80 on emulated and kvm")
        .on(Machines::Hypervisors)
        .help("how often they decide");
}
