// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decisions, as a table and as JSON.

use super::decide::Decision;
use super::vm::Shaped;
use crate::cmd::diagnose::show::titled;
use crate::fit::{table_of_vms, wrap_lines, Column};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use unspin_host::journal::Target;
use unspin_host::VmProcess;
use unspin_text::printable_lines;

#[derive(Debug, Serialize, Deserialize)]
pub struct Document {
    schema: u32,
    decisions: Vec<OfVcpu>,
    vms: Vec<OfVm>,
    refused: Vec<Refused>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Change<T> {
    now: T,
    then: T,
}

#[derive(Debug, Serialize, Deserialize)]
struct OfVcpu {
    vm: String,
    vcpu: u32,
    weight: Change<u64>,
    /// Null if latency is not adapted.
    slice_us: Option<Change<u64>>,
    /// The CPU that it was on last, null if it has ended, and the CPU to which it is pinned. Both are equal
    /// if vCPUs are not moved.
    pcpu: Change<Option<u32>>,
    why: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct OfVm {
    vm: String,
    pid: u32,
    cpus: Cpus,
    weight: Change<u64>,
    /// The vCPUs have nice values instead of weights: the nearest ones, in steps of a factor of 1.25. If
    /// the VM has no weight of its own, `weight` is the percentage by which all vCPUs are raised.
    by_nice: bool,
    /// The reason why its vCPUs are never moved; null if they may be.
    pinned: Option<String>,
}

/// CPU time per wall time, in CPUs.
#[derive(Debug, Serialize, Deserialize)]
struct Cpus {
    /// With its original weights, when last measured.
    before: f64,
    /// With the present weights; null if none were set.
    is: Option<f64>,
    /// Its due share of that time.
    due: Option<f64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Refused {
    vm: String,
    pid: u32,
    why: String,
}

/// A VM, the decisions of a period, and the CPUs that its vCPUs were on last.
pub struct Decided<'a> {
    pub vm: &'a Shaped,
    pub cpus: Vec<Option<u32>>,
}

impl Document {
    pub fn new<'a>(
        vms: impl IntoIterator<Item = Decided<'a>>,
        refused: &[(VmProcess, String)],
    ) -> Document {
        let refused =
            refused.iter().map(|(vm, why)| Refused { vm: name(vm), pid: vm.pid, why: why.clone() });
        let mut all = Document {
            schema: 1,
            decisions: Vec::new(),
            vms: Vec::new(),
            refused: refused.collect(),
        };
        for vm in vms {
            all.add(&vm);
        }
        all
    }

    fn add(&mut self, decided: &Decided) {
        let Decided { vm, cpus } = decided;
        let (process, is, places) = (&vm.placed.vm, &vm.is, vm.places());
        for (index, (vcpu, decision)) in process.vcpus.iter().zip(&vm.decisions).enumerate() {
            let slice = is.slices.get(index).copied().zip(decision.slice_ns);
            let now = cpus[index];
            self.decisions.push(OfVcpu {
                vm: name(process),
                vcpu: vcpu.index,
                weight: Change { now: is.weights[index], then: decision.weight },
                slice_us: slice.map(|(now, then)| Change { now: now / 1000, then: then / 1000 }),
                pcpu: Change { now, then: places.get(index).copied().or(now) },
                why: why(decision),
            });
        }
        let shaper = &vm.shaper;
        let was_set = shaper.due.since().wall_ns > 0;
        self.vms.push(OfVm {
            vm: name(process),
            pid: process.pid,
            cpus: Cpus {
                before: shaper.due.before().cpus(),
                is: was_set.then(|| shaper.due.since().cpus()),
                due: shaper.due.since_cpus().filter(|_| was_set),
            },
            weight: Change { now: is.whole, then: vm.whole },
            by_nice: matches!(vm.placed.vcpus[0].target, Target::Nice { .. }),
            pinned: vm.placed.cpus.as_ref().err().cloned(),
        });
    }

    pub fn text(&self, width: usize) -> String {
        let columns = [
            Column::text("VM", 0),
            Column::number("vCPU", 1),
            Column::number("weight", 2),
            Column::number("then", 2),
            Column::number("slice, µs", 5),
            Column::number("then", 5),
            Column::number("CPU", 4),
            Column::number("then", 4),
            Column::text("why", 3),
        ];
        let or_dash =
            |number: Option<u64>| number.map_or("-".to_string(), |number| number.to_string());
        let row = |vcpu: &OfVcpu| {
            vec![
                vcpu.vm.clone(),
                vcpu.vcpu.to_string(),
                vcpu.weight.now.to_string(),
                vcpu.weight.then.to_string(),
                or_dash(vcpu.slice_us.map(|slice| slice.now)),
                or_dash(vcpu.slice_us.map(|slice| slice.then)),
                or_dash(vcpu.pcpu.now.map(u64::from)),
                or_dash(vcpu.pcpu.then.map(u64::from)),
                vcpu.why.clone(),
            ]
        };
        let rows: Vec<Vec<String>> = self.decisions.iter().map(row).collect();
        let mut text = match rows.is_empty() {
            true => String::new(),
            false => table_of_vms(&columns, &rows, &self.selectors(), width),
        };
        let mut lines = String::new();
        for vm in &self.vms {
            let _ = writeln!(lines, "{}", vm.line());
        }
        for refused in &self.refused {
            let _ = writeln!(lines, "{} is left alone: {}", refused.vm, refused.why);
        }
        text += &wrap_lines(&lines, width);
        printable_lines(&text)
    }

    /// A selector that identifies the VM of each decision.
    fn selectors(&self) -> Vec<String> {
        let pid = |of: &OfVcpu| self.vms.iter().find(|vm| vm.vm == of.vm).map(|vm| vm.pid);
        let selector = |of| pid(of).map_or(String::new(), |pid| format!("pid:{pid}"));
        self.decisions.iter().map(selector).collect()
    }

    /// A line per vCPU of this process's VM; empty if it is not shaped.
    pub fn of_process(&self, pid: u32) -> Vec<String> {
        let Some(vm) = self.vms.iter().find(|vm| vm.pid == pid) else { return Vec::new() };
        let line = |of: &OfVcpu| {
            let cpu = of.pcpu.then.map_or("-".into(), |cpu| cpu.to_string());
            let slice = of.slice_us.map_or("-".into(), |slice| slice.then.to_string());
            let (weight, why) = (of.weight.then, &of.why);
            format!("vCPU {}: weight {weight}, slice {slice} µs, CPU {cpu}: {why}", of.vcpu)
        };
        self.decisions.iter().filter(|of| of.vm == vm.vm).map(line).collect()
    }

    /// A line per VM: its CPU time and its weights.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for vm in &self.vms {
            let its: Vec<&OfVcpu> = self.decisions.iter().filter(|vcpu| vcpu.vm == vm.vm).collect();
            if its.is_empty() {
                continue;
            }
            let weights: Vec<String> = its.iter().map(|vcpu| vcpu.weight.now.to_string()).collect();
            let slices: Vec<String> = its
                .iter()
                .filter_map(|vcpu| Some(vcpu.slice_us.as_ref()?.now.to_string()))
                .collect();
            let cpus: Vec<String> =
                its.iter().filter_map(|vcpu| Some(vcpu.pcpu.then?.to_string())).collect();
            let _ = write!(text, "{}; weights of vCPUs {}", vm.line(), weights.join(" "));
            if !slices.is_empty() {
                let _ = write!(text, "; slices, µs: {}", slices.join(" "));
            }
            let _ = writeln!(text, "; CPUs {}", cpus.join(" "));
        }
        printable_lines(&text)
    }
}

impl OfVm {
    fn title(&self) -> String {
        titled(&self.vm, self.pid)
    }

    fn line(&self) -> String {
        let Change { now, then } = self.weight;
        let weight = if now == then { now.to_string() } else { format!("{now}, next {then}") };
        let weight = match self.by_nice {
            true => format!("{weight} (set as nice values of the vCPUs)"),
            false => weight,
        };
        match (self.cpus.is, self.cpus.due) {
            (Some(is), Some(due)) => format!(
                "{}: gets {is:.2} CPUs of {due:.2} due; weight of the VM {weight}",
                self.title()
            ),
            _ => format!(
                "{}: gets {:.2} CPUs with its original weights; weight of the VM {weight}",
                self.title(),
                self.cpus.before
            ),
        }
    }
}

fn name(vm: &VmProcess) -> String {
    vm.title().to_string()
}

fn why(decision: &Decision) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let end = if decision.ready { "was runnable at the end" } else { "was idle at the end" };
    format!(
        "used {:.1} ms of {:.1} ms, and {end}; next {:.1} ms",
        ms(decision.used_ns),
        ms(decision.given_ns),
        ms(decision.next_ns)
    )
}
