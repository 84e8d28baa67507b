// SPDX-License-Identifier: MIT OR Apache-2.0
//! A line of the list, for a VM or a vCPU, and the order of lines.

use crate::watch::{did, words, Held, Sample, Watched};
use std::cmp::Ordering;
use unspin_diagnosis::{dominant, losses, Cause, Did, State, Words};
use unspin_host::VmProcess;
use unspin_probe::Seen;

pub struct Line {
    /// For a VM its process id, for a vCPU its number.
    pub id: u32,
    pub name: String,
    pub vcpus: usize,
    /// Share of its vCPUs' wall time in the guest, 0 to 1. `None`: none of its threads is known to
    /// run a vCPU.
    pub guest: Option<f64>,
    pub idle: Option<f64>,
    /// Shares lost, by cause in the order of [`Cause::ALL`]; `None` is unknown.
    pub lost: Vec<Option<f64>>,
    /// How long it waited, in the terms of other tools.
    pub words: Words,
    /// Why it sleeps, if the guest cannot be the cause.
    pub held: Option<Held>,
    pub dominant: Option<Cause>,
}

/// The lost share of the wall time, as far as it is known. `None`: nothing is known.
pub fn total(lost: &[Option<f64>]) -> Option<f64> {
    lost.iter().flatten().copied().reduce(|a, b| a + b)
}

impl Line {
    /// The dominant cause of lost time, or the reason why it sleeps.
    pub fn mostly(&self) -> &'static str {
        let cause = self.dominant.map_or("-", Cause::name);
        self.held.map_or(cause, Held::name)
    }

    fn new(id: u32, name: String, did: &Did, words: Words) -> Line {
        let losses = losses(did);
        let share = |states: &[State]| (did.vcpus > 0).then(|| did.share(states));
        Line {
            id,
            name,
            vcpus: did.vcpus,
            guest: share(&[State::Guest]),
            idle: share(&[State::Halted, State::Blocked, State::Stopped]),
            lost: losses.iter().map(|loss| loss.share).collect(),
            words,
            held: Held::of(did),
            dominant: dominant(&losses),
        }
    }

    pub fn of_vm(vm: &Watched, before: &Sample, after: &Sample) -> Line {
        let did = vm.did(&before.facts, &after.facts);
        let words = words(vm.vcpus.iter().map(|(_, seen)| seen));
        Line { vcpus: vm.count(), ..Line::new(vm.vm.pid, vm.vm.title().to_string(), &did, words) }
    }

    pub fn of_vcpus(vm: &Watched, before: &Sample, after: &Sample) -> Vec<Line> {
        let line = |(index, seen): &(u32, Seen)| {
            let did = did(vm.vm.pid, [seen], &before.facts, &after.facts);
            Line::new(*index, format!("vCPU {index}"), &did, words([seen]))
        };
        vm.vcpus.iter().map(line).collect()
    }
}

/// Whether one of its names contains this text, ignoring case.
pub fn is_called(vm: &VmProcess, text: &str) -> bool {
    let text = text.to_lowercase();
    let of_kinds = vm.names.iter().map(|(_, name)| name.to_string());
    let mut names = of_kinds.chain([vm.title().to_string()]);
    names.any(|name| name.to_lowercase().contains(&text))
}

/// The columns by which lines can be sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Column {
    /// The name of the VM.
    Name,
    /// Number of its vCPUs.
    Vcpus,
    /// Its time in the guest.
    Guest,
    /// Its time asleep.
    Idle,
    /// Its lost time, as far as it is known.
    Lost,
    /// Time in which it could run and had no CPU: %RDY.
    Ready,
    /// The part of %RDY in which a sibling ran: %CSTP.
    Costop,
    /// The part of %RDY in which a quota was used up: %MLMTD.
    Limit,
    /// Time lost while others have the CPU, or the quota is used up.
    Contention,
    /// Time lost to pause-loop exits.
    SpinSwitch,
    /// Time lost to sleep and wake-up.
    IdleSwitch,
    /// Time lost to interrupts.
    Ipi,
    /// Time lost to spinning in user space.
    UserSpin,
    /// Time lost to the last-level cache: not measured here.
    Cache,
    /// Time lost to emulated devices.
    Device,
    /// Time lost to model-specific registers.
    Msr,
    /// CPU time of the VMM's other threads: measured only with --json.
    Monitor,
}

impl Column {
    pub const ALL: [Column; 17] = [
        Column::Lost,
        Column::Contention,
        Column::SpinSwitch,
        Column::IdleSwitch,
        Column::Ipi,
        Column::UserSpin,
        Column::Cache,
        Column::Device,
        Column::Msr,
        Column::Monitor,
        Column::Ready,
        Column::Costop,
        Column::Limit,
        Column::Guest,
        Column::Idle,
        Column::Vcpus,
        Column::Name,
    ];

    pub fn cause(self) -> Option<Cause> {
        match self {
            Column::Contention => Some(Cause::Contention),
            Column::SpinSwitch => Some(Cause::SpinSwitch),
            Column::IdleSwitch => Some(Cause::IdleSwitch),
            Column::Ipi => Some(Cause::Ipi),
            Column::UserSpin => Some(Cause::UserSpin),
            Column::Cache => Some(Cause::Cache),
            Column::Device => Some(Cause::Device),
            Column::Msr => Some(Cause::Msr),
            Column::Monitor => Some(Cause::Monitor),
            _ => None,
        }
    }

    pub fn title(self) -> &'static str {
        match (self, self.cause()) {
            (_, Some(cause)) => cause.name(),
            (Column::Name, _) => "name",
            (Column::Vcpus, _) => "vCPUs",
            (Column::Guest, _) => "guest",
            (Column::Idle, _) => "idle",
            (Column::Ready, _) => "%RDY",
            (Column::Costop, _) => "%CSTP",
            (Column::Limit, _) => "%MLMTD",
            _ => "lost",
        }
    }

    /// The line's value in this column; `None` is unknown.
    fn number(self, line: &Line) -> Option<f64> {
        match (self, self.cause()) {
            (_, Some(cause)) => line.lost.get(cause as usize).copied().flatten(),
            (Column::Vcpus, _) => Some(line.vcpus as f64),
            (Column::Guest, _) => line.guest,
            (Column::Idle, _) => line.idle,
            (Column::Ready, _) => line.words.ready_pct,
            (Column::Costop, _) => line.words.costop_pct,
            (Column::Limit, _) => line.words.limit_pct,
            (Column::Name, _) => None,
            _ => total(&line.lost),
        }
    }

    /// Names from A to Z, numbers from the largest, unknown values last. Equal lines are ordered by
    /// their ids, so that they keep their positions.
    fn compare(self, a: &Line, b: &Line) -> Ordering {
        let order = match self {
            Column::Name => (a.name.to_lowercase(), a.vcpus).cmp(&(b.name.to_lowercase(), b.vcpus)),
            _ => {
                let number = |line: &Line| self.number(line).unwrap_or(-1.0);
                number(b).total_cmp(&number(a))
            }
        };
        order.then(a.id.cmp(&b.id))
    }

    pub fn sort(self, lines: &mut [Line], is_reversed: bool) {
        lines.sort_by(|a, b| match is_reversed {
            false => self.compare(a, b),
            true => self.compare(b, a),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn line(id: u32, lost: Vec<Option<f64>>) -> Line {
        let name = format!("vm{id}");
        let words = Words { costop_pct: lost.first().copied().flatten(), ..Words::default() };
        let (guest, idle) = (Some(0.5), Some(0.0));
        Line { id, name, vcpus: 1, guest, idle, lost, words, held: None, dominant: None }
    }

    #[test]
    fn every_cause_has_its_column() {
        let causes: Vec<Cause> = Column::ALL.iter().filter_map(|column| column.cause()).collect();
        assert_eq!(causes, Cause::ALL);
        let of_options = <Column as clap::ValueEnum>::value_variants();
        assert!(of_options.iter().all(|column| Column::ALL.contains(column)));
    }

    proptest! {
        #[test]
        fn lines_are_in_order_whichever_column(
            lost in prop::collection::vec(
                prop::collection::vec(prop::option::of(0.0..1.0), Cause::ALL.len()), 0..40),
            which in 0..Column::ALL.len(),
            is_reversed: bool,
        ) {
            let mut lines: Vec<Line> = (0..).zip(lost).map(|(id, lost)| line(id, lost)).collect();
            let column = Column::ALL[which];
            column.sort(&mut lines, is_reversed);
            for pair in lines.windows(2) {
                let order = column.compare(&pair[0], &pair[1]);
                prop_assert_eq!(order, if is_reversed { Ordering::Greater } else { Ordering::Less });
            }
            let unknown = lines.iter().position(|line| column.number(line).is_none());
            if let (Some(first), false) = (unknown, is_reversed) {
                prop_assert!(lines[first..].iter().all(|line| column.number(line).is_none()));
            }
        }
    }
}
