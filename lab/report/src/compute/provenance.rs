// SPDX-License-Identifier: MIT OR Apache-2.0
//! The origin of a document's figures.

use crate::compute::row::epoch_ple_exits;
use crate::read::input::Stream;
use crate::summary::Provenance;
use std::collections::BTreeSet;
use unspin_scenario::plan::Window;
use unspin_scenario::result::{Begin, RunResult};
use unspin_text::names::distinct;

pub(crate) fn provenance(streams: &[&Stream], runs: &[&RunResult]) -> Provenance {
    let b = &streams[0].begin;
    Provenance {
        machine: machine_of(b),
        kernel: b.kernel.clone(),
        scenario_hash: b.scenario_hash.clone(),
        module: b.module.clone(),
        window_control: b.window_control.clone(),
        cpu_model: b.cpu_model.clone(),
        pcpus: b.pcpus,
        tsc_khz: b.tsc_khz,
        commit: each(streams, |b| b.commit.as_deref()),
        version: each(streams, |b| b.version.as_deref()),
        image: each(streams, |b| b.image.as_deref()),
        boots: streams.len(),
        complete: streams.iter().all(|s| s.ended && s.failed.is_empty()),
        runs: runs.len(),
        seeds: set(runs, |r| Some(r.run.seed)),
        window_ms: set(runs, |r| Some(r.run.window_ms)),
        epoch_ple_exits: set(runs, epoch_ple_exits),
        epoch_min_us: set(runs, epoch_min_us),
        settings: b.settings.clone(),
    }
}

pub(crate) fn machine_of(begin: &Begin) -> String {
    match begin.machine.as_str() {
        "" => "unknown".to_string(),
        name => name.to_string(),
    }
}

/// All distinct values of the runs, sorted.
fn set<T: Ord>(runs: &[&RunResult], f: impl Fn(&RunResult) -> Option<T>) -> Vec<T> {
    runs.iter().filter_map(|r| f(r)).collect::<BTreeSet<_>>().into_iter().collect()
}

/// All distinct values of the streams, in their order.
fn each<'a>(streams: &[&'a Stream], f: impl Fn(&'a Begin) -> Option<&'a str>) -> Option<String> {
    let all = distinct(streams.iter().filter_map(|s| f(&s.begin)));
    (!all.is_empty()).then(|| all.join(", "))
}

fn epoch_min_us(r: &RunResult) -> Option<u32> {
    match &r.run.arm.window {
        Window::Aple(p) => Some(p.epoch_min_us),
        Window::Off => None,
        Window::Stock | Window::Fixed { .. } => r.run.epoch_min_us,
    }
}
