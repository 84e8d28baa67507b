// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux guests as the lab makes them: Debian's kernels, and every program of programs/, in a computer
//! that QEMU emulates. It has no KVM in it; what the guests cost on KVM is not for this test.

mod common;

use common::area::AreaFile;
use common::{has_tools, kernels, lab, prepared, say};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unspin_guest_abi::area::{self, Area};
use unspin_lab::{source_tree, KernelPackage, Lab, Series, QEMU_TOOLS};
use unspin_scenario::plan::GuestProgram;

const VCPUS: u32 = 4;
/// The image has all programs with their libraries in it, and is unpacked beside itself.
const MEMORY_MIB: u64 = 512;
const BOOT_PATIENCE: Duration = Duration::from_secs(300);
const PROGRAM_PATIENCE: Duration = Duration::from_secs(120);
/// Of each program, before the next one.
const UNITS: u64 = 500;

/// Words of a kernel that has found something wrong with itself.
const ALARMS: [&str; 5] = ["Kernel panic", "BUG:", "WARNING:", "Oops", "rcu: INFO"];

struct Guest {
    dir: PathBuf,
    child: Child,
    area: AreaFile,
    serial: u32,
}

impl Guest {
    /// All vCPUs are one thread of QEMU's: 7.2 does not always show a vCPU that code was changed by
    /// another one while it ran. The kernel is told its clock's rate, which it could measure only on an
    /// idle computer.
    fn boot(name: &str, kernel: &Path, image: &Path) -> Guest {
        let dir = std::env::temp_dir().join(format!("unspin-guest-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let memory = dir.join("memory");
        let area = AreaFile::make(&memory, area::ADDR, MEMORY_MIB << 20);
        let file = format!("size={MEMORY_MIB}M,mem-path={},share=on", memory.display());
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args([
            "-M",
            "microvm,rtc=on,pit=on,pic=on,memory-backend=ram",
            "-accel",
            "tcg,thread=single",
        ])
        .args(["-smp", &VCPUS.to_string(), "-m", &MEMORY_MIB.to_string()])
        .args(["-object", &format!("memory-backend-file,id=ram,{file}")])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(image)
        .args(["-display", "none", "-nodefaults", "-no-user-config", "-no-reboot"])
        .arg("-serial")
        .arg(format!("file:{}", dir.join("console").display()))
        .arg("-append")
        .arg(format!(
            "console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests no_timer_check \
                 tsc=reliable tsc_early_khz=2000000 lpj=8000000 {}",
            area::RESERVE
        ));
        let child = qemu.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        Guest { dir, child, area, serial: 0 }
    }

    fn console(&self) -> String {
        let bytes = fs::read(self.dir.join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn wait(&mut self, what: &str, patience: Duration, is_so: impl Fn(&Area) -> bool) {
        let start = Instant::now();
        while !is_so(&self.area) {
            let ended = self.child.try_wait().unwrap();
            let state = self.area.guest.state.load(Ordering::Relaxed);
            assert!(
                ended.is_none() && start.elapsed() < patience,
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
        self.area.host.seed.store(7, Ordering::Relaxed);
        assert!(area::set_text(&self.area.host.program, program), "{program}");
        self.area.host.serial.store(serial, Ordering::Release);
        self.wait(&format!("answer about {program:?}"), PROGRAM_PATIENCE, |area| {
            area.guest.answered.load(Ordering::Acquire) == serial
        });
    }

    /// How many slots have units in them that had not, and how many units there are more.
    fn run(&mut self, program: &str) -> (usize, u64) {
        let counts = |area: &Area| -> Vec<u64> {
            area.slots.iter().map(|slot| slot.units.load(Ordering::Relaxed)).collect()
        };
        let (before, units) = (counts(&self.area), self.area.units());
        self.command(program);
        let has_failed = |area: &Area| {
            let state = area.guest.state.load(Ordering::Relaxed);
            state == area::STATE_FAILED || state == area::STATE_ENDED
        };
        self.wait(&format!("work of {program}"), PROGRAM_PATIENCE, |area| {
            area.units() >= units + UNITS || has_failed(area)
        });
        let error = area::text(&self.area.error);
        assert!(!has_failed(&self.area), "{program}: {error}\n{}", self.console());
        let after = counts(&self.area);
        assert!(before.iter().zip(&after).all(|(b, a)| a >= b), "{program}: counts go back");
        (before.iter().zip(&after).filter(|(b, a)| a > b).count(), self.area.units() - units)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
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
    let stop = AtomicBool::new(false);
    let package = KernelPackage::from(series);
    let kernel = lab.guest_kernel(package, &stop, &mut |text| say(text));
    let image = lab.guest_image(programs, &stop, &mut |text| say(text));
    Some((prepared(series.name(), kernel)?, prepared("the guests' programs", image)?))
}

fn boot(lab: &Lab, series: Series, all: &[GuestProgram]) {
    let Some((kernel, image)) = made(lab, series, all) else { return };
    let bytes = fs::metadata(&image).unwrap().len();
    let start = Instant::now();
    let mut guest = Guest::boot(series.name(), &kernel, &image);
    guest.wait("runner", BOOT_PATIENCE, |area| {
        area.guest.magic.load(Ordering::Acquire) == area::MAGIC
    });
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
    guest.command("");
    let state = &guest.area.guest;
    assert_eq!(state.state.load(Ordering::Relaxed), area::STATE_READY);
    assert_eq!((state.pids.load(Ordering::Relaxed), state.boots.load(Ordering::Relaxed)), (0, 1));
    let console = guest.console();
    assert!(!ALARMS.iter().any(|word| console.contains(word)), "{console}");
}

#[test]
fn every_program_runs_in_a_guest() {
    if !has_tools(QEMU_TOOLS) {
        return;
    }
    let (lab, all) = (lab(), programs());
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
