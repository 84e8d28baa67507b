// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the phases of an experiment, and stops it early if needed.

use super::switch::Switch;
use super::work;
use crate::cmd::diagnose::show::title;
use crate::fit::percent;
use crate::progress::Passing;
use crate::span::wait;
use crate::undo::{told, Guard, Undo};
use crate::watch::{Sample, Source, SETTLE};
use anyhow::{bail, Context};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use unspin_diagnosis::pairs::is_of_b;
use unspin_diagnosis::{losses, Cause, Did, Loss, State};
use unspin_host::journal::Target;
use unspin_host::VmProcess;

/// Pause-loop exits stay on if a VM waits for CPUs for this share of its vCPUs' time or more.
pub const CONTENTION_MAX: f64 = 0.05;
/// The same limit for the last [`LOOK`] of a phase of B: a short wait does no harm yet.
const CONTENTION_NOW_MAX: f64 = 0.10;

/// How often the experiment is checked.
const LOOK: Duration = Duration::from_secs(1);

/// A VM follows new settings within this time after [`SETTLE`]. The module patches code.
const SWITCHED_WITHIN: Duration = Duration::from_secs(1);

/// With fewer events in a phase it is unknown whether the VM follows its setting.
const EVENTS_MIN: u64 = 50;
/// Below this share of the wall time the VM does not poll: the state also contains the time from HLT
/// to sleep.
pub const POLL_SHARE_MIN: f64 = 0.01;

pub struct Asked<'a> {
    pub vm: &'a VmProcess,
    pub rounds: usize,
    pub window: Duration,
    pub work: Option<&'a str>,
}

pub struct Window {
    pub is_b: bool,
    pub did: Did,
    pub losses: Vec<Loss>,
    /// Units of work per second.
    pub work: Option<f64>,
}

pub struct Trial<'a> {
    pub asked: &'a Asked<'a>,
    pub switch: &'a Switch,
    pub source: &'a mut dyn Source,
    pub undo: &'a mut Undo,
    pub guard: &'a mut Guard,
    pub stop: &'a AtomicBool,
}

impl Asked<'_> {
    pub fn windows(&self) -> usize {
        2 * self.rounds
    }

    /// Its duration without delays.
    pub fn takes(&self) -> Duration {
        let switches = (1..self.windows()).filter(|w| is_of_b(*w) != is_of_b(*w - 1)).count();
        self.window * self.windows() as u32 + (SETTLE + SWITCHED_WITHIN / 2) * (switches + 2) as u32
    }

    /// The experiment is stopped after this time.
    pub fn limit(&self) -> Duration {
        let windows = self.windows() as u32;
        let work = if self.work.is_some() { work::LIMIT * 2 * windows } else { Duration::ZERO };
        self.takes() + SWITCHED_WITHIN * windows + work + Duration::from_secs(10)
    }
}

impl Trial<'_> {
    /// Runs all phases. At the end, or after an error, B may be set: the caller restores A.
    pub fn run(&mut self) -> anyhow::Result<Vec<Window>> {
        let (start, takes) = (Instant::now(), self.asked.takes());
        let mut passing = Passing::new(takes, "comparing A and B");
        let before = self.values_of_a()?;
        let mut windows: Vec<Window> = Vec::new();
        for index in 0..self.asked.windows() {
            let is_b = is_of_b(index);
            if is_b != windows.last().is_some_and(|window| window.is_b) {
                self.change_to(is_b)?;
            }
            self.guard.go_on()?;
            wait(SETTLE, self.stop, &mut |_| passing.at(start.elapsed()))?;
            let window = self.window(is_b, start, &mut passing)?;
            self.is_untouched(if is_b { &self.switch.wanted } else { &before })?;
            self.follows(windows.first(), &window)?;
            windows.push(window);
        }
        Ok(windows)
    }

    fn values_of_a(&self) -> anyhow::Result<Vec<(Target, String)>> {
        let targets = self.switch.wanted.iter().map(|(target, _)| target);
        targets.map(|target| Ok((target.clone(), self.undo.read(target)?))).collect()
    }

    fn change_to(&mut self, b: bool) -> anyhow::Result<()> {
        if b {
            return self.undo.change(&self.switch.wanted);
        }
        for (change, back) in self.undo.put_back()? {
            if !matches!(back, unspin_host::journal::Back::Restored) {
                if let Some(told) = told(&change, &back) {
                    bail!("the experiment was stopped: {told}");
                }
            }
        }
        Ok(())
    }

    fn window(
        &mut self,
        is_b: bool,
        start: Instant,
        passing: &mut Passing,
    ) -> anyhow::Result<Window> {
        let before = self.source.sample()?;
        let ask = |work: Option<&str>| work.map(|work| work::ask(work, self.stop)).transpose();
        let work_before = ask(self.asked.work)?;
        let (mut left, mut last) = (self.asked.window, None);
        while !left.is_zero() {
            let part = left.min(LOOK);
            wait(part, self.stop, &mut |_| passing.at(start.elapsed()))?;
            left -= part;
            self.guard.go_on()?;
            if start.elapsed() > self.asked.limit() {
                bail!(
                    "the experiment was stopped: it took longer than {} s",
                    self.asked.limit().as_secs()
                );
            }
            if is_b && !left.is_zero() {
                let now = self.source.sample()?;
                let since = last.as_ref().unwrap_or(&before);
                self.may_go_on(&self.between(since, &now)?, &now, CONTENTION_NOW_MAX)?;
                last = Some(now);
            }
        }
        let work_after = ask(self.asked.work)?;
        let after = self.source.sample()?;
        let did = self.between(&before, &after)?;
        self.may_go_on(&did, &after, CONTENTION_MAX)?;
        let work = match (work_before, work_after) {
            (Some(before), Some(after)) => Some(after.rate_since(&before)?),
            _ => None,
        };
        Ok(Window { is_b, losses: losses(&did), did, work })
    }

    fn between(&self, before: &Sample, after: &Sample) -> anyhow::Result<Did> {
        let vm = after.vms.iter().find(|vm| vm.process.pid == self.asked.vm.pid);
        let watched = vm.and_then(|vm| vm.between(&before.seen, &after.seen));
        let title = title(self.asked.vm);
        let watched =
            watched.with_context(|| format!("{title} ended, or had no vCPU: no result"))?;
        Ok(watched.did(&before.facts, &after.facts))
    }

    /// Fails if the experiment does harm: its VM waits for CPUs for `waits_max` of its vCPUs' time or
    /// more.
    fn may_go_on(&self, did: &Did, now: &Sample, waits_max: f64) -> anyhow::Result<()> {
        let title = title(self.asked.vm);
        if self.switch.cause == Cause::IdleSwitch && now.vms.len() > 1 {
            bail!(
                "the experiment was stopped: another VM started, and halt_poll_ns applies to all \
                 VMs"
            );
        }
        let losses = losses(did);
        let waits = losses[Cause::Contention as usize].share.unwrap_or(0.0);
        let why = match self.switch.cause {
            Cause::SpinSwitch => {
                "Without pause-loop exits its vCPUs would spin while lock holders wait for those \
                 CPUs, and the comparison would be wrong. Give it CPUs of its own first, or \
                 compare modes of the module: unspin set --vm VM mode=hvs"
            }
            Cause::Cache => {
                "On fewer CPUs all of them would wait longer. Run the experiment while the others \
                 are idle"
            }
            _ => return Ok(()),
        };
        if waits >= waits_max {
            bail!(
                "{title} waits for CPUs that others use, {} of its vCPUs' time (allowed: {}). \
                 {why}",
                percent(waits),
                percent(waits_max)
            );
        }
        Ok(())
    }

    /// Fails if another program has changed a switched value.
    fn is_untouched(&self, expected: &[(Target, String)]) -> anyhow::Result<()> {
        for (target, value) in expected {
            let is = self.undo.read(target)?;
            if is != *value {
                bail!(
                    "the experiment was stopped: another program has set {target} to {is}, which \
                     was {value} in this phase; it stays"
                );
            }
        }
        Ok(())
    }

    /// Fails if the VM does not follow the settings of B, as its first phase of B shows.
    fn follows(&self, a: Option<&Window>, window: &Window) -> anyhow::Result<()> {
        let (Some(a), true) = (a, window.is_b) else { return Ok(()) };
        let title = title(self.asked.vm);
        let polls = |window: &Window| window.did.share(&[State::Poll]);
        let halts = |window: &Window| window.did.exits[State::ExitHalt];
        match self.switch.cause {
            Cause::SpinSwitch if keeps_exits(&a.did, &window.did) => bail!(
                "{title} had {:.0} pause-loop exits per second in a phase of A and {:.0} in one of \
                 B: it does not use the window of the module (docs/sysfs.md lists when the module \
                 leaves a VM to KVM)",
                exits_per_s(&a.did),
                exits_per_s(&window.did)
            ),
            Cause::IdleSwitch if halts(a).min(halts(window)) >= EVENTS_MIN => {
                let (least, most) = (polls(a).min(polls(window)), polls(a).max(polls(window)));
                // If the VM follows the parameter, one of the arms does not poll. Neither may poll,
                // because KVM does not poll for long sleeps.
                if most >= POLL_SHARE_MIN && least > most / 2.0 {
                    bail!(
                        "{title} polled {} of the time in A, and {} in B: it does not use \
                         halt_poll_ns of the module kvm. Its VMM has set polling itself \
                         (KVM_CAP_HALT_POLL), or the kernel is 5.8 to 6.0, where a VM keeps the \
                         value from its start",
                        percent(polls(a)),
                        percent(polls(window))
                    );
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn exits_per_s(did: &Did) -> f64 {
    did.exits[State::ExitPause] as f64 * 1e9 / did.window_ns as f64
}

/// Whether a VM does not follow the window of B, which ends nearly all pause-loop exits. Phases differ in length
/// where the host is busy.
fn keeps_exits(a: &Did, b: &Did) -> bool {
    a.exits[State::ExitPause] >= EVENTS_MIN && exits_per_s(b) > exits_per_s(a) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_compared_whatever_the_lengths_of_phases() {
        let did = |window_ns, exits| {
            let mut did = Did { vcpus: 1, window_ns, ..Did::default() };
            did.exits[State::ExitPause] = exits;
            did
        };
        let a = did(1_000_000_000, 1000);
        assert!(keeps_exits(&a, &did(1_000_000_000, 900)));
        assert!(keeps_exits(&a, &did(200_000_000, 180)));
        assert!(!keeps_exits(&a, &did(1_000_000_000, 10)));
        assert!(!keeps_exits(&a, &did(5_000_000_000, 1000)));
        assert!(!keeps_exits(&did(1_000_000_000, EVENTS_MIN - 1), &did(1_000_000_000, 1000)));
    }
}
