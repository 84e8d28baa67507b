// SPDX-License-Identifier: MIT OR Apache-2.0
//! A diagnosis, as tables and as JSON.

use super::cost::{mostly, Cost};
use super::table::{self, STATE_SHARE_MIN};
use crate::cmd::top::line::{total, Line};
use crate::fit::{cells, cut, percent, wrap};
use crate::watch::{
    in_words, ready_by, words, Counts, Held, ReadyBy, Rest, Sample, Taker, Watched,
};
use serde::Serialize;
use serde_json::{Map, Value};
use unspin_diagnosis::{
    advice, dominant, losses, remainder, Advice, Cause, Did, Loss, State, Times, Words,
    DOMINANT_SHARE_MIN,
};
use unspin_host::{Names, VmProcess};
use unspin_probe::Seen;
use unspin_text::{printable, printable_lines};

#[derive(Serialize)]
pub struct Document {
    schema: u32,
    /// The scheduler that replaces the kernel's own, in words; null if none is enabled.
    sched_ext: Option<String>,
    /// Number of the other VMs that were asked for: there is no room for them, they have no vCPUs, or they ended.
    not_watched: usize,
    vms: Vec<OfVm>,
}

#[derive(Serialize)]
pub struct OfVm {
    name: Option<String>,
    names: Names,
    pub pid: u32,
    uuid: Option<String>,
    monitor: &'static str,
    /// The number of its vCPUs. `vcpu` has those whose threads are known.
    vcpus: usize,
    window_s: f64,
    #[serde(flatten)]
    words: Words,
    /// The processes that had the CPUs for which its vCPUs waited; `None` is unknown.
    ready_by: Option<Vec<Taker>>,
    /// The shares of time that none of these processes had; `None` is unknown.
    ready_by_rest: Option<Rest>,
    /// True if none of its vCPUs ran or waited, for a reason other than an idle guest.
    paused: bool,
    /// vCPU-seconds in each observed state; `None` if none of its vCPUs was observed.
    states: Option<Map<String, Value>>,
    vcpu: Vec<OfVcpu>,
    kernel: Counts,
    causes: Vec<Loss>,
    dominant: Option<Cause>,
    /// Share of the wall time that other exits take; `None` is unknown.
    remainder: Option<f64>,
    #[serde(flatten)]
    cost: Cost,
    pub advice: Vec<Advice>,
    /// The name in messages.
    #[serde(skip)]
    pub title: String,
    /// Whether its vCPUs' threads take turns.
    #[serde(skip)]
    take_turns: bool,
    #[serde(skip)]
    held: Option<Held>,
    #[serde(skip)]
    pub did: Did,
    /// The title of the vCPU, or of the VM for all its vCPUs.
    #[serde(skip)]
    lines: (Vec<Line>, Line),
}

#[derive(Serialize)]
struct OfVcpu {
    index: u32,
    #[serde(flatten)]
    words: Words,
    /// `None` if it was not observed.
    states: Option<Map<String, Value>>,
    /// Number of exits, by the state that follows.
    exits: Map<String, Value>,
    switches: u64,
    wakes: u64,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Seconds per observed state; `None` if no time was observed.
fn seconds_by_state(times: &Times) -> Option<Map<String, Value>> {
    (times.total() > 0).then(|| by_state(times, |time| seconds(time).into()))
}

fn by_state(times: &Times, number: impl Fn(u64) -> Value) -> Map<String, Value> {
    times.spent().map(|(state, time)| (state.name().to_string(), number(time))).collect()
}

/// The VM's name in messages. Commands accept it for this VM.
pub fn title(vm: &VmProcess) -> String {
    titled(vm.title(), vm.pid)
}

/// The same from a name and a process id.
pub fn titled(title: &str, pid: u32) -> String {
    match title {
        _ if title == format!("pid:{pid}") => format!("process {pid}"),
        _ if title.ends_with(&format!("(process {pid})")) => title.to_string(),
        _ => format!("{title} (process {pid})"),
    }
}

impl Document {
    pub fn new(watched: &[Watched], before: &Sample, after: &Sample) -> Document {
        let vms = watched.iter().map(|watched| OfVm::new(watched, before, after)).collect();
        let sched_ext = after.facts.sched_ext.as_ref().map(ToString::to_string);
        Document { schema: 1, sched_ext, not_watched: 0, vms }
    }

    /// The same if it is of so many VMs.
    #[must_use]
    pub fn of(self, asked: usize) -> Document {
        Document { not_watched: asked.saturating_sub(self.vms.len()), ..self }
    }

    /// Lines of at most `width` cells: one per VM, or everything about each VM if there is only one
    /// or `details` is set.
    pub fn text(&self, width: usize, details: bool) -> String {
        let note = |note: &String| {
            wrap(&printable(&format!("Note: {note}.")), width, "").join("\n") + "\n"
        };
        let note = self.sched_ext.as_ref().map(note);
        match &self.vms[..] {
            vms if details || vms.len() == 1 => {
                let all = note.into_iter().chain(vms.iter().map(|vm| vm.text(width)));
                printable_lines(&all.collect::<Vec<_>>().join("\n"))
            }
            vms => {
                let mut lines: Vec<&Line> = vms.iter().map(|vm| &vm.lines.1).collect();
                let lost = |line: &Line| total(&line.lost).unwrap_or(-1.0);
                lines.sort_by(|a, b| lost(b).total_cmp(&lost(a)));
                let hint =
                    "unspin diagnose VM shows who has the CPUs that a VM waits for, its states, \
                            and advice; --details shows it of all VMs.";
                let text = printable_lines(&table::of_vms(&lines, width));
                let note = note.map_or(String::new(), |note| note + "\n");
                format!("{note}{text}\n{}\n", wrap(hint, width, "").join("\n"))
            }
        }
    }

    pub fn table(&self, width: usize) -> String {
        let lines: Vec<&Line> = self.vms.iter().map(|vm| &vm.lines.1).collect();
        printable_lines(&table::of_vms(&lines, width))
    }
}

impl OfVm {
    pub fn new(watched: &Watched, before: &Sample, after: &Sample) -> OfVm {
        let (vm, vcpus) = (watched.vm, &watched.vcpus);
        let (facts_before, facts) = (&before.facts, &after.facts);
        let all = watched.did(facts_before, facts);
        let losses = losses(&all);
        let of_vcpu = |(index, seen): &(u32, Seen)| OfVcpu {
            index: *index,
            words: words([seen]),
            states: seconds_by_state(&seen.times),
            exits: by_state(&seen.exits, Value::from),
            switches: seen.switches,
            wakes: seen.wakes,
        };
        let takers = ready_by(watched, before, after);
        let (ready_by, ready_by_rest) = takers.map(|ReadyBy { named, rest }| (named, rest)).unzip();
        let of_vcpus = Line::of_vcpus(watched, before, after);
        let line = Line::of_vm(watched, before, after);
        OfVm {
            name: vm.name_text(),
            names: vm.names.clone(),
            pid: vm.pid,
            uuid: vm.uuid(),
            monitor: vm.monitor.name(),
            vcpus: watched.count(),
            window_s: (after.at - before.at).as_secs_f64(),
            words: line.words,
            ready_by,
            ready_by_rest,
            paused: Held::of(&all).is_some(),
            states: seconds_by_state(&all.times),
            vcpu: vcpus.iter().map(of_vcpu).collect(),
            kernel: facts.counts(facts_before, vm.pid),
            dominant: dominant(&losses),
            remainder: (all.vcpus > 0).then(|| remainder(&all)),
            cost: Cost::new(&all),
            advice: advice(&all, &losses, &facts.setting(vm)),
            title: title(vm),
            take_turns: vm.take_turns,
            causes: losses,
            held: Held::of(&all),
            lines: (of_vcpus, line),
            did: all,
        }
    }

    pub fn sentence(&self) -> String {
        if self.did.vcpus == 0 && self.did.unseen > 0 {
            return "What its vCPUs do is unknown: none of them has left the guest, slept or waited.".into();
        }
        if self.did.vcpus == 0 && self.take_turns {
            return "Which of its threads run its vCPUs is unknown: more threads have run the guest than \
                    it has vCPUs, so they take turns, and cannot be told apart."
                .to_string();
        }
        if self.did.vcpus == 0 {
            return "Which of its threads run its vCPUs is unknown: none has a name that says so, and \
                    all slept outside the guest, as those of a paused VM do."
                .to_string();
        }
        match self.held {
            Some(Held::Paused) => {
                return "All its vCPUs slept in the VMM all the time: probably the VM is paused."
                    .into();
            }
            Some(Held::Stopped) => {
                return "Its vCPUs are stopped or frozen from outside.".into();
            }
            None => {}
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

    /// What runs on the CPUs for which it waits, largest share first.
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

    /// How long it waited, in the terms of other tools.
    pub fn in_words(&self) -> String {
        let number = |of: Option<f64>| of.map_or("?".into(), |percent| format!("{percent:.1}"));
        let Words { ready_pct, costop_pct, limit_pct, steal_pct } = self.words;
        format!(
            "%RDY {}, %CSTP {}, %MLMTD {}, each the sum over its vCPUs; the guest's steal time is {} %.",
            number(ready_pct),
            number(costop_pct),
            number(limit_pct),
            number(steal_pct)
        )
    }

    /// Who had the CPUs for which it waited; `None` if it never waited or that is unknown.
    pub fn takers(&self) -> Option<String> {
        let (named, rest) = self.ready_by.as_ref().zip(self.ready_by_rest)?;
        in_words(named, rest, self.pid)
    }

    fn text(&self, width: usize) -> String {
        let vcpus = if self.vcpus == 1 { "vCPU" } else { "vCPUs" };
        let size = format!("{} {vcpus}, {:.1} s", self.vcpus, self.window_s);
        let title = printable(&self.title);
        let mut lines = match cells(&title) + 2 + cells(&size) <= width {
            true => vec![format!("{title}: {size}")],
            false => vec![cut(&title, width), size],
        };
        let mut say = |text: &str, first: &str| lines.extend(wrap(&printable(text), width, first));
        say(&self.sentence(), "");
        say(&self.in_words(), "");
        if let Some(takers) = self.takers() {
            say(&takers, "");
        }
        say("", "");
        let mut text = lines.join("\n") + "\n";
        text += &table::of_causes(&self.causes, width);
        text.push('\n');
        text += &table::of_states(&self.did, width);
        text.push('\n');
        text += &table::of_vcpus(&self.lines.0, width);
        text.push('\n');
        let mut say = |line: &str, first: &str| {
            text += &(wrap(&printable(line), width, first).join("\n") + "\n");
        };
        for line in self.cost.lines() {
            say(&line, "");
        }
        for advice in &self.advice {
            say(&advice.line(), "* ");
        }
        text
    }
}

#[cfg(test)]
mod tests;
