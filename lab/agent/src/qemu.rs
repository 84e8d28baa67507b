// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Linux guest: QEMU's process, and the area of the guest's memory that the host maps.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unspin_guest_abi::area::{self, Area, Mapped};
use unspin_scenario::plan::{GuestIdle, GuestLock, LinuxFiles, LinuxGuest};
use unspin_scenario::result::{FoundGuest, Responses};
use unspin_scenario::Named;
use unspin_vmm::process::now_ns;
use unspin_vmm::{ends_with_this_thread, Counter, Counts};

use crate::{interrupt, Error};

/// Kernel parameters of every guest, before those for the machine, its lock and idling. The self-tests
/// of ciphers would take longer than the rest of the boot.
const CMDLINE: &str = "console=ttyS0 quiet panic=-1 cryptomgr.notests";
/// The file system for guests' memory, which QEMU and this process both map.
const SHARED_MEMORY: &str = "/dev/shm";
const KVM_STATISTICS: &str = "/sys/kernel/debug/kvm";
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Messages of the kernel that report a fault. A panic ends the guest.
const FAULTS: [&str; 4] =
    ["BUG: ", "Oops: ", "general protection fault", "exited with irqs disabled"];
/// Lines of a guest's console in an error.
const CONSOLE_LINES: usize = 8;

/// A running guest. Dropping it kills it.
pub(crate) struct Qemu {
    vm: u32,
    child: Child,
    /// The name of the file with its memory, until QEMU has mapped it.
    memory: Option<NewFile>,
    area: Mapped,
    console: NewFile,
    /// Threads of its vCPUs, by number, once it is ready.
    pub(crate) tids: Vec<i32>,
    serial: u32,
    /// Limit of the time to carry out a command.
    patience: Duration,
    lock: GuestLock,
    module: bool,
}

/// A guest at one moment.
#[derive(Debug, Clone)]
pub(crate) struct GuestCounts {
    pub(crate) at_ns: u64,
    pub(crate) units: u64,
    /// CPU time of QEMU's process.
    pub(crate) cpu_ns: u64,
    /// The part in which KVM polled for the end of a halt, if known.
    pub(crate) halt_poll_ns: Option<u64>,
    /// Response times that its program has recorded, if it records any.
    pub(crate) responses: Responses,
}

impl Qemu {
    /// Starts VM number `vm`; [`Qemu::wait_ready`] waits until its runner is up.
    pub(crate) fn spawn(
        vm: u32,
        guest: &LinuxGuest,
        vcpus: u32,
        files: &LinuxFiles,
    ) -> Result<Qemu, Error> {
        let kernel = files.kernels.get(&guest.kernel).ok_or_else(|| Error::Vm {
            vm,
            error: format!("the plan has no kernel {} for its guest", guest.kernel),
        })?;
        let own = std::process::id();
        let path = Path::new(SHARED_MEMORY).join(format!("unspin-{own}-{vm}"));
        let (memory, file) = NewFile::make(path.clone())?;
        let io = |e| Error::io(&path, e);
        file.set_len(u64::from(guest.memory_mib) << 20).map_err(io)?;
        let (memory, area) = (Some(memory), Mapped::new(&file, area::ADDR).map_err(io)?);
        let console = std::env::temp_dir().join(format!("unspin-{own}-{vm}.console"));
        let (console, _) = NewFile::make(console)?;
        let mut command = Command::new(&files.qemu);
        if let Some(firmware) = &files.firmware {
            command.args(["-L", firmware]);
        }
        command
            .args(["-M", "microvm,rtc=on,pit=on,pic=on,memory-backend=ram", "-accel", "kvm"])
            // As libvirt without a topology: each vCPU is a socket.
            .args(["-cpu", cpu(guest.lock)])
            .args(["-smp", &format!("{vcpus},sockets={vcpus},cores=1,threads=1")])
            .args(["-m", &guest.memory_mib.to_string()])
            .arg("-object")
            .arg(format!(
                "memory-backend-file,id=ram,size={}M,mem-path={},share=on",
                guest.memory_mib,
                path.display()
            ))
            .args(["-name", &format!("guest=unspin-{vm},debug-threads=on")])
            .args(["-kernel", kernel, "-initrd", &files.initramfs, "-append"])
            .arg(cmdline(guest, &files.cmdline))
            .args(["-display", "none", "-nodefaults", "-no-user-config", "-no-reboot"])
            .arg("-serial")
            .arg(format!("file:{}", console.0.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // The terminal's ^C does not reach it: the agent ends its guests.
            .process_group(0);
        let child =
            ends_with_this_thread(&mut command, libc::SIGKILL).spawn().map_err(|e| {
                match e.kind() {
                    std::io::ErrorKind::NotFound => Error::NoQemu { program: files.qemu.clone() },
                    _ => Error::io(&files.qemu, e),
                }
            })?;
        let patience = Duration::from_secs(files.patience_s);
        let (tids, serial, lock, module) = (Vec::new(), 0, guest.lock, guest.module);
        Ok(Qemu { vm, child, memory, area, console, tids, serial, patience, lock, module })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the guest's runner is up and all vCPUs are.
    pub(crate) fn wait_ready(&mut self, vcpus: u32) -> Result<(), Error> {
        self.wait("boot", |area| area.guest.magic.load(Ordering::Acquire) == area::MAGIC)?;
        // Both have mapped it. Without its name, nothing is left behind if either is killed.
        self.memory = None;
        let guest = &self.area.guest;
        let version = guest.version.load(Ordering::Relaxed);
        if version != area::VERSION {
            let error = format!("its runner speaks version {version}, not {}", area::VERSION);
            return Err(self.error(error));
        }
        let online = guest.online.load(Ordering::Relaxed);
        if online != vcpus {
            return Err(self.error(format!("its kernel has brought up {online} of {vcpus} vCPUs")));
        }
        let found = area::text(&self.area.found.lock);
        if found != self.lock.called() {
            let wanted = self.lock.called();
            let error = format!("its kernel has {found} locks where {wanted} is wanted");
            return Err(self.error(error));
        }
        if area::text(&self.area.found.module).is_empty() == self.module {
            let wanted = if self.module { "is not" } else { "is" };
            return Err(self.error(format!("unspin-guest {wanted} loaded in it")));
        }
        self.tids = vcpu_threads(self.pid())?;
        if self.tids.len() != vcpus as usize {
            let (found, vm) = (self.tids.len(), self.vm);
            let error = format!("QEMU has {found} threads named `CPU n/KVM`, not {vcpus}");
            return Err(Error::Vm { vm, error });
        }
        Ok(())
    }

    /// Tells the runner to end the present program and start `program`; with the empty name it
    /// starts none. [`Qemu::answered`] waits until that is done.
    pub(crate) fn command(&mut self, program: &str, seed: u64) -> Result<(), Error> {
        self.serial += 1;
        let host = &self.area.host;
        host.seed.store(seed, Ordering::Relaxed);
        if !area::set_text(&host.program, program) {
            return Err(self.error(format!("its program's name {program:?} is too long")));
        }
        host.serial.store(self.serial, Ordering::Release);
        Ok(())
    }

    pub(crate) fn answered(&mut self) -> Result<(), Error> {
        let serial = self.serial;
        self.wait("start its program", |area| {
            area.guest.answered.load(Ordering::Acquire) == serial
        })?;
        self.check()
    }

    /// Waits until its count exceeds `before`.
    pub(crate) fn works(&mut self, before: u64) -> Result<(), Error> {
        self.wait("do a unit of work", |area| {
            area.units() > before || area.guest.state.load(Ordering::Relaxed) >= area::STATE_FAILED
        })?;
        self.check()
    }

    pub(crate) fn units(&self) -> u64 {
        self.area.units()
    }

    /// Checks that guest and program work.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        self.lives()?;
        let guest = &self.area.guest;
        let boots = guest.boots.load(Ordering::Relaxed);
        if boots > 1 {
            return Err(self.error(format!("it rebooted ({boots} boots)")));
        }
        if let Some(line) = self.fault() {
            return Err(self.error(format!("its kernel had a fault: {line}")));
        }
        match guest.state.load(Ordering::Relaxed) {
            area::STATE_READY | area::STATE_RUNS => Ok(()),
            _ => {
                let program = area::text(&self.area.host.program);
                let why = area::text(&self.area.error);
                Err(self.error(format!("its program {program} failed: {why}")))
            }
        }
    }

    /// The features that its kernel found.
    pub(crate) fn found(&self) -> FoundGuest {
        let found = &self.area.found;
        FoundGuest {
            kernel: area::text(&found.kernel),
            lock: area::text(&found.lock),
            ipis: area::text(&found.ipis),
            tlb_flush: area::text(&found.tlb_flush),
            sched_yield: area::text(&found.sched_yield),
            clocksource: area::text(&found.clocksource),
            module: area::text(&found.module),
        }
    }

    /// Work and CPU time until now. This causes no exits.
    pub(crate) fn counts(&self) -> Result<GuestCounts, Error> {
        let (at_ns, units, cpu_ns) = (now_ns(), self.units(), self.cpu_ns()?);
        let (halt_poll_ns, responses) = (self.halt_poll_ns(), self.responses());
        Ok(GuestCounts { at_ns, units, cpu_ns, halt_poll_ns, responses })
    }

    fn responses(&self) -> Responses {
        let of = &self.area.responses;
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let hist = of.hist.iter().map(read).collect();
        Responses { count: read(&of.count), cycles: read(&of.cycles), hist }
    }

    /// KVM's count, from the VM's directory in debugfs.
    fn halt_poll_ns(&self) -> Option<u64> {
        let own = format!("{}-", self.pid());
        let vms = fs::read_dir(KVM_STATISTICS).ok()?.flatten();
        let dir = vms.map(|vm| vm.path()).find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&own))
        })?;
        let read = |name| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok();
        Some(read("halt_poll_success_ns")? + read("halt_poll_fail_ns")?)
    }

    fn cpu_ns(&self) -> Result<u64, Error> {
        let mut clock: libc::clockid_t = 0;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: both results outlive the calls.
        let known = unsafe {
            libc::clock_getcpuclockid(self.child.id() as libc::pid_t, &mut clock) == 0
                && libc::clock_gettime(clock, &mut time) == 0
        };
        match known {
            true => Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
            false => Err(self.error("its CPU time cannot be read".into())),
        }
    }

    /// The scheduler's counts of its vCPUs until now.
    pub(crate) fn sched(&self) -> Result<Vec<Counts>, Error> {
        let counts = |tid: &i32| {
            let task = PathBuf::from(format!("/proc/{}/task/{tid}", self.pid()));
            let counts = Counter::open(&task).and_then(|counter| counter.read());
            counts.map_err(|e| Error::io(&task, e))
        };
        self.tids.iter().map(counts).collect()
    }

    fn wait(&mut self, what: &'static str, is_done: impl Fn(&Area) -> bool) -> Result<(), Error> {
        let start = Instant::now();
        while !is_done(&self.area) {
            interrupt::check()?;
            self.lives()?;
            if start.elapsed() > self.patience {
                let seconds = self.patience.as_secs();
                return Err(self.error(format!("it did not {what} within {seconds} s")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn lives(&mut self) -> Result<(), Error> {
        let ended = self.child.try_wait().map_err(|e| Error::io("QEMU", e))?;
        let Some(status) = ended else { return Ok(()) };
        let mut said = String::new();
        if let Some(stderr) = self.child.stderr.as_mut() {
            // The process has ended, and its output is in the pipe.
            let _ = std::io::Read::read_to_string(stderr, &mut said);
        }
        let said = match said.trim() {
            "" => "its guest panicked, rebooted or was switched off",
            said => said,
        };
        Err(self.error(format!("QEMU ended ({status}): {said}")))
    }

    fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console.0).unwrap_or_default()).into_owned()
    }

    /// The first console line that reports a fault. The guest may continue to run after it.
    fn fault(&self) -> Option<String> {
        let is_fault = |line: &&str| FAULTS.iter().any(|fault| line.contains(fault));
        self.console().lines().find(is_fault).map(|line| line.trim().to_string())
    }

    /// The error with what the runner said last, and the end of the console's output, if there is any.
    fn error(&self, mut error: String) -> Error {
        let text = self.console();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        if let Some(said) = lines.iter().rev().find(|line| line.contains("runner: ")) {
            error += &format!("; {}", said.trim());
        }
        if !lines.is_empty() {
            let from = lines.len().saturating_sub(CONSOLE_LINES);
            error += &format!("; its console ends: {}", lines[from..].join(" | "));
        }
        Error::Vm { vm: self.vm, error }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// QEMU's CPU model.
fn cpu(lock: GuestLock) -> &'static str {
    match lock {
        GuestLock::TestAndSet => "host,-kvm-pv-unhalt",
        _ => "host",
    }
}

fn cmdline(guest: &LinuxGuest, machines: &str) -> String {
    let mut words = vec![CMDLINE, area::RESERVE];
    words.extend(machines.split_whitespace());
    words.extend(guest.lock.parameter());
    if guest.idle == GuestIdle::Poll {
        words.push("idle=poll");
    }
    words.extend(guest.extra_cmdline.split_whitespace());
    let module = format!("{}report=1", area::MODULE_WORD);
    if guest.module {
        words.push(&module);
    }
    words.join(" ")
}

/// The vCPU threads of QEMU's process, in the order of vCPUs.
fn vcpu_threads(pid: u32) -> Result<Vec<i32>, Error> {
    let dir = PathBuf::from(format!("/proc/{pid}/task"));
    let mut found: Vec<(u32, i32)> = Vec::new();
    for task in fs::read_dir(&dir).map_err(|e| Error::io(&dir, e))?.flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let vcpu = name.trim().strip_prefix("CPU ").and_then(|n| n.strip_suffix("/KVM"));
        let tid = task.file_name().into_string().ok().and_then(|tid| tid.parse().ok());
        found.extend(vcpu.and_then(|n| n.parse().ok()).zip(tid));
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, tid)| tid).collect())
}

/// A new file that no other user can read, for a guest's memory or console. Dropping this removes
/// it.
struct NewFile(PathBuf);

impl NewFile {
    /// Removes a file left by an earlier agent with the same number.
    fn make(path: PathBuf) -> Result<(NewFile, File), Error> {
        let _ = fs::remove_file(&path);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|e| Error::io(&path, e))?;
        Ok((NewFile(path), file))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Checks that this much memory is available. Otherwise a guest would be killed during a run.
pub(crate) fn check_room(mib: u64) -> Result<(), Error> {
    let free = [shared_mib(), available_mib()].into_iter().flatten().min();
    match free.filter(|free| *free < mib) {
        None => Ok(()),
        Some(free) => Err(Error::NoMemory {
            path: SHARED_MEMORY.into(),
            mib,
            error: format!("{free} MiB are free"),
        }),
    }
}

/// The free space for files in memory.
fn shared_mib() -> Option<u64> {
    let path = CString::new(SHARED_MEMORY).ok()?;
    // SAFETY: the path is a string of C's, and `stat` is filled in before it is read.
    let stat = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut stat) == 0).then_some(stat)
    }?;
    Some((stat.f_bavail * stat.f_frsize) >> 20)
}

/// The available memory of the host, regardless of limits on files.
fn available_mib() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib >> 10)
}
