// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux guests as the lab builds them: Debian's kernels and every program of programs/, in a
//! computer that QEMU emulates, without KVM. Costs of the guests on KVM are not tested here.

mod common;

use common::area::area_file;
use common::{going, kernels, lab, prepared, say};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use unspin_computers::{
    kernel_symbols, source_tree, GuestModules, KernelPackage, Lab, Series, QEMU_TOOLS,
};
use unspin_diagnosis::spinners::{Place, Symbols};
use unspin_guest_abi::area::{self, Area, Mapped};
use unspin_host::Host;
use unspin_scenario::plan::GuestProgram;
use unspin_scratch::Scratch;
use unspin_vmm::ends_with_this_thread;

const VCPUS: u32 = 4;
/// The image has all programs with their libraries in it, and is unpacked beside itself.
const MEMORY_MIB: u64 = 1280;
/// CPU time of QEMU's: other work on this computer does not count.
const BOOT_PATIENCE: Duration = Duration::from_secs(100);
const PROGRAM_PATIENCE: Duration = Duration::from_secs(60);
/// Where QEMU sleeps for ever.
const REAL_PATIENCE: Duration = Duration::from_secs(1200);
/// Of each program, before the next one.
const UNITS: u64 = 500;
/// Of exim4 and OpenBLAS: a mail, or a product whose threads wait for each other, is millions of instructions.
const LARGE: [&str; 2] = ["exim4", "openblas"];
const LARGE_UNITS: u64 = 50;
/// Programs get 31 bits of it.
const SEED: u64 = 0xfedc_ba98_7654_3210;
/// OpenBLAS takes QEMU's own processor for an Opteron, and uses 3DNow's FEMMS without asking for it.
const PROCESSOR: &str = "qemu64,+3dnow";
/// Words of a kernel that has found something wrong with itself.
const ALARMS: [&str; 5] = ["Kernel panic", "BUG:", "WARNING:", "Oops", "rcu: INFO"];

/// A program of this test's that is not among programs/.
fn program(name: &str, lines: &str) -> GuestProgram {
    let text = format!("name = \"{name}\"\ntitle = \"-\"\nunit = \"-\"\nfrom = \"-\"\n{lines}");
    unspin_scenario::parse_guest_program(name, name, &text).unwrap_or_else(|e| panic!("{e}"))
}

/// Has the guest's kernel name its functions whose addresses end with these digits, all names of each.
const SYMBOLS: &str = r#"
sources = ["mapper.c"]
prepare = "grep 'c40 [tTwW] ' /proc/kallsyms > /dev/console"
command = "exec mapper 1 $seed"
"#;

/// Programs with a fixed amount of work. Each prints a message when it is done, and the sleep
/// continues.
const MESSAGES: &str = r#"
packages = ["rt-tests"]
command = "hackbench -g 1 -l 20 && echo messages: done > /dev/console; exec sleep 1000000"
counts = ["write"]
"#;
const MUTEXES: &str = r#"
packages = ["sysbench"]
command = "sysbench mutex --threads=$((2*vcpus)) --mutex-num=4 --mutex-locks=500 --mutex-loops=10 --rand-seed=$seed run && echo mutexes: done > /dev/console; exec sleep 1000000"
counts = ["pthread_mutex_lock"]
"#;

/// Which time the guest has.
#[derive(Clone, Copy)]
enum Time<'a> {
    Real,
    /// As many nanoseconds per instruction, in every boot the same: nothing comes to it from outside
    /// after its first instruction, and `program` runs as soon as it can.
    Virtual {
        program: &'a str,
    },
    /// Real, and the guest loads unspin-guest with these parameters.
    WithModule {
        parameters: &'a str,
    },
}

impl Time<'_> {
    /// All vCPUs are one thread of QEMU's: 7.2 does not always show a vCPU that code was changed by
    /// another one while it ran, and loses interrupts of several in virtual time. The kernel is told its
    /// clock's rate, which it could measure only on an idle computer, and to find that a CPU hangs only
    /// where QEMU had time enough.
    fn arguments(self) -> Vec<String> {
        let (vcpus, more, khz) = match self {
            Time::Real | Time::WithModule { .. } => (VCPUS, "", 2_000_000),
            Time::Virtual { .. } => {
                (1, "-icount shift=3,sleep=off -rtc base=2026-01-01,clock=vm -seed 7", 1_000_000)
            }
        };
        let cmdline = format!(
            "console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests no_timer_check \
             tsc=reliable tsc_early_khz={khz} lpj={} \
             rcupdate.rcu_cpu_stall_timeout=300 watchdog_thresh=60 {} {}",
            4 * khz,
            area::RESERVE,
            match self {
                Time::WithModule { parameters } => {
                    format!("\"{}{parameters}\"", area::MODULE_WORD)
                }
                _ => String::new(),
            }
        );
        let words = format!("-accel tcg,thread=single -smp {vcpus} {more} -append");
        words.split_whitespace().map(str::to_string).chain([cmdline]).collect()
    }
}

/// What counts for a second of the guest's.
const A_WHILE: &str = r#"
sources = ["mapper.c"]
command = "mapper 8 $seed & sleep 1; kill -9 $! && echo a-while: done > /dev/console; exec sleep 1000000"
"#;

struct Guest {
    dir: Scratch,
    child: Child,
    area: Mapped,
    serial: u32,
}

impl Guest {
    fn boot(kernel: &Path, image: &Path) -> Guest {
        Guest::in_time(Time::Real, kernel, image)
    }

    /// With the first command in place before it boots.
    fn in_time(time: Time, kernel: &Path, image: &Path) -> Guest {
        let dir = Scratch::new();
        let memory = dir.join("memory");
        let area = area_file(&memory, area::ADDR, MEMORY_MIB << 20);
        let mut serial = 0;
        if let Time::Virtual { program } = time {
            serial = 1;
            area.host.seed.store(SEED, Ordering::Relaxed);
            assert!(area::set_text(&area.host.program, program), "{program}");
            area.host.serial.store(serial, Ordering::Release);
        }
        let mut qemu = Command::new("qemu-system-x86_64");
        let file = format!("size={MEMORY_MIB}M,mem-path={},share=on", memory.display());
        qemu.args(["-M", "microvm,rtc=on,pit=on,pic=on,memory-backend=ram"])
            .args(["-cpu", PROCESSOR, "-m", &MEMORY_MIB.to_string()])
            .args(["-object", &format!("memory-backend-file,id=ram,{file}")])
            .args([OsStr::new("-kernel"), kernel.as_os_str()])
            .args([OsStr::new("-initrd"), image.as_os_str()])
            .args(["-display", "none", "-nodefaults", "-no-user-config", "-no-reboot"])
            .args(["-serial", &format!("file:{}", dir.join("console").display())])
            .args(time.arguments());
        let child = ends_with_this_thread(&mut qemu, libc::SIGTERM)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Guest { dir, child, area, serial }
    }

    /// CPU time that QEMU has taken.
    fn cpu_time(&self) -> Duration {
        let host = Host::at(Path::new("/proc"));
        host.cpu_time_ns(self.child.id()).map_or(Duration::ZERO, Duration::from_nanos)
    }

    fn console(&self) -> String {
        let bytes = fs::read(self.dir.join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for QEMU to do something within `patience` of its CPU time.
    fn wait(&mut self, what: &str, patience: Duration, is_so: impl Fn(&Area) -> bool) {
        let (start, cpu_start) = (Instant::now(), self.cpu_time());
        while !is_so(&self.area) {
            let taken = self.cpu_time().saturating_sub(cpu_start);
            let ended = self.child.try_wait().unwrap();
            let state = self.area.guest.state.load(Ordering::Relaxed);
            assert!(
                ended.is_none() && taken < patience && start.elapsed() < REAL_PATIENCE,
                "no {what}: QEMU ended {ended:?}, state {state}, {}\n{}",
                area::text(&self.area.error),
                self.console()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn command(&mut self, program: &str) {
        self.serial += 1;
        let serial = self.serial;
        self.area.host.seed.store(SEED, Ordering::Relaxed);
        assert!(area::set_text(&self.area.host.program, program), "{program}");
        self.area.host.serial.store(serial, Ordering::Release);
        self.wait(&format!("answer about {program:?}"), PROGRAM_PATIENCE, |area| {
            area.guest.answered.load(Ordering::Acquire) == serial
        });
    }

    fn wait_until_up(&mut self) {
        self.wait("runner", BOOT_PATIENCE, |area| {
            area.guest.magic.load(Ordering::Acquire) == area::MAGIC
        });
    }

    fn wait_for_the_end(&mut self, program: &str) {
        let (console, done) = (self.dir.join("console"), format!("{program}: done"));
        self.wait(&format!("end of {program}"), BOOT_PATIENCE, |_| {
            fs::read(&console).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&done))
        });
    }

    /// Units that a program counts until it says on the console that it is done.
    fn run_to_its_end(&mut self, program: &str) -> u64 {
        let units = self.area.units();
        self.command(program);
        self.wait_for_the_end(program);
        self.command("");
        self.area.units() - units
    }

    /// Units in each slot.
    fn counts(&self) -> Vec<u64> {
        self.area.slots.iter().map(|slot| slot.units.load(Ordering::Relaxed)).collect()
    }

    /// How many slots have units in them that had not, and how many units there are more.
    fn run(&mut self, program: &str) -> (usize, u64) {
        self.command(program);
        // The answer comes when no thread of the former program counts any more.
        let (before, units) = (self.counts(), self.area.units());
        let has_failed = |area: &Area| {
            let state = area.guest.state.load(Ordering::Relaxed);
            state == area::STATE_FAILED || state == area::STATE_ENDED
        };
        let enough = units + if LARGE.contains(&program) { LARGE_UNITS } else { UNITS };
        self.wait(&format!("work of {program}"), PROGRAM_PATIENCE, |area| {
            area.units() >= enough || has_failed(area)
        });
        let error = area::text(&self.area.error);
        assert!(!has_failed(&self.area), "{program}: {error}\n{}", self.console());
        let after = self.counts();
        assert!(before.iter().zip(&after).all(|(b, a)| a >= b), "{program}: counts go back");
        let slots = before.iter().zip(&after).filter(|(b, a)| a > b).count();
        (slots, self.area.units() - units)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn programs() -> Vec<GuestProgram> {
    let dir = source_tree().join("programs");
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let (file, text) = (path.display().to_string(), fs::read_to_string(path).unwrap());
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        unspin_scenario::parse_guest_program(&file, &name, &text).unwrap_or_else(|e| panic!("{e}"))
    };
    paths.iter().map(read).collect()
}

fn made(lab: &Lab, series: Series, programs: &[GuestProgram]) -> Option<(PathBuf, PathBuf)> {
    made_with(lab, series, programs, &GuestModules::new())
}

fn made_with(
    lab: &Lab,
    series: Series,
    programs: &[GuestProgram],
    modules: &GuestModules,
) -> Option<(PathBuf, PathBuf)> {
    let kernel = going(|go| lab.guest_kernel(KernelPackage::from(series), go));
    let image = going(|go| lab.guest_image(programs, modules, go));
    Some((prepared(series.name(), kernel)?, prepared("the guests' programs", image)?))
}

/// Compares the functions' addresses in the running guest's kernel with those in its image.
fn check_symbols(guest: &mut Guest, kernel: &Path) {
    guest.run("symbols");
    let console = guest.console();
    let listed: String = console
        .lines()
        .filter(|line| line.starts_with("ffffffff") && !line.contains('['))
        .map(|line| format!("{}\n", line.trim_end()))
        .collect();
    let own = kernel_symbols(kernel).unwrap_or_else(|e| panic!("{e}"));
    let own = Symbols::parse(&own, kernel).unwrap();
    let theirs = Symbols::parse(&listed, Path::new("/proc/kallsyms")).unwrap();
    for line in listed.lines() {
        let address = u64::from_str_radix(&line[..16], 16).unwrap();
        let (own, theirs) = (own.place(address), theirs.place(address));
        assert!(matches!(theirs, Place::Function { offset: 0, .. }), "{line}");
        assert_eq!(own, theirs, "{line}");
    }
    assert!(theirs.len() > 100, "{listed}");
    say(&format!("symbols: {} functions' names agree", theirs.len()));
}

fn boot(lab: &Lab, series: Series, all: &[GuestProgram]) {
    let with_symbols = [all, &[program("symbols", SYMBOLS)]].concat();
    let Some((kernel, image)) = made(lab, series, &with_symbols) else { return };
    let bytes = fs::metadata(&image).unwrap().len();
    let start = Instant::now();
    let mut guest = Guest::boot(&kernel, &image);
    guest.wait_until_up();
    let release = area::text(&guest.area.found.kernel);
    say(&format!(
        "{release}: up after {:.0?}, image of {} MiB",
        start.elapsed(),
        bytes.div_ceil(1 << 20)
    ));
    assert_eq!(Series::of_release(&release), Some(series));
    // What a hypervisor that is not KVM leaves a kernel.
    for (field, expected) in [
        (&guest.area.found.lock, "test-and-set"),
        (&guest.area.found.ipis, "apic"),
        (&guest.area.found.tlb_flush, "ipi"),
        (&guest.area.found.sched_yield, "none"),
    ] {
        assert_eq!(area::text(field), expected, "{release}");
    }
    // It begins as tsc-early.
    let clock = area::text(&guest.area.found.clocksource);
    assert!(clock.starts_with("tsc"), "{clock}");
    assert_eq!(guest.area.guest.online.load(Ordering::Relaxed), VCPUS);
    for program in all {
        let start = Instant::now();
        let (slots, units) = guest.run(&program.name);
        let name = &program.name;
        say(&format!("{name}: {units} units in {slots} slots, {:.1?}", start.elapsed()));
    }
    check_symbols(&mut guest, &kernel);
    guest.command("");
    let state = &guest.area.guest;
    assert_eq!(state.state.load(Ordering::Relaxed), area::STATE_READY);
    assert_eq!((state.pids.load(Ordering::Relaxed), state.boots.load(Ordering::Relaxed)), (0, 1));
    let console = guest.console();
    assert!(!ALARMS.iter().any(|word| console.contains(word)), "{console}");
}

#[test]
fn every_program_runs_in_a_guest() {
    let Some(lab) = lab(QEMU_TOOLS) else { return };
    let _only = common::alone();
    let all = programs();
    // What makes the image small, on the kernels that are not the usual one.
    let small: Vec<GuestProgram> = all
        .iter()
        .filter(|p| ["hackbench", "mapper"].contains(&p.name.as_str()))
        .cloned()
        .collect();
    for series in kernels(&Series::ALL) {
        boot(&lab, series, if series == Series::V6_12 { &all } else { &small });
    }
}

/// Prints how many reports unspin-guest has made, of how many long waits for spin locks, of how
/// many waits; then removes the module. The counts are read in this order because others still
/// wait: the last one includes all of the first.
const WAITS: &str = r#"
packages = ["rt-tests"]
command = "hackbench -g 2 -l 200 && cd /sys/module/unspin_guest/parameters && echo waited: $(cat reports) $(cat long_waits) $(cat waits) > /dev/console && cd / && busybox rmmod unspin_guest && hackbench -g 1 -l 20 && echo waits: done > /dev/console; exec sleep 1000000"
counts = ["write"]
"#;

/// unspin-guest builds without a warning and loads. It sees waits for the kernel's spin locks, and
/// can be removed during such waits. Without KVM, it reports nothing.
#[test]
fn the_guests_module_sees_who_waits() {
    let Some(lab) = lab(QEMU_TOOLS) else { return };
    let _only = common::alone();
    for series in kernels(&Series::ALL) {
        let built = going(|go| lab.guest_module(series, go));
        let Some((release, module)) = prepared(series.name(), built) else { continue };
        let modules = GuestModules::from([(release.clone(), module)]);
        let made = made_with(&lab, series, &[program("waits", WAITS)], &modules);
        let Some((kernel, image)) = made else { continue };
        let time = Time::WithModule { parameters: "report=0 threshold_log2_cycles=12" };
        let mut guest = Guest::in_time(time, &kernel, &image);
        guest.wait_until_up();
        assert!(!area::text(&guest.area.found.module).is_empty());
        guest.command("waits");
        guest.wait_for_the_end("waits");
        let console = guest.console();
        let said = console.lines().find_map(|line| line.split("waited: ").nth(1));
        say(&format!("{release}: reports, long waits, waits: {said:?}"));
        let counts = said.unwrap_or_default().split_whitespace().map(|n| n.parse::<u64>().unwrap());
        let [reports, long, waits] = counts.collect::<Vec<_>>()[..] else { panic!("{console}") };
        assert!(waits >= long && long >= reports && reports > 0, "{said:?}");
        assert!(!ALARMS.iter().any(|word| console.contains(word)), "{console}");
    }
}

/// A program's units are its work: the same work is as many units in every boot, whatever the order
/// of its threads.
#[test]
fn two_boots_of_one_image_count_the_same_work_alike() {
    let Some(lab) = lab(QEMU_TOOLS) else { return };
    let _only = common::alone();
    let programs = [program("messages", MESSAGES), program("mutexes", MUTEXES)];
    let Some((kernel, image)) = made(&lab, Series::V6_12, &programs) else { return };
    let counts = || -> Vec<u64> {
        let mut guest = Guest::boot(&kernel, &image);
        guest.wait_until_up();
        programs.iter().map(|program| guest.run_to_its_end(&program.name)).collect()
    };
    let (first, second) = (counts(), counts());
    say(&format!("messages, mutexes: {first:?} units, {second:?} in another boot"));
    assert_eq!(first, second);
    // Of 20 senders to 20 receivers each, and of 8 threads.
    assert!(first[0] >= 20 * 20 * 20 && first[1] >= 8 * 500, "{first:?}");
}

/// Two boots of one image are alike in all that the guest can see: in the same time each thread counts as
/// much.
#[test]
fn two_boots_of_one_image_count_alike_in_virtual_time() {
    let Some(lab) = lab(QEMU_TOOLS) else { return };
    let _only = common::alone();
    let programs = [program("a-while", A_WHILE)];
    let Some((kernel, image)) = made(&lab, Series::V6_12, &programs) else { return };
    let counts = || {
        let time = Time::Virtual { program: &programs[0].name };
        let mut guest = Guest::in_time(time, &kernel, &image);
        guest.wait_for_the_end("a-while");
        guest.counts().into_iter().filter(|units| *units > 0).collect::<Vec<u64>>()
    };
    let (first, second) = (counts(), counts());
    say(&format!("mapper for a virtual second: {first:?} units, {second:?} in another boot"));
    assert_eq!(first, second);
    assert!(first.len() == 8 && first.iter().sum::<u64>() > UNITS, "{first:?}");
}
