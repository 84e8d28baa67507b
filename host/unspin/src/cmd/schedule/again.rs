// SPDX-License-Identifier: MIT OR Apache-2.0
//! What could not be done for a VM: how often it failed, why, and when it is tried again.

use super::fit::Key;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// At how many looks in a row it may fail to give a VM's threads to the scheduler: then the VM is tried no more.
const FAILURES_MOST: u32 = 3;
/// After a journal that could not be written: the first pause, each twice as long as the one before, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// VMs whose threads could not be given to the scheduler: at how many looks in a row, and why.
#[derive(Default)]
pub struct Failures(BTreeMap<Key, (u32, String)>);

impl Failures {
    pub fn add(&mut self, vm: Key, why: &str) {
        let known = self.0.entry(vm).or_default();
        *known = (known.0 + 1, why.to_string());
    }

    pub fn end(&mut self, vm: &Key) {
        self.0.remove(vm);
    }

    pub fn last(&self, vm: &Key) -> Option<&String> {
        self.0.get(vm).filter(|(looks, _)| *looks >= FAILURES_MOST).map(|(_, why)| why)
    }
}

/// VMs whose threads could not be recorded in the journal: until a pause is over, these stay as they are.
#[derive(Default)]
pub struct Pauses(BTreeMap<Key, Pause>);

struct Pause {
    why: String,
    length: Duration,
    until: Instant,
}

impl Pauses {
    /// Whether the error is to be said: it was not the last one.
    pub fn add(&mut self, vm: Key, now: Instant, why: &str) -> bool {
        let last = self.0.get(&vm);
        let is_other = last.is_none_or(|last| last.why != why);
        let length = last.map_or(PAUSE, |last| (last.length * 2).min(PAUSE_MAX));
        self.0.insert(vm, Pause { why: why.to_string(), length, until: now + length });
        is_other
    }

    pub fn end(&mut self, vm: &Key) {
        self.0.remove(vm);
    }

    pub fn why(&self, vm: &Key, now: Instant) -> Option<&String> {
        self.0.get(vm).filter(|pause| now < pause.until).map(|pause| &pause.why)
    }

    pub fn retain(&mut self, is_there: impl Fn(&Key) -> bool) {
        self.0.retain(|vm, _| is_there(vm));
    }
}

/// What could not be done for a VM, by its process. It is tried again at each look.
#[derive(Default)]
pub struct Pending(BTreeMap<u32, String>);

impl Pending {
    /// What is to be said of it: an error that was not there at the last look.
    pub fn note(&mut self, pid: u32, done: anyhow::Result<()>) -> Option<String> {
        let Err(e) = done else {
            self.0.remove(&pid);
            return None;
        };
        let why = format!("{e:#}");
        let before = self.0.insert(pid, why.clone());
        (before.as_ref() != Some(&why))
            .then(|| format!("the VM of process {pid}: {why}; it is tried again each second"))
    }

    pub fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_is_tried_again_after_a_passing_error() {
        let (vm, other) = ((41, Some(7)), (41, Some(8)));
        let mut failures = Failures::default();
        for _ in 1..FAILURES_MOST {
            failures.add(vm, "no space");
        }
        assert_eq!(failures.last(&vm), None);
        failures.end(&vm);
        for _ in 1..FAILURES_MOST {
            failures.add(vm, "no space");
        }
        assert_eq!(failures.last(&vm), None);
        failures.add(vm, "not permitted");
        assert_eq!(failures.last(&vm).map(String::as_str), Some("not permitted"));
        assert_eq!(failures.last(&other), None, "a later process of the same number");
    }

    #[test]
    fn pauses_grow_and_an_error_is_said_once() {
        let (vm, other) = ((41, Some(7)), (41, Some(8)));
        let mut pauses = Pauses::default();
        let mut now = Instant::now();
        for (at, seconds) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
            assert_eq!(pauses.add(vm, now, "no space"), at == 0);
            let end = now + Duration::from_secs(seconds);
            let last = end - Duration::from_millis(1);
            assert_eq!(pauses.why(&vm, last).map(String::as_str), Some("no space"));
            assert_eq!((pauses.why(&vm, end), pauses.why(&other, last)), (None, None));
            now = end;
        }
        assert!(pauses.add(vm, now, "read-only"), "another error");
        pauses.end(&vm);
        assert!(pauses.add(vm, now, "read-only"), "it was over");
        assert_eq!(pauses.why(&vm, now + PAUSE), None, "and pauses are short again");
        pauses.retain(|vm| *vm == other);
        assert_eq!(pauses.why(&vm, now), None);
    }

    #[test]
    fn an_error_is_said_once_until_it_is_another_or_has_ended() {
        let mut pending = Pending::default();
        let mut note = |pid: u32, why: Option<&'static str>| {
            pending.note(pid, why.map_or(Ok(()), |why| Err(anyhow::Error::msg(why)))).is_some()
        };
        for (pid, why, is_said) in [
            (41, None, false),
            (41, Some("no space"), true),
            (41, Some("no space"), false),
            (42, Some("no space"), true),
            (41, Some("not permitted"), true),
            (41, None, false),
            (41, Some("not permitted"), true),
        ] {
            assert_eq!(note(pid, why), is_said, "{pid} {why:?}");
        }
        assert_eq!(pending.pids().collect::<Vec<_>>(), [41, 42]);
    }
}
