// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vCPUs of a process: how many by KVM's descriptors, and which of its threads run them.

use crate::monitor::Monitor;
use crate::numbers_in;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use unspin_text::{read_kernel, read_kernel_text};

/// What the descriptors of a VM and of a vCPU link to; `:` and the vCPU's number follow, from Linux 4.19
/// on.
const VM: &[u8] = b"anon_inode:kvm-vm";
const VCPU: &[u8] = b"anon_inode:kvm-vcpu";

/// The request by which a thread runs a vCPU, without the bits that differ between architectures.
const KVM_RUN: u64 = 0xae80;

/// Fields of `/proc/PID/task/TID/stat`, after the name in parentheses: flags, and time in guests in ticks.
const FLAGS: usize = 9 - 3;
const GUEST_TIME: usize = 43 - 3;

/// The flag of threads that the kernel made in the process for itself, such as KVM's `kvm-nx-lpage-re` and
/// vhost's workers. They show the call of the thread that they were copied from.
const PF_USER_WORKER: u64 = 0x4000;

/// A vCPU, and the thread that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vcpu {
    /// Its number. Where only the thread is known, the lowest that is free, in the order of thread ids.
    pub index: u32,
    pub tid: u32,
}

/// What KVM says of a process by its descriptors.
#[derive(Debug, Default)]
pub struct Descriptors {
    pub has_vm: bool,
    /// Numbers of vCPUs. A descriptor may be there twice.
    numbers: BTreeSet<u32>,
    /// Descriptors that have no number.
    unnumbered: usize,
}

impl Descriptors {
    /// Of the process with this directory. An error where they cannot be seen.
    pub fn of(process: &Path) -> io::Result<Descriptors> {
        let mut found = Descriptors::default();
        for entry in fs::read_dir(process.join("fd"))? {
            match fs::read_link(entry?.path()) {
                Ok(to) => found.add(to.as_os_str().as_bytes()),
                // It was closed since it was listed.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(found)
    }

    fn add(&mut self, link: &[u8]) {
        self.has_vm |= link == VM;
        match link.strip_prefix(VCPU) {
            Some(b"") => self.unnumbered += 1,
            Some(rest) => self.numbers.extend(rest.strip_prefix(b":").and_then(number)),
            None => {}
        }
    }

    fn count(&self) -> usize {
        self.numbers.len().max(self.unnumbered)
    }

    fn may_have(&self, number: u32) -> bool {
        self.numbers.is_empty() || self.numbers.contains(&number)
    }
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The threads of a process that are known to run vCPUs, by the numbers of these, and how many vCPUs it
/// has: more than threads where nothing tells the others from the rest of its threads.
///
/// By the threads' names, if the VMM names them. Otherwise: a thread that waits in the kernel within
/// `KVM_RUN` shows the vCPU's descriptor, and one that has been in a guest has time there.
pub fn find(process: &Path, monitor: Monitor, descriptors: &Descriptors) -> (Vec<Vcpu>, usize) {
    let tasks = process.join("task");
    let mut tids = numbers_in(&tasks).unwrap_or_default();
    tids.sort_unstable();
    let named = |tid: &u32| {
        let comm = read_kernel(tasks.join(tid.to_string()).join("comm")).ok()?;
        let index = monitor.vcpu_index(&comm).filter(|index| descriptors.may_have(*index))?;
        Some(Vcpu { index, tid: *tid })
    };
    let mut vcpus: Vec<Vcpu> = tids.iter().filter_map(named).collect();
    vcpus.sort_unstable();
    if vcpus.len() >= descriptors.count() {
        let count = vcpus.len();
        return (vcpus, count);
    }
    let is_named = !vcpus.is_empty();
    let named: BTreeSet<u32> = vcpus.iter().map(|vcpu| vcpu.tid).collect();
    let mut unnumbered = Vec::new();
    for tid in tids.into_iter().filter(|tid| !named.contains(tid)) {
        let task = tasks.join(tid.to_string());
        let stat = stat(&task);
        if stat.flags & PF_USER_WORKER != 0 {
            continue;
        }
        match running(process, &task) {
            Some(Some(index)) => vcpus.push(Vcpu { index, tid }),
            Some(None) => unnumbered.push(tid),
            None if stat.guest_ticks > 0 => unnumbered.push(tid),
            None => {}
        }
    }
    let taken: BTreeSet<u32> = vcpus.iter().map(|vcpu| vcpu.index).collect();
    let free = descriptors.numbers.iter().copied().filter(|number| !taken.contains(number));
    let more = (0..).filter(|n| !taken.contains(n) && !descriptors.numbers.contains(n));
    vcpus.extend(free.chain(more).zip(unnumbered).map(|(index, tid)| Vcpu { index, tid }));
    vcpus.sort_unstable();
    // Where threads are named, a descriptor without one is of a vCPU that was taken out of the VM.
    let count = if is_named { vcpus.len() } else { descriptors.count().max(vcpus.len()) };
    (vcpus, count)
}

/// Whether a thread is within `KVM_RUN`, and of which vCPU: `16 0x11 0xae80 …`, where the descriptor is
/// the second number. Only of a thread that sleeps does the kernel say.
fn running(process: &Path, task: &Path) -> Option<Option<u32>> {
    let call = read_kernel_text(task.join("syscall")).ok()?;
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let mut words = call.split_whitespace().skip(1);
    let (fd, request) = (hex(words.next()?)?, hex(words.next()?)?);
    if request & 0xffff != KVM_RUN {
        return None;
    }
    let link = fs::read_link(process.join("fd").join(fd.to_string())).ok()?;
    let rest = link.as_os_str().as_bytes().strip_prefix(VCPU)?;
    match rest {
        b"" => Some(None),
        rest => Some(Some(number(rest.strip_prefix(b":")?)?)),
    }
}

/// What a thread's `stat` says; 0 where it does not.
#[derive(Default)]
struct Stat {
    flags: u64,
    guest_ticks: u64,
}

fn stat(task: &Path) -> Stat {
    let text = read_kernel(task.join("stat")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // The name may hold anything.
    let Some((_, fields)) = text.rsplit_once(')') else { return Stat::default() };
    let number = |at: usize| fields.split_whitespace().nth(at)?.parse().ok();
    let [flags, guest_ticks] = [FLAGS, GUEST_TIME].map(|at| number(at).unwrap_or_default());
    Stat { flags, guest_ticks }
}
