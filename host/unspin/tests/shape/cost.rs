// SPDX-License-Identifier: MIT OR Apache-2.0
//! What shaping many vCPUs costs.

use crate::common::vm_host::signal;
use crate::fake::Fake;
use std::fs;

/// CPU time of a process so far, in seconds.
fn cpu_s(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().unwrap()).sum();
    ticks as f64 / 100.0
}

/// Threads of this process that sleep, as vCPUs of 125 VMs.
fn many() -> Fake {
    let fake = Fake::new();
    let (told, ids) = std::sync::mpsc::channel();
    for _ in 0..500 {
        let told = told.clone();
        std::thread::spawn(move || {
            // SAFETY: it has no arguments and cannot fail.
            told.send(unsafe { libc::gettid() } as u32).unwrap();
            std::thread::sleep(std::time::Duration::from_secs(60));
        });
    }
    let tids: Vec<u32> = ids.iter().take(500).collect();
    for (vm, tids) in tids.chunks(4).enumerate() {
        let (pid, slice) = (4_000_000 + vm as u32, format!("machine.slice/machine-{vm}.scope"));
        fake.holds_vm(pid, &format!("vm{vm}"));
        fake.write(&format!("proc/{pid}/status"), &format!("Tgid:\t{pid}"));
        fake.write(&format!("sys/fs/cgroup/{slice}/cpu.weight"), "100");
        for (index, tid) in tids.iter().enumerate() {
            fake.write(&format!("proc/{pid}/task/{tid}/comm"), &format!("CPU {index}/KVM"));
            for file in ["stat", "status"] {
                fake.links(*tid, file);
            }
            fake.write(&format!("proc/{tid}/cgroup"), &format!("0::/{slice}/vcpu{index}"));
            let group = format!("sys/fs/cgroup/{slice}/vcpu{index}");
            fake.write(&format!("{group}/cpu.weight"), "100");
            fake.write(&format!("{group}/cgroup.threads"), &tid.to_string());
        }
    }
    fake
}

#[test]
fn five_hundred_vcpus_cost_little() {
    let fake = many();
    // Threads that sleep, counted by the BPF programs; and synthetic ones, whose weights change.
    let paces = vec!["0.5r,0.25,0.1,0.2"; 126].join("/");
    let sources = [vec![], vec!["--synthetic-vcpus", paces.as_str()]];
    for source in sources {
        let args = [&["shape", "--json"], &source[..]].concat();
        let mut command = fake.command(&args, &[]);
        let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_secs(2));
        if child.try_wait().unwrap().is_some() {
            println!("SKIPPED: reading the maps of BPF programs is not in the cost");
            continue;
        }
        let before = cpu_s(child.id());
        std::thread::sleep(std::time::Duration::from_secs(4));
        let cost = (cpu_s(child.id()) - before) / 4.0;
        signal(child.id(), libc::SIGTERM);
        child.wait().unwrap();
        let of = if source.is_empty() { "that sleep" } else { "that are made up" };
        println!("shape, 500 vCPUs {of}: {:.2} % of a core", 100.0 * cost);
        // Other tests run beside it, and the synthetic files are on a disk.
        assert!(cfg!(debug_assertions) || cost < 0.5, "{cost} of a core");
    }
}
