// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Linux guest: QEMU's process, and the area of the guest's memory that the host maps.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use unspin_guest_abi::area::{self, Area};
use unspin_scenario::plan::{GuestIdle, GuestLock, LinuxFiles, LinuxGuest};
use unspin_scenario::result::{FoundGuest, SchedStats};
use unspin_vmm::process::now_ns;

use crate::{interrupt, Error};

/// Words every guest's kernel is booted with, before those that its lock and idling take. The tests
/// of ciphers take more time than the rest of the boot. Bochs takes its random numbers from this
/// computer, and no two boots would be alike.
const CMDLINE: &str =
    "console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests clearcpuid=rdrand,rdseed";
/// Where memory is files; QEMU's and ours are one.
const SHARED_MEMORY: &str = "/dev/shm";
/// How long a guest may take from QEMU's start until its runner is ready.
const BOOT_TIMEOUT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Lines of a guest's console that an error shows.
const CONSOLE_LINES: usize = 8;

/// A running guest; dropped, it is killed.
pub(crate) struct Qemu {
    vm: u32,
    child: Child,
    memory: Memory,
    console: PathBuf,
    /// Threads of its vCPUs, by number, once it is ready.
    pub(crate) tids: Vec<i32>,
    serial: u32,
}

/// A guest at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuestCounts {
    pub(crate) at_ns: u64,
    pub(crate) units: u64,
    /// CPU time of QEMU's process.
    pub(crate) cpu_ns: u64,
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
        let memory = Memory::make(&path, u64::from(guest.memory_mib) << 20)?;
        let console = std::env::temp_dir().join(format!("unspin-{own}-{vm}.console"));
        let mut command = Command::new(&files.qemu);
        if let Some(firmware) = &files.firmware {
            command.args(["-L", firmware]);
        }
        command
            .args(["-M", "microvm,rtc=on,pit=on,pic=on,memory-backend=ram", "-accel", "kvm"])
            .args(["-cpu", cpu(guest.lock), "-smp", &vcpus.to_string()])
            .args(["-m", &guest.memory_mib.to_string()])
            .arg("-object")
            .arg(format!(
                "memory-backend-file,id=ram,size={}M,mem-path={},share=on",
                guest.memory_mib,
                path.display()
            ))
            .args(["-name", &format!("guest=unspin-{vm},debug-threads=on")])
            .args(["-kernel", kernel, "-initrd", &files.initramfs, "-append", &cmdline(guest)])
            .args(["-display", "none", "-nodefaults", "-no-user-config", "-no-reboot"])
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Out of reach of the terminal's ^C: the agent ends its guests.
            .process_group(0);
        // SAFETY: between fork and exec only an async-signal-safe call is made.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let child = command.spawn().map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::NoQemu { program: files.qemu.clone() },
            _ => Error::io(&files.qemu, e),
        })?;
        Ok(Qemu { vm, child, memory, console, tids: Vec::new(), serial: 0 })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn area(&self) -> &Area {
        self.memory.area()
    }

    /// Waits until the guest's runner is up and all vCPUs are.
    pub(crate) fn wait_ready(&mut self, vcpus: u32) -> Result<(), Error> {
        self.wait(BOOT_TIMEOUT, "boot", |area| {
            area.guest.magic.load(Ordering::Acquire) == area::MAGIC
        })?;
        // Both have it mapped: nobody needs its name, and nothing is left if somebody is killed.
        self.memory.forget_name();
        let guest = &self.area().guest;
        let version = guest.version.load(Ordering::Relaxed);
        if version != area::VERSION {
            let error = format!("its runner speaks version {version}, not {}", area::VERSION);
            return Err(self.error(error));
        }
        let online = guest.online.load(Ordering::Relaxed);
        if online != vcpus {
            return Err(self.error(format!("its kernel has brought up {online} of {vcpus} vCPUs")));
        }
        self.tids = vcpu_threads(self.pid())?;
        if self.tids.len() != vcpus as usize {
            let (found, vm) = (self.tids.len(), self.vm);
            let error = format!("QEMU has {found} threads named `CPU n/KVM`, not {vcpus}");
            return Err(Error::Vm { vm, error });
        }
        Ok(())
    }

    /// Tells the runner to end what runs and start `program`; the empty name starts nothing.
    /// [`Qemu::answered`] waits until that is done.
    pub(crate) fn command(&mut self, program: &str, seed: u64) -> Result<(), Error> {
        self.serial += 1;
        let host = &self.area().host;
        host.seed.store(seed, Ordering::Relaxed);
        if !area::set_text(&host.program, program) {
            return Err(self.error(format!("its program's name {program:?} is too long")));
        }
        host.serial.store(self.serial, Ordering::Release);
        Ok(())
    }

    pub(crate) fn answered(&mut self, timeout: Duration) -> Result<(), Error> {
        let serial = self.serial;
        self.wait(timeout, "start its program", |area| {
            area.guest.answered.load(Ordering::Acquire) == serial
        })?;
        self.check()
    }

    /// Waits until it has counted something since `before`.
    pub(crate) fn works(&mut self, before: u64, timeout: Duration) -> Result<(), Error> {
        self.wait(timeout, "do a unit of work", |area| {
            area.units() > before || area.guest.state.load(Ordering::Relaxed) >= area::STATE_FAILED
        })?;
        self.check()
    }

    pub(crate) fn units(&self) -> u64 {
        self.area().units()
    }

    /// Whether all is well with the guest and its program.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        self.lives()?;
        let guest = &self.area().guest;
        let boots = guest.boots.load(Ordering::Relaxed);
        if boots > 1 {
            return Err(self.error(format!("it rebooted ({boots} boots)")));
        }
        match guest.state.load(Ordering::Relaxed) {
            area::STATE_READY | area::STATE_RUNS => Ok(()),
            _ => {
                let program = area::text(&self.area().host.program);
                let why = area::text(&self.area().error);
                Err(self.error(format!("its program {program} failed: {why}")))
            }
        }
    }

    /// As its kernel says.
    pub(crate) fn found(&self) -> FoundGuest {
        let found = &self.area().found;
        FoundGuest {
            kernel: area::text(&found.kernel),
            lock: area::text(&found.lock),
            ipis: area::text(&found.ipis),
            tlb_flush: area::text(&found.tlb_flush),
            sched_yield: area::text(&found.sched_yield),
            clocksource: area::text(&found.clocksource),
        }
    }

    /// Work and CPU time of now. No vCPU leaves the guest for it.
    pub(crate) fn counts(&self) -> Result<GuestCounts, Error> {
        Ok(GuestCounts { at_ns: now_ns(), units: self.units(), cpu_ns: self.cpu_ns()? })
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

    /// What the host's scheduler did to its vCPUs so far.
    pub(crate) fn sched(&self) -> Result<SchedStats, Error> {
        let mut stats = SchedStats::default();
        let mut steal = Vec::new();
        for tid in &self.tids {
            let dir = PathBuf::from(format!("/proc/{}/task/{tid}", self.pid()));
            let (path, status) = (dir.join("schedstat"), dir.join("status"));
            let text = fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
            steal.extend(text.split_whitespace().nth(1).and_then(|ns| ns.parse::<u64>().ok()));
            let text = fs::read_to_string(&status).map_err(|e| Error::io(&status, e))?;
            let count = |name: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0)
            };
            stats.voluntary_switches.push(count("voluntary_ctxt_switches:"));
            stats.involuntary_switches.push(count("nonvoluntary_ctxt_switches:"));
        }
        stats.steal_ns = (steal.len() == self.tids.len()).then_some(steal);
        Ok(stats)
    }

    fn wait(
        &mut self,
        timeout: Duration,
        what: &'static str,
        is_done: impl Fn(&Area) -> bool,
    ) -> Result<(), Error> {
        let start = Instant::now();
        while !is_done(self.area()) {
            interrupt::check()?;
            self.lives()?;
            if start.elapsed() > timeout {
                let seconds = timeout.as_secs();
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
            // What it said is in the pipe: there is nobody left to wait for.
            let _ = std::io::Read::read_to_string(stderr, &mut said);
        }
        let said = said.trim();
        let error = match said {
            "" => {
                format!("QEMU ended ({status}): its guest panicked, rebooted or was switched off")
            }
            said => format!("QEMU ended ({status}): {said}"),
        };
        Err(self.error(error))
    }

    /// With the console's end, where there is one.
    fn error(&self, mut error: String) -> Error {
        let text = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(CONSOLE_LINES);
        if !lines.is_empty() {
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
        let _ = fs::remove_file(&self.console);
    }
}

/// QEMU's CPU model.
fn cpu(lock: GuestLock) -> &'static str {
    match lock {
        GuestLock::Pv | GuestLock::Queued => "host",
        GuestLock::TestAndSet => "host,-kvm-pv-unhalt",
    }
}

fn cmdline(guest: &LinuxGuest) -> String {
    let mut words = vec![CMDLINE, area::RESERVE];
    if guest.lock == GuestLock::Queued {
        words.push("nopvspin");
    }
    if guest.idle == GuestIdle::Poll {
        words.push("idle=poll");
    }
    words.extend(guest.extra_cmdline.split_whitespace());
    words.join(" ")
}

/// Threads of QEMU's process that are vCPUs, in their order.
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

/// The file behind a guest's memory, of which the shared area is mapped.
struct Memory {
    path: Option<PathBuf>,
    at: *mut libc::c_void,
}

impl Memory {
    fn make(path: &Path, bytes: u64) -> Result<Memory, Error> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
        let file = file.map_err(|e| Error::io(path, e))?;
        let mut memory = Memory { path: Some(path.to_path_buf()), at: libc::MAP_FAILED };
        file.set_len(bytes).map_err(|e| Error::io(path, e))?;
        room_for(&file, bytes).map_err(|error| Error::NoMemory {
            path: SHARED_MEMORY.into(),
            mib: bytes >> 20,
            error,
        })?;
        // SAFETY: a new mapping of a file of ours, which is longer than that.
        memory.at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                area::BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                area::ADDR as libc::off_t,
            )
        };
        match memory.at {
            libc::MAP_FAILED => Err(Error::io(path, std::io::Error::last_os_error())),
            _ => Ok(memory),
        }
    }

    fn area(&self) -> &Area {
        // SAFETY: the mapping is as long as an area, lives as long as `self`, and all of an area that
        // others write is atomic.
        unsafe { &*self.at.cast::<Area>() }
    }

    fn forget_name(&mut self) {
        if let Some(path) = self.path.take() {
            let _ = fs::remove_file(path);
        }
    }
}

/// A guest whose memory does not fit would be killed in the middle of a run.
fn room_for(file: &File, bytes: u64) -> Result<(), String> {
    // SAFETY: `stat` is filled in before it is read.
    let free = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        match libc::fstatvfs(file.as_raw_fd(), &mut stat) {
            0 => stat.f_bavail * stat.f_frsize,
            _ => return Ok(()),
        }
    };
    match free >= bytes {
        true => Ok(()),
        false => Err(format!("{} MiB are free", free >> 20)),
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.at != libc::MAP_FAILED {
            // SAFETY: mapped by us, and nobody has it any more.
            unsafe { libc::munmap(self.at, area::BYTES) };
        }
        self.forget_name();
    }
}
