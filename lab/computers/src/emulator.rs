// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulators: Bochs and the lab's QEMU for timed runs, Debian's QEMU for functional tests.
//!
//! Bochs emulates VT-x with pause-loop exiting, the lab's QEMU SVM with a pause filter. Both have a
//! deterministic virtual time. Debian's QEMU has SVM without a pause filter, and is never used for
//! figures.

use crate::bochs::{Bochs, Started};
use crate::error::{io, Result};
use crate::image;
use crate::kernel::Kernel;
use crate::program::Program;
use crate::tool;
use std::fmt;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use unspin_vmm::ends_with_this_thread;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emulator {
    Bochs,
    /// Debian's QEMU, without a pause filter.
    Qemu,
    /// The lab's QEMU: an AMD processor with a pause filter.
    QemuAmd,
}

impl Emulator {
    /// Emulators whose computers are timed.
    pub const TIMED: [Emulator; 2] = [Emulator::Bochs, Emulator::QemuAmd];

    /// The name in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Emulator::Bochs => "bochs",
            Emulator::Qemu => "qemu",
            Emulator::QemuAmd => "qemu-amd",
        }
    }

    /// Number of CPUs that it emulates in acceptable time and that its BIOS starts.
    pub const fn cpus_max(self) -> u32 {
        match self {
            Emulator::Bochs | Emulator::Qemu => 8,
            Emulator::QemuAmd => 16,
        }
    }
}

/// The processor that Bochs emulates; QEMU has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// The processor of all figures. It has no CPUID leaf 0x15: TSC and all timers follow `ips`.
    Haswell,
    /// It has control-flow enforcement (CET): a kernel built for it enables indirect branch tracking.
    TigerLake,
}

impl Processor {
    /// Bochs's name for it.
    fn model(self) -> &'static str {
        match self {
            Processor::Haswell => "corei7_haswell_4770",
            Processor::TigerLake => "tigerlake",
        }
    }
}

/// How a computer's CPUs are arranged. Each socket is a NUMA node and has one last-level cache; CPUs are
/// numbered thread by thread, core by core, socket by socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topology {
    pub sockets: u32,
    /// Cores per socket.
    pub cores: u32,
    /// Threads per core.
    pub threads: u32,
}

impl Topology {
    /// Parses `2x2x2`: sockets, cores per socket, threads per core.
    pub fn parse(text: &str) -> Option<Topology> {
        let numbers: std::result::Result<Vec<u32>, _> = text.split('x').map(str::parse).collect();
        let &[sockets, cores, threads] = numbers.ok()?.as_slice() else { return None };
        let topology = Topology { sockets, cores, threads };
        let fits = |n: u32| (1..=Emulator::QemuAmd.cpus_max()).contains(&n);
        let each = [sockets, cores].into_iter().all(fits) && matches!(threads, 1 | 2);
        (each && fits(topology.cpus())).then_some(topology)
    }

    pub fn cpus(self) -> u32 {
        self.sockets * self.cores * self.threads
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}x{}x{}", self.sockets, self.cores, self.threads)
    }
}

/// The computer to emulate.
#[derive(Debug, Clone)]
pub struct Computer {
    pub emulator: Emulator,
    pub processor: Processor,
    /// Physical CPUs, 1 to [`Emulator::cpus_max`].
    pub cpus: u32,
    pub memory_mib: u32,
    /// Instructions per second of virtual time. In timed runs: of each CPU, and also its TSC frequency.
    /// With Debian's QEMU: of all CPUs together, or 0 for this computer's clock.
    pub ips: u64,
    /// In timed runs: instructions that a CPU executes before the other CPUs have their turns.
    pub quantum: u32,
    /// In timed runs with AMD's processor: the duration of a PAUSE, in instructions.
    pub pause: u32,
    /// For the lab's QEMU. `None`: one socket of single-threaded cores.
    pub topology: Option<Topology>,
    /// In timed runs: loads the module. Without it, KVM is as its kernel has it.
    pub module: bool,
}

impl Computer {
    /// The largest memory that Bochs supports.
    pub const MEMORY_MAX_MIB: u32 = 2048;

    /// The usual computer of an emulator.
    pub fn of(emulator: Emulator, cpus: u32) -> Computer {
        match emulator {
            Emulator::Bochs => Computer::bochs(cpus),
            Emulator::Qemu => Computer::qemu(cpus),
            Emulator::QemuAmd => Computer::qemu_amd(cpus),
        }
    }

    /// The 200 MHz computer of all figures except those of an AMD processor.
    pub fn bochs(cpus: u32) -> Computer {
        Computer {
            emulator: Emulator::Bochs,
            processor: Processor::Haswell,
            cpus,
            memory_mib: 1024,
            ips: 200_000_000,
            quantum: 16,
            pause: 1,
            topology: None,
            module: true,
        }
    }

    /// A computer of the same rate with an AMD processor. Turns longer than 200 instructions affect
    /// figures.
    pub fn qemu_amd(cpus: u32) -> Computer {
        Computer { emulator: Emulator::QemuAmd, quantum: 200, ..Computer::bochs(cpus) }
    }

    /// As `bochs`, with a processor on which an indirect call of the kernel must end at an ENDBR64,
    /// or faults.
    pub fn bochs_with_ibt(cpus: u32) -> Computer {
        Computer { processor: Processor::TigerLake, ..Computer::bochs(cpus) }
    }

    pub fn qemu(cpus: u32) -> Computer {
        Computer { emulator: Emulator::Qemu, ips: 0, ..Computer::bochs(cpus) }
    }

    /// As `qemu`, with virtual time, so that results do not depend on the speed and load of this
    /// computer. By this computer's clock the emulated one detects soft lockups, stalls and an
    /// unstable TSC whenever the emulator gets no CPU time. Only one CPU is online: `unspin-inside
    /// online` starts the others.
    pub fn qemu_in_virtual_time(cpus: u32) -> Computer {
        Computer { ips: 125_000_000, ..Computer::qemu(cpus) }
    }

    /// Parameters of the module. QEMU's processors have no pause filter, but honour the intercept.
    pub fn module_options(&self) -> &'static str {
        match self.emulator {
            Emulator::Bochs | Emulator::QemuAmd => "",
            Emulator::Qemu => "force_pause_intercept=1",
        }
    }
}

/// Kernel parameters common to all emulators.
///
/// `idle=halt`: Bochs loses wake-ups of a CPU in MWAIT. `skew_tick=1`: otherwise emulated CPUs tick
/// in phase, which gang-schedules equal VMs by accident. `mitigations=off`: exits are cheaper than
/// on a production host. `cryptomgr.notests`: self-tests cost more emulated time than the rest of
/// the boot. `clearcpuid=rdrand,rdseed`: boots would not be reproducible, because Bochs takes these
/// random numbers from this computer.
pub(crate) const CMDLINE: &str =
    "console=ttyS0 quiet mitigations=off nokaslr no_timer_check idle=halt \
    skew_tick=1 cryptomgr.notests clearcpuid=rdrand,rdseed";

/// A boot that has been started. Dropping it ends it.
pub struct Running {
    pub child: Child,
}

impl Running {
    /// Ends the emulator, which has no state worth saving.
    pub fn kill(&mut self) {
        // The emulator may have been started through a wrapper, so signal its process group.
        // SAFETY: plain system call; the group was created for this child.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes all files of the boot into `dir`, and starts it. Records come on the child's stdout.
pub fn start(
    computer: &Computer,
    program: &Program,
    kernel: &Kernel,
    payload: &image::Payload,
    extra_cmdline: &str,
    dir: &Path,
    stop: &AtomicBool,
) -> Result<Running> {
    fs::create_dir_all(dir).map_err(io(dir))?;
    let console = dir.join("console.txt");
    let _ = fs::remove_file(&console);
    let initramfs = dir.join("initrd.img");
    image::initramfs(kernel, payload, &initramfs)?;
    let cmdline = format!("{CMDLINE} {extra_cmdline}");
    let mut command = match program {
        Program::Bochs(with) => bochs(computer, with, kernel, &initramfs, &cmdline, dir, stop)?,
        Program::Qemu => on_files(qemu(computer, kernel, &initramfs, &cmdline)),
        Program::QemuAmd(own) => {
            on_files(qemu_amd(computer, &own.program, kernel, &initramfs, &cmdline))
        }
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors_of(dir)?);
    command.current_dir(dir).process_group(0);
    let spawned = ends_with_this_thread(&mut command, libc::SIGKILL).spawn();
    Ok(Running { child: spawned.map_err(tool::missing(&command))? })
}

/// QEMU with its records on its standard output, and its console in a file of the boot's directory,
/// in which it is started. That directory's path may be no text.
fn on_files(mut command: Command) -> Command {
    command.args(["-chardev", "stdio,id=records,signal=off"]);
    command.args(["-serial", "file:console.txt"]);
    command
}

/// Boot under QEMU with the console on this program's terminal; returns when it is switched off.
pub fn sit(
    computer: &Computer,
    kernel: &Kernel,
    payload: &image::Payload,
    dir: &Path,
) -> Result<ExitStatus> {
    fs::create_dir_all(dir).map_err(io(dir))?;
    let initramfs = dir.join("initrd.img");
    image::initramfs(kernel, payload, &initramfs)?;
    let mut command = qemu(computer, kernel, &initramfs, CMDLINE);
    // Ctrl-C is for programs in the emulated computer; Ctrl-A X ends the emulator.
    command.args(["-chardev", "file,id=records,path=records.raw", "-serial", "mon:stdio"]);
    command.current_dir(dir).stderr(errors_of(dir)?);
    command.status().map_err(tool::missing(&command))
}

fn errors_of(dir: &Path) -> Result<fs::File> {
    let path = dir.join("emulator.err");
    fs::File::create(&path).map_err(io(&path))
}

fn bochs(
    computer: &Computer,
    bochs: &Bochs,
    kernel: &Kernel,
    initramfs: &Path,
    cmdline: &str,
    dir: &Path,
    stop: &AtomicBool,
) -> Result<Command> {
    let started = bochs.started_in(dir)?;
    let cmdline = match computer.processor {
        Processor::Haswell => cmdline.to_string(),
        // Its CPUID leaf 0x15 claims 2.4 GHz, which the kernel would believe.
        Processor::TigerLake => format!("{cmdline} tsc_early_khz={}", computer.ips / 1000),
    };
    image::iso(dir, kernel, initramfs, &cmdline, &dir.join("boot.iso"), stop)?;
    fs::remove_file(initramfs).map_err(io(initramfs))?;
    let write = |name: &str, contents: &[u8]| {
        let path = dir.join(name);
        fs::write(&path, contents).map_err(io(&path))
    };
    write("cmos.img", &image::cmos(computer.memory_mib))?;
    write("bochsrc", bochsrc(computer, &started).as_bytes())?;
    let mut command = started.command;
    command.args(["-q", "-f", "bochsrc"]);
    if started.debugger {
        write("rc", b"c\n")?;
        command.args(["-rc", "rc"]);
    }
    Ok(command)
}

fn bochsrc(computer: &Computer, started: &Started) -> String {
    format!(
        "display_library: {}\n\
         cpu: model={}, count={}, ips={}, quantum={}, reset_on_triple_fault=0\n\
         megs: {}\n\
         romimage: file=/usr/share/bochs/BIOS-bochs-latest\n\
         vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest\n\
         ata0-master: type=cdrom, path=boot.iso, status=inserted\n\
         boot: cdrom\n\
         com1: enabled=1, mode=file, dev=console.txt\n\
         port_e9_hack: enabled=1\n\
         clock: sync=none, time0=1767225600\n\
         cmosimage: file=cmos.img, rtc_init=time0\n\
         log: bochs.log\n\
         panic: action=fatal\n\
         error: action=ignore\n\
         info: action=ignore\n\
         {}",
        started.display,
        computer.processor.model(),
        computer.cpus,
        computer.ips,
        computer.quantum,
        computer.memory_mib,
        started.plugins,
    )
}

/// QEMU's command without console and without the chardev `records`, which callers add.
fn qemu(computer: &Computer, kernel: &Kernel, initramfs: &Path, cmdline: &str) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    // All its CPUs share one clock. But some kernels (6.1) assume that TSCs of AMD differ unless
    // they are marked as constant, and the module refuses a TSC that its kernel does not trust.
    let mut cmdline = format!("{cmdline} tsc=reliable");
    if let Some(instruction_ns) = 1_000_000_000u64.checked_div(computer.ips) {
        // While all CPUs sleep, the clock is advanced to the next timer.
        command.args(["-icount", &format!("shift={},sleep=off", instruction_ns.ilog2())]);
        command.args(["-rtc", "base=2026-01-01,clock=vm"]);
        // A CPU that never pauses leaves no instructions to the next CPUs, and 6.1 does not pause
        // while it waits for a CPU to come up.
        cmdline += " maxcpus=1";
    }
    // thread=single: with one thread per CPU, the kernel's code patching sooner or later faults.
    command.args(["-accel", "tcg,thread=single", "-cpu", "qemu64,+svm,+npt"]);
    pc(&mut command, computer, kernel, initramfs, &cmdline);
    command
}

/// The same for the lab's QEMU, in which CPUs have separate clocks within a quantum.
fn qemu_amd(
    computer: &Computer,
    program: &Path,
    kernel: &Kernel,
    initramfs: &Path,
    cmdline: &str,
) -> Command {
    let Computer { ips, quantum, pause, .. } = *computer;
    let mut command = Command::new(program);
    let ns = 1_000_000_000 / ips;
    // With a quantum, `ns` counts and `shift` does not.
    let clock = format!("shift=0,sleep=off,quantum={quantum},ns={ns},pause={pause}");
    command.args(["-accel", "tcg,thread=single", "-icount", &clock]);
    command.args(["-rtc", "base=2026-01-01,clock=vm"]);
    let mut processor = "qemu64,+svm,+npt,+nrip-save,+pause-filter,+pfthreshold".to_string();
    if let Some(topology) = computer.topology {
        nodes(&mut command, computer, topology);
        processor += ",+topoext";
    }
    command.args(["-cpu", &processor]);
    for firmware in ["/usr/share/qemu", "/usr/share/seabios"] {
        command.args(["-L", firmware]);
    }
    pc(&mut command, computer, kernel, initramfs, &format!("{cmdline} tsc=reliable"));
    command
}

/// Divides the memory into equal parts, one per socket.
fn nodes(command: &mut Command, computer: &Computer, topology: Topology) {
    let Topology { sockets, cores, threads } = topology;
    let each = cores * threads;
    for socket in 0..sockets {
        let mib = computer.memory_mib / sockets;
        let (first, last) = (socket * each, (socket + 1) * each - 1);
        command.args(["-object", &format!("memory-backend-ram,id=node{socket},size={mib}M")]);
        command.args(["-numa", &format!("node,memdev=node{socket},cpus={first}-{last}")]);
    }
}

/// Options common to all computers under QEMU.
fn pc(
    command: &mut Command,
    computer: &Computer,
    kernel: &Kernel,
    initramfs: &Path,
    cmdline: &str,
) {
    let mut smp = computer.cpus.to_string();
    if let Some(Topology { sockets, cores, threads }) = computer.topology {
        smp += &format!(",sockets={sockets},cores={cores},threads={threads}");
    }
    command
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-smp", &smp, "-m", &computer.memory_mib.to_string()])
        .args(["-device", "isa-debugcon,iobase=0xe9,chardev=records"])
        .arg("-kernel")
        .arg(&kernel.vmlinuz)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", cmdline]);
}
