// SPDX-License-Identifier: MIT OR Apache-2.0
//! A row in summary.json and table.csv: flat, null if unknown.

use crate::diagnosis::Diagnosis;
use crate::one_vm::{Response, Standing};
use crate::summary::{
    CostNs, GuestKind, Key, Performance, Row, Spinner, TimeShares, VcpuTime, WaitCycles,
    WindowCycles, Yields,
};
use crate::worlds::Bands;
use serde::{Serialize, Serializer};

/// The keys of a row, in the document's order.
#[derive(Serialize)]
struct Flat<'a> {
    #[serde(flatten)]
    key: &'a Key,
    #[serde(flatten)]
    diagnosis: Option<&'a Diagnosis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guest: Option<&'a GuestKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vcpu_time: Option<VcpuTime>,
    #[serde(skip_serializing_if = "<[Spinner]>::is_empty")]
    spinners: &'a [Spinner],
    #[serde(skip_serializing_if = "Option::is_none")]
    spinners_named: Option<f64>,
    #[serde(skip_serializing_if = "<[Spinner]>::is_empty")]
    interrupted: &'a [Spinner],
    #[serde(flatten)]
    perf: &'a Performance,
    inefficiency: Option<f64>,
    inefficiency_min: Option<f64>,
    inefficiency_max: Option<f64>,
    inefficiency_change: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<TimeShares>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<CostNs>,
    ple_exits: Option<u64>,
    exit_handling_cycles: Option<u64>,
    yields: Option<&'a Yields>,
    picks_ran_next: Option<u64>,
    picks_ran_next_share: Option<f64>,
    window_cycles: WindowCycles,
    epoch_ple_exits: Option<u32>,
    epochs: Option<u64>,
    rounds: Option<u64>,
    /// Whether APLE moved the window.
    adapted: Option<bool>,
    wait_cycles: WaitCycles,
    fairness: Option<f64>,
    fairness_vms: Option<f64>,
    cpus_used: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hog_cpu_share: Option<f64>,
    host_idle_share: Option<f64>,
    parks: Option<u64>,
    parks_late: Option<u64>,
    turns_refused: Option<&'a str>,
    #[serde(flatten)]
    standing: Option<Standing>,
    #[serde(flatten)]
    response: Option<FlatResponse>,
    hypercalls_kick: Option<u64>,
    hypercalls_sched_yield: Option<u64>,
    fail_open_events: Option<u64>,
    #[serde(flatten)]
    bands: Option<&'a Bands>,
}

/// Null if there are too few samples.
#[derive(Serialize)]
struct FlatResponse {
    response_mean_us: Option<f64>,
    response_p50_us: Option<f64>,
    response_p99_us: Option<f64>,
    response_p999_us: Option<f64>,
    response_samples: u64,
}

impl From<Response> for FlatResponse {
    fn from(r: Response) -> FlatResponse {
        FlatResponse {
            response_mean_us: r.mean_us,
            response_p50_us: r.p50_us,
            response_p99_us: r.p99_us,
            response_p999_us: r.p999_us,
            response_samples: r.samples,
        }
    }
}

impl<'a> From<&'a Row> for Flat<'a> {
    fn from(row: &'a Row) -> Self {
        let module = row.module.as_ref();
        let waste = module.and_then(|m| m.waste);
        let picks = module.and_then(|m| m.picks.as_ref());
        let windows = row.windows.clone().unwrap_or_default();
        let guest = row.guest.as_ref();
        Flat {
            key: &row.key,
            diagnosis: row.diagnosis.as_ref(),
            guest: row.linux.as_ref().map(|linux| &linux.guest),
            vcpu_time: row.linux.as_ref().and_then(|linux| linux.time),
            spinners: row.linux.as_ref().map_or(&[], |linux| &linux.spinners),
            spinners_named: row.linux.as_ref().and_then(|linux| linux.spinners_named),
            interrupted: row.linux.as_ref().map_or(&[], |linux| &linux.interrupted),
            perf: &row.perf,
            inefficiency: waste.map(|w| w.inefficiency),
            inefficiency_min: waste.map(|w| w.min),
            inefficiency_max: waste.map(|w| w.max),
            inefficiency_change: waste.and_then(|w| w.change),
            time: row.time,
            cost: row.cost,
            ple_exits: module.map(|m| m.ple_exits),
            exit_handling_cycles: module.and_then(|m| m.exit_handling_cycles),
            yields: picks.map(|p| &p.yields),
            picks_ran_next: picks.map(|p| p.ran_next),
            picks_ran_next_share: picks.and_then(|p| p.ran_next_share),
            window_cycles: windows.cycles,
            epoch_ple_exits: windows.epoch_ple_exits,
            epochs: module.map(|m| m.epochs),
            rounds: windows.rounds,
            adapted: windows.moved,
            wait_cycles: guest.map(|g| g.wait_cycles.clone()).unwrap_or_default(),
            fairness: guest.and_then(|g| g.fairness),
            fairness_vms: guest.and_then(|g| g.fairness_vms),
            cpus_used: row.perf.cpus_used,
            cpu_share: row.share.and_then(|share| share.cpu),
            turn_share: row.share.and_then(|share| share.turn),
            hog_cpu_share: row.hog_cpu_share,
            host_idle_share: row.host_idle_share,
            parks: row.turns.parks,
            parks_late: row.turns.parks_late,
            turns_refused: row.turns.refused.as_deref(),
            standing: row.standing,
            response: row.response.map(FlatResponse::from),
            hypercalls_kick: module.map(|m| m.hypercalls_kick),
            hypercalls_sched_yield: module.map(|m| m.hypercalls_sched_yield),
            fail_open_events: module.map(|m| m.fail_open_events),
            bands: row.bands.as_ref(),
        }
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Flat::from(self).serialize(serializer)
    }
}
