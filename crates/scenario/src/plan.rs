// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a machine is asked to do: a scenario expanded into single runs, in order.

use serde::{Deserialize, Serialize};
use unspin_uapi::{any_of, Number, Variant};

/// Version of the plan and result formats; both sides refuse another.
pub const SCHEMA: u32 = 1;

/// Everything an agent needs to run one scenario on the computer it is on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub schema: u32,
    /// File name of the scenario without its ending.
    pub scenario: String,
    /// What the scenario is about, for people.
    #[serde(default)]
    pub title: String,
    /// SHA-256 over the scenario file and the profiles it names, in hex.
    pub scenario_hash: String,
    /// Physical CPUs the host must have.
    pub pcpus: u32,
    /// Length of a scheduler slice to set, ns (`base_slice_ns` / `min_granularity_ns` in debugfs); `None`
    /// leaves the kernel's own.
    pub slice_ns: Option<u64>,
    /// Host that machine `sim` models; other machines are what they are.
    #[serde(default, skip_serializing_if = "HostModel::is_default")]
    pub host_model: HostModel,
    /// Scheduler of the host that machine `sim` models.
    #[serde(default, skip_serializing_if = "HostScheduler::is_default")]
    pub scheduler: HostScheduler,
    /// Allocation period of that host, ms; `None` leaves the scheduler's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u32>,
    /// How that host's processor sees a loop of PAUSEs.
    #[serde(default, skip_serializing_if = "LoopDetection::is_default")]
    pub loop_detection: LoopDetection,
    /// pCPUs that share a last-level cache, each group of so many; `None`: all share one (machine
    /// `sim`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_pcpus: Option<u32>,
    /// Ticks of different pCPUs come apart (the kernel's skew_tick=1), not at the same time
    /// (machine `sim`).
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub skew_tick: bool,
    /// VMs' weights are divided by what their vCPUs last published of their loads, as Linux 3.8 to
    /// 4.2 has it, not by their loads of now (machine `sim`).
    #[serde(default, skip_serializing_if = "is_no")]
    pub group_load_lags: bool,
    pub runs: Vec<Run>,
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

fn is_no(value: &bool) -> bool {
    !*value
}

/// Clock and costs of a modelled host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostModel {
    /// The emulated computer: 200 MHz, a cycle an instruction.
    #[default]
    Lab,
    /// A server of the papers' time: 2.4 GHz.
    Server,
}

/// Scheduler of a modelled host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostScheduler {
    /// The kernel's own: CFS or EEVDF.
    #[default]
    Fair,
    /// The same where no VM gets more than its weight's share (`cpu.max`).
    FairCapped,
    /// Xen Credit, work-conserving: time that a VM leaves goes to the others.
    Credit,
    /// Xen Credit where no VM gets more than its weight's share.
    CreditCapped,
}

impl HostScheduler {
    /// Whether it is Xen's.
    pub fn is_credit(self) -> bool {
        !matches!(self, HostScheduler::Fair | HostScheduler::FairCapped)
    }

    fn is_default(&self) -> bool {
        *self == HostScheduler::default()
    }
}

/// How a modelled host's processor sees a loop of PAUSEs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoopDetection {
    /// Intel: a loop at CPL 0 that lasts longer than a window of cycles.
    #[default]
    Ple,
    /// AMD: a number of PAUSEs, at any level.
    PauseFilter,
}

impl LoopDetection {
    fn is_default(&self) -> bool {
        *self == LoopDetection::default()
    }
}

impl HostModel {
    fn is_default(&self) -> bool {
        *self == HostModel::default()
    }
}

/// One measurement: some VMs of one profile under one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Position in the scenario's whole plan; a resumed plan skips the ids it has records of. A
    /// selection or a share of a plan keeps the ids, so they may have gaps.
    pub id: u32,
    pub profile: String,
    /// The profile is one of those that spin (counts in means over them).
    #[serde(default)]
    pub spin_intensive: bool,
    pub program: Vec<Step>,
    pub vms: u32,
    pub vcpus: u32,
    /// What each VM is, where they are not alike (then one for each); empty: all are as `profile`,
    /// `program`, `vcpus`, `lock` and `cpl` say, which otherwise are the first VM's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<EachVm>,
    /// Physical CPU of each vCPU of each VM, `pin[vm][vcpu]`; empty leaves them free.
    pub pin: Vec<Vec<u32>>,
    /// cgroup cpu.weight (1..=10000) of each VM; empty: all alike.
    pub weights: Vec<u32>,
    pub lock: LockKind,
    /// τ of the preemptable locks, ns; `None` leaves the lock's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tau_ns: Option<u64>,
    /// Where the scenario sweeps locks, the one this run is compared under ([`LockChoice::label`]);
    /// else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lock_group: String,
    /// Clock at which the locks' budgets, which are times, become cycles; `None` is the machine's
    /// time-stamp counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_clock_mhz: Option<u32>,
    /// Privilege level the guest spins at: 0 (PLE sees it) or 3 (it does not).
    pub cpl: u8,
    pub cgroup: CgroupLayout,
    pub arm: Arm,
    /// Length of an epoch in arms that adapt nothing but are watched (`observe`, `hvs`); `None`
    /// leaves the module's own.
    #[serde(default)]
    pub epoch_ple_exits: Option<u32>,
    /// The shortest epoch of such arms; `None` leaves the module's own.
    #[serde(default)]
    pub epoch_min_us: Option<u32>,
    /// Name of the arm this one is normalised to.
    pub baseline: String,
    pub seed: u64,
    pub repeat: u32,
    /// Time between the start of the last VM and the measuring window, ms of the machine's time.
    pub warmup_ms: u64,
    /// Length of the measuring window, ms of the machine's time.
    pub window_ms: u64,
    /// Largest stagger between VM starts, ms; each VM draws its own from the seed.
    pub stagger_ms: u64,
    /// Whether the run exists to learn what one VM does alone (for *ideal*).
    pub alone: bool,
    /// Also collect the epoch tracepoint (window traces) and, if set, the pick tracepoint (replay).
    pub trace_epochs: bool,
    pub trace_picks: bool,
    /// Also count long waits by whether the lock was free meanwhile; guests wait a little slower.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stalls: bool,
}

/// One VM of a run whose VMs are not alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EachVm {
    /// VMs with one name are reported together, under it.
    pub group: String,
    /// Its workload.
    pub profile: String,
    #[serde(default)]
    pub spin_intensive: bool,
    pub program: Vec<Step>,
    pub vcpus: u32,
    pub lock: LockKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tau_ns: Option<u64>,
    pub cpl: u8,
    /// Threads of its program; `None`: one a vCPU, which never leaves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Timer ticks a second of its kernel; 0: it has none.
    #[serde(default)]
    pub tick_hz: u32,
    /// The module and the arm's lock are not for it: KVM's own window and yields, uncounted.
    #[serde(default)]
    pub mode_off: bool,
}

impl Run {
    /// `vms` VMs that run `program` on `vcpus` vCPUs each, free of pCPUs, with a ticket lock at CPL 0
    /// under KVM's own ways (arm `stock`, its own baseline), seed 1, measured for 100 ms from the
    /// start. What a caller wants otherwise it says with `..Run::new(…)`.
    pub fn new(program: Vec<Step>, vms: u32, vcpus: u32) -> Run {
        Run {
            id: 0,
            profile: String::new(),
            spin_intensive: false,
            program,
            vms,
            vcpus,
            each: Vec::new(),
            pin: Vec::new(),
            weights: Vec::new(),
            lock: LockKind::Ticket,
            tau_ns: None,
            lock_group: String::new(),
            lock_clock_mhz: None,
            cpl: 0,
            cgroup: CgroupLayout::Flat,
            arm: Arm { name: "stock".into(), ..Arm::default() },
            epoch_ple_exits: None,
            epoch_min_us: None,
            baseline: "stock".into(),
            seed: 1,
            repeat: 0,
            warmup_ms: 0,
            window_ms: 100,
            stagger_ms: 0,
            alone: false,
            trace_epochs: false,
            trace_picks: false,
            stalls: false,
        }
    }

    /// What VM number `vm` is.
    pub fn vm(&self, vm: u32) -> EachVm {
        self.each.get(vm as usize).cloned().unwrap_or_else(|| EachVm {
            group: self.profile.clone(),
            profile: self.profile.clone(),
            spin_intensive: self.spin_intensive,
            program: self.program.clone(),
            vcpus: self.vcpus,
            lock: self.lock,
            tau_ns: self.tau_ns,
            cpl: self.cpl,
            threads: None,
            tick_hz: 0,
            mode_off: false,
        })
    }

    /// Number of vCPUs of VM number `vm`.
    pub fn vcpus_of(&self, vm: u32) -> u32 {
        self.each.get(vm as usize).map_or(self.vcpus, |each| each.vcpus)
    }

    /// The VMs' numbers of vCPUs, for people: `4`, or `8+4` where they differ.
    pub fn vcpus_text(&self) -> String {
        let mut sizes: Vec<u32> = Vec::new();
        for vm in 0..self.vms {
            let vcpus = self.vcpus_of(vm);
            if !sizes.contains(&vcpus) {
                sizes.push(vcpus);
            }
        }
        sizes.iter().map(u32::to_string).collect::<Vec<_>>().join("+")
    }

    /// What the arm means for VM number `vm`: the arm itself, or KVM's own where the module leaves
    /// the VM alone.
    pub fn arm_of(&self, vm: u32) -> Arm {
        match self.each.get(vm as usize) {
            Some(each) if each.mode_off => Arm {
                window: Window::Stock,
                yield_to: YieldTo::Stock,
                observe: false,
                lock: None,
                ..self.arm.clone()
            },
            _ => self.arm.clone(),
        }
    }

    /// Names of the groups that are reported apart, in the order of their first VMs; one where all
    /// VMs are alike.
    pub fn groups(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for each in &self.each {
            if !names.contains(&each.group.as_str()) {
                names.push(&each.group);
            }
        }
        if names.is_empty() {
            vec![&self.profile]
        } else {
            names
        }
    }
}

/// One way of treating the VMs; the things compared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    pub name: String,
    pub window: Window,
    pub yield_to: YieldTo,
    /// Mode of the module when window and yield_to are both KVM's own: `observe` counts, `off` does not.
    pub observe: bool,
    /// A vCPU that waits for answers to its interrupts yields to who owes one, before `yield_to`
    /// decides. With `yield_to` stock on machine `sim` only: elsewhere it is the module that looks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ipi_aware: bool,
    /// The guest shows its lock queues: a vCPU that waits for a lock yields to whoever has it or is
    /// next for it (APSys 2015, section 6: PLE integrated with the lock; machine `sim`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queue_aware: bool,
    /// The guests' lock under this arm, instead of the VMs'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockChoice>,
    /// Which VMs' vCPUs run together, on a host with Credit (machine `sim`).
    #[serde(default, skip_serializing_if = "Coscheduling::is_default")]
    pub coscheduling: Coscheduling,
    /// Asymmetric vCPUs, on a host with the fair scheduler (machine `sim`).
    #[serde(default, skip_serializing_if = "Asym::is_default")]
    pub asym: Asym,
    /// What the VMs run on, where it is not the host as it is (machine `sim`).
    #[serde(default, skip_serializing_if = "Platform::is_default")]
    pub platform: Platform,
}

/// What an arm changes of the machine, to see what that costs (NJIT 2018, 2.4).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Platform {
    /// No VMM: no exits; interrupts, idling and switches at the hardware's cost.
    pub physical: bool,
    /// The processor virtualizes the APIC: interrupts are received without exits.
    pub apicv: bool,
    /// KVM polls so long for a wake-up before it takes a halted vCPU off its pCPU, us.
    pub halt_poll_us: u32,
    /// Factors of virtualization's cost that are switched off.
    pub without: Vec<Factor>,
}

/// The arm that `--attribute` adds: the program on the machine itself.
pub const PHYSICAL_ARM: &str = "without-vmm";

impl Platform {
    fn is_default(&self) -> bool {
        *self == Platform::default()
    }
}

/// What makes multi-threaded programs slow in VMs (NJIT 2018, chapter 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Factor {
    /// Switching idle vCPUs (2.4.1); without: guests idle in a polling loop.
    IdleSwitch,
    /// Switching spinning vCPUs (2.4.2); without: no pause-loop exits.
    SpinSwitch,
    /// Interrupts between vCPUs (2.4.3); without: they cost what the hardware's do.
    Ipi,
    /// Spinning in user space (2.4.4); without: loop detection sees it too.
    UserSpin,
    /// Placement blind to caches (2.4.5); without: all is as near as within one cache.
    Cache,
}

impl Factor {
    /// All five, in the order of their sections, with their names.
    pub const ALL: [(&'static str, Factor); 5] = [
        ("idle-switch", Factor::IdleSwitch),
        ("spin-switch", Factor::SpinSwitch),
        ("ipi", Factor::Ipi),
        ("user-spin", Factor::UserSpin),
        ("cache", Factor::Cache),
    ];
}

/// Whose vCPUs run together under Credit (ASMan, HPDC 2011).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coscheduling {
    /// Nobody's.
    #[default]
    None,
    /// Those of the VMs whose workload synchronizes, always: static coscheduling.
    Con,
    /// Those of the VMs in which a spin-lock was just waited for too long, as the guest sees it.
    Vcrd,
    /// The same, as the host sees it by bursts of PLE exits; the guest is not changed.
    VcrdPle,
}

impl Coscheduling {
    fn is_default(&self) -> bool {
        *self == Coscheduling::default()
    }
}

/// Parts of dynamic asymmetric vCPUs (NJIT 2018, 5.4) that are on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Asym {
    /// CPU time allocation (5.4.1).
    pub time: bool,
    /// Scheduling latency adjustment (5.4.2).
    pub latency: bool,
    /// Resource conflict resolver (5.4.3).
    pub resolver: bool,
    /// How often they look and decide; left out: each allocation period of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u32>,
}

impl Asym {
    fn is_default(&self) -> bool {
        *self == Asym::default()
    }
}

/// Who sets the pause-loop-exit window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Window {
    /// KVM's own grow and reset rules.
    #[default]
    Stock,
    /// No PLE for this VM (KVM_CAP_X86_DISABLE_EXITS).
    Off,
    /// One window for all vCPUs, held by the module.
    Fixed { cycles: u32 },
    /// Algorithm 1 of the APPLES paper.
    Aple(ApleParams),
}

/// Parameters of Algorithm 1 (section 4.1) and of its step that adapts (ours), TSC cycles.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApleParams {
    pub window_init_cycles: u32,
    pub window_min_cycles: u32,
    pub window_max_cycles: u32,
    pub delta_cycles: u32,
    /// Where the step starts; at or below `delta_cycles`, the step never changes (the paper's).
    pub delta_max_cycles: u32,
    /// An epoch lasts at least this long; 0: exits alone end an epoch (the paper's).
    pub epoch_min_us: u32,
    pub epoch_ple_exits: u32,
}

impl Default for ApleParams {
    fn default() -> Self {
        ApleParams {
            window_init_cycles: Number::WINDOW_INIT.default(),
            window_min_cycles: Number::WINDOW_MIN.default(),
            window_max_cycles: Number::WINDOW_MAX.default(),
            delta_cycles: Number::DELTA.default(),
            delta_max_cycles: Number::DELTA_MAX.default(),
            epoch_min_us: Number::EPOCH_MIN.default(),
            epoch_ple_exits: Number::EPOCH.default(),
        }
    }
}

/// Who picks the vCPU that gets the freed core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum YieldTo {
    /// KVM.
    #[default]
    Stock,
    /// The module, by this variant of HVS.
    Module(Variant),
}

impl YieldTo {
    pub const HVS: YieldTo = YieldTo::Module(Variant::HVS);

    /// What scenarios, plans and results call it.
    pub fn name(self) -> &'static str {
        match self {
            YieldTo::Stock => "stock",
            YieldTo::Module(variant) => variant.name(),
        }
    }

    pub fn all() -> impl Iterator<Item = YieldTo> {
        let variants = Variant::ALL.iter().map(|v| YieldTo::Module(*v));
        std::iter::once(YieldTo::Stock).chain(variants)
    }

    /// The variant of HVS, where the module chooses.
    pub fn variant(self) -> Option<Variant> {
        match self {
            YieldTo::Stock => None,
            YieldTo::Module(variant) => Some(variant),
        }
    }
}

impl From<YieldTo> for &'static str {
    fn from(of: YieldTo) -> &'static str {
        of.name()
    }
}

impl TryFrom<String> for YieldTo {
    type Error = String;

    fn try_from(name: String) -> Result<YieldTo, String> {
        YieldTo::all().find(|y| y.name() == name).ok_or_else(|| {
            format!("{name:?} is no yield_to: {}", any_of(YieldTo::all().map(YieldTo::name)))
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    Tas,
    Ticket,
    Mcs,
    Preemptable,
    PvTicket,
    PvPreemptable,
    Oticket,
    OticketSpin,
    OticketWake,
    Iticket,
    LongTicket,
    PvQueued,
    Lease,
}

impl LockKind {
    /// Every lock of `locks/`, by the name scenarios and results use.
    pub const ALL: [(&'static str, LockKind); 13] = [
        ("tas", LockKind::Tas),
        ("ticket", LockKind::Ticket),
        ("mcs", LockKind::Mcs),
        ("preemptable", LockKind::Preemptable),
        ("pv-ticket", LockKind::PvTicket),
        ("pv-preemptable", LockKind::PvPreemptable),
        ("oticket", LockKind::Oticket),
        ("oticket-spin", LockKind::OticketSpin),
        ("oticket-wake", LockKind::OticketWake),
        ("iticket", LockKind::Iticket),
        ("long-ticket", LockKind::LongTicket),
        ("pv-queued", LockKind::PvQueued),
        ("lease", LockKind::Lease),
    ];

    /// Its name, as in [`LockKind::ALL`]. With `_` for `-` it is the prefix of the functions in
    /// `locks/`.
    pub fn name(self) -> &'static str {
        let known = Self::ALL.iter().find(|(_, kind)| *kind == self);
        known.expect("every lock stands in ALL").0
    }

    /// Whether its waiters halt: in a guest that takes CPL 0.
    pub fn halts(self) -> bool {
        !matches!(self, LockKind::Tas | LockKind::Ticket | LockKind::Mcs | LockKind::Preemptable)
    }

    /// Whether it has the waiting time τ of VEE'13 (section 4.2).
    pub fn has_tau(self) -> bool {
        matches!(self, LockKind::Preemptable | LockKind::PvPreemptable)
    }
}

/// A lock and what is set of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockChoice {
    pub kind: LockKind,
    /// τ of the preemptable locks, ns; `None` leaves the lock's own (2000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tau_ns: Option<u64>,
}

impl LockChoice {
    /// The lock as it is.
    pub fn plain(kind: LockKind) -> Self {
        LockChoice { kind, tau_ns: None }
    }

    /// What reports call it: its name, with τ in ns where one is set.
    pub fn label(&self) -> String {
        match self.tau_ns {
            None => self.kind.name().to_string(),
            Some(ns) => format!("{}-{ns}ns", self.kind.name()),
        }
    }
}

/// How vCPU threads are laid out in cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupLayout {
    Flat,
    Vm,
    Vcpu,
}

/// One step of a thread's program; one pass over all of them is one unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub op: Op,
    pub dist: Dist,
    /// Which lock (`lock`, `unlock`).
    #[serde(default)]
    pub lock: u32,
    /// Chance that the step is taken, 0..=1000. A `lock` not taken skips to after its `unlock`.
    pub permille: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    Compute,
    Lock,
    Critical,
    Unlock,
    /// All vCPUs of the VM wait for each other: so many PAUSEs as drawn, then halted (0: at once).
    Barrier,
    /// Sleep (HLT) until a `wake` or until that many timer cycles passed.
    Block,
    /// Wake the next vCPU if it sleeps.
    Wake,
    /// As `barrier`, waited for with PAUSE.
    SpinBarrier,
    /// Interrupts every sibling that does not sleep, as for a TLB flush, and waits for all. With a
    /// length (machine `sim` only) one after the other, and each handles its interrupt for so long
    /// before it answers.
    Shootdown,
    /// The same in kernels whose idle CPUs keep the last program's memory (lazy TLB, Linux before
    /// 4.15): one that has gone to sleep since it was last asked is woken to answer as well.
    ShootdownLazy,
    // From here on machine `sim` only.
    /// As `spin-barrier`, the program itself spinning (CPL 3): no loop detector sees it.
    UserBarrier,
    /// As `barrier`, made of a condition variable: sleepers wake each other one by one.
    CondBarrier,
    /// A lock whose waiters sleep.
    Mutex,
    MutexUnlock,
    /// Work that only the first thread does; the others pass by.
    ComputeFirst,
    /// Work that one thread does, in each unit another: round-robin.
    ComputeTurn,
    /// The sequential section of fork and join: all arrive and sleep, the first thread does the
    /// work, then all go on.
    SerialFirst,
    /// The same, in each unit another thread's work.
    SerialTurn,
    /// Reads that many cache lines the previous vCPU wrote.
    Share,
    /// Sleeps until the socket has room for a message, its buffer holding so many, or, of a
    /// receiver, until one has come. Threads are groups of hackbench's: 20 send to each of 20.
    SocketWait,
    /// The spin-lock of that socket.
    SocketLock,
    /// Releases it; the message is queued, or taken, and who waited for that is woken.
    SocketUnlock,
}

/// Distribution of a length in loop iterations (timer cycles for `block`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dist {
    Const {
        iterations: u32,
    },
    Uniform {
        min: u32,
        max: u32,
    },
    /// Exponential, cut off at `max` (0: at 16 times the mean).
    Exp {
        mean: u32,
        max: u32,
    },
}
