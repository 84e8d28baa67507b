// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vCPUs of a process: their number from KVM's descriptors, and the threads that run them.

use crate::monitor::Monitor;
use crate::numbers_in;
use crate::task::field;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use unspin_text::{read_kernel, read_kernel_text};

/// Link targets of the descriptors of a VM and of a vCPU. From Linux 4.19 on, `:` and the vCPU's number
/// follow.
const VM: &[u8] = b"anon_inode:kvm-vm";
const VCPU: &[u8] = b"anon_inode:kvm-vcpu";

/// The ioctl by which a thread runs a vCPU, without the bits that depend on the architecture.
const KVM_RUN: u64 = 0xae80;

/// Fields of `/proc/PID/task/TID/stat`: flags, and guest time in ticks.
const FLAGS: usize = 9;
const GUEST_TIME: usize = 43;

/// The flag of threads that the kernel created in the process, such as KVM's `kvm-nx-lpage-re` and vhost's
/// workers. /proc shows for them the system call of the thread that created them.
const PF_USER_WORKER: u64 = 0x4000;

/// A vCPU, and the thread that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vcpu {
    /// Its number. If only the thread is known, the lowest free number, in the order of thread ids.
    pub index: u32,
    pub tid: u32,
}

/// KVM's descriptors of a process.
#[derive(Debug, Default)]
pub struct Descriptors {
    /// The directory that shows the process's files and command line: its own, or that of another thread
    /// if the first one has ended.
    pub files: PathBuf,
    /// Descriptors of VMs. One of a VM may occur twice.
    vms: usize,
    is_empty: bool,
    /// Numbers of vCPUs. A descriptor may occur twice.
    numbers: BTreeSet<u32>,
    /// All descriptors of vCPUs, and those without a number.
    vcpus: usize,
    unnumbered: usize,
}

impl Descriptors {
    /// Reads the process with this directory. Fails if its descriptors are not readable.
    pub fn of(process: &Path) -> io::Result<Descriptors> {
        let found = Descriptors::shown_in(process)?;
        let tasks = process.join("task");
        if found.is_empty && !is_single(&tasks) {
            let tids = numbers_in(&tasks).unwrap_or_default().into_iter();
            let others = tids.filter(|tid| !process.ends_with(tid.to_string()));
            let mut others = others.map(|tid| Descriptors::shown_in(&tasks.join(tid.to_string())));
            if let Some(Ok(other)) = others.find(|other| matches!(other, Ok(o) if !o.is_empty)) {
                return Ok(other);
            }
        }
        Ok(found)
    }

    /// A thread that has ended shows none.
    fn shown_in(files: &Path) -> io::Result<Descriptors> {
        let mut found =
            Descriptors { files: files.to_path_buf(), is_empty: true, ..Descriptors::default() };
        for entry in fs::read_dir(files.join("fd"))? {
            let entry = entry?;
            found.is_empty = false;
            match fs::read_link(entry.path()) {
                Ok(to) => found.add(to.as_os_str().as_bytes()),
                Err(e) if e.kind() == ErrorKind::PermissionDenied => return Err(e),
                // It was closed after it was listed, or is a file whose path is too long to be shown.
                Err(_) => {}
            }
        }
        Ok(found)
    }

    fn add(&mut self, link: &[u8]) {
        self.vms += usize::from(link == VM);
        let Some(rest) = link.strip_prefix(VCPU) else { return };
        let number = rest.strip_prefix(b":").and_then(number);
        self.numbers.extend(number);
        self.unnumbered += usize::from(rest.is_empty());
        self.vcpus += usize::from(rest.is_empty() || number.is_some());
    }

    /// A VMM may close the VM's when it has the vCPUs'.
    pub fn has_vm(&self) -> bool {
        self.vms > 0 || self.vcpus > 0
    }

    fn count(&self) -> usize {
        self.numbers.len().max(self.unnumbered)
    }

    fn may_have(&self, number: u32) -> bool {
        self.numbers.is_empty() || self.numbers.contains(&number)
    }

    /// Whether these, sorted, may be vCPUs that the VMM numbers otherwise. QEMU's descriptors have numbers of
    /// APICs, which leave some out if cores of a socket are no power of 2. None is below that of its vCPU.
    fn fit(&self, named: &[Vcpu]) -> bool {
        let is_distinct = named.windows(2).all(|pair| pair[0].index < pair[1].index);
        let mut both = named.iter().rev().zip(self.numbers.iter().rev());
        let is_possible = is_distinct && named.len() <= self.numbers.len();
        is_possible && both.all(|(vcpu, number)| vcpu.index <= *number)
    }

    /// Whether KVM may have these vCPUs, each in one thread. Any thread may have the name of a vCPU's. Two vCPUs
    /// with one number are of two VMs.
    fn may_be(&self, named: &[Vcpu]) -> bool {
        let numbers: BTreeSet<u32> = named.iter().map(|vcpu| vcpu.index).collect();
        match numbers.len() == named.len() {
            true => self.vcpus == 0 || named.len() <= self.count(),
            false => self.vms > 1 && named.len() <= self.vcpus,
        }
    }
}

/// Whether a process, shown by its `task`, has one thread. Such a directory has a link per thread and two more.
/// Most processes are the kernel's own threads: to list each one's threads would take as long as the rest.
fn is_single(tasks: &Path) -> bool {
    fs::metadata(tasks).is_ok_and(|tasks| tasks.nlink() == 3)
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The vCPUs of a process.
pub struct Found {
    /// The threads that are known to run vCPUs, with the vCPUs' numbers.
    pub vcpus: Vec<Vcpu>,
    /// The number of its vCPUs, which is larger if some threads cannot be identified.
    pub count: usize,
    /// Whether more of the other threads have guest time than vCPUs are left.
    pub take_turns: bool,
}

/// Finds the vCPUs of a process.
///
/// If the VMM names the threads, the names decide. Otherwise a thread counts if it waits in the kernel
/// within `KVM_RUN`, which shows the vCPU's descriptor, or if it has guest time and no more such threads are left
/// than vCPUs.
pub fn find(process: &Path, monitor: Monitor, descriptors: &Descriptors) -> Found {
    let tasks = process.join("task");
    let mut tids = numbers_in(&tasks).unwrap_or_default();
    tids.sort_unstable();
    let named = |tid: &u32| {
        let comm = read_kernel(tasks.join(tid.to_string()).join("comm")).ok()?;
        Some(Vcpu { index: monitor.vcpu_index(&comm)?, tid: *tid })
    };
    let mut vcpus: Vec<Vcpu> = tids.iter().filter_map(named).collect();
    vcpus.sort_unstable();
    if !descriptors.fit(&vcpus) {
        vcpus.retain(|vcpu| descriptors.may_have(vcpu.index));
    }
    let is_sure = descriptors.vcpus == 0 || descriptors.may_be(&vcpus);
    if !is_sure {
        drop_doubtful(&mut vcpus);
    }
    if vcpus.len() >= descriptors.count() {
        let count = vcpus.len();
        return Found { vcpus, count, take_turns: false };
    }
    let is_named = is_sure && !vcpus.is_empty();
    let named: BTreeSet<u32> = vcpus.iter().map(|vcpu| vcpu.tid).collect();
    tids.retain(|tid| !named.contains(tid));
    let take_turns = add_running(&tasks, descriptors, &tids, &mut vcpus);
    // If threads are named, a descriptor without a thread is of a vCPU that was removed from the
    // VM.
    let count = if is_named { vcpus.len() } else { descriptors.count().max(vcpus.len()) };
    Found { vcpus, count, take_turns }
}

/// Of names that more threads have than KVM has vCPUs: leaves out those that occur twice, or else all.
fn drop_doubtful(named: &mut Vec<Vcpu>) {
    let pairs = named.windows(2).filter(|pair| pair[0].index == pair[1].index);
    let twice: BTreeSet<u32> = pairs.map(|pair| pair[0].index).collect();
    named.retain(|vcpu| !twice.is_empty() && !twice.contains(&vcpu.index));
}

/// Adds those of these threads that run vCPUs, without regard to their names. Returns whether more have guest time than
/// vCPUs are left.
fn add_running(
    tasks: &Path,
    descriptors: &Descriptors,
    tids: &[u32],
    vcpus: &mut Vec<Vcpu>,
) -> bool {
    let (mut running_in, mut unnumbered, mut with_ticks) = (Vec::new(), Vec::new(), Vec::new());
    for tid in tids.iter().copied() {
        let task = tasks.join(tid.to_string());
        let stat = read_kernel(task.join("stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat);
        let number = |at: usize| field::<u64>(&stat, at).unwrap_or_default();
        if number(FLAGS) & PF_USER_WORKER != 0 {
            continue;
        }
        match running(&descriptors.files, &task) {
            Some(Some(index)) => running_in.push(Vcpu { index, tid }),
            Some(None) => unnumbered.push(tid),
            None if number(GUEST_TIME) > 0 => with_ticks.push(tid),
            None => {}
        }
    }
    let mut times: BTreeMap<u32, usize> = BTreeMap::new();
    running_in.iter().for_each(|vcpu| *times.entry(vcpu.index).or_default() += 1);
    let named: BTreeSet<u32> = vcpus.iter().map(|vcpu| vcpu.index).collect();
    let taken: BTreeSet<u32> = named.iter().chain(times.keys()).copied().collect();
    // Of two threads with one vCPU it is not known which runs it.
    running_in.retain(|vcpu| descriptors.vms > 1 || times[&vcpu.index] == 1);
    // In one VM a thread with the name of a vCPU has its number.
    let is_free = |vcpu: &Vcpu| descriptors.vms > 1 || !named.contains(&vcpu.index);
    let (own, others): (Vec<Vcpu>, Vec<Vcpu>) = running_in.into_iter().partition(is_free);
    vcpus.extend(own);
    unnumbered.extend(others.iter().map(|vcpu| vcpu.tid));
    // Threads may take turns with a vCPU, and another thread may have begun it.
    let most = if descriptors.vms > 1 { descriptors.vcpus } else { descriptors.count() };
    let free = most.saturating_sub(taken.len().max(vcpus.len()) + unnumbered.len());
    let take_turns = with_ticks.len() > free;
    if !take_turns {
        unnumbered.extend(with_ticks);
    }
    unnumbered.sort_unstable();
    let free = descriptors.numbers.iter().copied().filter(|number| !taken.contains(number));
    let more = (0..).filter(|n| !taken.contains(n) && !descriptors.numbers.contains(n));
    vcpus.extend(free.chain(more).zip(unnumbered).map(|(index, tid)| Vcpu { index, tid }));
    vcpus.sort_unstable();
    take_turns
}

/// Whether a thread is within `KVM_RUN`, and of which vCPU: in `16 0x11 0xae80 …` the second number is
/// the descriptor. The kernel shows this only for sleeping threads.
fn running(files: &Path, task: &Path) -> Option<Option<u32>> {
    let call = read_kernel_text(task.join("syscall")).ok()?;
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let mut words = call.split_whitespace().skip(1);
    let (fd, request) = (hex(words.next()?)?, hex(words.next()?)?);
    if request & 0xffff != KVM_RUN {
        return None;
    }
    let link = fs::read_link(files.join("fd").join(fd.to_string())).ok()?;
    let rest = link.as_os_str().as_bytes().strip_prefix(VCPU)?;
    match rest {
        b"" => Some(None),
        rest => Some(Some(number(rest.strip_prefix(b":")?)?)),
    }
}
