// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent with Linux guests, which a stand-in for QEMU plays: what stays from run to run, and every
//! way in which a guest can fail.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::{plan_file, plan_of, said, start, Said, AGENT};
use unspin_scenario::plan::{
    GuestIdle, GuestLock, GuestProgram, LinuxFiles, LinuxGuest, LinuxVm, Plan, Run, Window,
};
use unspin_scenario::result::{Record, Responses, RunResult};

const FAKE_QEMU: &str = env!("CARGO_BIN_EXE_fake-qemu");

fn run(id: u32, lock: GuestLock, program: &str) -> Run {
    let guest = LinuxGuest {
        kernel: "6.12".into(),
        lock,
        memory_mib: 96,
        idle: GuestIdle::Halt,
        extra_cmdline: String::new(),
        module: false,
    };
    let program = GuestProgram {
        name: program.into(),
        title: "t".into(),
        packages: vec![],
        sources: vec![],
        flags: vec![],
        prepare: String::new(),
        command: "c".into(),
        unit: "u".into(),
        counts: vec![],
        from: "f".into(),
    };
    Run {
        id,
        profile: program.name.clone(),
        warmup_ms: 20,
        window_ms: 200,
        stagger_ms: 5,
        ..Run::new(vec![], 2, 2).with(|vm| {
            vm.linux = Some(LinuxVm { guest: guest.clone(), program: program.clone() });
        })
    }
}

fn plan(fault: &str, runs: Vec<Run>) -> Plan {
    let linux = LinuxFiles {
        qemu: FAKE_QEMU.into(),
        firmware: None,
        kernels: BTreeMap::from([("6.12".to_string(), "/dev/null".to_string())]),
        initramfs: fault.into(),
        cmdline: String::new(),
        patience_s: 5,
    };
    plan_of(Some(linux), runs)
}

fn agent(name: &str, plan: &Plan) -> Said {
    let said = said(name, plan);
    nothing_is_left(said.pid);
    said
}

/// Units of each VM of each run that was measured.
fn units(said: &Said) -> Vec<(u32, Vec<u64>)> {
    let of_run = |r: &&RunResult| (r.run.id, r.vm.iter().map(|v| v.units[0]).collect());
    said.results().iter().map(of_run).collect()
}

/// Neither files of the agent's nor processes that have them open.
fn nothing_is_left(pid: u32) {
    let prefix = format!("unspin-{pid}-");
    for dir in [Path::new("/dev/shm"), &std::env::temp_dir()] {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            assert!(!name.starts_with(&prefix), "{name} is left");
        }
    }
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(&prefix), "{process:?} is left");
    }
}

#[test]
fn guests_stay_while_their_kind_is_wanted() {
    let first = run(0, GuestLock::Queued, "a");
    let mut alone = run(1, GuestLock::Queued, "b");
    alone.vms.truncate(1);
    let other = run(2, GuestLock::PvPreemptable, "a");
    let said = agent("stay", &plan("", vec![first, alone, other]));
    assert_eq!(said.code, 0, "{:?}", said.records);
    for (id, units) in units(&said) {
        assert_eq!(units.len(), if id == 1 { 1 } else { 2 });
        assert!(units.iter().all(|n| (20..=220).contains(n)), "{units:?}");
    }
    let Record::Run(r) = &said.records[2] else { panic!("{:?}", said.records) };
    let v = &r.vm[0];
    assert_eq!(v.guest.as_ref().unwrap().kernel, "6.12.0-fake");
    assert_eq!((v.cpu_ns.len(), v.acquisitions.len()), (1, 0));
    assert_eq!(v.sched.as_ref().unwrap().voluntary_switches.len(), 2);
    let responses = v.responses.as_ref().unwrap();
    assert!((20..=220).contains(&responses.count), "{responses:?}");
    assert_eq!(responses.hist[Responses::bucket(1000)], responses.count);
    assert!(responses.cycles.abs_diff(1000 * responses.count) <= 1000, "{responses:?}");
}

#[test]
fn guests_load_their_module_where_it_is_wanted() {
    let with_module = |id| {
        run(id, GuestLock::Queued, "a").with(|vm| vm.linux.as_mut().unwrap().guest.module = true)
    };
    let said = agent("module", &plan("", vec![with_module(0), run(1, GuestLock::Queued, "a")]));
    assert_eq!(said.code, 0, "{:?}", said.records);
    let found = said.records.iter().filter_map(|record| match record {
        Record::Run(r) => Some(r.vm[0].guest.clone().unwrap().module),
        _ => None,
    });
    assert_eq!(found.collect::<Vec<_>>(), ["0.1.0", ""]);
    let said = agent("no-module", &plan("lacks-the-module:1", vec![with_module(0)]));
    assert!(said.error(0).contains("unspin-guest is not loaded"), "{}", said.error(0));
}

/// Guests without pause-loop exits have a window of the module's; without it they would be stock.
#[test]
fn window_off_says_that_the_module_is_missing() {
    if Path::new("/sys/module/unspin").exists() {
        println!("SKIP: the module is loaded");
        return;
    }
    let mut off = run(0, GuestLock::Queued, "a");
    (off.arm.name, off.arm.window) = ("ple-off".into(), Window::Off);
    let said = agent("off", &plan("", vec![off, run(1, GuestLock::Queued, "a")]));
    assert_eq!(said.code, 1);
    assert!(said.error(0).contains("ple-off needs the unspin module"), "{}", said.error(0));
    assert_eq!(units(&said).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1]);
}

/// Starts an agent with a plan of `runs` runs and waits until it begins. Returns it and its output.
fn begun(name: &str, shell: &str, runs: u32) -> (Child, BufReader<ChildStdout>) {
    let runs = (0..runs).map(|id| run(id, GuestLock::Queued, "a")).collect();
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{shell}exec \"$@\""), "sh", AGENT, "agent"])
        .arg(plan_file(name, &plan("", runs)))
        .stdout(Stdio::piped());
    // The tests may run under nohup, and a shell cannot restore a signal that was ignored when it
    // started.
    // SAFETY: between fork and exec there is one system call.
    unsafe {
        command.pre_exec(|| match libc::signal(libc::SIGHUP, libc::SIG_DFL) {
            libc::SIG_ERR => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let mut child = command.spawn().unwrap();
    let mut records = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("\"run\"") {
        line.clear();
        assert_ne!(records.read_line(&mut line).unwrap(), 0, "the agent ended");
    }
    (child, records)
}

/// More runs than finish before a test ends.
const MANY: u32 = 200;

fn ends_soon(child: &mut Child) -> Option<i32> {
    let begin = Instant::now();
    let status = child.wait().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    nothing_is_left(child.id());
    status.code()
}

#[test]
fn a_plan_ends_at_the_first_record_that_nobody_takes() {
    let (mut child, records) = begun("nobody", "", MANY);
    drop(records);
    assert_eq!(ends_soon(&mut child), Some(1));
}

#[test]
fn a_lost_terminal_ends_the_plan_in_order() {
    let (mut child, mut records) = begun("hang-up", "", MANY);
    // SAFETY: only sends a signal, to a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGHUP) }, 0);
    let mut rest = String::new();
    records.read_to_string(&mut rest).unwrap();
    assert_eq!(ends_soon(&mut child), Some(130));
    assert!(!rest.contains("\"end\""), "{rest}");
}

#[test]
fn an_agent_that_is_to_outlive_its_terminal_does() {
    let (mut child, mut records) = begun("nohup", "trap '' HUP; ", 3);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGHUP) }, 0);
    let mut rest = String::new();
    records.read_to_string(&mut rest).unwrap();
    assert_eq!(ends_soon(&mut child), Some(0), "{rest}");
}

/// A guest that fails costs its run, with the reason in the record; the next run has new guests.
#[test]
fn a_guest_that_fails_costs_its_run_and_no_other() {
    for (fault, why) in [
        ("does-not-start", "could not access KVM kernel module"),
        ("panics", "Kernel panic - not syncing: no init"),
        ("lacks-a-vcpu", "brought up 1 of 2 vCPUs"),
        ("is-older", "its runner speaks version 0"),
        ("has-another-lock", "its kernel has test-and-set locks where queued is wanted"),
        ("fails", "its program a failed: hackbench: not found (status 127)"),
        ("stands-still", "its count of work stood still: 100 and then 100"),
        ("goes-back", "its count of work went backwards"),
        ("oopses", "its kernel had a fault: BUG: unable to handle page fault"),
        ("reboots", "it rebooted (2 boots)"),
        ("dies", "its guest panicked, rebooted or was switched off"),
    ] {
        // Of the second VM: a run of one VM goes well.
        let both = run(0, GuestLock::Queued, "a");
        let mut one = run(1, GuestLock::Queued, "a");
        one.vms.truncate(1);
        let said = agent(fault, &plan(&format!("{fault}:1"), vec![both, one]));
        let error = said.error(0);
        assert!(error.contains("VM 1") && error.contains(why), "{fault}: {error}");
        assert_eq!(said.code, 1);
        assert_eq!(units(&said).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1], "{fault}");
    }
}

/// Of each of the first run's guests.
fn set_memory(plan: &mut Plan, memory_mib: u32) {
    for vm in &mut plan.runs[0].vms {
        vm.linux.as_mut().unwrap().guest.memory_mib = memory_mib;
    }
}

#[test]
fn what_is_missing_is_named() {
    let of = |change: fn(&mut Plan)| {
        let mut plan = plan("", vec![run(0, GuestLock::Queued, "a")]);
        change(&mut plan);
        agent("missing", &plan).error(0).to_string()
    };
    let no_qemu = of(|plan| plan.linux.as_mut().unwrap().qemu = "/nowhere/qemu".into());
    assert!(no_qemu.contains("/nowhere/qemu") && no_qemu.contains("qemu-system-x86"), "{no_qemu}");
    let no_kernel = of(|plan| plan.linux.as_mut().unwrap().kernels.clear());
    assert!(no_kernel.contains("no kernel 6.12"), "{no_kernel}");
    let no_files = of(|plan| plan.linux = None);
    assert!(no_files.contains("Linux guests"), "{no_files}");
    let too_large = of(|plan| set_memory(plan, 1 << 30));
    assert!(too_large.contains("do not fit into /dev/shm"), "{too_large}");
    // Each would fit by itself.
    let together = of(|plan| {
        let df = Command::new("df").args(["-m", "--output=avail", "/dev/shm"]).output().unwrap();
        let free = String::from_utf8(df.stdout).unwrap();
        let free: u32 = free.lines().last().unwrap().trim().parse().unwrap();
        set_memory(plan, free * 3 / 4);
    });
    assert!(together.contains("do not fit into /dev/shm"), "{together}");
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let long = Run { window_ms: 60_000, ..run(0, GuestLock::Queued, "a") };
    let path = plan_file("interrupted", &plan("", vec![long]));
    for after_ms in [5, 60, 400] {
        let child = start(&path, Stdio::piped());
        let pid = child.id();
        std::thread::sleep(Duration::from_millis(after_ms));
        // SAFETY: a signal to a child that has not been waited for.
        unsafe { libc::kill(pid as i32, libc::SIGTERM) };
        let output = child.wait_with_output().unwrap();
        // Before it takes signals, one ends it.
        assert!(matches!(output.status.code(), Some(130) | None), "{:?}", output.status);
        nothing_is_left(pid);
    }
}
