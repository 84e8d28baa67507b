// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios: a host, its VMs, a workload, and the arms to compare.

use crate::expand::{ALONE_ARM, IDEAL_ARM};
use crate::plan::{
    ApleParams, Arm, Asym, CgroupLayout, Coscheduling, Factor, HostModel, HostScheduler,
    LockChoice, LockKind, LoopDetection, Platform, Window, YieldTo,
};
use crate::problem::Problems;
use crate::reader::{Reader, Table, Value};

/// Windows a scenario may ask for, TSC cycles. A window not above KVM's gap (128) tells loops
/// apart no more.
pub const WINDOW_MIN_CYCLES: u32 = 128;
pub const WINDOW_MAX_CYCLES: u32 = 1 << 24;

const PCPUS_MAX: u32 = 1024;
/// Machine sim's; others have fewer.
const VCPUS_MAX: u32 = 256;
const VMS_MAX: u32 = 64;
const REPEATS_MAX: u32 = 1000;
const MS_MAX: u64 = 3_600_000;
const WEIGHT_MAX: u32 = 10_000;
const EPOCH_MAX_PLE_EXITS: u32 = 1_000_000;
const EPOCH_MIN_US_MAX: u32 = 1_000_000;
const THREADS_MAX: u32 = 1024;
const TAU_MAX_NS: u64 = 1_000_000_000;
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
        if self.vms.iter().any(|g| g.threads.is_some() || g.tick_hz > 0) {
            return Some("vm");
        }
        let arms = || self.arms.iter();
        if arms().any(|a| a.platform != Platform::default()) {
            return Some("arm");
        }
        if arms().any(|a| a.ipi_aware || a.queue_aware) {
            return Some("arm");
        }
        arms().any(|a| a.asym != Asym::default()).then_some("arm.asym")
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

/// The value read, or the default where the key is absent; `None` only for a wrong value.
fn or<'r, 't, T>(
    v: Option<Value<'r, 't>>,
    default: T,
    read: impl FnOnce(Value<'r, 't>) -> Option<T>,
) -> Option<T> {
    match v {
        Some(v) => read(v),
        None => Some(default),
    }
}

fn read_epoch(v: Value) -> Option<u32> {
    v.u32(1..=EPOCH_MAX_PLE_EXITS, " PLE exits")
}

fn read_epoch_min(v: Value) -> Option<u32> {
    v.u32(0..=EPOCH_MIN_US_MAX, " microseconds")
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
    Some(Host {
        pcpus: pcpus?,
        model: model?,
        lock_clock_mhz: lock_clock?,
        scheduler: scheduler?,
        period_ms: period_ms?,
        loop_detection: loop_detection?,
        llc_pcpus: llc_pcpus?,
        skew_tick: skew_tick?,
    })
}

/// Names of a host's schedulers.
const HOST_SCHEDULERS: &[(&str, HostScheduler)] = &[
    ("fair", HostScheduler::Fair),
    ("fair-capped", HostScheduler::FairCapped),
    ("credit", HostScheduler::Credit),
    ("credit-capped", HostScheduler::CreditCapped),
    ("xen-credit", HostScheduler::XenCredit),
    ("xen-credit-capped", HostScheduler::XenCreditCapped),
];

#[derive(Default)]
struct SweepKeys {
    profiles: Option<Vec<String>>,
    vms: Option<Vec<u32>>,
    cgroups: Option<Vec<CgroupLayout>>,
    locks: Option<Vec<LockChoice>>,
    has_profiles: bool,
    has_vms: bool,
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

/// `"ticket"`, or `{ preemptable = { tau_ns = 8000 } }`.
fn read_lock(v: &Value) -> Option<LockChoice> {
    if !v.is_table() {
        return v.choice(&LockKind::ALL).map(LockChoice::plain);
    }
    let tau = |(_, kind): &&(&str, LockKind)| kind.has_tau();
    let names: Vec<&str> = LockKind::ALL.iter().filter(tau).map(|(name, _)| *name).collect();
    let t = v.table("a lock's name")?;
    t.only(&names);
    if t.keys().is_empty() {
        v.problem("empty", "\"ticket\" or { preemptable = { tau_ns = N } }");
    }
    let (name, kind) = *LockKind::ALL.iter().filter(tau).find(|(n, _)| t.get(n).is_some())?;
    if t.keys().len() > 1 {
        v.problem("two locks", "one of them");
    }
    let form = "{ tau_ns = N }";
    let params = t.get(name)?.table(form)?;
    params.only(&["tau_ns"]);
    let tau_ns = params.need("tau_ns", form)?.integer(0..=TAU_MAX_NS, " nanoseconds")?;
    Some(LockChoice { kind, tau_ns: Some(tau_ns) })
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

/// A list that is not empty and has no value twice.
fn list<T: PartialEq + std::fmt::Debug>(
    v: &Value,
    allowed: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Option<Vec<T>> {
    let all = v.array(&format!("a list of {allowed}"))?;
    if all.is_empty() {
        v.problem("empty", format!("at least one of {allowed}"));
    }
    let read: Vec<T> =
        all.iter().map(read).collect::<Vec<_>>().into_iter().collect::<Option<_>>()?;
    no_doubles(v, &read);
    Some(read)
}

fn no_doubles<T: PartialEq + std::fmt::Debug>(v: &Value, all: &[T]) {
    for (i, x) in all.iter().enumerate() {
        if all[..i].contains(x) {
            v.problem(format!("{x:?} stands here twice"), "each once");
        }
    }
}

/// Whether `s` can name an arm or a profile: 1 to 64 small letters, digits, `-` and `_`, so that it
/// can be part of a file name.
pub fn is_name(s: &str) -> bool {
    !s.is_empty()
        && s.len() <= 64
        && s.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
}

fn read_name(v: &Value) -> Option<String> {
    let allowed = "a name of small letters, digits, - and _";
    let s = v.str(allowed)?;
    if !is_name(s) {
        v.problem(format!("{s:?} cannot be a name"), allowed);
        return None;
    }
    Some(s.to_string())
}

/// The groups.
fn read_vms(v: &Value, host: Option<&Host>, sweep: Option<&SweepKeys>) -> Option<Vec<VmGroup>> {
    let all = v.array("[[vm]] tables")?;
    if all.is_empty() {
        v.problem("no VMs", "at least one [[vm]]");
        return None;
    }
    let sweeps_vms = sweep.is_some_and(|s| s.has_vms);
    let sweeps_profiles = sweep.is_some_and(|s| s.has_profiles);
    if sweeps_vms && all.len() > 1 {
        v.problem("sweep.vms already says how many VMs there are", "one [[vm]] under sweep.vms");
    }
    let read: Vec<_> = all.iter().map(|v| read_vm(v, host, sweeps_vms, sweeps_profiles)).collect();
    let read = read.into_iter().collect::<Option<Vec<_>>>()?;
    if sweeps_profiles && read.iter().all(|g| g.workload.is_some()) {
        let first = all[0].table("a [[vm]] table").and_then(|t| t.get("workload"));
        first.unwrap_or_else(|| all[0].clone()).problem(
            "sweep.profiles already says what the VMs run",
            "one of the two, or a [[vm]] without a workload, which runs the swept one",
        );
    }
    if read.iter().all(|g| g.mode_off) {
        v.problem("mode = \"off\" in every [[vm]]: no arm would do anything", "a [[vm]] without");
    }
    let names: Vec<String> = read.iter().filter_map(|g| g.name.clone()).collect();
    no_doubles(v, &names);
    let total: u64 = read.iter().map(|g| u64::from(g.count)).sum();
    if total > u64::from(VMS_MAX) {
        v.problem(format!("{total} VMs"), format!("at most {VMS_MAX}"));
    }
    Some(read)
}

fn read_vm(
    v: &Value,
    host: Option<&Host>,
    sweeps_vms: bool,
    sweeps_profiles: bool,
) -> Option<VmGroup> {
    let t = v.table("a [[vm]] table")?;
    t.only(&[
        "name", "count", "vcpus", "pin", "weight", "workload", "lock", "cpl", "mode", "threads",
        "tick_hz",
    ]);
    let threads = or(t.get("threads"), None, |v| Some(Some(v.u32(1..=THREADS_MAX, " threads")?)));
    let tick_hz = or(t.get("tick_hz"), 0, |v| v.u32(0..=10_000, " ticks a second"));
    let name = or(t.get("name"), None, |v| Some(Some(read_name(&v)?)));
    let modes = &[("off", true), ("arm", false)];
    let mode_off = or(t.get("mode"), false, |v| v.choice(modes));
    let count = or(t.get("count"), 1, |v| {
        if sweeps_vms {
            v.problem("sweep.vms already says how many VMs there are", "one of the two");
        }
        v.u32(1..=VMS_MAX, " VMs")
    });
    let vcpus = t.need("vcpus", "how many vCPUs a VM").and_then(|v| v.u32(1..=VCPUS_MAX, " vCPUs"));
    let pin = or(t.get("pin"), Pin::None, |v| read_pin(&v, vcpus, host));
    let weight = or(t.get("weight"), 100, |v| v.u32(1..=WEIGHT_MAX, " (cpu.weight)"));
    let lock = or(t.get("lock"), LockChoice::plain(LockKind::Ticket), |v| read_lock(&v));
    let cpl = or(t.get("cpl"), 0, |v| read_cpl(&v));
    let workload = match t.get("workload") {
        Some(v) => Some(read_name(&v)?),
        None if sweeps_profiles => None,
        None => Some(t.need("workload", "the name of a profile").and_then(|v| read_name(&v))?),
    };
    Some(VmGroup {
        name: name?,
        workload,
        mode_off: mode_off?,
        threads: threads?,
        tick_hz: tick_hz?,
        count: count?,
        vcpus: vcpus?,
        pin: pin?,
        weight: weight?,
        lock: lock?,
        cpl: cpl?,
    })
}

fn read_cpl(v: &Value) -> Option<u8> {
    match v.integer(0..=3, " (0 or 3)")? {
        0 => Some(0),
        3 => Some(3),
        other => {
            v.problem(
                format!("the guest has no level {other}"),
                "0 (PLE sees it) or 3 (it does not)",
            );
            None
        }
    }
}

fn read_pin(v: &Value, vcpus: Option<u32>, host: Option<&Host>) -> Option<Pin> {
    let allowed = "\"one-per-pcpu\", \"none\" or a list with the pCPU of each vCPU";
    if !v.is_array() {
        if !v.is_str() {
            v.problem("not a way to pin", allowed);
            return None;
        }
        let pin = v.choice(&[("one-per-pcpu", true), ("none", false)])?;
        if let (true, Some(n), Some(h)) = (pin, vcpus, host) {
            if n > h.pcpus {
                v.problem(
                    format!("{n} vCPUs cannot have one of {} pCPUs each", h.pcpus),
                    "vcpus up to host.pcpus, or a list, or \"none\"",
                );
            }
        }
        return Some(if pin { Pin::OnePerPcpu } else { Pin::None });
    }
    let last = host.map_or(PCPUS_MAX, |h| h.pcpus) - 1;
    let all: Vec<_> = v.array(allowed)?.iter().map(|v| v.u32(0..=last, " (a pCPU)")).collect();
    if let Some(n) = vcpus.filter(|n| all.len() != *n as usize) {
        v.problem(
            format!("pins {} vCPUs, but the VM has {n}", all.len()),
            format!("a list of {n} pCPUs"),
        );
    }
    Some(Pin::List(all.into_iter().collect::<Option<_>>()?))
}

fn read_arms(
    v: &Value,
    aple: &ApleParams,
    scheduler: Option<HostScheduler>,
) -> Option<(Vec<Arm>, usize)> {
    let all = v.array("[[arm]] tables")?;
    if all.is_empty() {
        v.problem("no arms", "at least one [[arm]]");
        return None;
    }
    let mut names: Vec<String> = Vec::new();
    let mut read = Vec::new();
    let mut said: Vec<Option<bool>> = Vec::new();
    for v in &all {
        let Some(t) = v.table("an [[arm]] table") else {
            read.push(None);
            continue;
        };
        if let Some((at, n)) = t.get("name").and_then(|v| Some((v.clone(), v.as_str()?))) {
            if names.iter().any(|m| m == n) {
                at.problem(format!("a second arm named {n:?}"), "each name once");
            }
            names.push(n.to_string());
        }
        let base = t.get("baseline").and_then(|v| Some((v.bool()?, v)));
        if let Some((true, at)) = &base {
            if said.contains(&Some(true)) {
                at.problem("a second baseline", "baseline = true in one arm only");
            }
        }
        said.push(base.map(|(b, _)| b));
        read.push(read_arm(v, &t, aple, scheduler));
    }
    let baseline = match said.iter().position(|b| *b == Some(true)) {
        Some(i) => i,
        None if said.first() == Some(&Some(false)) => {
            v.problem(
                "no arm is the baseline",
                "baseline = true in one arm, or left out of the first",
            );
            0
        }
        None => 0,
    };
    Some((read.into_iter().collect::<Option<_>>()?, baseline))
}

const YIELDS: &[(&str, Option<YieldTo>)] = &[
    ("stock", Some(YieldTo::Stock)),
    ("hvs", Some(YieldTo::Hvs)),
    ("hvs-paper", Some(YieldTo::HvsPaper)),
    ("cpth-r", Some(YieldTo::CpthR)),
    ("cpth-l", Some(YieldTo::CpthL)),
    ("cch", Some(YieldTo::Cch)),
    ("none", None),
];

fn read_arm(
    v: &Value,
    t: &Table,
    aple: &ApleParams,
    scheduler: Option<HostScheduler>,
) -> Option<Arm> {
    t.only(&[
        "name",
        "window",
        "yield_to",
        "ipi_aware",
        "queue_aware",
        "observe",
        "baseline",
        "lock",
        "coscheduling",
        "asym",
        "physical",
        "apicv",
        "halt_poll_us",
        "without",
    ]);
    let name = t.need("name", "a name").and_then(|v| {
        let n = read_name(&v)?;
        if n == ALONE_ARM || n == IDEAL_ARM {
            v.problem(format!("{n:?} is a name the report uses itself"), "another name");
        }
        Some(n)
    });
    let window = or(t.get("window"), Window::Stock, |v| read_window(&v, aple));
    let yield_to = or(t.get("yield_to"), YieldTo::Stock, |v| {
        let y = v.choice(YIELDS)?;
        if y.is_none() {
            v.problem(
                "no machine can do without KVM's directed yield: a PLE exit always looks for a vCPU",
                "\"stock\", \"hvs\", \"cpth-r\", \"cpth-l\" or \"cch\"; window = \"off\" for no PLE exits at all",
            );
        }
        y
    });
    let lock = or(t.get("lock"), None, |v| Some(Some(read_lock(&v)?)));
    let ipi_aware = or(t.get("ipi_aware"), false, |v| v.bool())?;
    let queue_aware = or(t.get("queue_aware"), false, |v| v.bool())?;
    let observe = t.get("observe").map(|v| (v.bool(), v));
    let (name, window, yield_to, lock) = (name?, window?, yield_to?, lock?);
    if window == Window::Off && (yield_to != YieldTo::Stock || ipi_aware || queue_aware) {
        v.problem(
            "without PLE exits nothing is ever yielded",
            "yield_to = \"stock\" (or none of it) with window = \"off\"",
        );
    }
    let module_acts =
        matches!(window, Window::Fixed { .. } | Window::Aple(_)) || yield_to != YieldTo::Stock;
    let observe = match observe {
        Some((Some(false), v)) if module_acts => {
            v.problem(
                "the module cannot act without counting",
                "observe only where both are KVM's own",
            );
            true
        }
        Some((b, _)) => b?,
        None => true,
    };
    let (coscheduling, asym) = read_scheduling(t, scheduler)?;
    let platform = read_platform(t)?;
    Some(Arm {
        name,
        window,
        yield_to,
        ipi_aware,
        queue_aware,
        observe,
        lock,
        coscheduling,
        asym,
        platform,
    })
}

const COSCHEDULING: &[(&str, Coscheduling)] = &[
    ("none", Coscheduling::None),
    ("con", Coscheduling::Con),
    ("vcrd", Coscheduling::Vcrd),
    ("vcrd-ple", Coscheduling::VcrdPle),
];

/// What an arm asks of the host's scheduler; each part needs the scheduler it is made for.
fn read_scheduling(t: &Table, scheduler: Option<HostScheduler>) -> Option<(Coscheduling, Asym)> {
    let is_fair = !scheduler.unwrap_or_default().is_credit();
    let coscheduling = or(t.get("coscheduling"), Coscheduling::None, |v| {
        let c = v.choice(COSCHEDULING)?;
        if c != Coscheduling::None && is_fair && scheduler.is_some() {
            v.problem(
                "the fair scheduler runs no vCPUs together",
                "scheduler = \"credit\", \"credit-capped\", \"xen-credit\" or \"xen-credit-capped\" in [host]",
            );
        }
        Some(c)
    });
    let asym = or(t.get("asym"), Asym::default(), |v| {
        let a = v.table("{ time = true, latency = true, resolver = true }")?;
        a.only(&["time", "latency", "resolver", "period_ms"]);
        let on = |key| or(a.get(key), false, |v| v.bool());
        let period_ms = or(a.get("period_ms"), None, |v| Some(Some(v.u32(1..=1000, " ms")?)));
        let (time, latency, resolver) = (on("time")?, on("latency")?, on("resolver")?);
        let asym = Asym { time, latency, resolver, period_ms: period_ms? };
        if asym != Asym::default() && !is_fair {
            v.problem("Credit has no vCPUs of different weight", "scheduler = \"fair\" in [host]");
        }
        Some(asym)
    });
    Some((coscheduling?, asym?))
}

fn read_platform(t: &Table) -> Option<Platform> {
    let names: Vec<&str> = Factor::ALL.iter().map(|(name, _)| *name).collect();
    let names = names.join(", ");
    let physical = or(t.get("physical"), false, |v| v.bool());
    let apicv = or(t.get("apicv"), false, |v| v.bool());
    let halt_poll_us = or(t.get("halt_poll_us"), 0, |v| v.u32(0..=1_000_000, " microseconds"));
    let without =
        or(t.get("without"), Vec::new(), |v| list(&v, &names, |v| v.choice(&Factor::ALL)));
    Some(Platform {
        physical: physical?,
        apicv: apicv?,
        halt_poll_us: halt_poll_us?,
        without: without?,
    })
}

const WINDOW_FORMS: &str =
    "\"stock\", \"off\", { fixed_cycles = N } or { aple = { delta_cycles = N, … } }";

fn read_window(v: &Value, aple: &ApleParams) -> Option<Window> {
    if v.is_str() {
        return v.choice(&[
            ("stock", Window::Stock),
            ("off", Window::Off),
            ("aple", Window::Aple(*aple)),
        ]);
    }
    let t = v.table(WINDOW_FORMS)?;
    t.only(&["fixed_cycles", "aple"]);
    match (t.get("fixed_cycles"), t.get("aple")) {
        (Some(n), None) => Some(Window::Fixed { cycles: read_cycles(&n)? }),
        (None, Some(a)) => read_aple(&a, aple),
        (Some(_), Some(_)) => {
            v.problem("fixed and adapted at once", "one of fixed_cycles and aple");
            None
        }
        (None, None) => {
            if t.keys().is_empty() {
                v.problem("empty", WINDOW_FORMS);
            }
            None
        }
    }
}

fn read_cycles(v: &Value) -> Option<u32> {
    v.u32(WINDOW_MIN_CYCLES..=WINDOW_MAX_CYCLES, " TSC cycles")
}

fn read_aple(v: &Value, d: &ApleParams) -> Option<Window> {
    let t = v.table("{ delta_cycles = N, … }")?;
    t.only(&[
        "window_init_cycles",
        "window_min_cycles",
        "window_max_cycles",
        "delta_cycles",
        "delta_max_cycles",
        "epoch_ple_exits",
        "epoch_min_us",
    ]);
    let cycles = |key: &str, default| or(t.get(key), default, |v| read_cycles(&v));
    let window_init_cycles = cycles("window_init_cycles", d.window_init_cycles);
    let window_min_cycles = cycles("window_min_cycles", d.window_min_cycles);
    let window_max_cycles = cycles("window_max_cycles", d.window_max_cycles);
    let delta_cycles = or(t.get("delta_cycles"), d.delta_cycles, |v| {
        v.u32(1..=WINDOW_MAX_CYCLES, " TSC cycles (a window that stays is fixed_cycles)")
    });
    let delta_max = or(t.get("delta_max_cycles"), d.delta_max_cycles, |v| {
        v.u32(0..=WINDOW_MAX_CYCLES, " TSC cycles (up to delta_cycles: the step never changes)")
    });
    let epoch = or(t.get("epoch_ple_exits"), d.epoch_ple_exits, read_epoch);
    let epoch_min = or(t.get("epoch_min_us"), d.epoch_min_us, read_epoch_min);
    let window_max_cycles = window_max_cycles?;
    let delta_max_cycles = match t.get("delta_max_cycles") {
        Some(_) => delta_max?,
        None => d.delta_max_cycles.min(window_max_cycles),
    };
    let p = ApleParams {
        window_init_cycles: window_init_cycles?,
        window_min_cycles: window_min_cycles?,
        window_max_cycles,
        delta_cycles: delta_cycles?,
        delta_max_cycles,
        epoch_ple_exits: epoch?,
        epoch_min_us: epoch_min?,
    };
    let (least, most) = (p.window_min_cycles, p.window_max_cycles);
    if least > most {
        v.problem(
            format!("window_min_cycles {least} is above window_max_cycles {most}"),
            "window_min_cycles <= window_init_cycles <= window_max_cycles",
        );
    } else {
        if !(least..=most).contains(&p.window_init_cycles) {
            v.problem(
                format!("window_init_cycles {} is out of range", p.window_init_cycles),
                format!("from {least} to {most} (window_min_cycles, window_max_cycles)"),
            );
        }
        if p.delta_max_cycles > most {
            v.problem(
                format!("delta_max_cycles {} is out of range", p.delta_max_cycles),
                format!("up to {most} (window_max_cycles)"),
            );
        }
        if p.delta_cycles >= most - least {
            v.problem(
                format!(
                    "delta_cycles {} leaves no room between {least} and {most}",
                    p.delta_cycles
                ),
                format!("less than {} (window_max_cycles - window_min_cycles)", most - least),
            );
        }
    }
    Some(Window::Aple(p))
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
