// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loaded programs, and their counts.

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
use unspin_host::{euid, place};

pub(crate) static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probe.bpf.o"));

/// A vCPU's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thread {
    pub tid: u32,
    /// Its process.
    pub pid: u32,
}

/// What a vCPU has done since it is watched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Time on a CPU before its first event is in no state. A vCPU without any event has no times at all.
    pub times: Times,
    /// Exits, by the state that follows.
    pub exits: Times,
    /// How often its thread left a CPU.
    pub switches: u64,
    /// How often its thread was woken.
    pub wakes: u64,
    /// How long it was ready while a sibling was on a CPU, in ns; `None` if not counted.
    pub costop: Option<u64>,
    /// Whether [`State::Throttled`] is distinguished. If not, such a wait is counted by who had the
    /// CPU.
    pub tells_throttled: bool,
    /// Whether the reasons of exits are unknown for this computer's KVM: all exits are
    /// [`State::ExitOther`].
    pub hides_reasons: bool,
    /// Whether it ran or could have run when it was read. False while it sleeps, and from the guest's HLT
    /// until it is woken.
    pub ready: bool,
    /// Its number in `wakers` of its siblings; [`NUMBERS`]: it has none.
    pub number: u32,
    /// Bit i: the sibling with number i woke it recently. 0 unless [`Probe::keep_wakers`] was called.
    pub wakers: u64,
}

/// Numbers of a VM's vCPUs for [`Seen::wakers`] are below this.
pub const NUMBERS: u32 = 64;

impl Seen {
    /// The difference since `before`. `ready` and `wakers` are the present ones.
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

/// A thread's slot, and its number among those of its process.
#[derive(Debug, Clone, Copy)]
struct Watched {
    slot: u32,
    number: u32,
}

/// Watches vCPUs until it is dropped. If the process is killed, the kernel releases the programs.
pub struct Probe {
    places: Places,
    vcpus: Table<Vcpu>,
    cpus: Table<Cpu>,
    shares: Table<Share>,
    together: Table<Together>,
    /// `None`: who had the CPUs is not counted.
    taken: Option<Counted>,
    extent: Extent,
    tells_throttled: bool,
    hides_reasons: bool,
    of_vms: Vms,
    settings: Table<Settings>,
    set: Settings,
    /// Numbers of the watched processes.
    numbers: Numbers,
    threads: BTreeMap<Thread, Watched>,
    /// Free slots, longest free first: a program that is running may still count in a slot that was
    /// released recently.
    free: VecDeque<u32>,
    _links: Vec<Link>,
    _object: Object,
}

/// Messages of libbpf, for the next error.
static SAID: Mutex<String> = Mutex::new(String::new());

fn hear(_: PrintLevel, text: String) {
    SAID.lock().unwrap_or_else(|e| e.into_inner()).push_str(&text);
}

/// Number of libbpf's last lines that are kept: a few lines follow the verifier's reason.
const SAID_LINES: usize = 12;

/// The last messages of libbpf, in one line.
fn said() -> String {
    let said = SAID.lock().unwrap_or_else(|e| e.into_inner());
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(SAID_LINES)..].join("; ")
}

impl Probe {
    /// Loads the programs, without watching anything yet. `may_park`: the module is loaded, so vCPUs
    /// may sleep for turns of other VMs. [`Probe::takers`] are unknown.
    pub fn load(may_park: bool) -> Result<Probe, Error> {
        Self::load_some(Extent::Whole, false, may_park)
    }

    /// The same, with the counts for [`Probe::takers`], which cost more at each switch.
    pub fn load_with_takers(may_park: bool) -> Result<Probe, Error> {
        Self::load_some(Extent::Whole, true, may_park)
    }

    /// Loads fewer programs, which only show when vCPUs run, wait and sleep, and which vCPU wakes them. They
    /// cost less (docs/diagnose-reference.md). Then all time on a CPU is in an arbitrary state on a CPU, all
    /// waits are [`State::ReadyNobody`], and all sleeps are [`State::Blocked`] or [`State::Stopped`]. Exits
    /// are not counted, and a vCPU is ready while KVM polls for it.
    pub fn load_brief() -> Result<Probe, Error> {
        Self::load_some(Extent::Brief, false, false)
    }

    /// As [`Probe::load_with_takers`], with the counts for [`Probe::read_vms`]. They cost more at each exit
    /// for a port, a register or a device, and when a vCPU sleeps or wakes up. If this kernel has no
    /// tracepoints for such accesses, accesses are unknown. If it refuses the programs that count all this,
    /// the number of vCPUs that want a CPU is unknown, too.
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

    /// Whether the module is loaded now, see [`Probe::load`]. Takes effect at the next
    /// [`Probe::watch`].
    pub fn may_park(&mut self, may_park: bool) {
        self.set.may_park = may_park.into();
    }

    /// From the next [`Probe::watch`] on, records which vCPU woke which in the last `time`, and up to
    /// the same time before that. This costs something at each wake-up.
    pub fn keep_wakers(&mut self, time: Duration) {
        self.set.wakers_ns = time.as_nanos() as u64;
    }

    /// Watches these threads and no others, at most [`VCPUS_MAX`] of at most [`VMS_MAX`] processes.
    /// Threads that are already watched keep their counts.
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
        // Before another VM gets the number.
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

    /// Stops watching a thread. If it wants a CPU, this must be undone here: the programs will not report
    /// its end.
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

    /// The numbers of VMs whose tasks are on CPUs now, including VMs that are no longer watched.
    fn numbers_on_cpus(&self) -> Result<BTreeSet<u32>, Error> {
        let all = (0..cpus()).map(|at| self.cpus.get(at));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        Ok(all.into_iter().flatten().filter(|cpu| cpu.kind > HOST).map(|cpu| cpu.vm).collect())
    }

    /// Makes each CPU look up its thread again.
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
        let vcpu =
            Vcpu { vm, since: now(), place, counts, asleep, number: number.into(), ..Vcpu::new() };
        let slot = self.free.pop_front().ok_or(Error::TooManyVcpus(VCPUS_MAX - 1))?;
        self.vcpus.put(slot, &vcpu)?;
        self.threads.insert(thread, Watched { slot, number });
        self.places.enter(thread.tid, slot)
    }

    /// The lowest number that no thread of this process has.
    fn free_number(&self, pid: u32) -> u32 {
        let its = self.threads.iter().filter(|(thread, _)| thread.pid == pid);
        let bit = |watched: &Watched| 1u64.checked_shl(watched.number).unwrap_or(0);
        its.fold(0, |taken, (_, watched)| taken | bit(watched)).trailing_ones()
    }

    /// What each thread has done since it is watched, until now.
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

    /// Who had the CPUs for which vCPUs waited since they are watched, by the VM's process. Empty if that
    /// is not counted. Forgets processes that have ended if there is little room for others.
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

    /// What each process has done since it is watched, until now.
    pub fn read_vms(&self) -> Result<BTreeMap<u32, SeenVm>, Error> {
        self.of_vms.read(self.numbers.all(), (&self.cpus, &self.shares), now())
    }

    /// A consistent copy of a vCPU.
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

/// The programs for this computer, and the extent that its kernel supports; otherwise what is missing, as
/// far as that can be checked before loading.
fn can_be_loaded(extent: Extent) -> Result<(Plan, Extent), Error> {
    // The kernel's types are readable without root.
    let plan = Plan::of(&place::proc(), &place::sys(), extent);
    if let Err(misfit @ Error::UnknownKernel { .. }) = plan {
        return Err(misfit);
    }
    if euid() != 0 {
        return Err(Error::NotRoot);
    }
    let plan = plan?;
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

/// Whether this process has CAP_SYS_ADMIN. KVM's tracepoints are in a module, and without this
/// capability the kernel does not show a module's types.
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

/// A guess of a thread's present state: its place, the state of its time on a CPU, and of its sleep. Its
/// first event corrects it. If exits are watched, nothing is known of a thread without an event unless it
/// sleeps.
fn looks(tid: u32, extent: Extent) -> (u32, u32, State) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{tid}/{name}"));
    let stat = read("stat").unwrap_or_default();
    // The name, in parentheses, may contain any bytes.
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
