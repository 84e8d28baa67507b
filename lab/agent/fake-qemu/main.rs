// SPDX-License-Identifier: MIT OR Apache-2.0
//! A replacement for QEMU and a Linux guest in it, for tests of the agent. It accepts QEMU's
//! arguments, has threads with the names of vCPUs, and answers in the memory area that a guest
//! shares with its host. The value of `-initrd` selects a fault and the VM that has it:
//! `stands-still:1`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Barrier};
use std::time::Duration;
use unspin_guest_abi::area::{self, Area, Mapped};
use unspin_scenario::result::Responses;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |option: &str| {
        let at = args.iter().position(|arg| arg == option).expect(option);
        args[at + 1].clone()
    };
    let vm = value("-name").split([',', '-']).nth(1).expect("guest=unspin-N,…").to_string();
    let fault = match value("-initrd").split_once(':') {
        Some((fault, of)) if of == vm => fault.to_string(),
        _ => String::new(),
    };
    let console = value("-serial").replace("file:", "");
    std::fs::write(&console, "Linux version 6.12\nKernel panic - not syncing: no init\n").unwrap();
    match fault.as_str() {
        "does-not-start" => {
            eprintln!("qemu: could not access KVM kernel module");
            std::process::exit(1);
        }
        "panics" => std::process::exit(0),
        _ => {}
    }
    let object = value("-object");
    let memory = object.split(',').find_map(|part| part.strip_prefix("mem-path=")).unwrap();
    let vcpus: u32 = value("-smp").split(',').next().unwrap().parse().unwrap();
    // A thread has its name only once it runs.
    let named = Arc::new(Barrier::new(vcpus as usize + 1));
    for vcpu in 0..vcpus {
        let here = Arc::clone(&named);
        let thread = std::thread::Builder::new().name(format!("CPU {vcpu}/KVM"));
        let wait = move || {
            here.wait();
            std::thread::sleep(Duration::from_secs(600));
        };
        thread.spawn(wait).unwrap();
    }
    named.wait();
    let append = value("-append");
    let named = append.split(' ').find_map(|word| word.strip_prefix("spinlock="));
    let lock = match (fault.as_str(), named, append.contains("nopvspin")) {
        ("has-another-lock", ..) => "test-and-set",
        (_, Some(name), _) => name,
        (_, None, true) => "queued",
        (_, None, false) => "pv",
    };
    let memory = OpenOptions::new().read(true).write(true).open(memory).unwrap();
    let area = Mapped::new(&memory, area::ADDR).unwrap();
    if value("-append").contains(area::MODULE_WORD) && fault != "lacks-the-module" {
        area::set_text(&area.found.module, "0.1.0");
    }
    guest(&area, vcpus, lock, &fault, Path::new(&console));
}

/// In the wording of Debian's kernel.
fn oops(console: &Path) {
    let mut file = OpenOptions::new().append(true).open(console).unwrap();
    let lines = "BUG: unable to handle page fault for address: ffffffffffffffd8\nOops: 0000 [#1]\n";
    file.write_all(lines.as_bytes()).unwrap();
}

/// A response of 1,000 cycles.
fn responds(area: &Area) {
    let of = &area.responses;
    of.hist[Responses::bucket(1000)].fetch_add(1, Relaxed);
    of.cycles.fetch_add(1000, Relaxed);
    of.count.fetch_add(1, Relaxed);
}

/// The runner and its program: one unit and one response per millisecond.
fn guest(area: &Area, vcpus: u32, lock: &str, fault: &str, console: &Path) {
    let guest = &area.guest;
    area::set_text(&area.found.kernel, "6.12.0-fake");
    area::set_text(&area.found.lock, lock);
    guest.version.store(if fault == "is-older" { 0 } else { area::VERSION }, Relaxed);
    guest.online.store(if fault == "lacks-a-vcpu" { vcpus - 1 } else { vcpus }, Relaxed);
    guest.boots.store(1, Relaxed);
    guest.state.store(area::STATE_READY, Relaxed);
    guest.magic.store(area::MAGIC, Release);
    let (mut units, mut gone_back) = (0u64, false);
    loop {
        std::thread::sleep(Duration::from_millis(1));
        let serial = area.host.serial.load(Acquire);
        if serial != guest.answered.load(Relaxed) {
            let runs = !area::text(&area.host.program).is_empty();
            let state = match fault {
                "fails" if runs => {
                    area::set_text(&area.error, "hackbench: not found (status 127)");
                    area::STATE_FAILED
                }
                _ if runs => area::STATE_RUNS,
                _ => area::STATE_READY,
            };
            guest.state.store(state, Relaxed);
            guest.answered.store(serial, Release);
        }
        if guest.state.load(Relaxed) != area::STATE_RUNS {
            continue;
        }
        units += 1;
        match fault {
            "stands-still" => units = units.min(100),
            "goes-back" if units > 340 => gone_back = true,
            "oopses" if units == 40 => oops(console),
            "reboots" if units > 40 => guest.boots.store(2, Relaxed),
            "dies" if units > 40 => std::process::exit(0),
            _ => {}
        }
        responds(area);
        area.slots[3].units.store(if gone_back { 1 } else { units }, Relaxed);
    }
}
