// SPDX-License-Identifier: MIT OR Apache-2.0
//! How to change a VM's machine, in the terms of the program that started it.

use crate::machine::{Launcher, Machine};

/// How to enable enlightenments for Windows; `name` is the VM's name.
pub fn enlighten(machine: &Machine, missing: &[&str], name: &str) -> String {
    let spelled = |spell: &dyn Fn(&str) -> String, separator: &str| {
        let words: Vec<String> = missing.iter().map(|name| spell(name)).collect();
        words.join(separator)
    };
    let of_clock = missing.contains(&"time");
    let others = missing.iter().any(|name| *name != "time");
    let both = |features: String, clock: &str| match (others, of_clock) {
        (true, true) => format!("{features}, and {clock}"),
        (true, false) => features,
        _ => clock.to_string(),
    };
    match &machine.launcher {
        Launcher::Qemu => {
            let spell = |name: &str| match name {
                "spinlocks" => "hv_spinlocks=0x1fff".to_string(),
                name => format!("hv_{name}"),
            };
            format!("add to -cpu {}", spelled(&spell, ","))
        }
        Launcher::Libvirt => {
            let spell = |name: &str| match name {
                "time" => String::new(),
                "spinlocks" => "<spinlocks state='on' retries='8191'/>".to_string(),
                name => format!("<{name} state='on'/>"),
            };
            let features = format!("{} in <features><hyperv>", spelled(&spell, ""));
            let clock = "<timer name='hypervclock' present='yes'/> in <clock>";
            format!("virsh edit {name}: {}", both(features, clock))
        }
        Launcher::Kubevirt => {
            let of_features: Vec<&str> = missing
                .iter()
                .filter(|name| **name != "time")
                .map(|name| if *name == "stimer" { "synictimer" } else { name })
                .collect();
            let features = format!("features.hyperv: {}", of_features.join(", "));
            format!("in the spec's domain, {}", both(features, "clock.timer.hyperv"))
        }
        Launcher::Proxmox(id) => {
            format!("qm set {id} --ostype win11 (or the version it has), then stop and start it")
        }
    }
}

/// How to remove the HPET.
pub fn no_hpet(machine: &Machine) -> String {
    match &machine.launcher {
        Launcher::Libvirt => "<timer name='hpet' present='no'/> in <clock>".into(),
        Launcher::Kubevirt => "in the spec's domain, clock.timer.hpet.present: false".into(),
        Launcher::Proxmox(id) => {
            format!("qm set {id} --ostype win11 for Windows, --args '-machine hpet=off' for others")
        }
        Launcher::Qemu => "-machine hpet=off (before QEMU 8 -no-hpet)".into(),
    }
}

/// How to have missed RTC ticks delivered later.
pub fn drift_fix(machine: &Machine) -> String {
    match &machine.launcher {
        Launcher::Libvirt => "<timer name='rtc' tickpolicy='catchup'/> in <clock>".into(),
        Launcher::Kubevirt => "in the spec's domain, clock.timer.rtc.tickPolicy: catchup".into(),
        Launcher::Proxmox(id) => format!("qm set {id} --ostype win11"),
        Launcher::Qemu => "-rtc driftfix=slew".into(),
    }
}

/// How to get a tablet that the VMM need not poll.
pub fn other_tablet(machine: &Machine) -> String {
    match &machine.launcher {
        Launcher::Libvirt => {
            "remove the USB tablet, or let it be <input type='tablet' bus='virtio'/>".into()
        }
        Launcher::Kubevirt => {
            "remove the USB tablet, or let its bus be virtio (devices.inputs in the spec's domain)"
                .into()
        }
        Launcher::Proxmox(id) => format!("remove the USB tablet: qm set {id} --tablet 0"),
        Launcher::Qemu => "remove -device usb-tablet, or use virtio-tablet-pci instead".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::ENLIGHTENMENTS;

    #[test]
    fn each_launcher_has_its_words() {
        let of = |launcher| Machine { launcher, ..Machine::default() };
        let all = |launcher, missing: &[&str]| enlighten(&of(launcher), missing, "web");
        let both = ["time", "stimer"];
        assert_eq!(all(Launcher::Qemu, &both), "add to -cpu hv_time,hv_stimer");
        let libvirt = "virsh edit web: <stimer state='on'/> in <features><hyperv>, and <timer \
                       name='hypervclock' present='yes'/> in <clock>";
        assert_eq!(all(Launcher::Libvirt, &both), libvirt);
        let clock = "virsh edit web: <timer name='hypervclock' present='yes'/> in <clock>";
        assert_eq!(all(Launcher::Libvirt, &["time"]), clock);
        let kubevirt = "in the spec's domain, features.hyperv: synictimer, and clock.timer.hyperv";
        assert_eq!(all(Launcher::Kubevirt, &both), kubevirt);
        for launcher in [Launcher::Qemu, Launcher::Libvirt, Launcher::Kubevirt] {
            let text = all(launcher, &ENLIGHTENMENTS);
            for word in ["relaxed", "vapic", "spinlocks", "vpindex", "synic"] {
                assert!(text.contains(word), "{word}: {text}");
            }
        }
        for tell in [no_hpet, drift_fix, other_tablet] {
            assert!(tell(&of(Launcher::Proxmox("7".into()))).contains("qm set 7"));
            assert!(!tell(&of(Launcher::Kubevirt)).is_empty());
        }
    }
}
