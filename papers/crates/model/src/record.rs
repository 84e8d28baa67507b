// SPDX-License-Identifier: MIT OR Apache-2.0
//! A profile from what a host counts of a running VM. Section 4.3.2 counts active cores and voluntary
//! context switches of a program on its own machine; here, vCPUs that want a CPU and their halts.
//!
//! Of the program's order in time nothing is counted, so the profile is a loop: in each pass every vCPU
//! halts once, and the numbers of vCPUs at work follow each other from most to least.

use crate::{Allocation, App, Kind, Phase, Sequential};
use unspin_sim::{Change, State};

/// Numbers of vCPUs beyond this are counted as one.
const UNITS_MAX: usize = 64;
/// A part of the time below this says nothing about who works alone, or how vCPUs wait.
const NOTABLE: f64 = 0.02;
/// Shorter passes are no program's.
const PASS_MIN_MS: f64 = 0.01;
/// Waiting for CPUs distorts a profile if it takes more than this part of the time at work.
const CROWDED: f64 = 0.1;

/// Why there is no profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("no vCPU did anything in the measuring time: record while the program runs")]
    Idle,
    #[error("it has {0} vCPUs; a profile can be recorded of at most {UNITS_MAX}")]
    Large(usize),
}

/// What is counted of a VM.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// How long 0, 1, 2, … vCPUs wanted a CPU at the same time, with or without getting one, in ns.
    pub wanting_ns: Vec<u64>,
    pub vcpus: Vec<OfVcpu>,
    /// CPU time of all vCPUs that went into pause-loop exits and the spinning before them, in ns. `None`:
    /// this host does not see it.
    pub ple_ns: Option<u64>,
    /// CPU time of spinning in user space.
    pub user_spin_ns: Option<u64>,
}

/// What is counted of a vCPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfVcpu {
    pub on_cpu_ns: u64,
    /// It wanted a CPU and had none.
    pub ready_ns: u64,
    pub halts: u64,
}

/// A profile, and what it stands on.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    pub app: App,
    pub kind: Kind,
    /// Mean CPU time of a vCPU from one halt to the next, ms; `None`: none halted.
    pub interval_ms: Option<f64>,
    /// The part of the time with work in which one vCPU works alone.
    pub alone: f64,
    /// The parts of the vCPUs' time that they sleep while a sibling works, and that they spin.
    pub halted: f64,
    pub spun: f64,
    /// The part of their time at work that they had no CPU.
    pub ready: f64,
    /// Whether all spinning was seen.
    pub sees_spins: bool,
}

impl Counts {
    /// Counts a VM's state changes, in the order of time. They begin with the states that all its vCPUs
    /// are in when the measuring time begins; it ends at `end_ns`.
    pub fn of(changes: &[Change], end_ns: u64) -> Counts {
        let units = changes.iter().map(|change| change.vcpu as usize + 1).max().unwrap_or(0);
        let mut counts = Counts {
            wanting_ns: vec![0; units + 1],
            vcpus: vec![OfVcpu::default(); units],
            ..Counts::default()
        };
        let mut states = vec![State::Halted; units];
        let begin_ns = changes.first().map_or(end_ns, |change| change.at_ns);
        let mut since_ns = begin_ns;
        let mut pass = |counts: &mut Counts, states: &[State], until_ns: u64| {
            let ns = until_ns.saturating_sub(since_ns);
            counts.wanting_ns[states.iter().filter(|state| **state != State::Halted).count()] += ns;
            for (vcpu, state) in counts.vcpus.iter_mut().zip(states) {
                match state {
                    State::Running => vcpu.on_cpu_ns += ns,
                    State::Ready => vcpu.ready_ns += ns,
                    State::Halted => {}
                }
            }
            since_ns = since_ns.max(until_ns);
        };
        for change in changes {
            pass(&mut counts, &states, change.at_ns.min(end_ns));
            let vcpu = change.vcpu as usize;
            let is_halt = change.to == State::Halted && states[vcpu] != State::Halted;
            counts.vcpus[vcpu].halts += u64::from(is_halt);
            states[vcpu] = change.to;
        }
        pass(&mut counts, &states, end_ns);
        counts
    }

    /// The profile, for a VM with that share of its CPUs' time.
    ///
    /// # Errors
    /// A VM that did nothing, or has too many vCPUs.
    pub fn profile(&self, name: &str, share: f64) -> Result<Recorded, RecordError> {
        let units = self.vcpus.len();
        if units > UNITS_MAX {
            return Err(RecordError::Large(units));
        }
        let sum = |of: fn(&OfVcpu) -> u64| self.vcpus.iter().map(of).sum::<u64>() as f64;
        let (on, ready) = (sum(|v| v.on_cpu_ns), sum(|v| v.ready_ns));
        let spun = (self.ple_ns.unwrap_or(0) + self.user_spin_ns.unwrap_or(0)) as f64;
        let levels = self.levels(units);
        let time: f64 = levels.iter().sum();
        let at_work = time - levels[0];
        if units == 0 || on <= 0.0 || at_work <= 0.0 {
            return Err(RecordError::Idle);
        }
        // With a CPU for each vCPU, everything takes this part of the time.
        let pace = on / (on + ready);
        let halts = sum(|v| v.halts);
        let own_ms = time * pace / 1e6;
        let pass_ms = (own_ms / self.halts_of_most().max(1.0)).max(PASS_MIN_MS);
        let alone = levels.get(1).copied().unwrap_or(0.0);
        let mut app = App {
            blocks_per_s: rounded(1e3 * halts / own_ms).min(1e9),
            sequential: self.sequential(alone * pace),
            ..App::new(name, units as u32, share, Vec::new())
        };
        let crowd: f64 = (2..).zip(levels.iter().skip(2)).map(|(k, ns)| f64::from(k) * ns).sum();
        let useful = 1.0 - (spun / (crowd * pace).max(1.0)).min(1.0);
        app.phases = phases(&levels, useful, pass_ms / time);
        app.check(name).map_err(|_| RecordError::Idle)?;
        let wanted: f64 = crowd + alone;
        Ok(Recorded {
            kind: app.predict(Allocation::Even).kind,
            interval_ms: (halts > 0.0).then(|| 1e3 * app.parallelism() / app.blocks_per_s),
            alone: alone / at_work,
            halted: 1.0 - wanted / (units as f64 * at_work),
            spun: spun / (units as f64 * at_work),
            ready: ready / (on + ready),
            sees_spins: self.ple_ns.is_some() && self.user_spin_ns.is_some(),
            app,
        })
    }

    /// Times at 0, 1, … `units` vCPUs that want a CPU.
    fn levels(&self, units: usize) -> Vec<f64> {
        let mut levels = vec![0.0; units + 1];
        for (k, ns) in self.wanting_ns.iter().enumerate() {
            levels[k.min(units)] += *ns as f64;
        }
        levels
    }

    /// The halts of a vCPU, the median: one that works alone never halts.
    fn halts_of_most(&self) -> f64 {
        let mut halts: Vec<u64> = self.vcpus.iter().map(|vcpu| vcpu.halts).collect();
        halts.sort_unstable();
        halts[halts.len() / 2] as f64
    }

    /// If the same vCPU always works alone, it has that time more than the others.
    fn sequential(&self, alone_ns: f64) -> Sequential {
        let all: Vec<f64> = self.vcpus.iter().map(|vcpu| vcpu.on_cpu_ns as f64).collect();
        let (most, sum) = (all.iter().copied().fold(0.0, f64::max), all.iter().sum::<f64>());
        let others = (sum - most) / (all.len() as f64 - 1.0).max(1.0);
        let is_rotating = alone_ns > NOTABLE * most && most - others < alone_ns / 2.0;
        if is_rotating {
            Sequential::Rotating
        } else {
            Sequential::Same
        }
    }
}

/// A phase for each number of vCPUs at work, most first. Where several want a CPU, this part of their time
/// is `useful`: the mean is kept, of whole numbers of threads. `ms` is a pass's for each ns of `levels`.
fn phases(levels: &[f64], useful: f64, ms: f64) -> Vec<Phase> {
    let mut of_threads = vec![0.0; levels.len()];
    for (k, ns) in levels.iter().enumerate() {
        let works = if k > 1 { (k as f64 * useful).max(1.0) } else { k as f64 };
        let (least, part) = (works.floor(), works.fract());
        of_threads[least as usize] += (1.0 - part) * ns;
        if part > 0.0 {
            of_threads[least as usize + 1] += part * ns;
        }
    }
    let phase = |(threads, ns): (usize, &f64)| Phase {
        threads: threads as u32,
        ms: rounded(ns * ms).min(3_600_000.0),
    };
    of_threads.iter().enumerate().rev().map(phase).filter(|phase| phase.ms >= 1e-6).collect()
}

/// To 5 digits.
fn rounded(x: f64) -> f64 {
    format!("{x:.4e}").parse().unwrap_or(x)
}

impl Recorded {
    /// The type and its evidence, a line each.
    pub fn lines(&self) -> Vec<String> {
        let Recorded { app, kind, .. } = self;
        let percent = |x: f64| format!("{:.0} %", 100.0 * x);
        let is = match kind {
            Kind::Type1 => "parallel, blocks rarely",
            Kind::Type2 => "less parallel, blocks often",
            Kind::Type3 => "parallel, blocks often",
            Kind::Type4 => "less parallel, blocks rarely",
        };
        let slice = app.period_ms * app.share;
        let interval = match self.interval_ms {
            Some(ms) => format!("a vCPU halts after {ms:.3} ms of CPU time on average"),
            None => "no vCPU halted".into(),
        };
        let who = match app.sequential {
            _ if self.alone < NOTABLE => "",
            Sequential::Same => ", mostly the same one",
            Sequential::Rotating => ", each in its turn",
        };
        let waits = match (self.halted, self.spun) {
            (halted, spun) if halted.max(spun) < NOTABLE => "hardly at all",
            (halted, spun) if halted >= spun => "by blocking",
            _ => "by spinning",
        };
        let mut lines = vec![
            format!("type {kind}: {is}"),
            format!(
                "parallelism: {:.2} of {} vCPUs at work; high from {:.2}",
                app.parallelism(), app.units, 0.75 * f64::from(app.units)
            ),
            format!("synchronization: {interval}; often: within a slice of {slice} ms"),
            format!("sequential: one vCPU works alone for {} of the time with work{who}", percent(self.alone)),
            format!(
                "waiting: {waits}; vCPUs sleep for {} of the time with work, and are seen to spin for {}",
                percent(self.halted), percent(self.spun)
            ),
        ];
        if !self.sees_spins {
            lines.push(
                "unknown: spinning, at least in user space; it counts as work (unspin spinners shows where)".into(),
            );
        }
        if self.spun >= NOTABLE {
            lines.push(
                "caution: of a program that spins only the mean number of vCPUs at work is known"
                    .into(),
            );
        }
        if self.ready > CROWDED {
            lines.push(format!(
                "caution: vCPUs that wanted a CPU had none for {} of the time, so siblings that waited for them \
                 count as idle: the parallelism is more, and the type may be wrong; record it beside fewer VMs",
                percent(self.ready)
            ));
        }
        lines
    }

    /// The profile as a file. Its name and `source` must be one line each.
    pub fn toml(&self, source: &str) -> String {
        let head = self.lines().into_iter().map(|line| format!("# {line}\n")).collect::<String>();
        let text = toml::to_string(&self.app).expect("numbers and a name");
        format!("# {source}\n{head}# share and period_ms are not measured: they are those of section 4.3.2.\n{text}")
    }
}
