// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux guests: the keys of `[[vm]]` for them, and the other keys that they allow.

use crate::parse::keys::OfKeys;
use crate::schema::arm::Arm;
use crate::schema::keys::{host, scenario, vm};
use crate::schema::linux::{GuestLock, LinuxGuest, LOCKS_KERNEL, LOCKS_SERIES};
use crate::schema::names::Named;
use crate::schema::scenario::{GuestKind, VmGroup};
use unspin_text::{or, Table, Value};

const GUEST_KERNEL_USUAL: &str = "6.12";

/// The guest, if it is Linux. Keys for the other kind of guest are problems.
pub(crate) fn read_linux(t: &Table) -> Option<Option<LinuxGuest>> {
    let kind = t.read(&vm::GUEST);
    let kernel = or(t.at(&vm::GUEST_KERNEL), GUEST_KERNEL_USUAL.to_string(), |v| read_series(&v));
    let lock = t.read(&vm::GUEST_LOCK);
    let memory_mib = t.read(&vm::MEMORY_MIB);
    let idle = t.read(&vm::IDLE);
    let words = or(t.at(&vm::EXTRA_CMDLINE), String::new(), |v| read_cmdline(&v));
    let module = t.read(&vm::GUEST_MODULE);
    let of_bench = [vm::LOCK.name, vm::CPL.name, vm::THREADS.name, vm::TICK_HZ.name];
    let of_linux = [
        vm::GUEST_KERNEL.name,
        vm::GUEST_LOCK.name,
        vm::MEMORY_MIB.name,
        vm::IDLE.name,
        vm::EXTRA_CMDLINE.name,
        vm::GUEST_MODULE.name,
    ];
    let (wrong, message, allowed): (&[&str], _, _) = match kind? {
        GuestKind::Linux => {
            (&of_bench, "a Linux guest has its own setting", "this key without guest = \"linux\"")
        }
        GuestKind::Bench => (&of_linux, "no Linux guest", "this key with guest = \"linux\""),
    };
    for v in wrong.iter().filter_map(|name| t.get(name)) {
        v.problem(message, allowed);
    }
    let guest = LinuxGuest {
        kernel: kernel?,
        lock: lock?,
        memory_mib: memory_mib?,
        idle: idle?,
        extra_cmdline: words?,
        module: module?,
    };
    Some((kind? == GuestKind::Linux).then_some(guest))
}

/// A series such as `6.12`.
pub(crate) fn read_series(v: &Value) -> Option<String> {
    let s = v.str(vm::SERIES_FORM)?;
    let well = s.split('.').count() == 2 && s.split('.').all(|p| p.parse::<u16>().is_ok());
    if !well {
        v.problem(format!("{s:?} is not a kernel series"), vm::SERIES_FORM);
        return None;
    }
    Some(s.to_string())
}

/// Words for the guest's kernel that another key sets, and that key. Those that end in `=` have a
/// value.
const TAKEN_WORDS: [(&str, &str); 15] = [
    ("nopvspin", "guest_lock = \"queued\""),
    ("spinlock=", "the key guest_lock"),
    ("idle=", "the key idle"),
    ("UNSPIN_GUEST_MODULE=", "the key guest_module"),
    ("maxcpus=", "the key vcpus"),
    ("nr_cpus=", "the key vcpus"),
    ("possible_cpus=", "the key vcpus"),
    ("nosmp", "the key vcpus"),
    ("mem=", "the key memory_mib"),
    ("memmap=", "omit it: the host reads counts in memory that memmap= reserves"),
    ("init=", "omit it: the first process is a runner, which starts programs"),
    ("rdinit=", "omit it: the first process is a runner, which starts programs"),
    ("console=", "omit it: errors show the end of the guest's console"),
    ("panic=", "omit it: a guest that panics stops, so that its run fails at once"),
    ("reboot=", "omit it: a guest that panics stops, so that its run fails at once"),
];

fn read_cmdline(v: &Value) -> Option<String> {
    let form = vm::EXTRA_CMDLINE.takes.0;
    let s = v.str(form)?;
    if s.len() > 512 || !s.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
        v.problem("not up to 512 printable characters", form);
        return None;
    }
    let mut words = s.split(' ');
    if let Some((word, instead)) = words.find_map(|word| Some((word, instead_of(word)?))) {
        v.problem(format!("{word:?} changes a setting that has its own key"), instead);
        return None;
    }
    Some(s.trim().to_string())
}

/// The key that sets the same as this word, so that the word is refused. The kernel removes quotes,
/// and does not distinguish `-` from `_`.
fn instead_of(word: &str) -> Option<&'static str> {
    let word = word.trim_matches('"').replace('-', "_");
    let is_it = |taken: &str| match taken.ends_with('=') {
        true => word.starts_with(taken),
        false => word == taken || word.starts_with(&format!("{taken}=")),
    };
    TAKEN_WORDS.iter().find(|(taken, _)| is_it(taken)).map(|(_, instead)| *instead)
}

/// Gives [`LOCKS_KERNEL`] to guests with a lock that only this kernel has, and to guests whose locks
/// are compared with such a lock, so that these differ in nothing else.
pub(crate) fn choose_kernels(top: &Table, groups: &mut [VmGroup], swept: Option<&[GuestLock]>) {
    for (at, group) in groups.iter_mut().enumerate() {
        let Some(guest) = &mut group.linux else { continue };
        let own = [guest.lock];
        let mut locks = swept.unwrap_or(&own).iter();
        let Some(lock) = locks.find(|lock| lock.needs_locks_kernel()) else { continue };
        let lock = lock.called();
        if guest.module {
            if let Some(v) = of_vm(top, at, vm::GUEST_MODULE.name) {
                let message = format!("unspin-guest cannot watch the lock {lock}");
                v.problem(message, "guest_module = false");
            }
        }
        if guest.kernel != LOCKS_SERIES {
            if let Some(v) = of_vm(top, at, vm::GUEST_KERNEL.name) {
                let message = format!("kernel {} has no lock {lock}", guest.kernel);
                v.problem(message, format!("guest_kernel = \"{LOCKS_SERIES}\""));
            }
        }
        guest.kernel = LOCKS_KERNEL.into();
    }
}

/// Keys of a scenario that concern guests.
pub(crate) struct Said<'a> {
    pub groups: &'a [VmGroup],
    pub arms: &'a [Arm],
    /// Cases, each with its own VMs, are all that is run.
    pub by_case: bool,
    /// Swept ones.
    pub guest_locks: Option<&'a [GuestLock]>,
}

/// Checks that keys for Linux guests, and for the guests of this project, are used only with such
/// guests.
pub(crate) fn check_guests(top: &Table, said: &Said) {
    let linux = said.groups.iter().filter(|g| g.linux.is_some()).count();
    let in_sweep = |key| top.get("sweep")?.table("")?.get(key);
    if linux == 0 {
        if let Some(v) = top.get("arm").filter(|_| said.arms.iter().any(|a| a.idle.is_some())) {
            v.problem("an arm has idle, but no [[vm]] is a Linux guest", "guest = \"linux\"");
        }
        if let Some(v) = in_sweep(scenario::GUEST_LOCKS.name) {
            v.problem("no [[vm]] has guest = \"linux\"", "a [[vm]] with guest = \"linux\"");
        }
        return;
    }
    if let Some(other) = said.groups.iter().position(|g| g.linux.is_none()) {
        if let Some(v) = of_vm(top, other, vm::GUEST.name).filter(|_| !said.by_case) {
            let message =
                "this [[vm]] is a bench guest, and another is Linux, which no machine supports \
                 together";
            v.problem(message, "guest = \"linux\" in every [[vm]], or in none");
        }
        return;
    }
    let own = "Linux guests have locks of their own";
    if let Some(v) = in_sweep(scenario::LOCKS.name) {
        v.problem(own, "sweep.guest_locks");
    }
    if let Some(v) = top.get("arm").filter(|_| said.arms.iter().any(|a| a.lock.is_some())) {
        v.problem("an arm names a lock, but Linux guests have their own", "sweep.guest_locks");
    }
    if let (Some(_), Some(v)) = (said.guest_locks, top.get("sweep")) {
        let in_vm = |v: &Value| v.table("")?.get(vm::GUEST_LOCK.name).map(|_| ());
        let vms = top.get("vm").and_then(|v| v.array(""));
        if vms.is_some_and(|vms| vms.iter().any(|v| in_vm(v).is_some())) {
            v.problem("sweep.guest_locks already lists the locks", "no guest_lock in [[vm]]");
        }
    }
    check_pv(top, said);
    check_bench_only(top);
}

/// The key of `[[vm]]` number `at`, or if it is missing the table.
fn of_vm<'r, 't>(top: &Table<'r, 't>, at: usize, key: &str) -> Option<Value<'r, 't>> {
    let all = top.get("vm")?.array("")?;
    let table = all.get(at)?;
    table.table("")?.get(key).or_else(|| Some(table.clone()))
}

/// A kernel with one CPU does without pv locks.
fn check_pv(top: &Table, said: &Said) {
    let swept = said.guest_locks.is_some_and(|locks| locks.contains(&GuestLock::Pv));
    let is_own = |g: &VmGroup| {
        said.guest_locks.is_none() && g.linux.as_ref().is_some_and(|l| l.lock == GuestLock::Pv)
    };
    let Some(at) = said.groups.iter().position(|g| g.vcpus == 1 && (swept || is_own(g))) else {
        return;
    };
    let message = "guest_lock is \"pv\", which a kernel with 1 vCPU does not use";
    if let Some(v) = of_vm(top, at, vm::VCPUS.name) {
        v.problem(message, "2 vCPUs or more, or guest_lock = \"queued\" or \"test-and-set\"");
    }
}

/// Keys that only the bench guest does something for.
fn check_bench_only(top: &Table) {
    let of = |table, key| top.get(table)?.table("")?.get(key);
    let bench_only = "no [[vm]] with guest = \"linux\", or without this key";
    let stalls = of("trace", scenario::STALLS.name);
    if let Some(v) = stalls.filter(|v| v.bool() == Some(true)) {
        v.problem("Linux guests do not count long waits", bench_only);
    }
    if let Some(v) = of("host", host::LOCK_CLOCK_MHZ.name) {
        v.problem("lock_clock_mhz does not apply to locks of Linux guests", bench_only);
    }
}
