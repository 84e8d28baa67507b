// SPDX-License-Identifier: MIT OR Apache-2.0
//! The VMs of a host according to /proc: the processes that have KVM VMs, the names of the VMs, and
//! which threads run vCPUs. Processes and threads that end meanwhile are left out. Only a
//! [`journal::Journal`] changes the host; it records what to restore.

mod called;
mod cgroup;
mod children;
mod command_line;
mod containers;
pub mod cpus;
mod groups;
mod heirs;
pub mod journal;
mod kvm;
pub mod module;
mod monitor;
mod name;
mod named;
mod names;
mod owner;
pub mod place;
mod placed;
pub mod policy;
mod qemu;
mod rivals;
mod sched_ext;
pub mod slice;
mod socket;
pub mod source;
mod task;
mod tree;
mod unseen;
mod vcpus;

pub use called::{is_explicit, keep_told, meant, tell_apart, By};
pub use cgroup::{Cgroup, Version};
pub use command_line::QemuOption;
pub use containers::Records;
pub use groups::{tightest, Groups, Limit, Limited, Place};
pub use heirs::{Before, Starters};
pub use kvm::{tsc_khz, Kvm};
pub use monitor::Monitor;
pub use name::Name;
pub use names::{Kind, Names};
pub use owner::{euid, Owner};
pub use rivals::Rival;
pub use sched_ext::SchedExt;
pub use task::Task;
pub use tree::{Tree, Used};
pub use vcpus::Vcpu;

use journal::{Back, Change, Hands, Target};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use unspin_text::{read_kernel, read_kernel_text};
use vcpus::Descriptors;

/// A process that has VMs: under QEMU exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmProcess {
    pub pid: u32,
    /// The program that it runs.
    pub monitor: Monitor,
    pub names: Names,
    /// Threads that are known to run vCPUs, by their vCPUs' numbers.
    pub vcpus: Vec<Vcpu>,
    /// Its number of vCPUs, including those whose threads are unknown. 0 if the VMM has created none yet,
    /// or if it does not name their threads and its descriptors are not readable.
    pub vcpu_count: usize,
    /// Whether more of its threads ran a guest than it has vCPUs: they take turns, and cannot be told apart.
    pub take_turns: bool,
    title: called::Title,
}

impl VmProcess {
    pub fn new(pid: u32, monitor: Monitor, names: Names, vcpus: Vec<Vcpu>) -> VmProcess {
        let vcpu_count = vcpus.len();
        let title = called::Title::default();
        let take_turns = false;
        let mut vm = VmProcess { pid, monitor, names, vcpus, vcpu_count, take_turns, title };
        tell_apart(std::slice::from_mut(&mut vm), &[]);
        vm
    }

    /// The best name, if it has any.
    pub fn name(&self) -> Option<&Name> {
        self.names.best().map(|(_, name)| name)
    }

    /// The best name for programs: as it is if commands accept that for this VM, otherwise the title.
    pub fn name_text(&self) -> Option<String> {
        let text = self.name()?.to_text();
        // Such a text names another VM, if there is one, before it names this one.
        let is_taken = self.title.is_name_taken || called::is_told(&text) || text.contains(" (");
        match meant(text.as_bytes(), Some(self), None) {
            Some(_) if !is_taken => Some(text),
            _ => Some(self.title().to_string()),
        }
    }

    pub fn uuid(&self) -> Option<String> {
        self.names.get(Kind::Uuid).map(Name::to_text)
    }

    /// Its title, in one line of printable characters: `web1`, `web1 (vmid:104)`, or `pid:4242` without a
    /// name. Commands accept it for this VM, and for no other VM that was passed to [`tell_apart`].
    pub fn title(&self) -> &str {
        &self.title.text
    }

    /// What distinguishes it from VMs with the same name, for example `vmid:104` or `process 4242`.
    pub fn apart(&self) -> Option<&str> {
        self.title.parts().1
    }

    /// The VM in messages: `4242-0 (web1)`, `4242-0 (web1, vmid:104)` if others have this name, or
    /// `pid:4242-0` without a name, or with one such as `process 5`. Commands accept it for this VM.
    pub fn label(&self, id: &str) -> String {
        let (name, apart) = self.title.parts();
        match apart {
            _ if self.name().is_none() || called::is_told(name) => format!("pid:{id}"),
            // The id already contains the process.
            Some(apart) if !apart.starts_with("process ") => format!("{id} ({name}, {apart})"),
            _ => format!("{id} ({name})"),
        }
    }

    /// The VM with its title from `before`, if its names are the same.
    #[must_use]
    pub fn called_as(self, before: &VmProcess) -> VmProcess {
        match self.names == before.names {
            true => VmProcess { title: before.title.clone(), ..self },
            false => self,
        }
    }

    /// The title if it is one word for a shell, otherwise its process: for commands that people copy.
    pub fn selector(&self) -> String {
        match is_word(self.title()) {
            true => self.title().to_string(),
            false => format!("pid:{}", self.pid),
        }
    }

    /// Whether it has vCPUs. Others are VMs that start, and processes that only hold a VM's descriptor.
    pub fn has_vcpus(&self) -> bool {
        self.vcpu_count > 0
    }

    /// Whether it has vCPUs and the threads of all are known.
    pub fn is_all_known(&self) -> bool {
        !self.vcpus.is_empty() && self.vcpus.len() >= self.vcpu_count
    }
}

/// Whether it is one word for a shell, and no option.
fn is_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@+,=%".contains(c);
    text.chars().all(is_plain) && !text.starts_with('-')
}

/// The processes of a host.
#[derive(Debug, Clone)]
pub struct Host {
    proc: PathBuf,
    sys: PathBuf,
    /// `/etc/passwd`.
    users: PathBuf,
}

impl Default for Host {
    fn default() -> Host {
        Host::at(&place::proc())
    }
}

impl Host {
    /// The host whose processes `proc` shows. Its `sys` is beside `proc`, unless the environment names
    /// [`place::sys()`].
    pub fn at(proc: &Path) -> Host {
        let root = proc.parent().unwrap_or(Path::new("/"));
        let sys = place::sys_named().unwrap_or_else(|| root.join("sys"));
        Host { proc: proc.to_path_buf(), sys, users: place::of_proc(proc).join("etc/passwd") }
    }

    /// Every process, by process id, whether it has VMs or not.
    pub fn processes(&self) -> io::Result<BTreeSet<u32>> {
        Ok(numbers_in(&self.proc)?.into_iter().collect())
    }

    /// Every process that has VMs, by process id. Without root, processes of other users are
    /// included only if they have vCPU threads. Their titles are distinct.
    pub fn vm_processes(&self) -> io::Result<Vec<VmProcess>> {
        let pids = self.processes()?;
        let mut records = self.records();
        let mut vms: Vec<VmProcess> =
            pids.into_iter().filter_map(|pid| self.look_at(pid, &mut records)).collect();
        tell_apart(&mut vms, &[]);
        Ok(vms)
    }

    /// The process of a thread, if it has VMs. The first thread of a process has the process's id.
    pub fn vm_process(&self, tid: u32) -> Option<VmProcess> {
        self.vm_process_by(tid, &mut self.records())
    }

    /// The same, with records that were read for other processes.
    pub fn vm_process_by(&self, tid: u32, records: &mut Records) -> Option<VmProcess> {
        self.look_at(self.process_of(tid).unwrap_or(tid), records)
    }

    /// The records of containers, not yet read.
    pub fn records(&self) -> Records {
        Records::of(self.proc.join("1/root"))
    }

    /// The process of a VM in the module, whose id is `<pid>-<n>` after the thread that created it.
    pub fn of_module_id(&self, id: &str) -> Option<VmProcess> {
        self.vm_process(module::maker_of(id)?)
    }

    /// All threads of a process; empty if it has ended.
    pub fn threads(&self, pid: u32) -> Vec<u32> {
        let mut threads = numbers_in(&self.dir(pid).join("task")).unwrap_or_default();
        threads.sort_unstable();
        threads
    }

    fn process_of(&self, tid: u32) -> Option<u32> {
        task::process_in(&self.text(tid, "status")?)
    }

    fn look_at(&self, pid: u32, records: &mut Records) -> Option<VmProcess> {
        let process = self.dir(pid);
        let descriptors = match Descriptors::of(&process) {
            Ok(found) if found.has_vm() => Some(found),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => None,
            _ => return None,
        };
        let files = descriptors.as_ref().map_or(&process, |found| &found.files);
        let args = read_kernel(files.join("cmdline")).unwrap_or_default();
        let mut args: Vec<&[u8]> = args.split(|b| *b == 0).collect();
        // Each argument ends with a NUL, unless the program has written over them.
        if args.last().is_some_and(|last| last.is_empty()) {
            args.pop();
        }
        let started = monitor_of(files, &args);
        let (monitor, _, args) = started;
        if descriptors.is_none() && monitor == Monitor::Other {
            // Threads of any program may have such names.
            return None;
        }
        let known = descriptors.as_ref();
        let found = vcpus::find(&process, monitor, known.unwrap_or(&Descriptors::default()));
        let vcpus::Found { vcpus, count, take_turns } = found;
        let is_probe = || monitor == Monitor::Qemu && qemu::is_without_machine(args);
        if (descriptors.is_none() && vcpus.is_empty()) || (count == 0 && is_probe()) {
            return None;
        }
        let names = self.names(pid, vcpus.first(), started, records);
        let vm = VmProcess::new(pid, monitor, names, vcpus);
        Some(VmProcess { vcpu_count: count, take_turns, ..vm })
    }

    /// The options with which QEMU was started, in order; empty if it has ended.
    pub fn qemu_options(&self, pid: u32) -> Vec<QemuOption> {
        let process = self.dir(pid);
        let files = Descriptors::of(&process).map_or(process, |found| found.files);
        command_line::qemu_options(&files)
    }

    /// The cgroup that controls a thread's CPU time.
    pub fn cgroup(&self, tid: u32) -> Option<Cgroup> {
        Cgroup::parse(&self.text(tid, "cgroup")?)
    }

    /// The scheduler's counts of a thread, as the kernel prints them: ns on a CPU, ns ready without one,
    /// time slices.
    pub fn schedstat(&self, tid: u32) -> Option<String> {
        read_kernel_text(self.dir(tid).join("schedstat")).ok()
    }

    /// Start time of a thread, in clock ticks since boot; `None` if it has ended. Two threads with the
    /// same id have different start times.
    pub fn start_time(&self, tid: u32) -> Option<u64> {
        self.stat(tid, 22)
    }

    /// The CPU on which a thread runs, or ran last; `None` if it has ended.
    pub fn last_cpu(&self, tid: u32) -> Option<u32> {
        self.stat(tid, 39)
    }

    /// The scheduling policy of a thread, a `SCHED_` number of sched(7); `None` if it has ended.
    pub fn scheduling_policy(&self, tid: u32) -> Option<i32> {
        self.stat(tid, 41)
    }

    /// CPU time of all threads of a process together, in ns; `None` if it has ended.
    pub fn cpu_time_ns(&self, pid: u32) -> Option<u64> {
        // SAFETY: it takes no pointers.
        let ticks_per_s = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
        let ticks = self.stat::<u64>(pid, 14)? + self.stat::<u64>(pid, 15)?;
        Some(ticks * (1_000_000_000 / ticks_per_s.max(1)))
    }

    /// The nice value of a thread, -20 to 19; `None` if it has ended.
    pub fn nice(&self, tid: u32) -> Option<i32> {
        self.stat(tid, 19)
    }

    /// A numeric field of `/proc/TID/stat`, counted from 1 as in proc(5).
    fn stat<T: FromStr>(&self, tid: u32, field: usize) -> Option<T> {
        task::field(&self.text(tid, "stat")?, field)
    }

    /// The CPUs on which a thread may run; empty if it has ended.
    pub fn allowed_cpus(&self, tid: u32) -> BTreeSet<u32> {
        task::cpus_in(&self.text(tid, "status").unwrap_or_default())
    }

    /// The CPUs of the cpuset that a thread is in, if its cgroup is of version 2 and is seen here.
    fn cpuset(&self, tid: u32) -> Option<BTreeSet<u32>> {
        let groups = read_kernel_text(self.dir(tid).join("cgroup")).ok()?;
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        if group.split('/').any(|part| part == "..") {
            return None;
        }
        let root = self.sys.join("fs/cgroup");
        let dir = root.join(group);
        let mut around = dir.ancestors().take_while(|dir| dir.starts_with(&root));
        let list = around.find_map(|dir| read_kernel_text(dir.join("cpuset.cpus.effective")).ok());
        list.as_deref().and_then(cpus::parse).filter(|cpus| !cpus.is_empty())
    }

    /// Those CPUs that are online: a thread may also be allowed offline CPUs.
    pub fn usable_cpus(&self, tid: u32) -> BTreeSet<u32> {
        cpus::usable(&self.allowed_cpus(tid), self.online_cpus().as_ref())
    }

    /// The online CPUs; `None` if `/proc/stat` does not show them.
    pub fn online_cpus(&self) -> Option<BTreeSet<u32>> {
        let stat = read_kernel_text(self.proc.join("stat")).ok()?;
        let number = |line: &str| line.strip_prefix("cpu")?.split(' ').next()?.parse().ok();
        let cpus: BTreeSet<u32> = stat.lines().filter_map(number).collect();
        (!cpus.is_empty()).then_some(cpus)
    }

    /// A file of a thread. It may contain the thread's name, which is any bytes: the kernel cuts a name after
    /// 15 bytes, also within a character.
    fn text(&self, tid: u32, file: &str) -> Option<String> {
        let bytes = read_kernel(self.dir(tid).join(file)).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn dir(&self, pid: u32) -> PathBuf {
        self.proc.join(pid.to_string())
    }
}

impl Hands for Host {
    fn key(&self, target: &Target) -> io::Result<Option<u64>> {
        match target {
            Target::File { path } if !path.exists() => Ok(None),
            Target::File { path } => {
                let dir = path.parent().unwrap_or(Path::new("/"));
                match fs::metadata(dir) {
                    Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
                    found => Ok(Some(found?.ino())),
                }
            }
            of_thread => Ok(of_thread.thread().and_then(|tid| self.start_time(tid))),
        }
    }

    fn read(&self, target: &Target) -> io::Result<String> {
        match target {
            Target::File { path } => {
                let text = read_kernel_text(path)?;
                Ok(text.lines().next().unwrap_or_default().trim().to_string())
            }
            Target::Affinity { tid } => Ok(cpus::list(&self.allowed_cpus(*tid))),
            Target::Slice { tid } => Ok(slice::of(*tid)?.to_string()),
            Target::Nice { tid } => Ok(self.nice(*tid).ok_or(ErrorKind::NotFound)?.to_string()),
            Target::Policy { tid } => Ok(policy::of(*tid)?.to_string()),
        }
    }

    fn write(&self, target: &Target, value: &str) -> io::Result<()> {
        match target {
            Target::File { path } => {
                // Write the value at once, then truncate a longer old value: even in an ordinary file
                // the first line is always one of the two values.
                let mut file = OpenOptions::new().write(true).open(path)?;
                let line = format!("{value}\n");
                file.write_all(line.as_bytes())?;
                file.set_len(line.len() as u64)
            }
            Target::Affinity { tid } => {
                let cpus = cpus::parse(value).filter(|cpus| !cpus.is_empty());
                let cpus = cpus.ok_or(ErrorKind::InvalidInput)?;
                // Then it may also use CPUs that the cpuset gets later.
                let is_free = |set: BTreeSet<u32>| set.is_subset(&cpus) || set.is_disjoint(&cpus);
                match self.cpuset(*tid).is_some_and(is_free) {
                    true => cpus::set_affinity(*tid, &(0..cpus::NUMBERS).collect()),
                    false => cpus::set_affinity(*tid, &cpus),
                }
            }
            Target::Slice { tid } => slice::set(*tid, number(value)?),
            // SAFETY: it takes no pointers.
            Target::Nice { tid } => slice::result(unsafe {
                libc::setpriority(libc::PRIO_PROCESS, *tid, number(value)?)
            }),
            Target::Policy { tid } => policy::set(*tid, number(value)?),
        }
    }

    /// A cpuset that lost CPUs takes them from its threads. One that has none of theirs gives them all that it has.
    fn is_still(&self, target: &Target, is: &str, set: &str) -> bool {
        let Target::Affinity { tid } = target else { return is == set };
        is == set || self.cpuset(*tid).is_some_and(|cpuset| is_left(is, set, &cpuset))
    }

    fn restored(&self, done: &[(Change, Back)], rest: &[Change]) -> io::Result<()> {
        self.restore_heirs(done, rest)
    }
}

/// Whether these CPUs are what a cpuset leaves of those that were set.
fn is_left(is: &str, set: &str, cpuset: &BTreeSet<u32>) -> bool {
    let Some(set) = cpus::parse(set) else { return false };
    let both = &set & cpuset;
    is == cpus::list(if both.is_empty() { cpuset } else { &both })
}

/// A VMM, its program's path, and the arguments after that.
type Started<'a> = (Monitor, &'a [u8], &'a [&'a [u8]]);

/// What runs in the process that this directory shows.
fn monitor_of<'a>(files: &Path, args: &'a [&'a [u8]]) -> Started<'a> {
    let Some((program, rest)) = args.split_first() else { return (Monitor::Other, &[], &[]) };
    let started = (Monitor::of(program, rest), *program, rest);
    if started.0 != Monitor::Other {
        return started;
    }
    let exe = fs::read_link(files.join("exe")).unwrap_or_default();
    let exe = exe.as_os_str().as_bytes();
    if monitor::is_loader(program) && monitor::is_loader(exe) {
        // The program is an argument after the loader's own.
        let mut tails = (0..rest.len()).map(|at| (rest[at], &rest[at + 1..]));
        let found = tails.find(|(program, rest)| Monitor::of(program, rest) != Monitor::Other);
        return found
            .map_or(started, |(program, rest)| (Monitor::of(program, rest), program, rest));
    }
    (Monitor::of(exe, rest), program, rest)
}

fn number<T: FromStr>(text: &str) -> io::Result<T> {
    text.parse().map_err(|_| ErrorKind::InvalidInput.into())
}

/// The numeric names in a directory.
fn numbers_in(dir: &Path) -> io::Result<Vec<u32>> {
    let names = fs::read_dir(dir)?.flatten().map(|entry| entry.file_name());
    Ok(names.filter_map(|name| name.to_str()?.parse().ok()).collect())
}
