// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command prints: VMs that are taken, VMs that are refused, and what the scheduler did.

use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;
use unspin_host::{cpus, VmProcess};
use unspin_schedule::{Error, Gang, Report, Scheduler, Vm};

/// Of the JSON.
const SCHEMA: u32 = 1;

/// Whether this kernel can have it.
#[derive(Debug, Serialize)]
pub struct Checked {
    schema: u32,
    can: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Checked {
    pub fn of(why: Option<&Error>) -> Checked {
        Checked { schema: SCHEMA, can: why.is_none(), why: why.map(ToString::to_string) }
    }
}

#[derive(Debug, Serialize)]
pub struct Document {
    schema: u32,
    cpus: String,
    vms: Vec<Taken>,
    refused: Vec<Refused>,
    /// Turns in which vCPUs of a VM ran together.
    turns: u64,
    /// Holes in turns that were given back to a vCPU that woke up.
    returned: u64,
    /// Directed yields that were followed.
    yields: u64,
    /// Times that a task of the host took a CPU from a VM.
    pushed: u64,
}

#[derive(Debug, Serialize)]
struct Taken {
    process: u32,
    name: String,
    weight: u32,
    vcpus: u32,
    threads: usize,
    /// CPU time, in ns, since the VM was taken; of that, the time in holes of others' turns.
    ran_ns: u64,
    filled_ns: u64,
    ple_exits: u64,
    turns: u64,
    gang: &'static str,
}

#[derive(Debug, Serialize)]
struct Refused {
    process: u32,
    name: String,
    why: String,
}

fn name(gang: Gang) -> &'static str {
    match gang {
        Gang::Never => "never",
        Gang::Auto => "auto",
        Gang::Always => "always",
    }
}

impl Document {
    pub fn new(
        cpus: &BTreeSet<u32>,
        scheduler: &Scheduler,
        report: &Report,
        vms: &[(VmProcess, Vm)],
        refused: &[(VmProcess, String)],
    ) -> Document {
        let taken = |(process, vm): &(VmProcess, Vm)| {
            let number = scheduler.number(process.pid);
            let did = number.map(|number| report.vms[number]).unwrap_or_default();
            Taken {
                process: process.pid,
                name: process.title().to_string(),
                weight: vm.weight,
                vcpus: vm.vcpus,
                threads: vm.threads.len(),
                ran_ns: did.ran_ns,
                filled_ns: did.filled_ns,
                ple_exits: did.spins,
                turns: did.gangs,
                gang: name(vm.gang),
            }
        };
        let refused = refused.iter().map(|(process, why)| Refused {
            process: process.pid,
            name: process.title().to_string(),
            why: why.clone(),
        });
        Document {
            schema: SCHEMA,
            cpus: cpus::list(cpus),
            vms: vms.iter().map(taken).collect(),
            refused: refused.collect(),
            turns: report.turns,
            returned: report.returned,
            yields: report.yields,
            pushed: report.pushed,
        }
    }

    /// A line for each VM, and one for the scheduler.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for vm in &self.vms {
            let _ = writeln!(
                text,
                "{}: {} vCPUs, {} threads, weight {}, gang {}: {} ms of CPU time ({} ms in holes), {} turns, \
                 {} pause-loop exits",
                vm.name,
                vm.vcpus,
                vm.threads,
                vm.weight,
                vm.gang,
                vm.ran_ns / 1_000_000,
                vm.filled_ns / 1_000_000,
                vm.turns,
                vm.ple_exits
            );
        }
        for vm in &self.refused {
            let _ = writeln!(text, "{}: not taken: {}", vm.name, vm.why);
        }
        let _ = writeln!(
            text,
            "CPUs {}: {} turns, {} holes given back, {} yields followed, {} times a task of the host came first",
            self.cpus, self.turns, self.returned, self.yields, self.pushed
        );
        text
    }
}
