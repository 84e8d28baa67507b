// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios: a host, its VMs, a workload, and the arms to compare.

use crate::arm::{read_arms, read_epoch, read_epoch_min};
use crate::plan::{
    ApleParams, Arm, Asym, CgroupLayout, HostModel, HostScheduler, LockChoice, LoopDetection,
    Platform, YieldTo,
};
use crate::problem::Problems;
use crate::reader::{list, no_doubles, or, read_name, Reader, Table, Value};
use crate::vm::{read_lock, read_vms};
use unspin_uapi::Number;

/// Windows a scenario may ask for, TSC cycles. Stricter than the module: a window not above KVM's
/// gap (128) tells loops apart no more.
pub const WINDOW_MIN_CYCLES: u32 = 128;
pub const WINDOW_MAX_CYCLES: u32 = Number::WINDOW_MAX.most();

pub(crate) const PCPUS_MAX: u32 = 1024;
pub(crate) const VMS_MAX: u32 = 64;
const REPEATS_MAX: u32 = 1000;
const MS_MAX: u64 = 3_600_000;
const LOCK_CLOCK_MAX_MHZ: u32 = 10_000;
const PERIOD_MS: std::ops::RangeInclusive<u32> = 1..=1000;

impl Scenario {
    /// Names of all profiles it needs: those it sweeps over, and the VMs' own.
    pub fn profile_names(&self) -> Vec<String> {
        let mut names = self.sweep.profiles.clone();
        for own in self.vms.iter().filter_map(|g| g.workload.as_ref()) {
            if !names.contains(own) {
                names.push(own.clone());
            }
        }
        names
    }
}

/// A scenario, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// File name without its ending.
    pub name: String,
    pub title: String,
    /// Seed of the first repeat; the others follow it.
    pub seed: u64,
    pub repeats: u32,
    pub slice_ns: Option<u64>,
    /// Length of an epoch where an arm does not say otherwise; `None` is the paper's 1000.
    pub epoch_ple_exits: Option<u32>,
    /// Shortest epoch where an arm does not say otherwise; `None` is the module's 10 ms.
    pub epoch_min_us: Option<u32>,
    /// Kernel series to run on (`6.1`, `6.12`); empty leaves it to the machine.
    pub kernels: Vec<String>,
    /// Emulated computers to share the runs among.
    pub boots: u32,
    pub host: Host,
    pub vms: Vec<VmGroup>,
    pub arms: Vec<Arm>,
    /// Which arm the others are normalised to.
    pub baseline: usize,
    pub sweep: Sweep,
    pub measure: Measure,
    pub trace: Trace,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    pub pcpus: u32,
    /// What machine `sim` models; other machines are what they are.
    pub model: HostModel,
    /// Clock at which the locks' budgets become cycles; `None`: the machine's own.
    pub lock_clock_mhz: Option<u32>,
    /// Its scheduler; machine `sim` only.
    pub scheduler: HostScheduler,
    /// Its allocation period, ms: CFS's latency, Credit's assignments; machine `sim` only.
    pub period_ms: Option<u32>,
    /// How its processor sees a loop of PAUSEs; machine `sim` only.
    pub loop_detection: LoopDetection,
    /// pCPUs that share a last-level cache; `None`: all share one.
    pub llc_pcpus: Option<u32>,
    /// Ticks of different pCPUs come apart (the kernel's skew_tick=1), not at the same time.
    pub skew_tick: bool,
    /// VMs' weights are divided by loads that lag, as Linux 3.8 to 4.2 has it; machine `sim` only.
    pub group_load_lags: bool,
}

/// Some VMs that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct VmGroup {
    /// What its rows are called; `None`: as its workload.
    pub name: Option<String>,
    /// Its own workload; `None`: the swept one.
    pub workload: Option<String>,
    /// The module leaves these VMs alone in every arm.
    pub mode_off: bool,
    /// Threads of the program; `None`: one a vCPU.
    pub threads: Option<u32>,
    /// Timer ticks a second of the guests' kernel; 0: none.
    pub tick_hz: u32,
    pub count: u32,
    pub vcpus: u32,
    pub pin: Pin,
    /// cgroup cpu.weight; only its ratio to the other VMs' matters.
    pub weight: u32,
    pub lock: LockChoice,
    pub cpl: u8,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Pin {
    None,
    /// vCPU i of every VM on pCPU i.
    OnePerPcpu,
    /// vCPU i of every VM on the i-th of these.
    List(Vec<u32>),
}

impl Scenario {
    /// A key that asks for what only machine `sim` models, if there is one.
    pub fn needs_sim(&self) -> Option<&'static str> {
        if self.host.scheduler != HostScheduler::Fair {
            return Some("host.scheduler");
        }
        if self.host.period_ms.is_some() {
            return Some("host.period_ms");
        }
        if self.host.loop_detection != LoopDetection::Ple {
            return Some("host.loop_detection");
        }
        if self.host.llc_pcpus.is_some() {
            return Some("host.llc_pcpus");
        }
        if !self.host.skew_tick {
            return Some("host.skew_tick");
        }
        if self.host.group_load_lags {
            return Some("host.group_load_lags");
        }
        if self.vms.iter().any(|g| g.threads.is_some() || g.tick_hz > 0) {
            return Some("vm");
        }
        let arms = || self.arms.iter();
        if arms().any(|a| a.platform != Platform::default()) {
            return Some("arm");
        }
        if arms().any(|a| a.queue_aware) {
            return Some("arm");
        }
        arms().any(|a| a.asym != Asym::default()).then_some("arm.asym")
    }

    /// An arm that asks who owes answers to interrupts while KVM chooses: on a real machine nobody
    /// would look, for that is done where the module chooses.
    pub fn ipi_aware_without_module(&self) -> Option<&Arm> {
        self.arms.iter().find(|a| a.ipi_aware && a.yield_to == YieldTo::Stock)
    }
}

/// What is run over, for every arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    pub profiles: Vec<String>,
    pub vms: Vec<u32>,
    pub cgroups: Vec<CgroupLayout>,
    /// Each is compared by itself; empty: the VMs' lock alone.
    pub locks: Vec<LockChoice>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    pub warmup_ms: u64,
    pub window_ms: u64,
    pub stagger_ms: u64,
    /// Adds runs of one VM with PLE off, from which *ideal* is computed.
    pub alone: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    pub epochs: bool,
    pub picks: bool,
    pub stalls: bool,
}

/// Reads a scenario. `file` is what errors call it.
pub fn parse_scenario(file: &str, name: &str, text: &str) -> Result<Scenario, Problems> {
    let reader = Reader::new(file, text);
    let doc = reader.parse();
    let scenario =
        if reader.is_clean() { read_scenario(&Table::top(&reader, &doc), name) } else { None };
    reader.finish(scenario)
}

fn read_scenario(top: &Table, name: &str) -> Option<Scenario> {
    top.only(&[
        "title",
        "seed",
        "repeats",
        "slice_ns",
        "epoch_ple_exits",
        "epoch_min_us",
        "kernel",
        "boots",
        "host",
        "vm",
        "arm",
        "sweep",
        "measure",
        "trace",
    ]);
    let title = top.need("title", "one line that says what is compared").and_then(|v| {
        let s = v.str("a string")?;
        if s.trim().is_empty() {
            v.problem("empty", "one line that says what is compared");
        }
        Some(s.to_string())
    });
    let seed = or(top.get("seed"), 1, |v| v.integer(0..=i64::MAX as u64, ""));
    let repeats = or(top.get("repeats"), 3, |v| v.u32(1..=REPEATS_MAX, " repeats"));
    let slice_ns = or(top.get("slice_ns"), None, |v| {
        Some(Some(v.integer(100_000..=1_000_000_000, " nanoseconds")?))
    });
    let epoch = or(top.get("epoch_ple_exits"), None, |v| Some(Some(read_epoch(v)?)));
    let epoch_min = or(top.get("epoch_min_us"), None, |v| Some(Some(read_epoch_min(v)?)));
    let module = ApleParams::default();
    let aple = ApleParams {
        epoch_ple_exits: epoch.flatten().unwrap_or(module.epoch_ple_exits),
        epoch_min_us: epoch_min.flatten().unwrap_or(module.epoch_min_us),
        ..module
    };
    let kernels = or(top.get("kernel"), Vec::new(), |v| read_kernels(&v));
    let boots = or(top.get("boots"), 1, |v| v.u32(1..=16, " emulated computers"));
    let host = top.need("host", "[host] with pcpus").and_then(read_host);
    let sweep = top.get("sweep").map(read_sweep);
    let groups = top
        .need("vm", "[[vm]] with vcpus and workload")
        .and_then(|v| read_vms(&v, host.as_ref(), sweep.as_ref()));
    let arms = top
        .need("arm", "[[arm]] with name, window and yield_to")
        .and_then(|v| read_arms(&v, &aple, host.as_ref().map(|h| h.scheduler)));
    let measure = or(top.get("measure"), MEASURE, read_measure);
    let trace =
        or(top.get("trace"), Trace { epochs: false, picks: false, stalls: false }, read_trace);

    let groups = groups?;
    let sweep = sweep.unwrap_or_default();
    let workload = groups[0].workload.clone();
    let (arms, baseline) = arms?;
    for group in &groups {
        check_locks(top, group, &sweep, &arms);
    }
    let vms: u32 = groups.iter().map(|g| g.count).sum();
    Some(Scenario {
        name: name.to_string(),
        title: title?,
        seed: seed?,
        repeats: repeats?,
        slice_ns: slice_ns?,
        epoch_ple_exits: epoch?,
        epoch_min_us: epoch_min?,
        kernels: kernels?,
        boots: boots?,
        host: host?,
        vms: groups,
        arms,
        baseline,
        sweep: Sweep {
            profiles: sweep.profiles.unwrap_or_else(|| workload.into_iter().collect()),
            vms: sweep.vms.unwrap_or_else(|| vec![vms]),
            cgroups: sweep.cgroups.unwrap_or_else(|| vec![CgroupLayout::Flat]),
            locks: sweep.locks.unwrap_or_default(),
        },
        measure: measure?,
        trace: trace?,
    })
}

fn read_kernels(v: &Value) -> Option<Vec<String>> {
    let form = "a series such as \"6.12\", or a list of them";
    let one = |v: &Value| -> Option<String> {
        let s = v.str(form)?;
        let well = s.split('.').count() == 2 && s.split('.').all(|p| p.parse::<u16>().is_ok());
        if !well {
            v.problem(format!("{s:?} is not a kernel series"), form);
        }
        Some(s.to_string())
    };
    let all = if v.is_array() {
        let all = v.array(form)?;
        if all.is_empty() {
            v.problem("empty", form);
        }
        all.iter().map(one).collect::<Option<Vec<_>>>()?
    } else {
        vec![one(v)?]
    };
    no_doubles(v, &all);
    Some(all)
}

fn read_host(v: Value) -> Option<Host> {
    let t = v.table("[host] with pcpus")?;
    t.only(&[
        "pcpus",
        "model",
        "lock_clock_mhz",
        "scheduler",
        "period_ms",
        "loop_detection",
        "llc_pcpus",
        "skew_tick",
        "group_load_lags",
    ]);
    let pcpus =
        t.need("pcpus", "how many physical CPUs").and_then(|v| v.u32(1..=PCPUS_MAX, " pCPUs"));
    let models = &[("lab", HostModel::Lab), ("server", HostModel::Server)];
    let model = or(t.get("model"), HostModel::default(), |v| v.choice(models));
    let lock_clock = or(t.get("lock_clock_mhz"), None, |v| {
        Some(Some(v.u32(1..=LOCK_CLOCK_MAX_MHZ, " MHz (of the clock the locks' budgets are for)")?))
    });
    let scheduler = or(t.get("scheduler"), HostScheduler::default(), |v| v.choice(HOST_SCHEDULERS));
    let detections = &[("ple", LoopDetection::Ple), ("pause-filter", LoopDetection::PauseFilter)];
    let loop_detection =
        or(t.get("loop_detection"), LoopDetection::default(), |v| v.choice(detections));
    let llc_pcpus = or(t.get("llc_pcpus"), None, |v| Some(Some(v.u32(1..=PCPUS_MAX, " pCPUs")?)));
    let period_ms = or(t.get("period_ms"), None, |v| Some(Some(v.u32(PERIOD_MS, " ms")?)));
    let skew_tick = or(t.get("skew_tick"), true, |v| v.bool());
    let group_load_lags = or(t.get("group_load_lags"), false, |v| {
        let lags = v.bool()?;
        if lags && scheduler.is_some_and(|s| s.is_credit()) {
            v.problem("Credit has no groups' loads", "scheduler = \"fair\", or without it");
        }
        Some(lags)
    });
    Some(Host {
        pcpus: pcpus?,
        model: model?,
        lock_clock_mhz: lock_clock?,
        scheduler: scheduler?,
        period_ms: period_ms?,
        loop_detection: loop_detection?,
        llc_pcpus: llc_pcpus?,
        skew_tick: skew_tick?,
        group_load_lags: group_load_lags?,
    })
}

/// Names of a host's schedulers.
const HOST_SCHEDULERS: &[(&str, HostScheduler)] = &[
    ("fair", HostScheduler::Fair),
    ("fair-capped", HostScheduler::FairCapped),
    ("credit", HostScheduler::Credit),
    ("credit-capped", HostScheduler::CreditCapped),
];

#[derive(Default)]
pub(crate) struct SweepKeys {
    profiles: Option<Vec<String>>,
    vms: Option<Vec<u32>>,
    cgroups: Option<Vec<CgroupLayout>>,
    locks: Option<Vec<LockChoice>>,
    pub(crate) has_profiles: bool,
    pub(crate) has_vms: bool,
}

const CGROUPS: &[(&str, CgroupLayout)] =
    &[("flat", CgroupLayout::Flat), ("vm", CgroupLayout::Vm), ("vcpu", CgroupLayout::Vcpu)];

fn read_sweep(v: Value) -> SweepKeys {
    let Some(t) = v.table("[sweep] with profiles, vms, cgroups or locks") else {
        return SweepKeys::default();
    };
    t.only(&["profiles", "vms", "cgroups", "locks"]);
    SweepKeys {
        has_profiles: t.get("profiles").is_some(),
        has_vms: t.get("vms").is_some(),
        profiles: t.get("profiles").and_then(|v| list(&v, "names of profiles", read_name)),
        vms: t.get("vms").and_then(|v| list(&v, "numbers of VMs", |v| v.u32(1..=VMS_MAX, " VMs"))),
        cgroups: t
            .get("cgroups")
            .and_then(|v| list(&v, "\"flat\", \"vm\", \"vcpu\"", |v| v.choice(CGROUPS))),
        locks: t.get("locks").and_then(|v| list(&v, "locks", read_lock)),
    }
}

/// Locks are said in one place: of the VMs, of the arms, or swept; and those that halt at CPL 0.
fn check_locks(top: &Table, group: &VmGroup, sweep: &SweepKeys, arms: &[Arm]) {
    let arm_locks = || arms.iter().filter_map(|a| a.lock.as_ref());
    let swept = sweep.locks.as_deref().unwrap_or_default();
    if let Some(at) = top.get("sweep").filter(|_| !swept.is_empty()) {
        if arm_locks().next().is_some() {
            at.problem("locks are swept, and arms name locks too", "one of the two");
        }
        let said = |v: Value| v.array("")?.first()?.table("")?.get("lock").map(|_| ());
        if top.get("vm").and_then(said).is_some() {
            at.problem("sweep.locks already says which locks there are", "no lock in [[vm]]");
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

const MEASURE: Measure = Measure { warmup_ms: 100, window_ms: 300, stagger_ms: 20, alone: true };

fn read_measure(v: Value) -> Option<Measure> {
    let t = v.table("[measure] with warmup_ms, window_ms, stagger_ms, alone")?;
    t.only(&["warmup_ms", "window_ms", "stagger_ms", "alone"]);
    let ms = |key: &str, least: u64, default: u64| {
        or(t.get(key), default, |v| v.integer(least..=MS_MAX, " milliseconds"))
    };
    let (warmup, window, stagger) = (
        ms("warmup_ms", 0, MEASURE.warmup_ms),
        ms("window_ms", 1, MEASURE.window_ms),
        ms("stagger_ms", 0, MEASURE.stagger_ms),
    );
    let alone = or(t.get("alone"), MEASURE.alone, |v| v.bool());
    Some(Measure { warmup_ms: warmup?, window_ms: window?, stagger_ms: stagger?, alone: alone? })
}

fn read_trace(v: Value) -> Option<Trace> {
    let t = v.table("[trace] with epochs, picks, stalls")?;
    t.only(&["epochs", "picks", "stalls"]);
    let epochs = or(t.get("epochs"), false, |v| v.bool());
    let picks = or(t.get("picks"), false, |v| v.bool());
    let stalls = or(t.get("stalls"), false, |v| v.bool());
    Some(Trace { epochs: epochs?, picks: picks?, stalls: stalls? })
}
