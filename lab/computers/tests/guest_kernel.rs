// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel of `make guest-kernel`: the kernel's own locktorture with each of its locks, on 4 CPUs
//! that QEMU emulates without KVM. There no lock halts.

mod common;

use common::{say, splats};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use unspin_computers::QEMU_TOOLS;
use unspin_scratch::Scratch;
use unspin_vmm::ends_with_this_thread;

/// Each lock, and what the kernel says of it.
const LOCKS: [(&str, &str); 4] = [
    ("preemptable", "preemptable"),
    ("pv-preemptable", "pv-preemptable, which cannot halt on this host"),
    ("oticket", "oticket, which cannot halt on this host"),
    ("ticket", "ticket"),
];
/// Besides those of `splats`: words of a kernel that has found something wrong with itself.
const ALARMS: [&str; 3] = ["WARNING:", "rcu: INFO", "End of test: FAILURE"];
const SUCCESS: &str = "spin_lock-torture:--- End of test: SUCCESS";
/// Writers that had the lock, by the last line before the end.
const WRITES_MIN: u64 = 1000;
const CMDLINE: &str = "console=ttyS0 panic=-1 no_timer_check tsc=reliable tsc_early_khz=2000000 \
    rcupdate.rcu_cpu_stall_timeout=300";
const INIT: &str = "#!/bin/busybox sh
b=/bin/busybox
$b mkdir /proc /dev
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
$b insmod /torture.ko && $b insmod /locktorture.ko torture_type=spin_lock stat_interval=2 shutdown_secs=0
$b sleep 10
$b rmmod locktorture
$b reboot -f
";

#[test]
#[ignore = "boots the kernel of make guest-kernel, some 30 s of CPU time each time: make soak-guest-kernel"]
fn locktorture_passes_with_each_lock() {
    let Some(lab) = common::lab(QEMU_TOOLS) else { return };
    let kernel = lab.locks_kernel().unwrap_or_else(|e| panic!("{e}"));
    let dir = Scratch::new();
    let image = dir.join("image");
    fs::write(&image, archive(&kernel)).unwrap();
    for (lock, called) in LOCKS {
        let console = boot(&kernel, &image, lock);
        let said = format!("unspin: spin locks: {called}");
        assert!(console.lines().any(|line| line.trim_end().ends_with(&said)), "{lock}:\n{console}");
        assert!(console.contains(SUCCESS), "{lock}:\n{console}");
        let wrong = splats(&console);
        assert!(wrong.is_empty(), "{lock}: {wrong:?}\n{console}");
        let alarm = ALARMS.iter().find(|alarm| console.contains(*alarm));
        assert_eq!(alarm, None, "{lock}:\n{console}");
        let writes = writes(&console);
        assert!(writes >= WRITES_MIN, "{lock}: {writes} writes\n{console}");
        say(&format!("{lock}: {writes} times locked by 8 threads"));
    }
}

/// The last `Writes:  Total: N`.
fn writes(console: &str) -> u64 {
    let counts = console.split("Writes:  Total: ").skip(1);
    counts.filter_map(|rest| rest.split_whitespace().next()?.parse().ok()).last().unwrap_or(0)
}

/// The end of the guest's console.
fn boot(kernel: &Path, image: &Path, lock: &str) -> String {
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(["-M", "microvm,rtc=on,pit=on,pic=on", "-accel", "tcg,thread=single"])
        .args(["-cpu", "max", "-smp", "4", "-m", "192", "-kernel"])
        .arg(kernel)
        .arg("-initrd")
        .arg(image)
        .arg("-append")
        .arg(format!("{CMDLINE} spinlock={lock}"))
        .args(["-display", "none", "-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-serial", "stdio"]);
    ends_with_this_thread(&mut qemu, libc::SIGTERM);
    let output = qemu.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
}

/// An initramfs with a shell and the modules beside the kernel.
fn archive(kernel: &Path) -> Vec<u8> {
    let path = std::env::var_os("PATH").unwrap();
    let busybox = std::env::split_paths(&path).map(|dir| dir.join("busybox"));
    let busybox: PathBuf = busybox.into_iter().find(|file| file.is_file()).unwrap();
    let mut out = Vec::new();
    let mut add = |name: &str, mode: u32, contents: &[u8]| {
        let builder = cpio::newc::Builder::new(name).mode(mode).nlink(1);
        let mut writer = builder.write(&mut out, contents.len() as u32);
        std::io::Write::write_all(&mut writer, contents).unwrap();
        writer.finish().unwrap();
    };
    add("bin", 0o040_755, &[]);
    add("bin/busybox", 0o100_755, &fs::read(busybox).unwrap());
    add("init", 0o100_755, INIT.as_bytes());
    for module in ["torture.ko", "locktorture.ko"] {
        add(module, 0o100_644, &fs::read(kernel.with_file_name(module)).unwrap());
    }
    cpio::newc::trailer(out).unwrap()
}
