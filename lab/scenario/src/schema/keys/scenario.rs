// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys at the top of a scenario, and of `[sweep]`, `[measure]` and `[trace]`.

use crate::schema::host::CgroupLayout;
use crate::schema::key::{
    integer, list, table, word, Flag, Form, Integer, List, Machines, Maybe, Name, Word,
};
use crate::schema::limits::{MS_MAX, VMS_MAX};
use crate::schema::linux::GuestLock;
use crate::schema::scenario::{Beside, Case, Measure, Scenario, Sweep, Trace};
use unspin_diagnosis::Cause;
use unspin_uapi::Number;

table! { SCENARIO: Scenario = "", "What is compared, and how often.";
    TITLE: Form = "title", Form("one line that says what is compared") =>
        .needed("one line that says what is compared")
        .help("heading of the report");
    SEED: Integer<u64> = "seed", integer(0, i64::MAX as u64, "") =>
        .usually(1)
        .help("seed of the first repeat; each repeat adds 1 to it");
    REPEATS: Integer<u32> = "repeats", integer(1, 1000, " repeats") =>
        .usually(3)
        .help("number of runs of each arm at each point; each repeat starts with another arm");
    SLICE_NS: Maybe<Integer<u64>> =
        "slice_ns", Maybe(integer(100_000, 1_000_000_000, " nanoseconds")) =>
        .usually("the scheduler's own")
        .only_on(Machines::Hypervisors, |s| s.host.slice_ns.is_some())
        .help("slice to set for the fair scheduler");
    EPOCH: Maybe<Integer<u32>> = "epoch_ple_exits", Maybe(EPOCH_EXITS) =>
        .usually("1000, as in the paper")
        .help("length of an epoch in arms that do not set it");
    EPOCH_MIN: Maybe<Integer<u32>> = "epoch_min_us", Maybe(EPOCH_LEAST) =>
        .usually("10000")
        .help("shortest epoch in arms that do not set it");
    KERNEL: Form = "kernel", Form("a series such as \"6.12\", or a list of them") =>
        .usually("the machine's default")
        .help("kernels to boot or to model; machine kvm runs only the kernel of the host");
    BOOTS: Integer<u32> = "boots", integer(1, 16, " emulated computers") =>
        .usually(1)
        .help("number of emulated computers that share the points; all arms of a point run on the \
               same one");
    HOST: Form = "host", Form("a table") =>
        .needed("[host] with pcpus")
        .help("the host");
    VM: Form = "vm", Form("tables") =>
        .needed("[[vm]] with vcpus and workload")
        .help("the VMs; tables may differ in all keys, and each has its own rows");
    CASE: Form = "case", Form("tables") =>
        .usually("the points of [sweep]")
        .only_on(Machines::Module, |s| !s.cases.is_empty())
        .help("VMs that lose time to known causes; they run instead of points");
    ARM: Form = "arm", Form("tables") =>
        .needed("[[arm]] with name, window and yield_to")
        .help("the configurations to compare");
    SWEEP_TABLE: Form = "sweep", Form("a table") =>
        .usually("one point")
        .help("the points at which every arm runs");
    MEASURE_TABLE: Form = "measure", Form("a table") =>
        .usually("as below")
        .help("lengths of warm-up and measuring time");
    TRACE_TABLE: Form = "trace", Form("a table") =>
        .usually("none")
        .help("additional records");
}

/// Bounds of epochs, here and in arms.
pub(crate) const EPOCH_EXITS: Integer<u32> =
    integer(Number::EPOCH.least(), Number::EPOCH.most(), " PLE exits");
pub(crate) const EPOCH_LEAST: Integer<u32> =
    integer(Number::EPOCH_MIN.least(), Number::EPOCH_MIN.most(), " microseconds");

table! { CASE_TABLE: Case = "[[case]]", "VMs that lose time to known causes. Its rows show which \
                                         cause was found.";
    CASE_NAME: Name = "name", Name =>
        .needed("a name")
        .on(Machines::Module)
        .help("name of its rows");
    INJECT: Maybe<List<Word<Cause>>> = "inject", Maybe(list("", word())) =>
        .usually("none: the VMs lose nothing")
        .on(Machines::Module)
        .help("the causes that the VMs lose time to, by their workload and placement");
    CASE_VMS: List<Name> = "vms", list("names of [[vm]] tables", Name) =>
        .needed("a list of names of [[vm]] tables")
        .on(Machines::Module)
        .help("its VMs");
    CASE_ARM: Maybe<Name> = "arm", Maybe(Name) =>
        .usually("the baseline")
        .on(Machines::Module)
        .help("the arm that it runs under");
}

table! { SWEEP: Sweep = "[sweep]", "Every arm runs at every point: each combination of these.";
    PROFILES: Maybe<List<Name>> = "profiles", Maybe(list("names of profiles", Name)) =>
        .usually("the VMs' own `workload`")
        .help("workloads of VMs that do not name one: profiles, or programs for Linux guests");
    VMS: Maybe<List<Integer<u32>>> =
        "vms", Maybe(list("numbers of VMs", integer(1, VMS_MAX, " VMs"))) =>
        .usually("each [[vm]]'s `count`")
        .help("numbers of VMs; with one [[vm]] only");
    CGROUPS: Maybe<List<Word<CgroupLayout>>> = "cgroups", Maybe(list("", word())) =>
        .usually("`[\"flat\"]`; with Linux guests `[\"libvirt\"]`")
        .on(Machines::Hypervisors)
        .help("cgroup layouts: flat (none); vm (one per VM); vcpu (one per vCPU inside the VM's); \
               libvirt (that of libvirt, with 2 more levels; machines kvm and emulated)");
    LOCKS: Maybe<List<Form>> = "locks", Maybe(list("locks", Form("a lock"))) =>
        .usually("the VMs' or the arms' `lock`")
        .help("locks; each is compared separately, with all arms");
    GUEST_LOCKS: Maybe<List<Word<GuestLock>>> = "guest_locks", Maybe(list("", word())) =>
        .usually("the VMs' `guest_lock`")
        .on(Machines::Module)
        .help("locks of Linux guests; each is compared separately, with all arms");
    BESIDE: Maybe<List<Word<Beside>>> = "beside", Maybe(list("", word())) =>
        .usually("all the VMs that are listed")
        .on(Machines::Hypervisors)
        .help("neighbours of the only [[vm]] with role = \"shaped\". hogs: the [[vm]] with role = \
               \"hog\"; alike: VMs like the shaped one, as many as there are hogs, itself \
               included; none: no neighbours");
    QUOTA_ON: Maybe<List<Name>> = "quota_on", Maybe(list("names of [[vm]] tables", Name)) =>
        .usually("each [[vm]] with a `quota`")
        .on(Machines::Hypervisors)
        .help("which [[vm]] has its quota, one per point; the point is named quota-on-NAME; every \
               [[vm]] then needs a workload and a name");
}

table! { MEASURE: Measure = "[measure]", "Lengths, in milliseconds of the machine's time.";
    WARMUP_MS: Integer<u64> = "warmup_ms", integer(0, MS_MAX, " milliseconds") =>
        .usually(100)
        .help("shortest time from the start of the last VM to the measuring time, which starts \
               when every program works");
    WINDOW_MS: Integer<u64> = "window_ms", integer(1, MS_MAX, " milliseconds") =>
        .usually(300)
        .help("the measuring time");
    STAGGER_MS: Integer<u64> = "stagger_ms", integer(0, MS_MAX, " milliseconds") =>
        .usually(20)
        .help("longest delay between starts of VMs, drawn from the seed");
    ALONE: Flag = "alone", Flag =>
        .usually(true)
        .help("also run 1 VM alone, to compute ideal");
    WAKEUPS_HZ: Maybe<Integer<u32>> = "wakeups_hz", Maybe(integer(1, 10_000, " Hz")) =>
        .usually("no such tasks")
        .only_on(Machines::Module, |m| m.wakeups_hz.is_some())
        .help("wake-ups per second of a host task on each pCPU during the measuring time; their latency is \
               recorded");
    HOGS: Integer<u32> = "hogs", integer(0, 1024, " tasks") =>
        .usually(0)
        .only_on(Machines::Module, |m| m.hogs > 0)
        .help("host tasks that compute all the time, on the first pCPU, the second, and so on; \
               their CPU time is recorded");
    STATES: Flag = "states", Flag =>
        .usually(false)
        .only_on(Machines::Module, |m| m.states)
        .help("record the time of each vCPU in each state of `unspin diagnose` (docs/diagnose-reference.md); \
               always on with [[case]]");
}

table! { TRACE: Trace = "[trace]", "Records besides the results.";
    EPOCHS: Flag = "epochs", Flag =>
        .usually(false)
        .on(Machines::Hypervisors)
        .help("record the windows over time");
    PICKS: Flag = "picks", Flag =>
        .usually(false)
        .on(Machines::Module)
        .help("record every choice of a vCPU, for `unspin-lab replay`");
    STALLS: Flag = "stalls", Flag =>
        .usually(false)
        .only_on(Machines::Hypervisors, |t| t.stalls)
        .help("record long waits, and whether the lock was free during them");
}
