// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advice about the host's work for a guest's devices, timers and clocks: most of the cost of an idle VM.

use crate::access::Group;
use crate::advice::{percent, shares, up_to, Advice, Setting, WORTH_IT};
use crate::cause::Sure;
use crate::devices::Role;
use crate::judge::Did;
use crate::machine::{Launcher, Machine};
use crate::remedy;
use crate::state::State;

/// From this many CPUs on, something is worth advice even if the VM has many vCPUs.
const CPUS_MIN: f64 = 0.05;

/// A VM whose vCPUs are in the guest for this share of the time computes.
const COMPUTES: f64 = 0.9;

/// Clocks and timers that an enlightened Windows does not need.
const OF_WINDOWS: [Role; 7] =
    [Role::Rtc, Role::Pit, Role::PmTimer, Role::Hpet, Role::ApicTimer, Role::Apic, Role::HvClock];

/// The measurements of a VM, and its command line.
struct Idle<'a> {
    did: &'a Did,
    setting: &'a Setting,
    all: Vec<(f64, Advice)>,
}

/// Advice, with the share of the vCPUs' time that it concerns.
pub fn advice(did: &Did, setting: &Setting) -> Vec<(f64, Advice)> {
    let mut idle = Idle { did, setting, all: Vec::new() };
    match &setting.machine {
        Some(machine) => idle.of_machine(machine),
        None => idle.of_clocks(&Machine::default(), false),
    }
    idle.of_devices();
    idle.of_unknown_devices();
    idle.all
}

impl Idle<'_> {
    /// Time of accesses to devices with these roles, in ns; `None`: unknown.
    fn ns(&self, roles: &[Role]) -> Option<u64> {
        let is_one = |group: &&Group| group.device.is_some_and(|of| roles.contains(&of.role));
        let groups = self.did.accesses.as_ref()?;
        Some(groups.iter().filter(is_one).map(|group| group.accessed.ns).sum())
    }

    fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.did.wall()
    }

    fn is_worth(&self, ns: u64) -> bool {
        self.share(ns) >= WORTH_IT || self.did.cpus(ns) >= CPUS_MIN
    }

    fn add(&mut self, ns: u64, sure: Sure, texts: [String; 3]) {
        let [what, expected, evidence] = texts;
        self.all.push((self.share(ns), Advice { what, expected, evidence, sure }));
    }

    /// The measurements of these roles: `ports 0x70-0x71: real-time clock (RTC) 4.1 %, 2048 per s`.
    fn groups(&self, roles: &[Role]) -> String {
        let is_one = |group: &&Group| group.device.is_some_and(|of| roles.contains(&of.role));
        self.told(self.did.accesses.iter().flatten().filter(is_one))
    }

    fn told<'g>(&self, groups: impl Iterator<Item = &'g Group>) -> String {
        let tell = |group: &Group| {
            let of = group.accessed;
            let per_s = of.count as f64 * 1e9 / self.did.window_ns.max(1) as f64;
            format!("{} {}, {per_s:.0} per s", group.title(), percent(self.share(of.ns)))
        };
        groups.take(3).map(tell).collect::<Vec<_>>().join("; ")
    }

    /// The time in states of devices and registers, and the share of each. If no entries into the guest
    /// are visible, it is unknown what a vCPU does on a CPU.
    fn states(&self) -> (u64, String) {
        if self.did.is_unseen() {
            return (0, String::new());
        }
        let states = [State::ExitIo, State::ExitMmio, State::ExitMsr, State::Vmm];
        (self.did.times.of(&states), shares(self.did, &states))
    }

    /// Whether the guest uses Hyper-V's interface, as Windows does if it is offered.
    fn is_seen_as_windows(&self) -> bool {
        let groups = self.did.accesses.iter().flatten();
        groups.filter_map(|group| group.device).any(|device| device.role.is_of_hyperv())
    }

    fn of_machine(&mut self, machine: &Machine) {
        let seen = self.is_seen_as_windows().then(|| "it uses Hyper-V's registers".to_string());
        let windows = seen.or_else(|| machine.windows.clone());
        let missing = machine.missing();
        if !missing.is_empty() {
            self.of_windows(machine, windows.as_deref(), &missing);
        }
        if let Some(why) = &windows {
            self.of_interrupts(machine, why);
        }
        self.of_clocks(machine, windows.is_some());
        let no_timers = windows.is_some() && missing.contains(&"stimer");
        if no_timers
            && !machine.drift_fix
            && self.ns(&[Role::Rtc]).is_some_and(|ns| self.is_worth(ns))
        {
            let what = format!("let lost ticks be made up for: {}", remedy::drift_fix(machine));
            let expected = "no CPU time: a clock that is right where the VM waits for CPUs".into();
            let evidence = format!("{}; no driftfix=slew", self.groups(&[Role::Rtc]));
            self.add(0, Sure::Estimated, [what, expected, evidence]);
        }
        self.of_monitor(machine);
        if machine.keeps_cpus && self.did.share(&[State::Guest]) >= COMPUTES {
            let ns = self.did.times[State::Guest];
            let what = "remove -overcommit cpu-pm=on, if other VMs need these CPUs".to_string();
            let expected =
                "unknown: idle vCPUs keep their CPUs with it, which looks like work".into();
            let evidence =
                format!("guest {}, with cpu-pm=on", percent(self.did.share(&[State::Guest])));
            self.add(ns, Sure::Unknown, [what, expected, evidence]);
        }
    }

    /// Windows without the enlightenments that make it cheap while idle.
    fn of_windows(&mut self, machine: &Machine, windows: Option<&str>, missing: &[&str]) {
        let (states_ns, states) = self.states();
        // The purpose of accesses is not always known.
        let ns = self.ns(&OF_WINDOWS).unwrap_or(states_ns);
        let looks_so = [Role::Rtc, Role::PmTimer, Role::Hpet];
        let looks_so = self.ns(&looks_so).is_some_and(|ns| self.is_worth(ns));
        if !self.is_worth(ns) || windows.is_none() && !looks_so {
            return;
        }
        let lacks: Vec<String> = missing.iter().map(|name| format!("hv_{name}")).collect();
        let if_so = if windows.is_some() { "" } else { "if it is Windows, " };
        let how = remedy::enlighten(machine, missing, &self.setting.name);
        let what = format!("{if_so}let it use Hyper-V's clock and timers: {how}");
        let why = match windows {
            Some(why) => format!("taken for Windows because {why}"),
            None => "such accesses are usual for Windows".to_string(),
        };
        let measured = match self.groups(&OF_WINDOWS) {
            groups if groups.is_empty() => states,
            groups => groups,
        };
        let evidence = format!("{measured}; it lacks {}; {why}", lacks.join(", "));
        self.add(ns, Sure::Estimated, [what, up_to(self.share(ns)), evidence]);
    }

    /// Windows whose vCPUs interrupt each other one by one.
    fn of_interrupts(&mut self, machine: &Machine, why: &str) {
        let all = ["vpindex", "ipi", "tlbflush"];
        let missing: Vec<&str> = all.into_iter().filter(|name| !machine.has(name)).collect();
        let share = self.did.share(&[State::ExitIpi]);
        // Proxmox VE sets the enlightenments for Windows by itself.
        let is_fixed = matches!(machine.launcher, Launcher::Proxmox(_)) && machine.is_enlightened();
        if share < WORTH_IT || missing.is_empty() || is_fixed {
            return;
        }
        let how = remedy::enlighten(machine, &missing, &self.setting.name);
        let what = format!("let it send interrupts to several vCPUs at once: {how}");
        let evidence = format!("exit:ipi {}; taken for Windows because {why}", percent(share));
        let expected = format!("a part of {}", percent(share));
        self.add(self.did.times[State::ExitIpi], Sure::Estimated, [what, expected, evidence]);
    }

    fn of_clocks(&mut self, machine: &Machine, is_windows: bool) {
        let hpet = self.ns(&[Role::Hpet]).filter(|ns| self.is_worth(*ns));
        if let (Some(ns), true) = (hpet, machine.has_hpet) {
            let what = format!("take its HPET away: {}", remedy::no_hpet(machine));
            let texts = [what, up_to(self.share(ns)), self.groups(&[Role::Hpet])];
            self.add(ns, Sure::Estimated, texts);
        }
        let roles = [Role::PmTimer, Role::Hpet];
        let slow = self.ns(&roles).filter(|ns| self.is_worth(*ns) && !is_windows);
        if let Some(ns) = slow {
            let what = "let the guest read a faster clock: in Linux, see /sys/devices/system/\
                        clocksource/clocksource0/current_clocksource; kvm-clock and tsc need no exit"
                .to_string();
            self.add(ns, Sure::Estimated, [what, up_to(self.share(ns)), self.groups(&roles)]);
        }
    }

    /// The VMM's other threads.
    fn of_monitor(&mut self, machine: &Machine) {
        let Some(ns) = self.did.monitor_ns.filter(|ns| self.is_worth(*ns)) else { return };
        let cpus = format!("{:.2} CPUs", self.did.cpus(ns));
        let Some(usb) = machine.polled_tablet else { return };
        let what = remedy::other_tablet(machine);
        let expected = format!("a part of {cpus}: how much is not known");
        let evidence = format!(
            "its VMM's other threads take {cpus}; its tablet is at a {usb} controller, which the VMM \
             polls"
        );
        self.add(ns, Sure::Unknown, [what, expected, evidence]);
    }

    /// Known devices, for any guest.
    fn of_devices(&mut self) {
        let advice = [
            (Role::Serial, "let it write less to its serial line, or to a virtio console"),
            (Role::Display, "give it a virtio display, or none: an emulated one is slow"),
            (Role::Disk, "give it virtio disks: emulated ones are slow"),
            (
                Role::Counters,
                "let nobody measure in the guest: in Linux, sysctl kernel.nmi_watchdog=0",
            ),
            (
                Role::Sensors,
                "let no monitoring in the guest read the processor's frequency, \
                             temperature and power: it is emulated",
            ),
            (
                Role::HvTimer,
                "find what wakes the guest so often; hv_stimer_direct makes each time cheaper",
            ),
            (
                Role::ApicTimer,
                "find what wakes the guest so often (in Linux, powertop), or give it fewer \
                               vCPUs: each sets its timer",
            ),
        ];
        for (role, what) in advice {
            let Some(ns) = self.ns(&[role]).filter(|ns| self.is_worth(*ns)) else { continue };
            let texts = [what.to_string(), up_to(self.share(ns)), self.groups(&[role])];
            self.add(ns, Sure::Estimated, texts);
        }
    }

    fn of_unknown_devices(&mut self) {
        let (states_ns, states) = self.states();
        let Some(groups) = &self.did.accesses else {
            if self.is_worth(states_ns) {
                let what =
                    "find out what it accesses, which this kernel does not tell unspin: perf \
                            kvm stat record, then perf kvm stat report --event=ioport (or mmio)"
                        .to_string();
                self.add(states_ns, Sure::Unknown, [what, "unknown".into(), states]);
            }
            return;
        };
        let unnamed = groups.iter().filter(|group| group.device.is_none());
        let worth: Vec<&Group> = unnamed.filter(|group| self.is_worth(group.accessed.ns)).collect();
        if let Some(first) = worth.first() {
            let ns = first.accessed.ns;
            let what =
                "find out which device that is: in the guest /proc/ioports, /proc/iomem or the \
                        device manager; in QEMU's monitor, info mtree"
                    .to_string();
            let evidence = self.told(worth.iter().copied());
            self.add(ns, Sure::Unknown, [what, up_to(self.share(ns)), evidence]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{groups, Access, Accessed};
    use crate::cause::Cause;
    use crate::devices::Kind;
    use crate::judge::{dominant, losses};
    use crate::machine::tests::machine;

    const S: u64 = 1_000_000_000;
    const HV: &str =
        "hv_relaxed,hv_vapic,hv_spinlocks=0x1fff,hv_vpindex,hv_time,hv_synic,hv_stimer";

    /// One vCPU for 10 s, with shares in per mille. In the rest it is blocked.
    fn did(states: &[(State, u64)]) -> Did {
        let mut did = Did { vcpus: 1, window_ns: 10 * S, ..Did::default() };
        for (state, per_mille) in states {
            did.times[*state] = 10 * S / 1000 * per_mille;
            if state.is_exit() {
                did.exits[*state] = 1000;
            }
        }
        did.times[State::Blocked] = 10 * S - did.times.total();
        did
    }

    /// An idle Windows guest, as people report it.
    fn idle() -> Did {
        did(&[(State::ExitIo, 60), (State::ExitMsr, 40), (State::Vmm, 50)])
    }

    fn with(mut did: Did, accesses: &[(Kind, u64, u64)]) -> Did {
        let of = |(kind, address, per_mille): &(Kind, u64, u64)| {
            let access = Access { kind: *kind, address: Some(*address) };
            (access, Accessed { count: 20_000, ns: 10 * S / 1000 * per_mille, visits: 0 })
        };
        did.accesses = Some(groups(accesses.iter().map(of)));
        did
    }

    fn told(did: &Did, line: &str) -> Vec<Advice> {
        let name = "web".to_string();
        let machine = (!line.is_empty()).then(|| machine(line));
        let setting = Setting { name, machine, ..Setting::default() };
        advice(did, &setting).into_iter().map(|(_, advice)| advice).collect()
    }

    #[track_caller]
    fn tells(did: &Did, line: &str, words: &[&str]) {
        let all = told(did, line);
        let text: String =
            all.iter().map(|a| format!("{}: {} ({})\n", a.what, a.expected, a.evidence)).collect();
        assert!(words.iter().all(|word| text.contains(word)), "{line}: {words:?} in\n{text}");
        assert!(all.iter().all(|advice| !advice.evidence.is_empty()), "{text}");
    }

    #[track_caller]
    fn does_not_tell(did: &Did, line: &str, word: &str) {
        let all = told(did, line);
        assert!(!all.iter().any(|advice| advice.what.contains(word)), "{line}: {all:?}");
    }

    #[test]
    fn an_idle_windows_has_a_cause_and_advice() {
        let did = idle();
        let losses = losses(&did);
        assert_eq!(dominant(&losses), Some(Cause::Device));
        let share = |cause: Cause| losses[cause as usize].share.unwrap();
        assert!((share(Cause::Device) - 0.11).abs() < 1e-9);
        assert!((share(Cause::Msr) - 0.04).abs() < 1e-9);
        assert_eq!(losses[Cause::Monitor as usize].sure, Sure::Unknown, "not measured is not 0");
        let local = "-rtc base=localtime,driftfix=slew";
        tells(&did, &format!("-cpu host,hv_time,hv_relaxed {local}"), &[
            "add to -cpu hv_vapic,hv_spinlocks=0x1fff,hv_vpindex,hv_synic,hv_stimer: up to 15.0 %",
            "exit:io 6.0 %, exit:msr 4.0 %, vmm 5.0 %",
            "it lacks hv_vapic",
        ]);
        let libvirt = format!("-object id=masterKey0 -cpu host {local}");
        tells(&did, &libvirt, &["virsh edit web: ", "<stimer state='on'/>", "'hypervclock'"]);
        tells(&did, "-id 104 -name win11", &["qm set 104 --ostype win11", "because of its name"]);
        let all = format!("-cpu host,{HV} {local}");
        does_not_tell(&did, &all, "hv_");
        tells(&did, &all, &["perf kvm stat record"]);
        does_not_tell(&did, "-cpu host -name web", "hv_");
        does_not_tell(&did, "", "hv_");
        let mut unseen = did.clone();
        (unseen.times, unseen.exits) = Default::default();
        unseen.times[State::Vmm] = 5 * S;
        assert!(told(&unseen, "-name win11").is_empty(), "the guest may be what computes");
    }

    #[test]
    fn accesses_say_which_device() {
        let rtc = with(idle(), &[(Kind::Port, 0x70, 50), (Kind::Port, 0x71, 50)]);
        let lacks = "-cpu host -name web";
        tells(&rtc, lacks, &["if it is Windows, let it", "RTC) 10.0 %, 4000 per s"]);
        does_not_tell(&rtc, lacks, "perf kvm");
        tells(&rtc, "-cpu host -name win10", &["because of its name", "-rtc driftfix=slew"]);
        does_not_tell(&rtc, "-cpu host -name win10 -rtc driftfix=slew", "driftfix");
        let windows = with(idle(), &[(Kind::Msr, 0x4000_0020, 30), (Kind::Port, 0xb008, 60)]);
        tells(
            &windows,
            "-cpu host,hv_vapic",
            &["it uses Hyper-V's registers", "PM timer (pc) 6.0 %"],
        );
        does_not_tell(&windows, "-cpu host,hv_vapic", "current_clocksource");
        let timer = with(idle(), &[(Kind::Port, 0x608, 60)]);
        tells(&timer, "-cpu host -name web", &["current_clocksource", "PM timer (q35)"]);
        let hpet = with(idle(), &[(Kind::Mmio, 0xfed0_0000, 60)]);
        tells(&hpet, &format!("-cpu host,{HV}"), &["-machine hpet=off"]);
        tells(&hpet, "-object id=masterKey0", &["<timer name='hpet' present='no'/>"]);
        does_not_tell(&hpet, &format!("-cpu host,{HV} -machine q35,hpet=off"), "HPET");
        let serial = with(idle(), &[(Kind::Port, 0x3f8, 60), (Kind::Msr, 0x6e0, 30)]);
        tells(&serial, "-name web", &["serial line 1 6.0 %", "TSC deadline) 3.0 %"]);
        does_not_tell(&serial, "-name win1", "hv_stimer,");
        let unknown = with(idle(), &[(Kind::Port, 0xc0a0, 60)]);
        tells(&unknown, "-name web", &["find out which device", "port 0xc0a0 6.0 %"]);
        let little = with(idle(), &[(Kind::Port, 0xc0a0, 2)]);
        assert!(told(&little, "-name web").is_empty());
    }

    #[test]
    fn a_windows_that_sends_interrupts_may_send_several_at_once() {
        let sends = did(&[(State::ExitIpi, 100), (State::Guest, 100)]);
        tells(&sends, &format!("-cpu host,{HV}"), &["add to -cpu hv_ipi,hv_tlbflush: a part of"]);
        let libvirt = format!("-object id=masterKey0 -cpu host,{HV},hv_ipi");
        tells(&sends, &libvirt, &["<tlbflush state='on'/>"]);
        for line in ["-name web", "-cpu host,hv_passthrough", "-id 7 -cpu host,hv_time"] {
            does_not_tell(&sends, line, "interrupts to several");
        }
    }

    #[test]
    fn a_tablet_is_told_where_the_vmm_computes() {
        let mut did = did(&[(State::Guest, 10)]);
        let usb = "-usb -device usb-tablet";
        assert!(told(&did, usb).is_empty(), "unknown");
        did.monitor_ns = Some(10 * S / 100);
        assert!(told(&did, usb).is_empty(), "little");
        did.monitor_ns = Some(10 * S / 10);
        tells(&did, usb, &["virtio-tablet-pci", "0.10 CPUs", "UHCI"]);
        tells(&did, &format!("-id 7 {usb}"), &["qm set 7 --tablet 0"]);
        tells(&did, &format!("-object id=masterKey0 {usb}"), &["bus='virtio'"]);
        assert!(told(&did, "-device qemu-xhci -device usb-tablet").is_empty());
        assert_eq!(dominant(&losses(&did)), Some(Cause::Monitor));
    }

    #[test]
    fn a_guest_that_keeps_its_cpus_looks_busy() {
        let busy = did(&[(State::Guest, 1000)]);
        tells(&busy, "-overcommit cpu-pm=on", &["cpu-pm=on", "guest 100.0 %"]);
        assert!(told(&busy, "-name web").is_empty());
    }
}
