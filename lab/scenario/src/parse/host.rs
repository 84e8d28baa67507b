// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[host]`.

use crate::parse::keys::{read_all, OfKeys, Read};
use crate::schema::costs::HostCosts;
use crate::schema::keys::host as keys;
use crate::schema::scenario::Host;
use unspin_text::{Table, Value};

pub(crate) fn read_host(v: Value) -> Option<Host> {
    let t = v.table("[host] with pcpus")?;
    t.only_of(&keys::HOST);
    let pcpus = t.read(&keys::PCPUS);
    let scheduler = t.read(&keys::SCHEDULER);
    let threads_per_core = t.read(&keys::THREADS_PER_CORE);
    let thread_speed_percent = t.read(&keys::THREAD_SPEED_PERCENT);
    let group_load_lags = t.read(&keys::GROUP_LOAD_LAGS);
    let housekeeping_ppm = t.read(&keys::HOUSEKEEPING_PPM);
    let fair = "scheduler = \"fair\", or without it";
    let is_credit = scheduler.is_some_and(|s| s.is_credit());
    let lags = group_load_lags == Some(true);
    if let Some(v) = t.at(&keys::GROUP_LOAD_LAGS).filter(|_| lags && is_credit) {
        v.problem("Credit does not use group loads", fair);
    }
    let has_tasks = housekeeping_ppm.flatten().is_some_and(|ppm| ppm > 0);
    if let Some(v) = t.at(&keys::HOUSEKEEPING_PPM).filter(|_| has_tasks && is_credit) {
        v.problem("tasks of the host beside Credit are not modelled", fair);
    }
    let is_odd = threads_per_core == Some(2) && pcpus.is_some_and(|pcpus| pcpus % 2 == 1);
    if let Some(v) = t.at(&keys::THREADS_PER_CORE).filter(|_| is_odd) {
        v.problem("pCPUs are threads, two of each core", "an even number of pcpus");
    }
    let has_speed = threads_per_core == Some(1) && thread_speed_percent.flatten().is_some();
    if let Some(v) = t.at(&keys::THREAD_SPEED_PERCENT).filter(|_| has_speed) {
        v.problem("cores have 1 thread", "threads_per_core = 2, or without it");
    }
    read_all!(Host {
        pcpus: pcpus,
        slice_ns: Some(None),
        model: t.read(&keys::MODEL),
        lock_clock_mhz: t.read(&keys::LOCK_CLOCK_MHZ),
        scheduler: scheduler,
        period_ms: t.read(&keys::PERIOD_MS),
        loop_detection: t.read(&keys::LOOP_DETECTION),
        llc_pcpus: t.read(&keys::LLC_PCPUS),
        threads_per_core: threads_per_core,
        thread_speed_percent: thread_speed_percent,
        skew_tick: t.read(&keys::SKEW_TICK),
        group_load_lags: group_load_lags,
        housekeeping_ppm: housekeeping_ppm,
        costs: read_costs(&t),
    })
}

fn read_costs(t: &Table) -> Option<HostCosts> {
    let mut costs = HostCosts::default();
    for key in HostCosts::KEYS {
        if let (Some(v), Some(cost)) = (t.get(key), costs.named(key)) {
            *cost = keys::COST.read(&v)?;
        }
    }
    Some(costs)
}
