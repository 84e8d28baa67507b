// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of locks and arms of each kernel, from results that sweep locks.

use crate::compute::measures::{
    any_epoch_ended, counted, fairness_all_vcpus, inefficiency, is_aple_alone, per_second,
    throughput, Over,
};
use crate::lock_table::{CellKey, Figures, LockTable, BASE_LOCK};
use crate::read::dedupe::{by_document, distinct_runs};
use crate::read::input::{Input, Stream};
use crate::stat::{median, spread, Verdict};
use std::collections::BTreeMap;
use unspin_scenario::plan::Run;
use unspin_scenario::result::RunResult;
use unspin_text::names::distinct;

/// The reason why results make no matrix.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MatrixError {
    #[error("the results do not sweep locks; run a scenario with [sweep] locks, such as matrix")]
    NoLocks,
    #[error(
        "the results have no runs of lock {BASE_LOCK} under arm {arm:?} with {vms} VMs of \
             {profile}, the baseline of the table: run this lock too"
    )]
    NoBase { arm: String, vms: u32, profile: String },
}

/// All repeats of one cell, by repeat.
type Repeats<'a> = BTreeMap<u32, &'a RunResult>;

/// One table for each kernel of the input.
pub fn lock_tables(input: &Input) -> Result<Vec<LockTable>, MatrixError> {
    let groups = by_document(&input.streams);
    if groups.is_empty() {
        return Err(MatrixError::NoLocks);
    }
    groups.iter().map(|streams| table(streams)).collect()
}

fn table(streams: &[&Stream]) -> Result<LockTable, MatrixError> {
    let mut notices = Vec::new();
    let runs = distinct_runs(streams, &mut notices);
    let mut t = LockTable {
        kernel: streams[0].begin.kernel.clone(),
        origin: origin(streams, &runs),
        notices,
        profiles: Vec::new(),
        vms: Vec::new(),
        locks: Vec::new(),
        arms: Vec::new(),
        baseline: String::new(),
        cells: BTreeMap::new(),
    };
    let mut in_order: Vec<&RunResult> =
        runs.into_iter().filter(|r| !r.run.alone && !r.run.lock_group.is_empty()).collect();
    // All boots have the same plan, whose order is that of the scenario.
    in_order.sort_by_key(|r| r.run.id);
    let Some(last) = in_order.last() else { return Err(MatrixError::NoLocks) };
    t.baseline.clone_from(&last.run.baseline);
    let names = |of: fn(&Run) -> &String| distinct(in_order.iter().map(|r| of(&r.run).clone()));
    t.profiles = names(|run| &run.profile);
    t.locks = names(|run| &run.lock_group);
    t.arms = names(|run| &run.arm.name);
    t.vms = distinct(in_order.iter().map(|r| r.run.vm_count()));
    t.vms.sort_unstable();
    let mut of: BTreeMap<CellKey, Repeats> = BTreeMap::new();
    for r in in_order {
        of.entry(key(r)).or_default().insert(r.run.repeat, r);
    }
    for (key, runs) in &of {
        let base_key =
            CellKey { lock: BASE_LOCK.to_string(), arm: t.baseline.clone(), ..key.clone() };
        let base = of.get(&base_key).ok_or_else(|| MatrixError::NoBase {
            arm: t.baseline.clone(),
            vms: key.vms,
            profile: key.profile.clone(),
        })?;
        if let Some(f) = figures(runs, base, *key == base_key) {
            t.cells.insert(key.clone(), f);
        }
    }
    Ok(t)
}

fn key(r: &RunResult) -> CellKey {
    CellKey {
        profile: r.run.profile.clone(),
        vms: r.run.vm_count(),
        lock: r.run.lock_group.clone(),
        arm: r.run.arm.name.clone(),
    }
}

fn figures(runs: &Repeats, base: &Repeats, is_base: bool) -> Option<Figures> {
    let of = |f: &dyn Fn(&RunResult) -> Option<f64>| {
        median(&runs.values().filter_map(|r| f(r)).collect::<Vec<_>>())
    };
    let work = |r: &RunResult| throughput(r, Over::ALL);
    let base_throughput = median(&base.values().map(|r| work(r)).collect::<Vec<_>>())?;
    let own = of(&|r| Some(work(r)))?;
    let paired = |(repeat, r): (&u32, &&RunResult)| Some(work(r) / work(base.get(repeat)?));
    let ratios: Vec<f64> = runs.iter().filter_map(paired).collect();
    let all: Vec<&RunResult> = runs.values().copied().collect();
    let kicks = |r: &RunResult| counted(r, Over::ALL, |m| m.hypercalls_kick);
    if base_throughput <= 0.0 {
        return None;
    }
    Some(Figures {
        performance: own / base_throughput,
        verdict: spread(&ratios).filter(|_| !is_base).map(|s| Verdict::of(&s)),
        inefficiency: of(&|r| inefficiency(r, Over::ALL)),
        kicks_per_s: of(&|r| Some(per_second(r, kicks(r)?))),
        fairness: of(&|r| fairness_all_vcpus(r, Over::ALL)),
        is_still: is_aple_alone(all.first()?) && any_epoch_ended(&all, Over::ALL) == Some(false),
        ratios,
    })
}

fn origin(streams: &[&Stream], runs: &[&RunResult]) -> String {
    let begin = &streams[0].begin;
    let ms = distinct(runs.iter().map(|r| (r.run.warmup_ms, r.run.window_ms)));
    let clocks = distinct(runs.iter().map(|r| r.run.lock_clock_mhz));
    let mut seeds = distinct(runs.iter().map(|r| r.run.seed));
    seeds.sort_unstable();
    let list = |all: Vec<String>| all.join(" and ");
    let windows = list(ms.iter().map(|(w, m)| format!("{m} ms after {w} ms")).collect());
    let seeds = seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let clocks = list(
        clocks
            .iter()
            .map(|c| match c {
                Some(mhz) => format!("{mhz} cycles a microsecond"),
                None => "the machine's own clock".to_string(),
            })
            .collect(),
    );
    let tsc = begin.tsc_khz.map_or(String::new(), |k| format!(" of {} MHz", k / 1000));
    let complete = streams.iter().all(|s| s.ended && s.failed.is_empty());
    format!(
        "Machine {}, kernel {}, {} pCPUs{tsc}, {} runs; measured for {windows} of the machine's time; seeds {seeds}; \
         the locks' budgets at {clocks}; commit {}.{}",
        begin.machine,
        begin.kernel,
        begin.pcpus,
        runs.len(),
        begin.commit.as_deref().unwrap_or("unknown"),
        if complete { "" } else { " **Incomplete.**" }
    )
}
