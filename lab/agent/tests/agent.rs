// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent as a program, on this computer's /dev/kvm: functions only, no figure is judged.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{plan_file, plan_of, said, start};
use unspin_scenario::plan::{
    ApleParams, Arm, Dist, Host, LockKind, Op, Plan, Run, Step, Vm, Window, YieldTo,
};
use unspin_scenario::result::Record;

const MODULE: &str = "/sys/module/unspin/default";

/// Whether this test can run; says why not.
fn kvm() -> bool {
    let usable = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    if let Err(error) = &usable {
        println!("SKIP: /dev/kvm: {error}");
    }
    usable.is_ok()
}

fn stock() -> Arm {
    Arm {
        name: "stock".into(),
        window: Window::Stock,
        yield_to: YieldTo::Stock,
        observe: true,
        lock: None,
        ..Arm::default()
    }
}

fn run(id: u32) -> Run {
    let program = vec![
        Step { dist: Dist::Exp { mean: 30, max: 0 }, ..Step::new(Op::Compute, 0) },
        Step::new(Op::Lock, 0),
        Step::new(Op::Critical, 10),
        Step::new(Op::Unlock, 0),
    ];
    Run {
        id,
        profile: "tiny".into(),
        arm: stock(),
        warmup_ms: 100,
        window_ms: 500,
        stagger_ms: 20,
        ..Run::new(program, 2, 2).with(|vm| {
            (vm.spin_intensive, vm.lock) = (true, LockKind::Tas);
        })
    }
}

fn plan(runs: Vec<Run>) -> Plan {
    plan_of(None, runs)
}

#[test]
fn runs_are_measured_for_every_lock_and_level() {
    if !kvm() {
        return;
    }
    // How fast a VM gets on depends on what else this computer does: where one got no lock, all run for longer.
    let mut without = vec![];
    for window_ms in [500, 4_000, 32_000] {
        without = vms_without_their_lock(window_ms);
        if without.is_empty() {
            break;
        }
    }
    assert!(without.is_empty(), "VMs got no lock in 32 s: {without:?}");
}

/// Makes a run per lock and level, and checks what is measured. Returns the VMs that got no lock.
fn vms_without_their_lock(window_ms: u64) -> Vec<String> {
    let run = |id| Run { window_ms, ..run(id) };
    let mut runs = vec![];
    for lock in [LockKind::Tas, LockKind::Ticket, LockKind::Mcs] {
        for cpl in [0, 3] {
            runs.push(run(runs.len() as u32).with(|vm| (vm.lock, vm.cpl) = (lock, cpl)));
        }
    }
    let one = Vm { vcpus: 1, pin: vec![0], ..run(6).vms[0].clone() };
    runs.push(Run { vms: vec![one; 4], ..run(6) });
    let said = said("locks", &plan(runs));
    let records = &said.records;
    assert_eq!(said.code, 0, "{records:?}");
    assert!(
        matches!(&records[0], Record::Begin(begin) if begin.tsc_khz > Some(0) && begin.title == "test")
    );
    assert_eq!(records.last(), Some(&Record::End { runs: 7, failed: 0 }));
    let mut without = vec![];
    for result in said.results() {
        assert!(result.window_ns > window_ms * 900_000, "{}", result.window_ns);
        assert_eq!(result.vm.len(), result.run.vms.len());
        for vm in &result.vm {
            assert_eq!((vm.units.len(), &vm.error), (result.run.vms[0].vcpus as usize, &None));
            let acquisitions: u64 = vm.acquisitions.iter().sum();
            // Read while the guest counts: one lock step a vCPU may be half counted, more where the
            // reader loses its CPU between the two.
            let waits: u64 = vm.wait_hist.iter().sum();
            let torn = 2 * u64::from(result.run.vms[0].vcpus) + acquisitions / 10;
            assert!(waits.abs_diff(acquisitions) <= torn, "{waits} waits, {acquisitions}");
            assert!(vm.cpu_ns.iter().sum::<u64>() > 0, "{vm:?}");
            if acquisitions == 0 {
                without.push(format!("{:?}: {vm:?}", result.run.vms[0].lock));
            }
        }
    }
    without
}

#[test]
fn a_run_that_fails_does_not_keep_the_others_from_being_made() {
    if !kvm() {
        return;
    }
    let halting = vec![Step::new(Op::Block, 1)];
    let runs = vec![
        run(0).with(|vm| (vm.cpl, vm.program) = (3, halting.clone())),
        run(1).with(|vm| vm.pin = vec![0]),
        run(2).weighted(&[100, 200]),
        run(3).with(|vm| vm.vcpus = 129),
        run(4).with(|vm| vm.pin = vec![0, 4000]),
        Run { vms: vec![], ..run(5) },
        run(6).with(|vm| vm.quota_ppm = Some(200_000)),
        run(7),
    ];
    let said = said("failures", &plan(runs));
    assert_eq!(said.code, 1);
    assert!(said.error(0).contains("CPL 3"));
    assert!(said.error(1).contains("1 CPUs to pin 2 vCPUs to"));
    assert!(said.error(2).contains("layout"));
    assert!(said.error(3).contains("1 to 128"));
    assert!(said.error(4).contains("CPU 4000"));
    assert!(said.error(5).contains("no VMs"));
    assert!(said.error(6).contains("a quota needs a cgroup"));
    assert_eq!(said.results().len(), 1);
    assert_eq!(said.records.last(), Some(&Record::End { runs: 1, failed: 7 }));
}

#[test]
fn arms_of_the_module_say_that_it_is_missing() {
    if std::path::Path::new(MODULE).exists() {
        println!("SKIP: the module is loaded");
        return;
    }
    let arm = |window, yield_to| Arm { window, yield_to, ..stock() };
    let runs = vec![
        Run { arm: arm(Window::Aple(ApleParams::default()), YieldTo::Stock), ..run(0) },
        Run { arm: arm(Window::Fixed { cycles: 4096 }, YieldTo::Stock), ..run(1) },
        Run { arm: arm(Window::Stock, YieldTo::HVS), ..run(2) },
    ];
    let said = said("module", &plan(runs));
    assert_eq!(said.code, 1);
    for id in 0..3 {
        assert!(said.error(id).contains("unspin load"));
    }
}

#[test]
fn a_plan_for_another_computer_fails_as_a_whole() {
    let few = said("cpus", &Plan { host: Host::new(100_000), ..plan(vec![run(0), run(1)]) });
    assert_eq!(few.code, 1);
    assert!(few.error(1).contains("100000 CPUs"));
    let other = said("schema", &Plan { schema: 99, ..plan(vec![run(0)]) });
    assert!(other.error(0).contains("format 99"));
    assert_eq!(other.records.last(), Some(&Record::End { runs: 0, failed: 1 }));
}

#[test]
fn a_terminated_agent_leaves_no_vm_behind() {
    if !kvm() {
        return;
    }
    let path = plan_file("terminated", &plan(vec![Run { window_ms: 600_000, ..run(0) }]));
    let mut agent = start(&path, Stdio::piped());
    let mut lines = BufReader::new(agent.stdout.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().contains("progress") {}
    let vms = wait_for_children(agent.id(), 2);
    // SAFETY: no memory involved; the agent has not been waited for.
    unsafe { libc::kill(agent.id() as i32, libc::SIGTERM) };
    assert_eq!(agent.wait().unwrap().code(), Some(130));
    for pid in vms {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "VM {pid} still runs");
    }
    // No end: the stream is incomplete, as it says.
    assert!(lines.all(|line| !line.unwrap().contains("\"end\"")));
}

#[test]
fn vms_of_a_killed_agent_end() {
    if !kvm() {
        return;
    }
    let path = plan_file("killed", &plan(vec![Run { window_ms: 600_000, ..run(0) }]));
    let mut agent = start(&path, Stdio::null());
    let vms = wait_for_children(agent.id(), 2);
    agent.kill().unwrap();
    agent.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while vms.iter().any(|pid| running(*pid)) {
        assert!(Instant::now() < deadline, "VMs outlive their agent");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the process exists and is not a zombie.
fn running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn wait_for_children(pid: u32, count: usize) -> Vec<u32> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children: Vec<u32> = std::fs::read_to_string(path)
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|child| child.parse().ok())
            .collect();
        if children.len() == count {
            return children;
        }
        assert!(Instant::now() < deadline, "the agent started {children:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
