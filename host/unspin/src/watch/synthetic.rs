// SPDX-License-Identifier: MIT OR Apache-2.0
//! Synthetic VMs, for tests of commands that show VMs. Each loses time to one cause. What they did
//! depends only on the time.

use super::facts::Facts;
use super::sample::{Running, Sample, Source};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unspin_diagnosis::Kind::Port;
use unspin_diagnosis::{Access, Accessed, Cause, State};
use unspin_host::{Kind as NameKind, Monitor, Names, Vcpu, VmProcess};
use unspin_probe::{Seen, SeenVm, Taken, Takers, Thread};
use unspin_uapi::{Counter, Kind, Value};

/// The first process id. Each VM has `PIDS` ids, for its threads.
const PID: u32 = 100_000;
const PIDS: u32 = 1000;
/// A process of the host.
const HOST_PID: u32 = 4242;

/// Time that has already passed at the start, so that counters are not 0.
const AGE: Duration = Duration::from_secs(1000);

/// A kind of VM: its name, the cause of its loss, and shares of its time, in per mille. The rest is `guest`.
type Mix = (&'static [u8], Option<Cause>, &'static [(State, u64)]);

const MIXES: [Mix; 6] = [
    (
        b"web",
        Some(Cause::Contention),
        &[
            (State::ReadyVm, 250),
            (State::ReadyHost, 50),
            (State::Throttled, 20),
            (State::Parked, 10),
        ],
    ),
    (b"db", Some(Cause::SpinSwitch), &[(State::ExitPause, 150), (State::ReadySibling, 30)]),
    (
        b"queue",
        Some(Cause::IdleSwitch),
        &[(State::Halted, 400), (State::Waking, 60), (State::Poll, 120)],
    ),
    (
        b"mail",
        Some(Cause::Ipi),
        &[(State::ExitIpi, 90), (State::ExitInterrupt, 40), (State::Halted, 300)],
    ),
    (b"hpc", Some(Cause::UserSpin), &[(State::ExitInterrupt, 5)]),
    // Users can give VMs such names.
    (b"calm \x1b[31m\"x\"\\\n\xff", None, &[(State::Halted, 800), (State::Vmm, 5)]),
];

/// Samples of the module per second, and how many of 1000 find a VM that spins in user space
/// spinning.
const LOOKS: u64 = 1000;
const USER_SPINS: u64 = 450;

/// Pause-loop exits per vCPU and second, of a VM that spins in its kernel.
const PAUSES: u64 = 20_000;

pub struct Synthetic {
    vms: usize,
    vcpus: u32,
    start: Instant,
}

/// `VMSxVCPUS`.
pub fn parse_size(text: &str) -> Result<(usize, u32), String> {
    let parts = text.split_once('x').and_then(|(vms, vcpus)| {
        Some((vms.parse().ok().filter(|n| *n <= 2000)?, vcpus.parse().ok()?))
    });
    let fits = parts.filter(|(_, vcpus)| (1..PIDS).contains(vcpus));
    fits.ok_or_else(|| format!("VMSxVCPUS, up to 2000x{}", PIDS - 1))
}

impl Synthetic {
    /// `vcpus` per VM must be below [`PIDS`].
    pub fn new(vms: usize, vcpus: u32) -> Synthetic {
        Synthetic { vms, vcpus, start: Instant::now() }
    }

    pub fn vms(&self) -> Vec<Running> {
        (0..self.vms).map(|vm| self.vm(vm)).collect()
    }

    fn vm(&self, number: usize) -> Running {
        let pid = PID + PIDS * number as u32;
        let (name, ..) = MIXES[number % MIXES.len()];
        let name = [name, (number / MIXES.len() + 1).to_string().as_bytes()].concat();
        let vcpus: Vec<Vcpu> =
            (0..self.vcpus).map(|index| Vcpu { index, tid: pid + 1 + index }).collect();
        let threads = std::iter::once(pid).chain(vcpus.iter().map(|vcpu| vcpu.tid)).collect();
        let uuid = format!("00000000-0000-0000-0000-{number:012}");
        let names = Names::default().with(NameKind::Name, name).with(NameKind::Uuid, uuid);
        let process = VmProcess::new(pid, Monitor::Qemu, names, vcpus);
        Running { process, threads }
    }

    /// The VMs after this time.
    pub fn at(&self, time: Duration) -> Sample {
        let vms = self.vms();
        let mut seen = BTreeMap::new();
        let (mut files, mut of_vms) = (BTreeMap::new(), BTreeMap::new());
        for (number, vm) in vms.iter().enumerate() {
            let mix = &MIXES[number % MIXES.len()];
            for thread in vm.watched() {
                seen.insert(thread, seen_of(mix, thread, time));
            }
            files.insert(vm.process.pid, files_of(mix, time));
            if mix.1.is_none() {
                of_vms.insert(vm.process.pid, idles(vm.process.vcpus.len(), time));
            }
        }
        let takers = takers(&vms, &seen);
        let facts = Arc::new(Facts::of_files(files).with_seen(of_vms));
        Sample { at: self.start + time, vms, seen, facts, takers, left_out: 0 }
    }
}

impl Source for Synthetic {
    fn look(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn sample(&mut self) -> anyhow::Result<Sample> {
        Ok(self.at(AGE + self.start.elapsed()))
    }
}

/// A VM that loses nothing: for 1/10 of the time one of its vCPUs wants a CPU, and its guest reads the
/// clock, which the VMM serves.
fn idles(vcpus: usize, time: Duration) -> SeenVm {
    let ns = time.as_nanos() as u64;
    let mut wanting_ns = vec![0; 65];
    (wanting_ns[0], wanting_ns[1]) = (ns / 10 * 9, ns / 10);
    let clock = Access { kind: Port, address: Some(0x71) };
    let reads = ns / 1_000_000;
    let accessed = Accessed { count: reads, ns: 5_000 * vcpus as u64 * reads, visits: reads };
    SeenVm {
        monitor_ns: ns / 1000,
        wanting_ns,
        accesses: Some(BTreeMap::from([(clock, accessed)])),
    }
}

/// The vCPUs of a VM lose different amounts: the first the whole share of its mix, others a part of
/// it.
fn seen_of((_, cause, shares): &Mix, thread: Thread, time: Duration) -> Seen {
    let ns = time.as_nanos() as u64;
    let part = 4 - u64::from(thread.tid % PIDS - 1) % 4;
    let mut seen = Seen { switches: ns / 2_000_000, wakes: ns / 4_000_000, ..Seen::default() };
    for (state, per_mille) in *shares {
        seen.times[*state] = ns / 4000 * per_mille * part;
        if state.is_exit() {
            seen.exits[*state] = seen.times[*state] / 5_000;
        }
    }
    seen.times[State::Guest] = ns - seen.times.total();
    // While another VM has its CPU, a sibling runs elsewhere for half of the time.
    seen.costop = Some(seen.times[State::ReadySibling] + seen.times[State::ReadyVm] / 2);
    seen.tells_throttled = true;
    if *cause == Some(Cause::SpinSwitch) {
        seen.exits[State::ExitPause] = (time.as_secs_f64() * PAUSES as f64) as u64 * part / 4;
    }
    seen
}

/// Who has the CPUs: for waits on siblings, the VM itself; for other VMs, the next VM; for host tasks, one
/// process.
fn takers(vms: &[Running], seen: &BTreeMap<Thread, Seen>) -> BTreeMap<u32, Takers> {
    let of_vm = |(number, vm): (usize, &Running)| {
        let other = &vms[(number + 1) % vms.len()].process;
        let of = |states: &[State]| vm.watched().map(|thread| seen[&thread].times.of(states)).sum();
        let own: u64 = of(&[State::ReadySibling, State::ReadyVmm]);
        let mut takers = Takers::default();
        for (pid, command, ns) in [
            (vm.process.pid, "qemu-system-x86", own),
            (other.pid, "qemu-system-x86", of(&[State::ReadyVm])),
            (HOST_PID, "stress-ng", of(&[State::ReadyHost])),
        ] {
            let first = || Taken { ns: 0, command: command.into() };
            takers.by.entry(pid).or_insert_with(first).ns += ns;
        }
        (vm.process.pid, takers)
    };
    vms.iter().enumerate().map(of_vm).collect()
}

/// The module's files of a VM. Every counter grows.
fn files_of((_, cause, _): &Mix, time: Duration) -> BTreeMap<String, String> {
    let ms = time.as_millis() as u64;
    let spins = if *cause == Some(Cause::UserSpin) { USER_SPINS } else { 0 };
    let counter = |counter: Counter| match counter {
        Counter::USER_SAMPLES => ms * LOOKS / 1000,
        Counter::USER_SPINS => ms * LOOKS / 1000 * spins / 1000,
        Counter::PLE_EXITS => ms * PAUSES / 1000,
        Counter::SPIN_CYCLES => ms * PAUSES / 1000 * 4096,
        _ => ms,
    };
    let counters = Counter::ALL.iter().map(|of| (of.file(), counter(*of)));
    let values = Value::ALL.iter().map(|value| match value.kind() {
        Kind::COUNT => (value.file(), ms),
        Kind::LAST => (value.file(), 4096),
    });
    let text = |(file, number): (&str, u64)| (file.to_string(), number.to_string());
    let mode = ("mode".to_string(), "observe".to_string());
    counters.chain(values).map(text).chain([mode]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::did;
    use unspin_diagnosis::{dominant, losses};

    #[test]
    fn each_vm_loses_to_its_cause() {
        let source = Synthetic::new(MIXES.len(), 4);
        let (before, after) = (source.at(AGE), source.at(AGE + Duration::from_secs(1)));
        for (vm, (_, cause, _)) in after.vms.iter().zip(&MIXES) {
            let watched = vm.between(&before.seen, &after.seen).unwrap();
            let seen = watched.vcpus.iter().map(|(_, seen)| seen);
            let did = did(vm.process.pid, seen, &before.facts, &after.facts);
            assert_eq!(did.times.total(), 4_000_000_000);
            assert_eq!(dominant(&losses(&did)), *cause);
        }
    }

    #[test]
    fn sizes_are_within_bounds() {
        assert_eq!(parse_size("125x4"), Ok((125, 4)));
        assert_eq!(parse_size("0x1"), Ok((0, 1)));
        for wrong in ["", "3", "3x", "2001x1", "1x0", "1x1000", "-1x2", "1x2x3"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
