// SPDX-License-Identifier: MIT OR Apache-2.0
//! A diagnosis, as tables and as JSON.

use super::cost::{mostly, Cost};
use crate::watch::facts::{Counts, Facts};
use crate::watch::Watched;
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Write;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};
use unspin_diagnosis::{
    advice, dominant, losses, remainder, Advice, Cause, Did, Loss, State, Times, DOMINANT_SHARE_MIN,
};
use unspin_host::{Name, Names, VmProcess};
use unspin_probe::Seen;
use unspin_text::printable_lines;

/// States with less of the wall time are in --json only, and not shown by top.
pub const STATE_SHARE_MIN: f64 = 0.0005;

#[derive(Serialize)]
pub struct Document {
    schema: u32,
    /// A scheduler in place of the kernel's own, in words; null where none is enabled.
    sched_ext: Option<String>,
    vms: Vec<OfVm>,
}

#[derive(Serialize)]
pub struct OfVm {
    name: Option<String>,
    /// By kind.
    names: Names,
    pid: u32,
    uuid: Option<String>,
    monitor: &'static str,
    /// vCPUs that it has; `vcpu` has those whose threads are known.
    vcpus: usize,
    window_s: f64,
    /// vCPU-seconds in each state that was seen.
    states: Map<String, Value>,
    vcpu: Vec<OfVcpu>,
    kernel: Counts,
    causes: Vec<OfCause>,
    dominant: Option<Cause>,
    /// Share of the wall time that other exits take.
    remainder: f64,
    #[serde(flatten)]
    cost: Cost,
    advice: Vec<Advice>,
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    did: Did,
}

#[derive(Serialize)]
struct OfVcpu {
    index: u32,
    states: Map<String, Value>,
    /// Exits, by the state that follows.
    exits: Map<String, Value>,
    switches: u64,
    wakes: u64,
}

#[derive(Serialize)]
struct OfCause {
    cause: &'static str,
    lost_s_per_s: Option<f64>,
    share: Option<f64>,
    sure: &'static str,
    stands_on: String,
}

impl From<&Loss> for OfCause {
    fn from(loss: &Loss) -> OfCause {
        OfCause {
            cause: loss.cause.name(),
            lost_s_per_s: loss.lost_s_per_s,
            share: loss.share,
            sure: loss.sure.name(),
            stands_on: loss.stands_on.clone(),
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A number per state that was seen.
fn by_state(times: &Times, number: impl Fn(u64) -> Value) -> Map<String, Value> {
    times.spent().map(|(state, time)| (state.name().to_string(), number(time))).collect()
}

/// As messages have a VM; commands take it for this VM.
pub fn title(vm: &VmProcess) -> String {
    titled(vm.title(), vm.pid)
}

/// The same by what it is called, and its process.
pub fn titled(title: &str, pid: u32) -> String {
    match title {
        _ if title == format!("pid:{pid}") => format!("process {pid}"),
        _ if title.ends_with(&format!("(process {pid})")) => title.to_string(),
        _ => format!("{title} (process {pid})"),
    }
}

impl Document {
    pub fn new(watched: &[Watched], before: &Facts, facts: &Facts) -> Document {
        let vms = watched.iter().map(|watched| OfVm::new(watched, before, facts)).collect();
        Document { schema: 1, sched_ext: facts.sched_ext().map(ToString::to_string), vms }
    }

    pub fn text(&self) -> String {
        let note = self.sched_ext.iter().map(|note| format!("Note: {note}.\n"));
        let all: Vec<String> = note.chain(self.vms.iter().map(OfVm::text)).collect();
        printable_lines(&all.join("\n"))
    }
}

impl OfVm {
    pub fn new(watched: &Watched, before: &Facts, facts: &Facts) -> OfVm {
        let (vm, vcpus) = (watched.vm, &watched.vcpus);
        let did = watched.did(before, facts);
        let losses = losses(&did);
        let of_vcpu = |(index, seen): &(u32, Seen)| OfVcpu {
            index: *index,
            states: by_state(&seen.times, |time| seconds(time).into()),
            exits: by_state(&seen.exits, Value::from),
            switches: seen.switches,
            wakes: seen.wakes,
        };
        OfVm {
            name: vm.name().map(Name::to_text),
            names: vm.names.clone(),
            pid: vm.pid,
            uuid: vm.uuid(),
            monitor: vm.monitor.name(),
            vcpus: watched.count(),
            window_s: seconds(did.window_ns),
            states: by_state(&did.times, |time| seconds(time).into()),
            vcpu: vcpus.iter().map(of_vcpu).collect(),
            kernel: facts.counts(before, vm.pid),
            causes: losses.iter().map(OfCause::from).collect(),
            dominant: dominant(&losses),
            remainder: remainder(&did),
            cost: Cost::new(&did),
            advice: advice(&did, &losses, &facts.setting(vm)),
            title: title(vm),
            did,
        }
    }

    /// As messages have it.
    pub fn title(&self) -> &str {
        &self.title
    }

    pub fn advice(&self) -> &[Advice] {
        &self.advice
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What its vCPUs did.
    pub fn did(&self) -> &Did {
        &self.did
    }

    /// The answer in one sentence.
    pub fn sentence(&self) -> String {
        if self.did.vcpus == 0 {
            return "Which of its threads run its vCPUs is unknown: none has a name that says so, and \
                    all slept outside the guest, as those of a paused VM do."
                .to_string();
        }
        let Some(cause) = self.dominant else {
            let least = percent(DOMINANT_SHARE_MIN);
            return format!("No cause takes {least} of the vCPUs' time.");
        };
        let share = self.causes[cause as usize].share.map_or(String::new(), percent);
        let what = match cause {
            Cause::Contention => format!("waiting for a CPU: {}", self.by_whom()),
            Cause::SpinSwitch => "spinning in the guest kernel, and pause-loop exits".into(),
            Cause::IdleSwitch => "sleep and wake-up".into(),
            Cause::Ipi => "interrupts".into(),
            Cause::UserSpin => "spinning in user space".into(),
            Cause::Cache => "its vCPUs do not share a cache".into(),
            Cause::Device => format!("devices that are emulated{}", mostly(&self.did, cause)),
            Cause::Msr => {
                format!("accesses to model-specific registers{}", mostly(&self.did, cause))
            }
            Cause::Monitor => "threads of its VMM besides its vCPUs".into(),
        };
        format!("The main cause, {share} of the vCPUs' time: {what}.")
    }

    /// What runs on the CPUs that it waits for, largest share first.
    fn by_whom(&self) -> String {
        let who = [
            (State::ReadyVm, "other VMs run on it"),
            (State::ReadyHost, "tasks of the host run on it"),
            (State::ReadySibling, "its own vCPUs run on it"),
            (State::ReadyVmm, "other threads of its VMM run on it"),
            (State::Throttled, "its quota is used up"),
            (State::Parked, "another VM has a turn"),
        ];
        let mut who: Vec<(f64, &str)> =
            who.iter().map(|(state, text)| (self.did.share(&[*state]), *text)).collect();
        who.sort_by(|a, b| b.0.total_cmp(&a.0));
        let lines: Vec<String> = who
            .iter()
            .take_while(|(share, _)| *share >= STATE_SHARE_MIN)
            .map(|(share, text)| format!("{text} ({})", percent(*share)))
            .collect();
        lines.join(", ")
    }

    fn text(&self) -> String {
        let vcpus = if self.vcpus == 1 { "vCPU" } else { "vCPUs" };
        let mut text = format!("{}: {} {vcpus}, {:.1} s\n", self.title, self.vcpus, self.window_s);
        let _ = writeln!(text, "{}\n{}", self.sentence(), self.cause_table());
        let _ = writeln!(text, "{}", self.state_table());
        for line in self.cost.lines() {
            let _ = writeln!(text, "{line}");
        }
        for advice in &self.advice {
            let _ = writeln!(text, "* {}", advice.line());
        }
        text
    }

    fn cause_table(&self) -> String {
        let mut table = Builder::default();
        table.push_record(["cause", "lost s/s", "share", "certainty", "based on"]);
        for cause in &self.causes {
            table.push_record([
                cause.cause.to_string(),
                cause.lost_s_per_s.map_or("?".into(), |lost| format!("{lost:.3}")),
                cause.share.map_or("?".into(), percent),
                cause.sure.to_string(),
                cause.stands_on.clone(),
            ]);
        }
        let mut table = table.build();
        table.with(Style::sharp()).modify(Columns::new(1..3), Alignment::right());
        table.to_string()
    }

    fn state_table(&self) -> String {
        let mut table = Builder::default();
        table.push_record(["state", "vCPU-seconds", "share", "meaning"]);
        for (state, time) in self.did.times.spent() {
            let share = self.did.share(&[state]);
            if share >= STATE_SHARE_MIN {
                table.push_record([
                    state.name().to_string(),
                    format!("{:.3}", seconds(time)),
                    percent(share),
                    state.meaning().to_string(),
                ]);
            }
        }
        let mut table = table.build();
        table.with(Style::sharp()).modify(Columns::new(1..3), Alignment::right());
        table.to_string()
    }
}
