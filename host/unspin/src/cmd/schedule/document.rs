// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command prints: VMs that are taken, VMs that are refused, and what the scheduler did.

use super::outside;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write;
use unspin_host::{cpus, VmProcess};
use unspin_schedule::{Error, Gang, Report, Scheduler, Vm, WEIGHT_USUAL};
use unspin_uapi::schedule_trace;

const SCHEMA: u32 = 1;

#[derive(Debug, Serialize)]
pub struct Checked {
    schema: u32,
    can: bool,
    /// Whether it was tested on this kernel's version.
    tested: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Checked {
    pub fn of(why: Option<&Error>, tested: bool) -> Checked {
        Checked { schema: SCHEMA, can: why.is_none(), tested, why: why.map(ToString::to_string) }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Document {
    schema: u32,
    cpus: String,
    /// CPUs that are left to tasks of the host.
    pub left: String,
    pub vms: Vec<Taken>,
    pub refused: Vec<Refused>,
    /// VMs that are not taken, and may run on these CPUs all the same.
    #[serde(default)]
    pub outside: Vec<Outside>,
    /// Turns in which vCPUs of a VM ran together.
    turns: u64,
    /// Holes in turns that were given back to a vCPU that woke up.
    returned: u64,
    /// CPUs that a vCPU which spun gave to a sibling, or left to others because too few siblings ran.
    yields: u64,
    gave_way: u64,
    /// Times that a task of the host took a CPU from a VM.
    pushed: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Taken {
    /// The VM's number in the scheduler.
    #[serde(skip)]
    number: usize,
    pub process: u32,
    name: String,
    /// Percent of the CPU time when all VMs want all of it.
    pub share: f64,
    vcpus: u32,
    threads: usize,
    /// CPU time, in ns, since the VM was taken; of that, the time in holes of others' turns.
    pub ran_ns: u64,
    pub filled_ns: u64,
    /// How long its vCPUs were ready without a CPU, in ns.
    pub waited_ns: u64,
    pub ple_exits: u64,
    /// Turns in which its vCPUs ran together.
    pub turns: u64,
    pub gang: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Refused {
    pub process: u32,
    name: String,
    pub why: String,
}

/// A VM that is not taken, and may run on these CPUs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outside {
    pub process: u32,
    name: String,
    pub cpus: String,
}

fn name(gang: Gang) -> &'static str {
    match gang {
        Gang::Never => "never",
        Gang::Auto => "auto",
        Gang::Always => "always",
        Gang::Spins => "spins in user space",
    }
}

/// In percent, with one decimal.
fn share(weight: u32, vms: usize) -> f64 {
    let of_usual = f64::from(weight) / f64::from(WEIGHT_USUAL);
    (1000.0 * of_usual / vms.max(1) as f64).round() / 10.0
}

impl Taken {
    /// As a trace describes it.
    pub fn traced(&self) -> schedule_trace::Vm {
        schedule_trace::Vm {
            number: self.number as u32,
            process: self.process,
            name: self.name.clone(),
            vcpus: self.vcpus,
            share: self.share,
            gang: self.gang.clone(),
        }
    }

    fn line(&self) -> String {
        format!(
            "{}: {} vCPUs, {} threads, share {} %, gang {}: {} ms of CPU time ({} ms in holes), waited {} ms, {} turns, \
             {} pause-loop exits",
            self.name,
            self.vcpus,
            self.threads,
            self.share,
            self.gang,
            self.ran_ns / 1_000_000,
            self.filled_ns / 1_000_000,
            self.waited_ns / 1_000_000,
            self.turns,
            self.ple_exits
        )
    }
}

impl Document {
    pub fn new(
        (cpus, left): (&BTreeSet<u32>, &BTreeSet<u32>),
        scheduler: &Scheduler,
        report: &Report,
        vms: &[(VmProcess, Vm)],
        refused: &[(VmProcess, String)],
        outside: &[(VmProcess, BTreeSet<u32>)],
    ) -> Document {
        let taken = |(process, vm): &(VmProcess, Vm)| {
            let number = scheduler.number(process.pid);
            let did = number.map(|number| report.vms[number]).unwrap_or_default();
            Taken {
                number: number.unwrap_or_default(),
                process: process.pid,
                name: process.title().to_string(),
                share: share(vm.weight, vms.len()),
                vcpus: vm.vcpus,
                threads: vm.threads.len(),
                ran_ns: did.ran_ns,
                filled_ns: did.filled_ns,
                waited_ns: did.waited_ns,
                ple_exits: did.spins,
                turns: did.gangs,
                gang: name(vm.gang).into(),
            }
        };
        let refused = refused.iter().map(|(process, why)| Refused {
            process: process.pid,
            name: process.title().to_string(),
            why: why.clone(),
        });
        let outside = outside.iter().map(|(process, cpus)| Outside {
            process: process.pid,
            name: process.title().to_string(),
            cpus: cpus::list(cpus),
        });
        Document {
            schema: SCHEMA,
            cpus: cpus::list(cpus),
            left: cpus::list(left),
            vms: vms.iter().map(taken).collect(),
            refused: refused.collect(),
            outside: outside.collect(),
            turns: report.turns,
            returned: report.returned,
            yields: report.yields,
            gave_way: report.gave_way,
            pushed: report.pushed,
        }
    }

    /// A line for each VM, with its process.
    fn lines(&self) -> impl Iterator<Item = (u32, String)> + '_ {
        let taken = self.vms.iter().map(|vm| (vm.process, vm.line()));
        let refused = self.refused.iter();
        let refused = refused.map(|vm| (vm.process, format!("{}: not taken: {}", vm.name, vm.why)));
        let outside = self.outside.iter();
        let outside = outside.map(|vm| (vm.process, outside::line(&vm.name, &vm.cpus)));
        taken.chain(refused).chain(outside)
    }

    pub fn of_process(&self, pid: u32) -> Option<String> {
        let (_, line) = self.lines().find(|(process, _)| *process == pid)?;
        Some(format!("unspin schedule: {line}"))
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for (_, line) in self.lines() {
            let _ = writeln!(text, "{line}");
        }
        let _ = writeln!(
            text,
            "CPUs {}: {} turns, {} holes given back, {} CPUs given to a sibling and {} left to others by vCPUs \
             that spin, {} times a task of the host came first",
            self.cpus, self.turns, self.returned, self.yields, self.gave_way, self.pushed
        );
        if !self.left.is_empty() {
            let _ = writeln!(text, "CPUs {}: left to tasks of the host", self.left);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_read_what_is_written() {
        let refused = Refused { process: 42, name: "db".into(), why: "it has a quota".into() };
        let outside =
            |process, name: &str| Outside { process, name: name.into(), cpus: "2".into() };
        let document = Document {
            schema: SCHEMA,
            cpus: "2-3".into(),
            left: "3".into(),
            vms: Vec::new(),
            refused: vec![refused],
            outside: vec![outside(42, "db"), outside(43, "web")],
            turns: 1,
            returned: 2,
            yields: 3,
            gave_way: 4,
            pushed: 5,
        };
        let text = serde_json::to_string(&document).unwrap();
        let read: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(read.text(), document.text());
        assert!(read.text().contains("CPUs 3: left to tasks of the host"), "{}", read.text());
        let line = "web: not taken, and may run on CPUs 2, where it runs before VMs that are";
        assert!(read.text().contains(&format!("\n{line}\n")), "{}", read.text());
        assert_eq!(read.of_process(43), Some(format!("unspin schedule: {line}")));
        let line = "unspin schedule: db: not taken: it has a quota";
        assert_eq!((read.of_process(42).as_deref(), read.of_process(41)), (Some(line), None));
    }

    #[test]
    fn shares_are_of_all_vms() {
        assert_eq!((share(WEIGHT_USUAL, 1), share(15_000, 3), share(4286, 3)), (100.0, 50.0, 14.3));
    }
}
