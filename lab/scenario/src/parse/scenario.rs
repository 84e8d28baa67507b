// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios as a whole, and their `[measure]` and `[trace]`.

use crate::parse::arm::read_arms;
use crate::parse::case::{cases, read_cases};
use crate::parse::host::read_host;
use crate::parse::keys::{optional, read_all, read_in, OfKeys};
use crate::parse::linux::{check_guests, choose_kernels, read_series, Said};
use crate::parse::quota::{check_quotas, Quotas};
use crate::parse::ranges::Ranges;
use crate::parse::sweep::{check_beside, read_sweep, SweepKeys};
use crate::parse::vm::read_vms;
use crate::schema::arm::{ApleParams, Arm};
use crate::schema::keys::scenario as keys;
use crate::schema::scenario::{Host, Measure, Scenario, Trace, VmGroup};
use unspin_text::Problems;
use unspin_text::{no_doubles, or, Reader, Table, Value};

/// Reads a scenario, with the usual values of ranges and choices. `file` is its name in errors.
pub fn parse_scenario(file: &str, name: &str, text: &str) -> Result<Scenario, Problems> {
    let text = Ranges::read(file, text)?.usual();
    let reader = Reader::new(file, &text);
    let doc = reader.parse();
    let scenario =
        if reader.is_clean() { read_scenario(&Table::top(&reader, &doc), name) } else { None };
    reader.finish(scenario)
}

fn read_scenario(top: &Table, name: &str) -> Option<Scenario> {
    top.only_of(&keys::SCENARIO);
    let title = top.needed(&keys::TITLE).and_then(|v| read_title(&v));
    let seed = top.read(&keys::SEED);
    let repeats = top.read(&keys::REPEATS);
    let slice_ns = top.read(&keys::SLICE_NS);
    let epoch = top.read(&keys::EPOCH);
    let epoch_min = top.read(&keys::EPOCH_MIN);
    let kernels = or(top.at(&keys::KERNEL), Vec::new(), |v| read_kernels(&v));
    let boots = top.read(&keys::BOOTS);
    let host = top.needed(&keys::HOST).and_then(read_host);
    let sweep = top.at(&keys::SWEEP_TABLE).map(read_sweep);
    let swept = sweep.as_ref().map(|s| s.says).unwrap_or_default();
    let groups = top.needed(&keys::VM).and_then(|v| read_vms(&v, host.as_ref(), swept));
    let arms = top.needed(&keys::ARM).and_then(|v| {
        let module = ApleParams::default();
        let aple = ApleParams {
            epoch_ple_exits: epoch.flatten().unwrap_or(module.epoch_ple_exits),
            epoch_min_us: epoch_min.flatten().unwrap_or(module.epoch_min_us),
            ..module
        };
        read_arms(&v, &aple, host.as_ref().map(|h| h.scheduler))
    });
    let written = read_cases(top);
    let measure = read_measure(top.at(&keys::MEASURE_TABLE));
    let trace = read_trace(top.at(&keys::TRACE_TABLE));

    let mut groups = groups?;
    let sweep = sweep.unwrap_or_default();
    let (arms, baseline) = arms?;
    for group in &groups {
        check_locks(top, group, &sweep, &arms);
    }
    let by_case = top.at(&keys::CASE).is_some();
    let cases = cases(top, written?, &groups, &arms, baseline);
    let guest_locks = sweep.guest_locks.as_deref();
    choose_kernels(top, &mut groups, guest_locks);
    check_beside(top, &groups, &sweep);
    if let Some(host) = &host {
        check_quotas(top, &Quotas { groups: &groups, arms: &arms, host, by_case }, &sweep);
    }
    check_guests(top, &Said { groups: &groups, arms: &arms, by_case, guest_locks });
    Some(Scenario {
        name: name.to_string(),
        title: title?,
        seed: seed?,
        repeats: repeats?,
        epoch_ple_exits: epoch?,
        epoch_min_us: epoch_min?,
        kernels: kernels?,
        boots: boots?,
        host: Host { slice_ns: slice_ns?, ..host? },
        sweep: sweep.of(&groups),
        vms: groups,
        cases: cases?,
        arms,
        baseline,
        measure: measure?,
        trace: trace?,
    })
}

fn read_title(v: &Value) -> Option<String> {
    let s = v.str("a string")?;
    if s.trim().is_empty() {
        v.problem("empty", "one line that says what is compared");
    }
    Some(s.to_string())
}

fn read_kernels(v: &Value) -> Option<Vec<String>> {
    let form = "a series such as \"6.12\", or a list of them";
    let all = if v.is_array() {
        let all = v.array(form)?;
        if all.is_empty() {
            v.problem("empty", form);
        }
        all.iter().map(read_series).collect::<Option<Vec<_>>>()?
    } else {
        vec![read_series(v)?]
    };
    no_doubles(v, &all);
    Some(all)
}

/// Locks are set in one place only: by the VMs, by the arms, or by a sweep. Locks that halt need
/// CPL 0.
fn check_locks(top: &Table, group: &VmGroup, sweep: &SweepKeys, arms: &[Arm]) {
    let arm_locks = || arms.iter().filter_map(|a| a.lock.as_ref());
    let swept = sweep.locks.as_deref().unwrap_or_default();
    if let Some(at) = top.get("sweep").filter(|_| !swept.is_empty()) {
        if arm_locks().next().is_some() {
            at.problem("both sweep.locks and arms set locks", "one of the two");
        }
        let said = |v: Value| v.array("")?.first()?.table("")?.get("lock").map(|_| ());
        if top.get("vm").and_then(said).is_some() {
            at.problem("sweep.locks already lists the locks", "no lock in [[vm]]");
        }
    }
    let own = swept.is_empty().then_some(&group.lock);
    let halting = own.into_iter().chain(swept).chain(arm_locks()).find(|l| l.kind.halts());
    if let (3, Some(lock), Some(at)) = (group.cpl, halting, top.get("vm")) {
        at.problem(
            format!("waiters of {} halt, and CPL 3 has no HLT", lock.kind.name()),
            "cpl = 0, or a lock that only spins: tas, ticket, mcs, preemptable",
        );
    }
}

fn read_measure(v: Option<Value>) -> Option<Measure> {
    let t = optional(
        v,
        &keys::MEASURE,
        "[measure] with warmup_ms, window_ms, stagger_ms, alone, wakeups_hz, hogs, states",
    )?;
    read_all!(Measure {
        warmup_ms: read_in(&t, &keys::WARMUP_MS),
        window_ms: read_in(&t, &keys::WINDOW_MS),
        stagger_ms: read_in(&t, &keys::STAGGER_MS),
        alone: read_in(&t, &keys::ALONE),
        wakeups_hz: read_in(&t, &keys::WAKEUPS_HZ),
        hogs: read_in(&t, &keys::HOGS),
        states: read_in(&t, &keys::STATES),
    })
}

fn read_trace(v: Option<Value>) -> Option<Trace> {
    let t = optional(v, &keys::TRACE, "[trace] with epochs, picks, stalls")?;
    read_all!(Trace {
        epochs: read_in(&t, &keys::EPOCHS),
        picks: read_in(&t, &keys::PICKS),
        stalls: read_in(&t, &keys::STALLS),
    })
}
