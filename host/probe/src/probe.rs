// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs, loaded, and what they have counted.

use crate::error::Error;
use crate::extent::{attach, choose, cpus, size, VCPUS_MAX};
use crate::layout::{
    Cpu, Settings, Share, Sums, Together, Vcpu, ASLEEP, GONE, HOST, NO_SLOT, ON, UNSEEN, VMS_MAX,
};
use crate::maps::Table;
use crate::numbers::Numbers;
use crate::places::Places;
use crate::plan::{release, Extent, Plan, Throttling};
use crate::takers::{self, Counted, Takers};
use crate::vms::{SeenVm, Vms};
use crate::{sum, wait};
use libbpf_rs::{Link, Object, ObjectBuilder, PrintLevel};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::offset_of;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::time::Duration;
use unspin_diagnosis::{State, Times};
use unspin_host::place;

pub(crate) static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probe.bpf.o"));

/// A vCPU's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thread {
    pub tid: u32,
    /// The process it belongs to.
    pub pid: u32,
}

/// What a vCPU has done since it is watched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// What it did on a CPU before the first of its events is in no state. A vCPU that goes on without any has no
    /// times at all.
    pub times: Times,
    /// Exits, by the state that follows.
    pub exits: Times,
    /// How often its thread gave up a CPU, or lost it.
    pub switches: u64,
    /// How often its thread was woken.
    pub wakes: u64,
    /// For how long it was ready while a sibling was on a CPU, in ns; `None`: that is not counted.
    pub costop: Option<u64>,
    /// Whether [`State::Throttled`] is told apart. If not, such a wait is counted by who had the CPU.
    pub tells_throttled: bool,
    /// Whether this computer's KVM does not tell why a guest exits: all exits are [`State::ExitOther`].
    pub hides_reasons: bool,
    /// At the reading it ran, or could have run. False while it sleeps, and from the guest's HLT on until
    /// it is woken.
    pub ready: bool,
    /// Its number in `wakers` of its siblings; [`NUMBERS`]: it is in none.
    pub number: u32,
    /// Bit i: the sibling of number i woke it lately. All 0 unless [`Probe::keep_wakers`] was called.
    pub wakers: u64,
}

/// Numbers of a VM's vCPUs for [`Seen::wakers`] lie below.
pub const NUMBERS: u32 = 64;

impl Seen {
    /// What was added since `before`; `is_ready` and `wakers` are the present ones.
    pub fn since(&self, before: &Seen) -> Seen {
        Seen {
            times: self.times.since(&before.times),
            exits: self.exits.since(&before.exits),
            switches: self.switches.saturating_sub(before.switches),
            wakes: self.wakes.saturating_sub(before.wakes),
            costop: self.costop.zip(before.costop).map(|(now, then)| now.saturating_sub(then)),
            tells_throttled: self.tells_throttled,
            hides_reasons: self.hides_reasons,
            ready: self.ready,
            number: self.number,
            wakers: self.wakers,
        }
    }
}

/// Where a thread is kept, and its number among those of its process.
#[derive(Debug, Clone, Copy)]
struct Watched {
    slot: u32,
    number: u32,
}

/// Watches vCPUs, until it is dropped: the kernel then lets go of the programs, also where the process is
/// killed.
pub struct Probe {
    places: Places,
    vcpus: Table<Vcpu>,
    cpus: Table<Cpu>,
    shares: Table<Share>,
    together: Table<Together>,
    /// `None`: it is not counted who had the CPUs that vCPUs waited for.
    taken: Option<Counted>,
    extent: Extent,
    tells_throttled: bool,
    hides_reasons: bool,
    of_vms: Vms,
    settings: Table<Settings>,
    set: Settings,
    /// Of the processes that are watched.
    numbers: Numbers,
    /// Threads that are watched.
    threads: BTreeMap<Thread, Watched>,
    /// The next slot is the one that is free for longest: a program that runs now may still count in one
    /// that was left.
    free: VecDeque<u32>,
    _links: Vec<Link>,
    _object: Object,
}

/// Messages of libbpf, for the error that follows.
static SAID: Mutex<String> = Mutex::new(String::new());

fn hear(_: PrintLevel, text: String) {
    SAID.lock().unwrap_or_else(|e| e.into_inner()).push_str(&text);
}

/// Lines of libbpf's that are kept: the verifier's reason is followed by a few lines of its own.
const SAID_LINES: usize = 12;

/// The last messages of libbpf, in one line.
fn said() -> String {
    let said = SAID.lock().unwrap_or_else(|e| e.into_inner());
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(SAID_LINES)..].join("; ")
}

impl Probe {
    /// Loads the programs. Nothing is watched yet. `may_park`: the module is loaded, and may let vCPUs
    /// sleep for turns of other VMs. [`Probe::takers`] are unknown.
    pub fn load(may_park: bool) -> Result<Probe, Error> {
        Self::load_some(Extent::Whole, false, may_park)
    }

    /// The same, and counts what [`Probe::takers`] has: it costs more at each switch.
    pub fn load_with_takers(may_park: bool) -> Result<Probe, Error> {
        Self::load_some(Extent::Whole, true, may_park)
    }

    /// Loads fewer programs, which only show when vCPUs run, wait and sleep, and which vCPU wakes them.
    /// They cost less (docs/diagnose-reference.md). Then all time on a CPU is of one state or another of those on
    /// a CPU; all waits are [`State::ReadyNobody`] and all sleeps [`State::Blocked`] or
    /// [`State::Stopped`]; no exit is counted, and a vCPU for which KVM polls is ready.
    pub fn load_brief() -> Result<Probe, Error> {
        Self::load_some(Extent::Brief, false, false)
    }

    /// The same as [`Probe::load_with_takers`], and counts what [`Probe::read_vms`] has: it costs more at each exit for
    /// a port, a register or a device, and where a vCPU sleeps or wakes up. If this kernel has no
    /// tracepoints of such accesses, these are unknown; if it does not take the programs that count all this,
    /// so is how many vCPUs want a CPU.
    pub fn load_detailed(may_park: bool) -> Result<Probe, Error> {
        let detailed = |accesses| Self::load_some(Extent::Detailed { accesses }, true, may_park);
        detailed(true).or_else(|_| detailed(false)).or_else(|_| Self::load_with_takers(may_park))
    }

    fn load_some(extent: Extent, naming: bool, may_park: bool) -> Result<Probe, Error> {
        let (plan, extent) = can_be_loaded(extent)?;
        libbpf_rs::set_print(Some((PrintLevel::Warn, hear)));
        SAID.lock().unwrap_or_else(|e| e.into_inner()).clear();
        let mut builder = ObjectBuilder::default();
        let mut open =
            builder.open_memory(PROGRAMS).map_err(|e| Error::failed("read the BPF programs", e))?;
        size(&mut open, (extent, naming))?;
        choose(&mut open, (extent, naming), &plan)?;
        let object = open.load().map_err(|e| refused(&e))?;
        let mut probe = Probe {
            places: Places::of(&object)?,
            vcpus: Table::shared(&object, "vcpus")?,
            cpus: Table::of(&object, "cpus")?,
            shares: Table::of(&object, "shares")?,
            together: Table::of(&object, "together")?,
            taken: if naming { Some(Counted::of(&object)?) } else { None },
            extent,
            hides_reasons: !plan.reasons,
            tells_throttled: extent != Extent::Brief && plan.throttling != Throttling::Unknown,
            of_vms: Vms::of(&object, cpus(), extent)?,
            settings: Table::of(&object, ".bss")?,
            set: Settings { registrations: 1, may_park: may_park.into(), wakers_ns: 0 },
            numbers: Numbers::new(VMS_MAX),
            threads: BTreeMap::new(),
            free: (NO_SLOT + 1..VCPUS_MAX).collect(),
            _links: Vec::new(),
            _object: object,
        };
        probe.settings.put(0, &probe.set)?;
        probe._links = attach(&probe._object)?;
        Ok(probe)
    }

    /// Whether the module is loaded now, as for [`Probe::load`]; it counts from the next
    /// [`Probe::watch`] on.
    pub fn may_park(&mut self, may_park: bool) {
        self.set.may_park = may_park.into();
    }

    /// From the next [`Probe::watch`] on, records which vCPU woke which in the last `time`, and up to as
    /// long before that. It costs something at each wake-up.
    pub fn keep_wakers(&mut self, time: Duration) {
        self.set.wakers_ns = time.as_nanos() as u64;
    }

    /// Watches these threads and no others, of at most [`VMS_MAX`] processes, at most [`VCPUS_MAX`]
    /// together. Those that are watched already go on.
    pub fn watch(&mut self, threads: &BTreeSet<Thread>) -> Result<(), Error> {
        let gone: Vec<Thread> =
            self.threads.keys().filter(|thread| !threads.contains(thread)).copied().collect();
        for thread in gone {
            self.leave(thread)?;
        }
        self.registered()?;
        let pids: BTreeSet<u32> = threads.iter().map(|thread| thread.pid).collect();
        let gone = self.numbers.keep(|pid| pids.contains(&pid));
        for pid in &gone {
            self.places.leave_vm(*pid)?;
        }
        // Before a number is another VM's.
        if let Some(taken) = self.taken.as_ref().filter(|_| !gone.is_empty()) {
            taken.keep(|vm| self.numbers.all().values().any(|number| *number == vm))?;
        }
        let is_new = |thread: &&Thread| !self.threads.contains_key(thread);
        let new: Vec<Thread> = threads.iter().filter(is_new).copied().collect();
        if !new.is_empty() {
            let on_cpus = self.numbers_on_cpus()?;
            for thread in new {
                self.enter(thread, &on_cpus)?;
            }
        }
        self.registered()
    }

    /// A thread is watched no more: also where it wants a CPU, of which the programs will say nothing more.
    fn leave(&mut self, thread: Thread) -> Result<(), Error> {
        self.places.leave(thread.tid)?;
        let Some(Watched { slot, .. }) = self.threads.remove(&thread) else { return Ok(()) };
        let wants = self.vcpus.word(slot, offset_of!(Vcpu, wants));
        let wanted = wants.is_some_and(|wants| wants.swap(GONE, Ordering::AcqRel) == 1);
        if let (true, Some(number)) = (wanted, self.numbers.get(thread.pid)) {
            self.of_vms.wants_no_more(number, now());
        }
        self.free.push_back(slot);
        Ok(())
    }

    /// The VMs whose tasks CPUs run by now, by number; also of those that are watched no more.
    fn numbers_on_cpus(&self) -> Result<BTreeSet<u32>, Error> {
        let all = (0..cpus()).map(|at| self.cpus.get(at));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        Ok(all.into_iter().flatten().filter(|cpu| cpu.kind > HOST).map(|cpu| cpu.vm).collect())
    }

    /// Each CPU looks anew whose thread it runs.
    fn registered(&mut self) -> Result<(), Error> {
        self.set.registrations += 1;
        self.settings.put(0, &self.set)
    }

    fn enter(&mut self, thread: Thread, on_cpus: &BTreeSet<u32>) -> Result<(), Error> {
        let vm = match self.numbers.get(thread.pid) {
            Some(number) => number,
            None => {
                let given = self.numbers.give(thread.pid, |number| on_cpus.contains(&number));
                let number = given.ok_or(Error::TooManyVms(VMS_MAX))?;
                self.of_vms.enter(number, now())?;
                self.places.enter_vm(thread.pid, number)?;
                number
            }
        };
        let (place, counts, asleep) = looks(thread.tid, self.extent);
        let asleep = asleep as u32;
        let number = self.free_number(thread.pid);
        let vcpu = Vcpu {
            vm,
            since: now(),
            place,
            counts,
            asleep,
            number: number.into(),
            ..Vcpu::default()
        };
        let slot = self.free.pop_front().ok_or(Error::TooManyVcpus(VCPUS_MAX - 1))?;
        self.vcpus.put(slot, &vcpu)?;
        self.threads.insert(thread, Watched { slot, number });
        self.places.enter(thread.tid, slot)
    }

    /// The least number that no thread of this process has.
    fn free_number(&self, pid: u32) -> u32 {
        let its = self.threads.iter().filter(|(thread, _)| thread.pid == pid);
        let bit = |watched: &Watched| 1u64.checked_shl(watched.number).unwrap_or(0);
        its.fold(0, |taken, (_, watched)| taken | bit(watched)).trailing_ones()
    }

    /// What each thread has done since it was entered, up to now.
    pub fn read(&self) -> Result<BTreeMap<Thread, Seen>, Error> {
        let mut all = BTreeMap::new();
        for (thread, Watched { slot, number }) in &self.threads {
            if let Some(vcpu) = self.steady(*slot)? {
                let now = now();
                let seen = Seen {
                    costop: self.costop(&vcpu, now)?,
                    tells_throttled: self.tells_throttled,
                    hides_reasons: self.hides_reasons,
                    times: wait::up_to(&vcpu, now, &self.sums(&vcpu, now)?),
                    exits: vcpu.exits(),
                    switches: vcpu.switches,
                    wakes: vcpu.wakes,
                    ready: wait::is_ready(&vcpu),
                    number: *number,
                    wakers: wait::wakers(&vcpu, now, self.set.wakers_ns),
                };
                all.insert(*thread, seen);
            }
        }
        Ok(all)
    }

    /// Who had the CPUs that vCPUs waited for since they were entered, by the VM's process. No VM is in it
    /// if that is not counted. Processes that have ended are forgotten, if there is little room for others.
    pub fn takers(&self) -> Result<BTreeMap<u32, Takers>, Error> {
        let Some(taken) = &self.taken else { return Ok(BTreeMap::new()) };
        let entries = taken.entries()?;
        let (mut ended, mut all) = (takers::of_vms(&entries), BTreeMap::new());
        for (pid, number) in self.numbers.all() {
            let by = ended.remove(number).unwrap_or_default();
            all.insert(*pid, Takers { by, lost_ns: self.of_vms.lost_ns(*number)? });
        }
        for (thread, Watched { slot, .. }) in &self.threads {
            if let (Some(vcpu), Some(takers)) = (self.steady(*slot)?, all.get_mut(&thread.pid)) {
                taken.add_present(&vcpu, now(), takers)?;
            }
        }
        taken.make_room(&entries);
        Ok(all)
    }

    fn costop(&self, vcpu: &Vcpu, now: u64) -> Result<Option<u64>, Error> {
        if self.extent == Extent::Brief {
            return Ok(None);
        }
        // Else its VM's sum is not needed.
        let ran = match wait::waits_since(vcpu) {
            Some(_) => sum::at(self.together.get(vcpu.vm)?.unwrap_or_default().ran, now),
            None => 0,
        };
        Ok(Some(wait::costop(vcpu, ran)))
    }

    /// What each process has done since it was entered, up to now.
    pub fn read_vms(&self) -> Result<BTreeMap<u32, SeenVm>, Error> {
        self.of_vms.read(self.numbers.all(), (&self.cpus, &self.shares), now())
    }

    /// A vCPU as it was at one time.
    fn steady(&self, slot: u32) -> Result<Option<Vcpu>, Error> {
        self.vcpus.steady(slot, |vcpu| vcpu.ended == vcpu.begun)
    }

    fn sums(&self, vcpu: &Vcpu, now: u64) -> Result<Sums, Error> {
        if vcpu.place == ON {
            return Ok(Sums::default());
        }
        let cpu = self.cpus.get(vcpu.cpu)?.unwrap_or_default();
        let own = self.shares.get(vcpu.cpu * VMS_MAX + vcpu.vm)?.unwrap_or_default();
        Ok(wait::sums(&cpu, &own, vcpu.vm, now))
    }
}

/// The programs for this computer, and how much of this extent its kernel shows; or else what it lacks, as
/// far as that can be known before.
fn can_be_loaded(extent: Extent) -> Result<(Plan, Extent), Error> {
    let sys = place::sys();
    // What a kernel is is not for root alone to know.
    let plan = Plan::of(&place::proc(), &sys, extent);
    if let Err(misfit @ Error::UnknownKernel { .. }) = plan {
        return Err(misfit);
    }
    // SAFETY: it has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Err(Error::NotRoot);
    }
    if !has_vendor(&sys) {
        return Err(Error::NoKvm);
    }
    let plan = plan?;
    let lockdown = std::fs::read_to_string(sys.join("kernel/security/lockdown"));
    if lockdown.is_ok_and(|text| text.contains("[confidentiality]")) {
        return Err(Error::LockedDown);
    }
    match extent {
        Extent::Brief => {}
        _ if !is_admin() => return Err(Error::NotAdmin),
        Extent::Detailed { .. } if !plan.accesses => {
            return Ok((plan, Extent::Detailed { accesses: false }));
        }
        _ => {}
    }
    Ok((plan, extent))
}

/// Whether KVM is loaded with the module for a vendor's processors, such as kvm_intel.
fn has_vendor(sys: &Path) -> bool {
    let modules = std::fs::read_dir(sys.join("module")).into_iter().flatten().flatten();
    modules.into_iter().any(|module| module.file_name().as_encoded_bytes().starts_with(b"kvm_"))
}

/// Whether this process has CAP_SYS_ADMIN: tracepoints of KVM are of a module, and to whom has not, the
/// kernel does not tell a module's types.
fn is_admin() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask >> CAP_SYS_ADMIN & 1 == 1)
}

/// Why the kernel did not take the programs.
fn refused(error: &libbpf_rs::Error) -> Error {
    let said = said();
    let cause = if said.is_empty() { error.to_string() } else { said };
    match place::sys() != Path::new("/sys") {
        true => Error::OtherHost(cause),
        false => Error::of_loading(cause, release(&place::proc())),
    }
}

/// The programs' clock, in ns.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to `time` only.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Where a thread seems to be now: its place, what its time on a CPU is, and what its sleep is. The first of its
/// events puts right what is wrong. If exits are watched, nothing is known of one that has none and does not sleep.
fn looks(tid: u32, extent: Extent) -> (u32, u32, State) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{tid}/{name}"));
    let stat = read("stat").unwrap_or_default();
    // The name, in parentheses, may hold anything.
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    let vmm = State::Vmm as u32;
    match state {
        Some('R') | None if extent == Extent::Brief => (ON, State::Guest as u32, State::Blocked),
        Some('R') | None => (ON, UNSEEN, State::Blocked),
        Some('T' | 't') => (ASLEEP, vmm, State::Stopped),
        Some(_) => {
            let halts = read("wchan").is_ok_and(|function| function.starts_with("kvm_"));
            (ASLEEP, vmm, if halts { State::Halted } else { State::Blocked })
        }
    }
}
