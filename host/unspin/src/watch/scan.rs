// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the running VMs, repeatedly. Scanning many processes takes long, so each look scans new
//! processes, and scans all processes only as often as a limit of CPU time allows.

use super::sample::Running;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};
use unspin_host::{tell_apart, Host, Records, VmProcess};

/// Number of looks at each process: it may create its VM and name its vCPUs some time after its
/// start.
const LOOKS: u8 = 10;

/// Pause after a look at all processes, as a multiple of the time it took.
const REST: u32 = 200;
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(30);

/// A process may still create a VM if it started at most this long before us, in ticks of 10 ms, or
/// later.
const YOUNG: u64 = 60 * 100;

#[derive(Default)]
pub struct Scan {
    vms: BTreeMap<u32, (Running, u8)>,
    /// Other processes, with the number of looks at each.
    others: BTreeMap<u32, u8>,
    /// Time of the next look at all processes; `None` before the first.
    due: Option<Instant>,
    /// The VMs whose titles are distinct.
    told: Vec<u32>,
}

impl Scan {
    /// Looks for VMs. VMs that have ended are dropped.
    pub fn look(&mut self, host: &Host, now: Instant) -> io::Result<()> {
        let pids = host.processes()?;
        self.vms.retain(|pid, _| pids.contains(pid));
        self.others.retain(|pid, _| pids.contains(pid));
        let start = Instant::now();
        // Start time of this process, for the first look. If /proc does not tell it, no process is
        // young.
        let ours = || Host::default().start_time(std::process::id()).unwrap_or(u64::MAX);
        let first = self.due.is_none().then(ours);
        let all = self.due.is_none_or(|due| due <= now);
        let mut records = host.records();
        for pid in pids {
            if self.is_new(host, pid) || all {
                self.look_at(host, pid, first, &mut records);
            }
        }
        self.tell_apart();
        if all {
            self.due = Some(now + (start.elapsed() * REST).clamp(REST_MIN, REST_MAX));
        }
        Ok(())
    }

    pub fn vms(&self) -> impl Iterator<Item = &Running> {
        self.vms.values().map(|(running, _)| running)
    }

    /// Makes the VMs' titles distinct, if the set of VMs has changed.
    fn tell_apart(&mut self) {
        let now: Vec<u32> = self.vms.keys().copied().collect();
        if self.told == now {
            return;
        }
        let mut processes: Vec<VmProcess> =
            self.vms.values().map(|(running, _)| running.process.clone()).collect();
        tell_apart(&mut processes, &[]);
        for ((running, _), told) in self.vms.values_mut().zip(processes) {
            running.process = told;
        }
        self.told = now;
    }

    /// Whether a process may have become something else since the last look.
    fn is_new(&mut self, host: &Host, pid: u32) -> bool {
        match self.vms.get_mut(&pid) {
            Some((running, looks)) => {
                let threads = host.threads(pid);
                if threads != running.threads {
                    running.threads = threads;
                    *looks = 0;
                }
                *looks < LOOKS || !running.process.is_all_known()
            }
            None => self.others.get(&pid).is_none_or(|looks| *looks < LOOKS),
        }
    }

    /// Processes that exist at the first look are not new, except young ones.
    fn look_at(&mut self, host: &Host, pid: u32, first: Option<u64>, records: &mut Records) {
        let before = self.vms.remove(&pid);
        let looks = before.as_ref().map(|(_, looks)| *looks).or(self.others.remove(&pid));
        let looks = match first.is_some_and(|ours| !is_young(host, pid, ours)) {
            true => LOOKS,
            false => looks.unwrap_or(0).saturating_add(1),
        };
        match host.vm_process_by(pid, records).filter(|process| process.pid == pid) {
            Some(process) => {
                let threads = host.threads(pid);
                let same = before.filter(|(was, _)| {
                    was.process.names == process.names
                        && was.process.has_vcpus() == process.has_vcpus()
                });
                let process = match &same {
                    Some((was, _)) => process.called_as(&was.process),
                    None => {
                        self.told.retain(|told| *told != pid);
                        process
                    }
                };
                self.vms.insert(pid, (Running { process, threads }, looks));
            }
            None => {
                self.others.insert(pid, looks);
            }
        }
    }
}

fn is_young(host: &Host, pid: u32, ours: u64) -> bool {
    host.start_time(pid).is_some_and(|its| its.saturating_add(YOUNG) >= ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use unspin_cli::fake::Fake;

    fn names(scan: &Scan) -> Vec<String> {
        let name = |vm: &Running| vm.process.title().to_string();
        scan.vms().map(name).collect()
    }

    #[test]
    fn vms_come_and_go() {
        let fake = Fake::new();
        let (host, mut scan, start) = (fake.host(), Scan::default(), Instant::now());
        let mut look = |after_s: u64| {
            scan.look(&host, start + Duration::from_secs(after_s)).unwrap();
            let vcpus = scan.vms().map(|vm| vm.process.vcpus.len()).collect::<Vec<_>>();
            (names(&scan).join(" "), vcpus)
        };
        fake.vm("41-0", "web");
        fake.write("proc/50/status", "Tgid:\t50");
        assert_eq!(look(0), ("web".into(), vec![0]));
        fake.vm("42-0", "db");
        assert_eq!(look(0).0, "web db", "a new process");
        fake.write("proc/42/task/43/comm", "CPU 0/KVM");
        assert_eq!(look(0).1, [0, 1], "a new thread");
        fake.0.vm(50, &["firecracker", "--id", "late"]);
        assert_eq!(look(0).0, "web db", "an old process is looked at when all are");
        assert_eq!(look(60).0, "web db late");
        fs::remove_dir_all(fake.path("proc/41")).unwrap();
        assert_eq!(look(60).0, "db late", "one that ended");
        fs::remove_file(fake.path("proc/50/fd/7")).unwrap();
        assert_eq!(look(120).0, "db", "one that goes on without its VM");
    }

    /// If an exporter and a VM start at the same time, the next look finds the VM.
    #[test]
    fn a_vm_that_is_made_just_after_the_first_look_is_found_by_the_next() {
        let fake = Fake::new();
        let (host, mut scan, now) = (fake.host(), Scan::default(), Instant::now());
        let ours = Host::default().start_time(std::process::id()).unwrap();
        for (pid, started) in [(50, ours), (51, ours.saturating_sub(2 * YOUNG))] {
            fake.write(&format!("proc/{pid}/status"), &format!("Tgid:\t{pid}"));
            let fields = "0 ".repeat(18);
            fake.write(&format!("proc/{pid}/stat"), &format!("{pid} (x) S {fields}{started} 0"));
        }
        scan.look(&host, now).unwrap();
        assert_eq!(names(&scan), Vec::<String>::new());
        for (pid, name) in [(50, "young"), (51, "old")] {
            fake.0.vm(pid, &["firecracker", "--id", name]);
        }
        scan.look(&host, now).unwrap();
        let expected: &[&str] = if ours > 2 * YOUNG { &["young"] } else { &["young", "old"] };
        assert_eq!(names(&scan), expected);
    }

    #[test]
    fn a_host_whose_processes_cannot_be_read_is_an_error() {
        let nowhere = Host::at("/nonexistent".as_ref());
        assert!(Scan::default().look(&nowhere, Instant::now()).is_err());
    }
}
