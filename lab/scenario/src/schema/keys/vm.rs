// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of `[[vm]]`.

use crate::schema::key::{
    integer, table, word, Flag, Form, Integer, Machines, Maybe, Name as Named, Share, Word,
};
use crate::schema::keys::lock::LOCK_FORMS;
use crate::schema::limits::{MEMORY_MAX_MIB, MEMORY_MIN_MIB, VMS_MAX};
use crate::schema::linux::{GuestIdle, GuestLock};
use crate::schema::scenario::{GuestKind, Mode, Role, VmGroup};

table! { VM: VmGroup = "[[vm]]", "A group of identical VMs. Several tables may differ in all keys.";
    NAME: Maybe<Named> = "name", Maybe(Named) =>
        .usually("as its workload")
        .help("name of its rows");
    COUNT: Integer<u32> = "count", integer(1, VMS_MAX, " VMs") =>
        .usually(1)
        .help("number of VMs; not with sweep.vms");
    VCPUS: Integer<u32> = "vcpus", integer(1, 256, " vCPUs") =>
        .needed("how many vCPUs a VM")
        .help("vCPUs per VM; above 128 on machine sim only");
    PIN: Form = "pin", Form(PIN_FORMS) =>
        .usually("`\"none\"`")
        .help("the pCPU of each vCPU");
    WEIGHT: Integer<u32> = "weight", integer(1, 10_000, " (cpu.weight)") =>
        .usually(100)
        .help("cgroup cpu.weight; has an effect if VMs differ in it and the cgroup layout is not \
               flat");
    QUOTA: Maybe<Share> = "quota", Maybe(Share { least_ppm: QUOTA_LEAST_PPM }) =>
        .usually("none")
        .only_on(Machines::Hypervisors, |g| g.quota_ppm.is_some())
        .help("cgroup cpu.max of each of these VMs, as a share of the CPU time of the whole host; \
               needs a cgroup layout other than flat; not with a capped scheduler or Credit");
    WORKLOAD: Named = "workload", Named =>
        .needed("the name of a profile")
        .help("what its threads run: a profile, or for a Linux guest a program of programs/; with \
               sweep.profiles at least one [[vm]] has no workload, and runs the swept one");
    GUEST: Word<GuestKind> = "guest", word() =>
        .usually(GuestKind::Bench)
        .only_on(Machines::Module, |g| g.linux.is_some())
        .help("the guest. bench: a small guest of this project, which runs profiles; linux: \
               Debian's kernel under QEMU, which runs programs");
    GUEST_KERNEL: Form = "guest_kernel", Form(SERIES_FORM) =>
        .usually("`\"6.12\"`")
        .help("series of Debian's kernel in a Linux guest");
    GUEST_LOCK: Word<GuestLock> = "guest_lock", word() =>
        .usually(GuestLock::Pv)
        .help("spin locks of a Linux guest. pv: waiters halt, Debian's default; queued: waiters \
               spin; test-and-set: they spin in no order, as on a CPU model without \
               kvm-pv-unhalt; the others are the papers', in a kernel that `make guest-kernel` \
               builds; not with sweep.guest_locks");
    MEMORY_MIB: Integer<u32> = "memory_mib", integer(MEMORY_MIN_MIB, MEMORY_MAX_MIB, " MiB") =>
        .usually(MEMORY_USUAL_MIB)
        .help("memory of a Linux guest");
    IDLE: Word<GuestIdle> = "idle", word() =>
        .usually(GuestIdle::Halt)
        .help("idle vCPUs of a Linux guest: halt, or poll for work and keep their pCPUs");
    EXTRA_CMDLINE: Form = "extra_cmdline", Form("words for the guest's kernel") =>
        .usually("none")
        .help("words appended to the kernel command line of a Linux guest; not for settings with \
               their own key");
    GUEST_MODULE: Flag = "guest_module", Flag =>
        .usually(false)
        .help("a Linux guest loads unspin-guest, which reports long waits for spin locks; arms \
               with coscheduling = \"vcrd\" use these reports");
    LOCK: Form = "lock", Form(LOCK_FORMS) =>
        .usually("`\"ticket\"`")
        .help("the lock of the guest; not with sweep.locks");
    CPL: Integer<u8> = "cpl", integer(0, 3, " (0 or 3)") =>
        .usually(0)
        .help("privilege level at which the guest spins: 0, which PLE detects, or 3, which it does \
               not");
    MODE: Word<Mode> = "mode", word() =>
        .usually(Mode::Arm)
        .help("off: no arm applies to this VM; the module does nothing for it, and it keeps its \
               own lock");
    GANG: Maybe<Flag> = "gang", Maybe(Flag) =>
        .usually("whether its workload spins (always true for Linux guests)")
        .only_on(Machines::Hypervisors, |g| g.gang.is_some())
        .help("whether its vCPUs run together under coscheduling = \"con\"");
    ROLE: Word<Role> = "role", word() =>
        .usually(Role::Shaped)
        .only_on(Machines::Hypervisors, |g| g.role != Role::default())
        .help("its role under asym of arms: shaped (its vCPUs become asymmetric), neighbour or \
               hog; rows of one VM show it");
    THREADS: Maybe<Integer<u32>> = "threads", Maybe(integer(1, 1024, " threads")) =>
        .usually("one per vCPU, pinned to it")
        .only_on(Machines::Sim, |g| g.threads.is_some())
        .help("number of threads of the program, which the guest scheduler places");
    TICK_HZ: Integer<u32> = "tick_hz", integer(0, 10_000, " ticks a second") =>
        .usually(0)
        .only_on(Machines::Sim, |g| g.tick_hz > 0)
        .help("timer ticks per second of the guest kernel; 0: none");
}

/// 1 ms per period of 100 ms on one pCPU, the least that Linux accepts.
const QUOTA_LEAST_PPM: u32 = 10_000;
pub(crate) const SERIES_FORM: &str = "a series such as \"6.12\"";
/// Enough for the programs of this project, with their data.
pub(crate) const MEMORY_USUAL_MIB: u32 = 192;

pub(crate) const PIN_FORMS: &str =
    "\"one-per-pcpu\", \"none\" or a list with the pCPU of each vCPU";
