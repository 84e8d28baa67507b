// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Linux guests of a plan. Booting takes long, so guests keep running from run to run: a run
//! uses the first of them, the others idle, and new ones are booted only if the kernel or the lock
//! differs.

use std::time::Duration;

use unspin_guest_abi::rng::{stagger_ns, vm_seed};
use unspin_host::cpus::{list, set_affinity};
use unspin_scenario::plan::{CgroupLayout, LinuxFiles, LinuxGuest, Run, Vm};
use unspin_scenario::result::VmResult;
use unspin_vmm::{sched_stats, Counts};

use crate::cgroup::{self, Cpus, Limits, VmCgroup};
use crate::qemu::{check_room, GuestCounts, Qemu};
use crate::Error;

/// The running guests.
pub(crate) struct Guests {
    files: Option<LinuxFiles>,
    up: Vec<Guest>,
    place: Place,
}

struct Guest {
    of: Kind,
    /// Dropped, and so ended, before its cgroups: they can only be removed when they are empty.
    qemu: Qemu,
    cgroup: Option<VmCgroup>,
    /// Its present task; `None`: none.
    runs: Option<Task>,
}

/// A change of this needs a new guest.
#[derive(Debug, Clone, PartialEq)]
struct Kind {
    guest: LinuxGuest,
    vcpus: u32,
}

/// A guest at one moment.
pub(crate) struct GuestSample {
    pub(crate) counts: GuestCounts,
    sched: Vec<Counts>,
}

/// A change of this restarts the program; each repeat has its own seed.
#[derive(Debug, Clone, PartialEq)]
struct Task {
    program: String,
    seed: u64,
}

/// The placement of the guests' threads.
#[derive(Debug, Clone, Default, PartialEq)]
struct Place {
    cgroup: Option<CgroupLayout>,
    limits: Vec<Limits>,
    pin: Vec<Vec<u32>>,
}

impl Guests {
    pub(crate) fn new(files: Option<LinuxFiles>) -> Guests {
        Guests { files, up: Vec::new(), place: Place::default() }
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.up.iter().map(|guest| guest.qemu.pid()).collect()
    }

    /// Ends all of them.
    pub(crate) fn end(&mut self) {
        self.up.clear();
        self.place = Place::default();
    }

    /// Starts the guests of the run that are not running yet, and those that later runs of the same
    /// guests need. If one fails, all are ended.
    pub(crate) fn have(&mut self, run: &Run, later: &[Run]) -> Result<(), Error> {
        let alive = self.up.iter_mut().try_for_each(|guest| guest.qemu.check());
        let wanted = kinds(run);
        let is_up = |(n, kind): (usize, &Kind)| self.up.get(n).is_some_and(|g| g.of == *kind);
        if alive.is_ok() && wanted.iter().enumerate().all(is_up) {
            return Ok(());
        }
        self.end();
        let mut all = wanted;
        for next in later.iter().map(kinds) {
            if !is_start(&next, &all) {
                break;
            }
            if next.len() > all.len() {
                all = next;
            }
        }
        let booted = self.boot(&all);
        if booted.is_err() {
            self.end();
        }
        booted
    }

    fn boot(&mut self, all: &[Kind]) -> Result<(), Error> {
        let missing = || Error::Run("it has Linux guests, and no files for them".into());
        let files = self.files.clone().ok_or_else(missing)?;
        check_room(all.iter().map(|of| u64::from(of.guest.memory_mib)).sum())?;
        for (vm, of) in all.iter().enumerate() {
            let qemu = Qemu::spawn(vm as u32, &of.guest, of.vcpus, &files)?;
            self.up.push(Guest { of: of.clone(), qemu, cgroup: None, runs: None });
        }
        self.up.iter_mut().try_for_each(|guest| guest.qemu.wait_ready(guest.of.vcpus))
    }

    /// Places the guests' threads as the run requires; unpinned ones may run on any of `cpus`.
    pub(crate) fn place(&mut self, run: &Run, cpus: Cpus) -> Result<(), Error> {
        let limits = run.vms.iter().map(|vm| Limits::of(run, vm, cpus)).collect();
        let pin = run.vms.iter().map(|vm| vm.pin.clone()).collect();
        let mut place = Place { cgroup: Some(run.cgroup), limits, pin };
        // Guests that the run does not use keep their placement.
        let here = Place {
            limits: start_of(&self.place.limits, &place.limits),
            pin: start_of(&self.place.pin, &place.pin),
            ..self.place.clone()
        };
        if here == place {
            return Ok(());
        }
        // A guest that the run does not use is placed like the last one of the run.
        let guests = self.up.len().max(run.vms.len());
        place.limits.resize(guests, Limits::default());
        place.pin.resize(guests, place.pin.last().cloned().unwrap_or_default());
        // Until all are moved, the placement is unknown.
        self.place = Place::default();
        for (vm, guest) in self.up.iter_mut().enumerate() {
            let (pid, tids) = (guest.qemu.pid(), &guest.qemu.tids);
            match guest.cgroup.take() {
                Some(cgroup) => cgroup.leave()?,
                // It was started in the agent's cgroup.
                None if cgroup::available().is_ok() => cgroup::to_root(pid)?,
                None => {}
            }
            guest.cgroup = VmCgroup::new(vm as u32, run.cgroup, place.limits[vm], pid, tids)?;
            let pin = &place.pin[vm];
            for (vcpu, tid) in tids.iter().enumerate() {
                let cpu = pin.get(vcpu % pin.len().max(1)).copied();
                let allowed = cpu.map_or(0..cpus.count, |cpu| cpu..cpu + 1).collect();
                set_affinity(*tid as u32, &allowed).map_err(|e| {
                    let allowed = list(&allowed);
                    Error::io(format!("pinning thread {tid} to pCPUs {allowed}"), e)
                })?;
            }
        }
        self.place = place;
        Ok(())
    }

    /// Makes every guest of the run run its program, and every other one idle. VMs start their
    /// programs with the run's stagger. Returns whether any program was started.
    pub(crate) fn run_programs(&mut self, run: &Run) -> Result<bool, Error> {
        let task = |vm: usize| {
            let linux = run.vms.get(vm)?.linux.as_ref()?;
            let seed = vm_seed(run.seed, vm as u32);
            Some(Task { program: linux.program.name.clone(), seed })
        };
        let mut started = Vec::new();
        for (vm, guest) in self.up.iter_mut().enumerate() {
            let wanted = task(vm);
            if guest.runs == wanted {
                continue;
            }
            let (name, seed) = match &wanted {
                Some(task) => (task.program.as_str(), task.seed),
                None => ("", 0),
            };
            // Until it is known to run, it has no task.
            guest.runs = None;
            if wanted.is_some() {
                let stagger_ns = stagger_ns(seed, run.stagger_ms);
                std::thread::sleep(Duration::from_nanos(stagger_ns / run.vms.len() as u64));
            }
            guest.qemu.command(name, seed)?;
            started.push((vm, wanted));
        }
        for (vm, _) in &started {
            self.up[*vm].qemu.answered()?;
        }
        // The former programs have ended, so all counts are of the new ones. From here on all run.
        let any = started.iter().any(|(_, wanted)| wanted.is_some());
        let all_run = self.up.iter().take(run.vms.len()).map(|guest| guest.qemu.units());
        let before: Vec<u64> = all_run.filter(|_| any).collect();
        for (guest, before) in self.up.iter_mut().zip(before) {
            guest.qemu.works(before)?;
        }
        for (vm, wanted) in started {
            self.up[vm].runs = wanted;
        }
        Ok(any)
    }

    /// Thread ids of the vCPUs of the first `vms` guests.
    pub(crate) fn tids(&self, vms: usize) -> Vec<i32> {
        self.tids_by_vm(vms).concat()
    }

    /// The same, per guest.
    pub(crate) fn tids_by_vm(&self, vms: usize) -> Vec<Vec<i32>> {
        self.up.iter().take(vms).map(|guest| guest.qemu.tids.clone()).collect()
    }

    /// Samples the first `vms` guests: all counts first, at nearly the same time. Fails if a guest
    /// has ended.
    pub(crate) fn samples(&mut self, vms: usize) -> Result<Vec<GuestSample>, Error> {
        let samples = self.read(vms);
        if samples.is_err() {
            self.up.iter_mut().try_for_each(|guest| guest.qemu.check())?;
        }
        samples
    }

    fn read(&self, vms: usize) -> Result<Vec<GuestSample>, Error> {
        let guests = || self.up.iter().take(vms);
        let counts = guests().map(|guest| guest.qemu.counts()).collect::<Result<Vec<_>, _>>()?;
        let sample = |(guest, counts): (&Guest, GuestCounts)| {
            Ok(GuestSample { counts, sched: guest.qemu.sched()? })
        };
        guests().zip(counts).map(sample).collect()
    }

    /// The difference of two samples per guest. Fails if a guest failed, counted nothing, or its
    /// counts decreased.
    pub(crate) fn results(
        &mut self,
        first: &[GuestSample],
        second: &[GuestSample],
    ) -> Result<Vec<VmResult>, Error> {
        let mut all = Vec::new();
        for (vm, (guest, (a, b))) in self.up.iter_mut().zip(first.iter().zip(second)).enumerate() {
            guest.qemu.check()?;
            let sched = sched_stats(&a.sched, &b.sched);
            let (a, b) = (&a.counts, &b.counts);
            if b.units <= a.units {
                let what = match b.units == a.units {
                    true => "stood still",
                    false => "went backwards",
                };
                let counts = format!("its count of work {what}: {} and then {}", a.units, b.units);
                return Err(Error::Vm { vm: vm as u32, error: counts });
            }
            all.push(VmResult {
                units: vec![b.units - a.units],
                cpu_ns: vec![b.cpu_ns.saturating_sub(a.cpu_ns)],
                halt_poll_ns: b.halt_poll_ns.zip(a.halt_poll_ns).map(|(b, a)| b.saturating_sub(a)),
                responses: b.responses.since(&a.responses),
                sched: Some(sched),
                guest: Some(guest.qemu.found()),
                ..VmResult::default()
            });
        }
        Ok(all)
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        self.end();
    }
}

/// The guests of a run; empty for runs without Linux guests.
fn kinds(run: &Run) -> Vec<Kind> {
    let kind = |vm: &Vm| {
        let guest = vm.linux.as_ref()?.guest.clone();
        Some(Kind { guest, vcpus: vm.vcpus })
    };
    run.vms.iter().filter_map(kind).collect()
}

/// Whether neither list is empty, and one is a prefix of the other.
fn is_start(a: &[Kind], b: &[Kind]) -> bool {
    !a.is_empty() && a.iter().zip(b).all(|(a, b)| a == b)
}

/// The prefix of `all` with the length of `of`.
fn start_of<T: Clone>(all: &[T], of: &[T]) -> Vec<T> {
    all.iter().take(of.len()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scenario::plan::{GuestIdle, GuestLock};

    fn kind(lock: GuestLock) -> Kind {
        let guest = LinuxGuest {
            kernel: "6.12".into(),
            lock,
            memory_mib: 192,
            idle: GuestIdle::Halt,
            extra_cmdline: String::new(),
            module: false,
        };
        Kind { guest, vcpus: 4 }
    }

    #[test]
    fn guests_of_one_run_serve_another_where_the_first_are_alike() {
        let (pv, queued) = (kind(GuestLock::Pv), kind(GuestLock::Queued));
        let three = vec![pv.clone(); 3];
        assert!(is_start(&three[..1], &three) && is_start(&three, &three[..2]));
        assert!(!is_start(&[queued], &three) && !is_start(&[], &three));
    }
}
