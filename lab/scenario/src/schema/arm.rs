// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arms: windows, choices of yield targets, and the other settings of an arm.

use crate::schema::linux::GuestIdle;
use crate::schema::lock::LockChoice;
use crate::schema::names::{is_default, named, Named};
use serde::{Deserialize, Serialize};
use strum::{EnumIter, IntoStaticStr};
use unspin_diagnosis::Cause;
use unspin_uapi::{any_of, Number, Variant};

named!(Coscheduling, CoschedulingMechanism, Factor);

/// One way of treating the VMs; the things compared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    pub name: String,
    pub window: Window,
    pub yield_to: YieldTo,
    /// Mode of the module when window and yield_to are both KVM's own: `observe` counts, `off` does not.
    pub observe: bool,
    /// The guest shows its lock queues: a vCPU that waits for a lock yields to the holder or the
    /// next waiter (APSys 2015, section 6: PLE integrated with the lock; machine `sim`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queue_aware: bool,
    /// The guests' lock under this arm, instead of the VMs'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockChoice>,
    /// What idle vCPUs of Linux guests do under this arm, instead of the VMs' setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<GuestIdle>,
    /// Which VMs' vCPUs run together, in turns that the module makes; on machine `sim` on a host
    /// with Credit, as in ASMan.
    #[serde(default, skip_serializing_if = "is_default")]
    pub coscheduling: Coscheduling,
    /// The mechanism of the turns of `coscheduling`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub coscheduling_mechanism: CoschedulingMechanism,
    /// Length of turns, us; `None`: the module's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_us: Option<u32>,
    /// Asymmetric vCPUs, on a host with the fair scheduler (machine `sim`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub asym: Asym,
    /// The platform of the VMs, if it differs from the host (machine `sim`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub platform: Platform,
}

/// Changes of the machine that show what a factor costs (NJIT 2018, 2.4).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Platform {
    /// No VMM: no exits; interrupts, idling and switches at the hardware's cost.
    pub physical: bool,
    /// The processor virtualizes the APIC: the guest receives interrupts without exits.
    pub apicv: bool,
    /// How long KVM polls for a wake-up before it takes a halted vCPU off its pCPU, us.
    pub halt_poll_us: u32,
    /// Factors of virtualization's cost that are switched off.
    pub without: Vec<Factor>,
}

/// What makes multi-threaded programs slow in VMs (NJIT 2018, chapter 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, EnumIter, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Factor {
    /// Switching idle vCPUs (2.4.1); without: guests idle in a polling loop.
    IdleSwitch,
    /// Switching spinning vCPUs (2.4.2); without: no pause-loop exits.
    SpinSwitch,
    /// Interrupts between vCPUs (2.4.3); without it they cost as much as the hardware's.
    Ipi,
    /// Spinning in user space (2.4.4); without: loop detection sees it too.
    UserSpin,
    /// Placement blind to caches (2.4.5); without: all is as near as within one cache.
    Cache,
}

impl Factor {
    /// All five, in the order of their sections, with their names.
    pub fn all() -> Vec<(&'static str, Factor)> {
        Factor::choices()
    }

    /// Its name in `unspin diagnose`.
    pub fn cause(self) -> Cause {
        match self {
            Factor::IdleSwitch => Cause::IdleSwitch,
            Factor::SpinSwitch => Cause::SpinSwitch,
            Factor::Ipi => Cause::Ipi,
            Factor::UserSpin => Cause::UserSpin,
            Factor::Cache => Cause::Cache,
        }
    }
}

/// Whose vCPUs run together (ASMan, HPDC 2011).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coscheduling {
    /// No VM's.
    #[default]
    None,
    /// Always those of VMs whose workload synchronizes: static coscheduling.
    Con,
    /// Those of VMs that just waited too long for a spin-lock, as the guest notices.
    Vcrd,
    /// The same, as the host notices by bursts of PLE exits; the guest is unchanged.
    VcrdPle,
    /// Those of VMs whose vCPUs spin in user space, as the host notices by samples.
    VcrdUser,
    /// Both kinds that the host notices.
    VcrdBoth,
}

/// The mechanism of turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoschedulingMechanism {
    /// The module parks the vCPUs of other VMs.
    #[default]
    Park,
    /// For comparison: Credit as a sched_ext scheduler for all vCPU threads.
    SchedExt,
    /// `unspin schedule`: a scheduler of sched_ext that has all threads of VMs.
    Scheduler,
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
    /// A VM's own weight is corrected so that the VM gets its due share, with or without `time`. Not
    /// in the text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub weight: bool,
    /// As in the text: `time` does not correct the VM's own weight, and each period alone decides.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uncorrected: bool,
    /// Interval of decisions; `None`: each allocation period of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u32>,
}

impl Asym {
    /// Whether the VM's own weight is corrected.
    pub fn corrects_weight(&self) -> bool {
        self.weight || (self.time && !self.uncorrected)
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

/// Parameters of Algorithm 1 (section 4.1), and of its adaptive step (an addition of this project),
/// TSC cycles.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApleParams {
    pub window_init_cycles: u32,
    pub window_min_cycles: u32,
    pub window_max_cycles: u32,
    pub delta_cycles: u32,
    /// The initial step. If not above `delta_cycles`, the step never changes, and windows are compared by inefficiency,
    /// as in the paper.
    pub delta_max_cycles: u32,
    /// Shortest epoch; 0: only exits end an epoch, as in the paper.
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

/// Who chooses the vCPU that gets the freed core.
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

    /// The name in scenarios, plans and results.
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

    /// The variant of HVS, if the module chooses.
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

impl Named for YieldTo {
    fn choices() -> Vec<(&'static str, YieldTo)> {
        YieldTo::all().map(|y| (y.name(), y)).collect()
    }
}
