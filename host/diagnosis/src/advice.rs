// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advice for a VM, and its expected gain.

use crate::cause::{Cause, Sure};
use crate::judge::{Did, Loss};
use crate::machine::Machine;
use crate::state::State;
use serde::Serialize;

/// Advice requires at least this share of the vCPUs' wall time.
pub(crate) const WORTH_IT: f64 = 0.02;

/// Settings of the host, as far as known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Setting {
    /// The VM's name for command lines.
    pub name: String,
    /// CPUs that its vCPUs may run on.
    pub allowed_cpus: usize,
    /// The quota that limits it first; `None`: none is known.
    pub quota: Option<Quota>,
    /// Whether it competes by the weight of a cgroup of its own; `None`: unknown.
    pub has_cgroup: Option<bool>,
    /// The module's mode for this VM; `None`: the module is not loaded.
    pub module_mode: Option<String>,
    /// Longest polling after HLT, in ns.
    pub halt_poll_ns: Option<u64>,
    /// Whether the processor virtualizes guests' interrupt controllers.
    pub apicv: Option<bool>,
    /// Whether NUMA balancing is on: the kernel unmaps guest memory to see which node uses it.
    pub numa_balancing: bool,
    /// The machine on QEMU's command line; `None`: the VMM is not QEMU, or the line cannot be read.
    pub machine: Option<Machine>,
}

/// A limit of CPU time.
#[derive(Debug, Clone, PartialEq)]
pub struct Quota {
    /// The limit, in CPUs; above 0.
    pub cpus: f64,
    /// Whether it limits a vCPU, or the whole VM.
    pub is_per_vcpu: bool,
    /// How to raise it: a command or a file.
    pub remedy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    #[serde(rename = "do")]
    pub what: String,
    /// How much time it could regain.
    pub expected: String,
    /// The figures that it is based on.
    pub evidence: String,
    /// Its certainty. Measured: its subject was timed. Estimated: that it would help is inferred from
    /// counts or the command line. Unknown: the amount of help is unknown.
    pub sure: Sure,
}

impl Advice {
    /// The whole advice as a line for people.
    pub fn line(&self) -> String {
        let Advice { what, expected, evidence, sure } = self;
        format!("{what}: {expected} ({evidence}; {})", sure.name())
    }
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

pub(crate) fn up_to(share: f64) -> String {
    format!("up to {} of its vCPUs' time", percent(share))
}

/// Advice about what vCPUs do and wait for, each with the share of their time that it concerns.
pub(crate) fn of_vcpus(did: &Did, losses: &[Loss], setting: &Setting) -> Vec<(f64, Advice)> {
    let mut all: Vec<(f64, Advice)> = Vec::new();
    let mut add = |on: &Part, what: String, expected: String| {
        if on.share >= WORTH_IT {
            let sure = if expected.starts_with("unknown") { Sure::Unknown } else { on.sure };
            let evidence = on.told.clone();
            all.push((on.share, Advice { what, expected, evidence, sure }));
        }
    };
    for_contention(did, setting, &mut add);
    let of = |cause: Cause| losses.iter().find(|loss| loss.cause == cause);
    let part = |cause| of(cause).map_or_else(Part::default, Part::of_loss);
    for_spinning(&part(Cause::SpinSwitch), &part(Cause::UserSpin), setting, &mut add);
    for_idling(did, &part(Cause::IdleSwitch), setting, &mut add);
    for_interrupts(did, setting, &mut add);
    let memory = Part::of_states(did, &[State::ExitMemory]);
    if setting.numa_balancing {
        let what = "sysctl kernel.numa_balancing=0, if the memory of the VM is on the node of its \
                    CPUs";
        add(&memory, what.into(), up_to(memory.share));
    }
    if of(Cause::UserSpin).is_some_and(|loss| loss.sure == Sure::Unknown)
        && did.share(&[State::Guest]) > 0.5
        && did.share(&[State::ReadyVm, State::ReadySibling]) >= WORTH_IT
    {
        let what = format!(
            "find out whether it spins in user space: unspin set --vm {} mode=hvs \
             coscheduling=vcrd-both, or look at: unspin spinners {0}",
            setting.name
        );
        let mut on = Part::of_states(did, &[State::Guest, State::ReadyVm, State::ReadySibling]);
        on.share = WORTH_IT;
        add(&on, what, "unknown; OpenMP programs lose most of their time this way".into());
    }
    all
}

/// The subject of advice.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    /// Share of the vCPUs' wall time.
    share: f64,
    /// The figures.
    told: String,
    sure: Sure,
}

impl Default for Part {
    fn default() -> Part {
        Part { share: 0.0, told: String::new(), sure: Sure::Unknown }
    }
}

impl Part {
    fn of_states(did: &Did, states: &[State]) -> Part {
        Part { share: did.share(states), told: shares(did, states), sure: Sure::Measured }
    }

    fn of_loss(loss: &Loss) -> Part {
        let share = loss.share.unwrap_or(0.0);
        let told = format!("{} {}: {}", loss.cause.name(), percent(share), loss.stands_on);
        Part { share, told, sure: loss.sure }
    }
}

/// The share of each state that took time.
pub(crate) fn shares(did: &Did, states: &[State]) -> String {
    let spent = states.iter().filter(|state| did.times[**state] > 0);
    let tell = |state: &State| format!("{} {}", state.name(), percent(did.share(&[*state])));
    spent.map(tell).collect::<Vec<_>>().join(", ")
}

type Add<'a> = &'a mut dyn FnMut(&Part, String, String);

fn for_contention(did: &Did, setting: &Setting, add: Add) {
    let part = |state| Part::of_states(did, &[state]);
    let throttled = part(State::Throttled);
    let what = match &setting.quota {
        Some(Quota { cpus, is_per_vcpu, remedy }) => {
            let each = if *is_per_vcpu { " per vCPU" } else { "" };
            format!("raise its CPU quota, now {cpus:.2} CPUs{each}: {remedy}")
        }
        None => "raise its CPU quota (cpu.max; with cgroups of version 1 cpu.cfs_quota_us)".into(),
    };
    add(&throttled, what, up_to(throttled.share));
    let host = part(State::ReadyHost);
    let what = "keep tasks of the host off its CPUs: pin the vCPUs or the tasks to other CPUs";
    add(&host, what.into(), up_to(host.share));
    let vmm = part(State::ReadyVmm);
    let what = "pin the other threads of its VMM to CPUs of their own (virsh emulatorpin, \
                iothreadpin)";
    add(&vmm, what.into(), up_to(vmm.share));
    let sibling = part(State::ReadySibling);
    let what = match did.vcpus > setting.allowed_cpus && setting.allowed_cpus > 0 {
        true => format!(
            "give it fewer vCPUs, or more than {} CPU{}: it has {} vCPUs",
            setting.allowed_cpus,
            if setting.allowed_cpus == 1 { "" } else { "s" },
            did.vcpus
        ),
        false => "pin each of its vCPUs to a CPU of its own".to_string(),
    };
    add(&sibling, what, up_to(sibling.share));
    let others = part(State::ReadyVm);
    let what = "run fewer vCPUs or VMs on these CPUs; if all are needed, this time cannot be \
                regained";
    let waits = format!("its vCPUs wait {} of their time for other VMs", percent(others.share));
    add(&others, what.into(), waits);
    let parked = part(State::Parked);
    let what =
        format!("unspin set --vm {} coscheduling=none, if it does not need turns", setting.name);
    add(&parked, what, up_to(parked.share));
}

fn for_spinning(kernel: &Part, user: &Part, setting: &Setting, add: Add) {
    let name = &setting.name;
    let chooses = matches!(setting.module_mode.as_deref(), Some("hvs" | "apples"));
    if !chooses {
        let load = if setting.module_mode.is_none() { "unspin load, then " } else { "" };
        add(kernel, format!("{load}unspin set --vm {name} mode=hvs"), up_to(kernel.share));
    }
    let first = match setting.has_cgroup {
        // Without cgroups, a VM that computes beside one with turns gets less than its share.
        Some(false) => "put this VM and its neighbours into a cgroup each, as libvirt does, then ",
        _ => "",
    };
    let what = format!("{first}unspin set --vm {name} mode=hvs coscheduling=vcrd-both");
    add(user, what, up_to(user.share));
    // Turns need no change in the guest, this advice does.
    let what =
        "in the guest, let threads sleep where they wait: OMP_WAIT_POLICY=passive for OpenMP, \
                or fewer threads than it has vCPUs";
    add(user, what.into(), up_to(user.share));
}

/// Polling does not catch longer sleeps: by default KVM polls for 0.2 ms.
const POLLED_NS: u64 = 1_000_000;

fn for_idling(did: &Did, lost: &Part, setting: &Setting, add: Add) {
    let polled = Part::of_states(did, &[State::Poll]);
    let shared = did.share(&[State::ReadyVm, State::ReadyHost]) >= WORTH_IT;
    let now = setting.halt_poll_ns.map_or(String::new(), |ns| format!(" (now {ns})"));
    let halts = did.exits[State::ExitHalt];
    let a_part = format!("a part of {}", percent(lost.share));
    if polled.share > lost.share / 2.0 {
        let what = format!(
            "poll less after HLT: lower halt_poll_ns of the module kvm{now}, which applies to all VMs"
        );
        let expected = format!("{}, at the cost of latency", up_to(polled.share));
        add(&polled, what, expected);
    } else if halts > 0 && did.times[State::Halted] / halts > POLLED_NS {
        let per_s = halts as f64 / did.vcpus.max(1) as f64 * 1e9 / did.window_ns.max(1) as f64;
        let told = format!("{}; HLT {per_s:.0} times per s and vCPU", lost.told);
        let what =
            "find what wakes the guest so often (in Linux, powertop), or give it fewer vCPUs";
        add(&Part { told, ..lost.clone() }, what.into(), a_part);
    } else if shared {
        // Polling, in the host or in the guest (idle=poll), would take the CPU from others.
        let what = "give it fewer vCPUs, so that each sleeps less often";
        add(lost, what.into(), up_to(lost.share));
    } else {
        let what = format!(
            "poll longer after HLT: raise halt_poll_ns of the module kvm{now}, which applies to \
             all VMs"
        );
        add(lost, what, a_part);
    }
}

fn for_interrupts(did: &Did, setting: &Setting, add: Add) {
    let sent = Part::of_states(did, &[State::ExitIpi, State::ExitApic]);
    if setting.apicv == Some(false) {
        let what =
            "let the processor deliver interrupts to guests, if it can: kvm_intel enable_apicv=1, \
             or kvm_amd avic=1";
        add(&sent, what.into(), up_to(sent.share));
    } else {
        let what = "give it fewer vCPUs, so that they send each other fewer interrupts";
        add(&sent, what.into(), format!("a part of {}", percent(sent.share)));
    }
    let came = Part::of_states(did, &[State::ExitInterrupt]);
    let what = "move device interrupts of the host to CPUs without VMs (/proc/irq/*/smp_affinity)";
    add(&came, what.into(), format!("a part of {}", percent(came.share)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{losses, tests::did};
    use proptest::prelude::*;

    fn told(did: &Did, setting: &Setting) -> String {
        let all = of_vcpus(did, &losses(did), setting);
        all.iter().map(|(_, a)| format!("{}: {}\n", a.what, a.expected)).collect()
    }

    proptest! {
        #[test]
        fn nobody_is_told_to_poll_where_cpus_are_shared(did in did()) {
            let text = told(&did, &Setting::default());
            prop_assert!(!text.contains("idle=poll"), "{text}");
            if did.share(&[State::ReadyVm, State::ReadyHost]) >= WORTH_IT {
                prop_assert!(!text.contains("poll longer"), "{text}");
            }
        }
    }

    #[test]
    fn an_idle_vm_is_not_told_to_poll() {
        let mut did = Did { vcpus: 1, window_ns: 1_000_000_000, ..Did::default() };
        did.times[State::Halted] = 900_000_000;
        did.times[State::Waking] = 50_000_000;
        did.exits[State::ExitHalt] = 100;
        let text = told(&did, &Setting::default());
        assert!(text.contains("what wakes the guest") && !text.contains("poll"), "{text}");
        did.exits[State::ExitHalt] = 10_000;
        assert!(told(&did, &Setting::default()).contains("poll longer"));
    }

    #[test]
    fn advice_is_for_what_is_lost() {
        let wall = 1_000_000;
        let setting = Setting {
            name: "web".into(),
            quota: Some(Quota { cpus: 0.5, is_per_vcpu: true, remedy: "virsh x".into() }),
            allowed_cpus: 1,
            apicv: Some(false),
            ..Setting::default()
        };
        for (state, expected) in [
            (State::Throttled, "raise its CPU quota, now 0.50 CPUs per vCPU: virsh x"),
            (State::ReadyHost, "keep tasks of the host off"),
            (State::ReadySibling, "more than 1 CPU: it has 2 vCPUs"),
            (State::ReadyVmm, "emulatorpin"),
            (State::ExitPause, "unspin load, then unspin set --vm web mode=hvs"),
            (State::Poll, "poll less"),
            (State::Waking, "poll longer"),
            (State::ExitIpi, "enable_apicv=1"),
            (State::ExitInterrupt, "smp_affinity"),
        ] {
            let mut did = Did { vcpus: 2, window_ns: wall, ..Did::default() };
            did.times[state] = wall / 2;
            did.times[State::Guest] = wall / 2;
            let text = told(&did, &setting);
            assert!(text.starts_with(expected) || text.contains(expected), "{state:?}: {text}");
            assert_eq!(text.lines().count(), 1, "{state:?}: {text}");
            did.times[state] = wall / 100;
            assert_eq!(told(&did, &setting), "", "{state:?}");
        }
    }
}
