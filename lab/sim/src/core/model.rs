// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modelled host: its kernel, its scheduler, and the changes of an arm.

use super::costs::Costs;
use unspin_policy::kvm_stock::{Variant, WindowParams, WINDOW_PAUSES_MAX_SVM, WINDOW_PAUSES_SVM};
use unspin_policy::{asym, credit, vcrd};
use unspin_scenario::plan::{Factor, HostModel, HostScheduler, LoopDetection, Plan, Platform};

/// The kernel whose scheduler, KVM window and directed yield are modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// A proposal on the KVM list of 2012 that was never merged: a window that grows if a directed
    /// yield finds no target, and shrinks if it succeeds. CFS.
    Proposal2012,
    /// The papers' host: CFS, KVM's first growing window.
    V3_19,
    /// CFS.
    V6_1,
    /// EEVDF; a yield forfeits virtual run time, as in its stable series.
    V6_12,
    /// EEVDF as first released; KVM's directed yield with its index bug (about 6.13 to 6.18).
    V6_13,
    /// EEVDF; the bug fixed.
    V6_19,
}

impl Kernel {
    /// All of them, oldest first.
    pub const ALL: [Kernel; 6] = [
        Kernel::Proposal2012,
        Kernel::V3_19,
        Kernel::V6_1,
        Kernel::V6_12,
        Kernel::V6_13,
        Kernel::V6_19,
    ];

    /// The series' name, as in scenarios and `--kernel`.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Proposal2012 => "2012",
            Kernel::V3_19 => "3.19",
            Kernel::V6_1 => "6.1",
            Kernel::V6_12 => "6.12",
            Kernel::V6_13 => "6.13",
            Kernel::V6_19 => "6.19",
        }
    }

    /// The kernel with this name.
    pub fn parse(name: &str) -> Option<Kernel> {
        Kernel::ALL.into_iter().find(|k| k.name() == name)
    }

    pub(crate) fn stock(self) -> Variant {
        match self {
            Kernel::Proposal2012 | Kernel::V3_19 => Variant::V3_19,
            Kernel::V6_1 | Kernel::V6_12 => Variant::V6_12,
            Kernel::V6_13 => Variant::V6_13IndexBug,
            Kernel::V6_19 => Variant::V6_19,
        }
    }

    /// Whether tasks are ordered by virtual deadline (EEVDF, 6.6 and later), not by virtual
    /// run time alone (CFS).
    pub(crate) fn is_eevdf(self) -> bool {
        matches!(self, Kernel::V6_12 | Kernel::V6_13 | Kernel::V6_19)
    }
}

/// Parameters of a Credit scheduler.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CreditHost {
    /// Slots, credits and the cap; one credit is a microsecond.
    pub params: credit::Params,
    /// Xen 3.3's ranks decide, and not as under sched_ext the most credit (`host/credit/rules.rs`).
    pub xen: bool,
    /// How long a vCPU runs before the pCPU chooses again, ns.
    pub slice_ns: u64,
    /// Largest delay of a slice's timer, ns.
    pub slop_ns: u64,
    /// Whether a vCPU that wakes with credit comes first (Xen's BOOST).
    pub boost: bool,
    /// ASMan's learner, where VCRD decides whose vCPUs run together.
    pub vcrd: vcrd::Params,
}

/// Time between Credit's hand-outs, ns (HPDC 2011, section 3.3).
const HAND_OUT_NS: u64 = 30_000_000;

impl CreditHost {
    /// Credits are handed out after each such time, ns, in whole slots. A vCPU may then have as much
    /// credit as a core gives in one.
    fn hand_out_every(&mut self, period_ns: u64) {
        let params = &mut self.params;
        let slot_ns = u64::from(params.slot_us.max(1)) * 1000;
        params.slots_per_assignment = (period_ns / slot_ns).clamp(1, 1000) as u32;
        params.credit_max = params.slots_per_assignment.saturating_mul(params.credit_per_slot);
    }
}

/// An idle state of a pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleState {
    /// Shortest expected idle time for this state, ns.
    pub residency_ns: u64,
    /// From an interrupt until the pCPU runs again, ns.
    pub exit_ns: u64,
}

impl IdleState {
    const fn new(residency_us: u64, exit_us: u64) -> IdleState {
        IdleState { residency_ns: residency_us * 1000, exit_ns: exit_us * 1000 }
    }

    /// C1, C1E, C3 and C6 of Nehalem and Westmere, as Linux knows them (nehalem_cstates of
    /// drivers/idle/intel_idle.c).
    pub const NEHALEM: [IdleState; 4] = [
        IdleState::new(6, 3),
        IdleState::new(20, 10),
        IdleState::new(80, 20),
        IdleState::new(800, 200),
    ];
}

/// Time that a CPU of an idle host loses to its tasks, in millionths: 460 us per second, the median
/// of the eight CPUs in Documentation/trace/osnoise-tracer.rst (109 to 7,816).
pub const HOUSEKEEPING_USUAL_PPM: u32 = 460;

/// Two busy threads do 1.25 times as much as one: D. Marr et al., "Hyper-Threading Technology
/// Architecture and Microarchitecture" (Intel Technology Journal 6(1), 2002) have up to 1.3 for
/// server programs.
pub const THREAD_SPEED_USUAL_PERCENT: u32 = 62;

/// A host.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    pub pcpus: u32,
    /// Frequency of the pCPUs and of their TSC, kHz.
    pub khz: u64,
    pub kernel: Kernel,
    /// Time between timer ticks of a busy pCPU, ns.
    pub tick_ns: u64,
    /// Scheduler slice (`base_slice_ns`, `min_granularity_ns`); `None`: the kernel's own. Credit's
    /// slice is in `credit`.
    pub slice_ns: Option<u64>,
    /// Allocation period: CFS's latency; `None`: the kernel's own. Credit's period is in `credit`.
    pub period_ns: Option<u64>,
    /// Parameters of asymmetric vCPUs, for arms that use them.
    pub asym: asym::Params,
    /// Credit schedules, not the kernel's fair scheduler.
    pub credit: Option<CreditHost>,
    /// The fair scheduler gives no VM more than its weight's share (`cpu.max`).
    pub capped: bool,
    /// The processor counts PAUSEs at every level (AMD's pause filter), instead of cycles at CPL 0.
    pub pause_filter: bool,
    /// KVM's PLE gap. Loops with longer iterations are not detected.
    pub ple_gap_cycles: u32,
    /// KVM's own window parameters.
    pub window: WindowParams,
    pub costs: Costs,
    /// pCPUs that share a last-level cache; `None`: all share one.
    pub llc_pcpus: Option<u32>,
    /// pCPUs `2 n` and `2 n + 1` are two threads of one core, not two cores.
    pub threads_share_cores: bool,
    /// Speed of a guest on a thread while the other one of its core is busy, % of a core.
    pub thread_speed_percent: u32,
    /// Ticks of different pCPUs are spread in time, as with skew_tick=1, with which the emulated
    /// computer boots. Linux's default is 0: all tick at the same time.
    pub skew_tick: bool,
    /// A VM's weight is divided by what its vCPUs last published, as in Linux 3.8 to 4.2, not by
    /// their present load (`host/groups.rs`).
    pub group_load_lags: bool,
    /// Time that the host's own tasks use of each pCPU, in millionths (`host/housekeeping.rs`). 0:
    /// no tasks, and ticks are on time. Not with Credit, beside which no tasks are modelled.
    pub housekeeping_ppm: u32,
    /// How long KVM polls for a wake-up of a halted vCPU before the vCPU leaves its pCPU.
    pub halt_poll_ns: u64,
    /// The states of an idle pCPU, shallowest first; it chooses by how long it idled before
    /// (Linux's menu governor). Empty: leaving idle costs nothing.
    pub idle_states: &'static [IdleState],
    /// There is no VMM: the VM stands for the physical machine.
    pub physical: bool,
    /// Interrupts are received without exits (APICv, AVIC).
    pub apicv: bool,
    /// Guests idle in a polling loop.
    pub idle_poll: bool,
    /// No loop detection, or loop detection at every level.
    pub ple_off: bool,
    pub ple_at_user: bool,
}

impl Host {
    /// The emulated computer: 200 MHz, 250 ticks a second.
    pub fn lab(pcpus: u32, kernel: Kernel) -> Host {
        Host {
            pcpus,
            khz: 200_000,
            kernel,
            tick_ns: 4_000_000,
            slice_ns: None,
            period_ns: None,
            // A sleeper gets a credit of half of CFS's latency, 9 ms on four pCPUs. Above that, a
            // vCPU that wakes never preempts another. Below: "a minimal value allowed by the
            // system" (5.4.2). Linux accepts any wake-up granularity from 0 on, policy/ from 1 us.
            // EEVDF has slices instead, as `unspin shape` sets them.
            asym: match kernel.is_eevdf() {
                true => asym::Params::default(),
                false => asym::Params {
                    latency_min_us: 1,
                    latency_max_us: 8_000,
                    ..asym::Params::default()
                },
            },
            credit: None,
            capped: false,
            pause_filter: false,
            ple_gap_cycles: 128,
            window: stock_window(kernel),
            costs: if kernel.is_eevdf() { Costs::LAB_EEVDF } else { Costs::LAB },
            llc_pcpus: None,
            threads_share_cores: false,
            thread_speed_percent: THREAD_SPEED_USUAL_PERCENT,
            skew_tick: true,
            group_load_lags: false,
            housekeeping_ppm: 0,
            halt_poll_ns: 0,
            idle_states: &[],
            physical: false,
            apicv: false,
            idle_poll: false,
            ple_off: false,
            ple_at_user: false,
        }
    }

    /// A server: 2.4 GHz, 250 ticks per second, with the background work of an idle Linux host.
    pub fn server(pcpus: u32, kernel: Kernel) -> Host {
        Host {
            khz: 2_400_000,
            costs: Costs::SERVER,
            housekeeping_ppm: HOUSEKEEPING_USUAL_PPM,
            ..Host::lab(pcpus, kernel)
        }
    }

    /// The computer of machine `threads`: `khz` is the rate of its time-stamp counter.
    pub fn threads(pcpus: u32, khz: u64, kernel: Kernel) -> Host {
        Host { khz, costs: Costs::THREADS, ..Host::lab(pcpus, kernel) }
    }

    /// The host that a plan requests.
    pub fn of_plan(plan: &Plan, kernel: Kernel) -> Host {
        let host = match plan.host.model {
            HostModel::Lab => Host::lab(plan.host.pcpus, kernel),
            HostModel::Server => Host::server(plan.host.pcpus, kernel),
        };
        let host = match plan.host.scheduler {
            HostScheduler::Fair => host,
            HostScheduler::FairCapped => Host { capped: true, ..host },
            HostScheduler::Credit => host.with_credit(false),
            HostScheduler::CreditCapped => host.with_credit(true),
            HostScheduler::XenCredit => host.with_xen_credit(false),
            HostScheduler::XenCreditCapped => host.with_xen_credit(true),
        };
        let host = match plan.host.period_ms {
            Some(ms) => host.with_period_ns(u64::from(ms) * 1_000_000),
            None => host,
        };
        let host = match plan.host.loop_detection {
            LoopDetection::Ple => host,
            LoopDetection::PauseFilter => host.with_pause_filter(),
        };
        Host {
            slice_ns: plan.host.slice_ns,
            llc_pcpus: plan.host.llc_pcpus,
            skew_tick: plan.host.skew_tick,
            group_load_lags: plan.host.group_load_lags,
            threads_share_cores: plan.host.threads_per_core == 2,
            thread_speed_percent: plan
                .host
                .thread_speed_percent
                .unwrap_or(host.thread_speed_percent),
            housekeeping_ppm: plan.host.housekeeping_ppm.unwrap_or(host.housekeeping_ppm),
            costs: host.costs.with(&plan.host.costs),
            ..host
        }
    }

    /// The host under the Credit of sched_ext: slots of 10 ms, 30 ms between distributions of credit
    /// (HPDC 2011, section 3.3), the most credit first (4.5). `capped`: no VM gets more than its
    /// weight's share. Ticks and the pause-loop window are the kernel's.
    pub fn with_credit(self, capped: bool) -> Host {
        let params = credit::Params { capped: capped.into(), ..credit::Params::default() };
        let host = CreditHost {
            params,
            xen: false,
            slice_ns: u64::from(params.slot_us) * 1000,
            slop_ns: 0,
            boost: false,
            vcrd: vcrd::Params::default(),
        };
        Host { credit: Some(host), ..self }
    }

    /// The same host with slots of Credit of that length, us. Credits are handed out in the host's
    /// period, or after each slot if that is longer. Xen's Credit and the fair scheduler have no
    /// slots.
    pub(crate) fn with_slot_us(mut self, slot_us: u32) -> Host {
        let period_ns = self.period_ns.unwrap_or(HAND_OUT_NS);
        if let Some(credit) = self.credit.as_mut().filter(|credit| !credit.xen) {
            (credit.params.slot_us, credit.params.credit_per_slot) = (slot_us, slot_us);
            credit.slice_ns = u64::from(slot_us) * 1000;
            credit.hand_out_every(period_ns);
        }
        self
    }

    /// The host under Xen 3.3's Credit: 10 ms ticks, 30 ms slices, 30 ms between distributions of
    /// credit (HPDC 2011, section 3.3). `capped`: no VM gets more than its weight's share. The
    /// pause-loop window does not grow, as in Xen.
    pub fn with_xen_credit(self, capped: bool) -> Host {
        let host = CreditHost {
            params: credit::Params { capped: capped.into(), ..credit::Params::default() },
            xen: true,
            slice_ns: 30_000_000,
            // TIMER_SLOP of xen/common/timer.c.
            slop_ns: 50_000,
            boost: true,
            vcrd: vcrd::Params::default(),
        };
        let window = WindowParams { grow: 0, ..self.window };
        let tick_ns = u64::from(host.params.slot_us) * 1000;
        Host { tick_ns, window, credit: Some(host), ..self }
    }

    /// The host with AMD's pause filter: initially 3000 PAUSEs, at most 65535
    /// (`pause_filter_count`, 16 bits), at any privilege level of the guest. Windows are these
    /// counts times the cycles of one turn, as in the module (docs/sysfs.md).
    pub fn with_pause_filter(self) -> Host {
        let turn = self.costs.pause_loop_cycles.max(1);
        let window = WindowParams {
            base_cycles: WINDOW_PAUSES_SVM.saturating_mul(turn),
            max_cycles: WINDOW_PAUSES_MAX_SVM.saturating_mul(turn),
            ..self.window
        };
        Host { window, pause_filter: true, ..self }
    }

    /// The same host as an arm changes it.
    pub fn on(self, platform: &Platform) -> Host {
        let without = |factor| platform.without.contains(&factor);
        let mut host = Host {
            halt_poll_ns: u64::from(platform.halt_poll_us) * 1000,
            idle_poll: without(Factor::IdleSwitch),
            ple_off: without(Factor::SpinSwitch) || platform.physical,
            ple_at_user: without(Factor::UserSpin) || self.pause_filter,
            physical: platform.physical,
            apicv: platform.apicv,
            ..self
        };
        if platform.apicv {
            // Posted, and without an exit for the end of the interrupt.
            host.costs.interrupt_cycles = host.costs.interrupt_cycles.min(600);
        }
        if without(Factor::Ipi) {
            host.costs = host.costs.native_ipi();
        }
        if without(Factor::Cache) {
            host.llc_pcpus = None;
        }
        if platform.physical {
            host.costs = host.costs.physical();
        }
        host
    }

    /// The same host with that allocation period, ns: CFS's latency, or time between Credit's
    /// hand-outs, in whole slots.
    pub fn with_period_ns(mut self, period_ns: u64) -> Host {
        if let Some(credit) = &mut self.credit {
            credit.hand_out_every(period_ns);
        }
        Host { period_ns: Some(period_ns), ..self }
    }

    /// Cost of leaving the idle state of a pCPU that was expected to idle for this time, ns.
    pub(crate) fn idle_exit_ns(&self, expected_ns: u64) -> u64 {
        let mut deepest_first = self.idle_states.iter().rev();
        deepest_first.find(|s| s.residency_ns <= expected_ns).map_or(0, |s| s.exit_ns)
    }

    /// Allocation period of the fair scheduler, ns: CFS's latency, which EEVDF no longer has.
    pub(crate) fn fair_period_ns(&self) -> u64 {
        self.period_ns.unwrap_or(self.scaled_ns(6_000_000))
    }

    /// Linux multiplies its scheduler's times by 1 + log2(CPUs), up to 8 CPUs.
    pub(crate) fn scaled_ns(&self, one_cpu_ns: u64) -> u64 {
        one_cpu_ns * u64::from(1 + self.pcpus.clamp(1, 8).ilog2())
    }
}

/// KVM's own window parameters. The proposal halves what it doubled.
fn stock_window(kernel: Kernel) -> WindowParams {
    let window = WindowParams::defaults(kernel.stock());
    match kernel {
        Kernel::Proposal2012 => WindowParams { shrink: window.grow, ..window },
        Kernel::V3_19 | Kernel::V6_1 | Kernel::V6_12 | Kernel::V6_13 | Kernel::V6_19 => window,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As papers/crates/scx/src/config.rs has it.
    #[test]
    fn credits_are_handed_out_every_30_ms() {
        for (slot_us, slots) in [(10_000, 3), (30_000, 1), (6_000, 5), (40_000, 1)] {
            let host = Host::lab(4, Kernel::V6_12).with_credit(true).with_slot_us(slot_us);
            let CreditHost { params, slice_ns, .. } = host.credit.unwrap();
            assert_eq!((params.slot_us, params.slots_per_assignment), (slot_us, slots));
            assert_eq!((params.credit_per_slot, params.credit_max), (slot_us, slots * slot_us));
            assert_eq!((params.capped, slice_ns), (1, u64::from(slot_us) * 1000));
        }
        // A period is rounded to whole slots of the arm, and not before to those of the host.
        let host = Host::lab(4, Kernel::V6_12).with_credit(false).with_period_ns(24_000_000);
        assert_eq!(host.with_slot_us(6_000).credit.unwrap().params.slots_per_assignment, 4);
        let xen = Host::lab(4, Kernel::V6_12).with_xen_credit(false);
        assert_eq!(xen.clone().with_slot_us(6000), xen);
    }

    #[test]
    fn kernels_have_names() {
        for kernel in Kernel::ALL {
            assert_eq!(Kernel::parse(kernel.name()), Some(kernel));
        }
        assert_eq!(Kernel::parse("6.2"), None);
    }

    #[test]
    fn slices_grow_with_the_cpus_as_the_kernel_has_it() {
        let scaled = |pcpus| Host::lab(pcpus, Kernel::V6_12).scaled_ns(700_000);
        assert_eq!([1, 2, 4, 16].map(scaled), [700_000, 1_400_000, 2_100_000, 2_800_000]);
    }
}
