// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler, loaded.

use crate::order::order;
use crate::shared::{Config, Setting, Settings};
use crate::{check, ext, Error, Gang, Report, Trace, CPUS_MAX, STRANGERS, VMS_MAX, WEIGHT_USUAL};
use libbpf_rs::{Link, Map, MapCore, MapFlags, MapHandle, Object, ProgramInput};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use unspin_host::{cpus, place, Host};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vms.bpf.o"));
/// The same scheduler, which also records its decisions.
const TRACED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/traced.bpf.o"));
/// The map of the scheduler itself.
const OPS: &str = "vms_ops";
/// The programs that see pause-loop exits, which need type information of the module kvm.
const SPINS: &[&str] = &["spins", "spun"];
/// The program that sees tasks of the host.
const SWITCHED: &str = "switched";
/// The program that forgets what the VM before had under a number.
const FORGET: &str = "forget_vm";
/// The program that says whether the kernel can take threads away from a CPU.
const CAN_TAKE_BACK: &str = "can_take_back";
/// The weight of all threads together that are no VM's: a tenth of that of the average VM.
const STRANGERS_WEIGHT: u32 = WEIGHT_USUAL / 10;

/// What is set when it is loaded.
#[derive(Debug, Clone)]
pub struct Options {
    /// The CPUs that it schedules VMs on.
    pub cpus: BTreeSet<u32>,
    /// How long vCPUs of a VM run together at a time.
    pub turn: Duration,
    /// Whether the scheduler records its decisions: [`Scheduler::trace`].
    pub is_traced: bool,
}

impl Options {
    /// With what is usual.
    pub fn new(cpus: BTreeSet<u32>) -> Options {
        Options { cpus, turn: Duration::from_millis(6), is_traced: false }
    }
}

/// A VM that it schedules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vm {
    /// Its share beside other VMs: [`WEIGHT_USUAL`] times as many as there are VMs, by all of them together.
    pub weight: u32,
    pub gang: Gang,
    /// Its vCPUs are numbered below this, at most [`crate::OTHERS`].
    pub vcpus: u32,
    pub pid: u32,
    /// Its threads, and the number of the vCPU that each runs, or [`crate::OTHERS`].
    pub threads: BTreeMap<u32, u32>,
}

/// Dropping it unloads it: the kernel's fair scheduler has all threads again.
pub struct Scheduler {
    /// The scheduler itself is the first of these, and dropped first: while it is there, so is its timer, which goes
    /// with the object.
    _links: Vec<Link>,
    object: Object,
    /// By number. That of strangers has none.
    vms: Vec<Option<Vm>>,
    /// CPUs that it has left to tasks of the host.
    left: BTreeSet<u32>,
    /// Why it does not see pause-loop exits, if so.
    pub blind: Option<ext::Error>,
}

impl Scheduler {
    /// Loads it. It has no VMs yet.
    ///
    /// # Errors
    /// This kernel cannot have it, or refuses it.
    pub fn load(options: &Options) -> Result<Scheduler, Error> {
        check()?;
        let config = config(options)?;
        let _first = if go_elsewhere(&options.cpus) { None } else { First::now() };
        let object = if options.is_traced { TRACED } else { OBJECT };
        let load =
            |sees| ext::load(object, config.bytes(), |program| !SPINS.contains(&program) || sees);
        // KVM's type information is missing where KVM is not loaded, or was built without.
        let (object, blind) = match load(true) {
            Ok(object) => (object, None),
            Err(why) => (load(false)?, Some(why)),
        };
        let asked = object.progs_mut().find(|program| program.name() == CAN_TAKE_BACK);
        let asked = asked.map(|program| program.test_run(ProgramInput::default()));
        if asked.transpose().map_err(Error::Map)?.is_some_and(|said| said.return_value == 0) {
            return Err(Error::NoReenqueue);
        }
        let (vms, left, sees) = (vec![None; STRANGERS + 1], BTreeSet::new(), blind.is_none());
        let mut scheduler = Scheduler { _links: Vec::new(), object, vms, left, blind };
        // It begins when it is attached, and strangers may wait already.
        scheduler.write_settings()?;
        let mut links = ext::attach(&mut scheduler.object, OPS, |program| {
            program == SWITCHED || SPINS.contains(&program) && sees
        })?;
        links.reverse();
        let scheduler = Scheduler { _links: links, ..scheduler };
        scheduler.report()?;
        Ok(scheduler)
    }

    /// Adds a VM or changes it; its number. Its threads are to be given to SCHED_EXT after this.
    ///
    /// # Errors
    /// There are too many VMs, or too many threads. It then knows nothing of this VM, and all other VMs go on.
    pub fn set(&mut self, vm: &Vm) -> Result<usize, Error> {
        let free = || (STRANGERS + 1..).find(|at| self.vms.get(*at).is_none_or(Option::is_none));
        let known = self.number(vm.pid).or_else(free);
        let number = known.filter(|number| *number < VMS_MAX).ok_or(Error::ManyVms)?;
        if self.vms.get(number).is_some_and(|known| known.as_ref() == Some(vm)) {
            return Ok(number);
        }
        if number == self.vms.len() {
            self.vms.push(None);
        }
        if self.vms[number].is_none() {
            self.clear(number as u32)?;
        }
        let before = self.vms[number].replace(vm.clone());
        let told = self.tell(number, vm, before);
        if told.is_err() {
            self.remove(vm.pid)?;
        }
        told.map(|()| number)
    }

    /// A VM's threads, and no longer those that it had before.
    fn tell(&self, number: usize, vm: &Vm, before: Option<Vm>) -> Result<(), Error> {
        self.write_settings()?;
        let (threads, processes) = (self.map("threads")?, self.map("processes")?);
        put(&processes, vm.pid, number as u32)?;
        let old = before.map(|vm| vm.threads).unwrap_or_default();
        for (tid, unit) in vm.threads.iter().filter(|&(tid, unit)| old.get(tid) != Some(unit)) {
            put(&threads, *tid, id(number, *unit))?;
        }
        for tid in old.keys().filter(|tid| !vm.threads.contains_key(tid)) {
            forget(&threads, *tid, |id| is_of(id, number));
        }
        Ok(())
    }

    /// Forgets times and counts of the VM that had this number before.
    fn clear(&mut self, number: u32) -> Result<(), Error> {
        let program = self.object.progs_mut().find(|program| program.name() == FORGET);
        let Some(program) = program else { return Ok(()) };
        let mut number = number.to_ne_bytes();
        let input = ProgramInput { context_in: Some(&mut number), ..ProgramInput::default() };
        program.test_run(input).map(drop).map_err(Error::Map)
    }

    /// Forgets a VM, whose threads have ended or are no longer of SCHED_EXT.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn remove(&mut self, pid: u32) -> Result<(), Error> {
        let Some(number) = self.number(pid) else { return Ok(()) };
        let Some(vm) = self.vms[number].take() else { return Ok(()) };
        let (threads, processes) = (self.map("threads")?, self.map("processes")?);
        forget(&processes, pid, |of| of == number as u32);
        vm.threads.keys().for_each(|tid| forget(&threads, *tid, |id| is_of(id, number)));
        self.write_settings()
    }

    /// Leaves these CPUs to tasks of the host, and no others.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn leave(&mut self, cpus: &BTreeSet<u32>) -> Result<(), Error> {
        if self.left == *cpus {
            return Ok(());
        }
        self.left.clone_from(cpus);
        self.write_settings()
    }

    fn write_settings(&self) -> Result<(), Error> {
        let mut settings = Settings {
            count: self.vms.len() as u32,
            vms: [Setting::default(); VMS_MAX],
            left: std::array::from_fn(|cpu| self.left.contains(&(cpu as u32)).into()),
        };
        settings.vms[STRANGERS].weight = STRANGERS_WEIGHT;
        for (setting, vm) in settings.vms.iter_mut().zip(&self.vms) {
            if let Some(vm) = vm {
                let (weight, vcpus) = (vm.weight.max(1), vm.vcpus.min(crate::OTHERS));
                *setting = Setting { weight, gang: vm.gang as u32, vcpus };
            }
        }
        let map = self.map(".data.settings")?;
        map.update(&[0; 4], settings.bytes(), MapFlags::ANY).map_err(Error::Map)
    }

    fn map(&self, name: &str) -> Result<Map<'_>, Error> {
        ext::map(&self.object, name).ok_or_else(|| Error::Io {
            what: format!("the scheduler's map {name}"),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }

    /// What it has done so far.
    ///
    /// # Errors
    /// The kernel has ended it; the message says why.
    pub fn report(&self) -> Result<Report, Error> {
        let bytes = ext::section(&self.object, ".data.report").map_err(Error::Map)?;
        let report = bytes.and_then(|bytes| Report::of(&bytes)).ok_or_else(|| Error::Io {
            what: "the scheduler's counts".into(),
            source: std::io::ErrorKind::UnexpectedEof.into(),
        })?;
        report.ending.check()?;
        Ok(report)
    }

    /// The scheduler's decisions since it was loaded. Call this once.
    ///
    /// # Errors
    /// It was not loaded with [`Options::is_traced`], or its maps cannot be accessed.
    pub fn trace(&self) -> Result<Trace, Error> {
        let handle = |name| MapHandle::try_from(&self.map(name)?).map_err(Error::Map);
        Trace::new(&handle("traced")?, handle(".data.lost")?)
    }

    /// The number of a VM, by its process.
    pub fn number(&self, pid: u32) -> Option<usize> {
        self.vms.iter().position(|vm| vm.as_ref().is_some_and(|vm| vm.pid == pid))
    }
}

/// Moves this thread, and those that it starts, to CPUs that are not for VMs, for good: who looks for VMs each second
/// would run before them. Whether there are any that it may use.
fn go_elsewhere(vms: &BTreeSet<u32>) -> bool {
    let elsewhere = &own_cpus() - vms;
    !elsewhere.is_empty() && cpus::set_affinity(0, &elsewhere).is_ok()
}

/// Where there are none, this thread has a real-time policy until this is dropped: the kernel takes seconds of CPU
/// time to verify programs, and VMs may leave few of them.
struct First;

impl First {
    fn now() -> Option<First> {
        set_class(libc::SCHED_RR, 1).then_some(First)
    }
}

impl Drop for First {
    fn drop(&mut self) {
        set_class(libc::SCHED_OTHER, 0);
    }
}

/// The CPUs on which this thread may run.
fn own_cpus() -> BTreeSet<u32> {
    // SAFETY: it has no arguments.
    let thread = unsafe { libc::gettid() };
    Host::at(&place::proc()).allowed_cpus(thread.unsigned_abs())
}

/// Of this thread; whether it may.
fn set_class(policy: i32, priority: i32) -> bool {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: `param` is valid.
    unsafe { libc::sched_setscheduler(0, policy, &param) == 0 }
}

fn put(map: &Map<'_>, key: u32, value: u32) -> Result<(), Error> {
    map.update(&key.to_ne_bytes(), &value.to_ne_bytes(), MapFlags::ANY).map_err(Error::Map)
}

/// If what is known of it is that VM's: another VM may have a thread of the same number since. A thread that was never
/// there, or is gone, is no error.
fn forget(map: &Map<'_>, key: u32, is_its: impl Fn(u32) -> bool) {
    let key = key.to_ne_bytes();
    let known = map.lookup(&key, MapFlags::ANY).ok().flatten();
    if known.and_then(|known| known.try_into().ok()).map(u32::from_ne_bytes).is_some_and(is_its) {
        let _ = map.delete(&key);
    }
}

/// What the scheduler calls a unit of a VM.
fn id(number: usize, unit: u32) -> u32 {
    (number as u32) << 6 | unit
}

/// Whether a unit is of a VM.
fn is_of(id: u32, number: usize) -> bool {
    id >> 6 == number as u32
}

fn config(options: &Options) -> Result<Config, Error> {
    let count = options.cpus.len();
    let all_fit = options.cpus.iter().all(|cpu| (*cpu as usize) < CPUS_MAX);
    if count == 0 || !all_fit {
        return Err(Error::Cpus { count });
    }
    let mut config = Config {
        turn_ns: options.turn.as_nanos() as u64,
        cpu_count: count as u64,
        cpus: [0; CPUS_MAX],
        places: [0; CPUS_MAX],
    };
    let system = place::sys().join("devices/system");
    for (at, (cpu, place)) in order(&system, &options.cpus).into_iter().enumerate() {
        config.cpus[at] = cpu as u16;
        config.places[cpu as usize] = place;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_rs::{ObjectBuilder, OpenObject};
    use std::mem::size_of;

    #[test]
    fn what_both_sides_share_has_one_layout() {
        let mut builder = ObjectBuilder::default();
        let open = builder.open_memory(OBJECT).unwrap();
        let size = |name: &str| {
            let found = open.maps().find(|map| map.name().to_string_lossy().ends_with(name));
            found.and_then(|map| map.initial_value().map(<[u8]>::len))
        };
        assert_eq!(size(".rodata.config"), Some(size_of::<Config>()));
        assert_eq!(size(".data.settings"), Some(size_of::<Settings>()));
        assert_eq!(size(".data.report"), Some(size_of::<Report>()));
        // The usual build has no maps for traces.
        let traced = builder.open_memory(TRACED).unwrap();
        let is_there = |object: &OpenObject, wanted: &str| {
            object.maps().any(|map| map.name().to_string_lossy().ends_with(wanted))
        };
        for name in ["traced", ".data.lost"] {
            assert!(is_there(&traced, name) && !is_there(&open, name), "{name}");
        }
        assert_eq!(traced.progs().count(), open.progs().count());
        for name in [SPINS, &[CAN_TAKE_BACK, FORGET, SWITCHED]].concat() {
            assert!(open.progs().any(|program| program.name() == name), "{name}");
        }
    }

    #[test]
    fn a_unit_is_of_one_vm() {
        for (number, unit) in [(1, 0), (1, crate::OTHERS), (VMS_MAX - 1, 5)] {
            assert!(is_of(id(number, unit), number), "{number} {unit}");
            assert!(!is_of(id(number, unit), number - 1), "{number} {unit}");
        }
    }

    #[test]
    fn cpus_beyond_its_size_are_refused() {
        for (cpus, is_fit) in [(vec![], false), (vec![511, 3], true), (vec![512], false)] {
            let options = Options::new(cpus.iter().copied().collect());
            assert_eq!(config(&options).is_ok(), is_fit, "{cpus:?}");
        }
    }

    #[test]
    fn what_loads_it_goes_to_other_cpus_if_there_are_any() {
        let before = own_cpus();
        assert!(!go_elsewhere(&before));
        assert_eq!(own_cpus(), before);
        if before.len() < 2 {
            return;
        }
        let vms: BTreeSet<u32> = before.iter().copied().take(1).collect();
        assert!(go_elsewhere(&vms));
        assert_eq!(own_cpus(), &before - &vms);
    }
}
