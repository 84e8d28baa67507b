// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine that a guest sees, from QEMU's command line.

use std::collections::BTreeSet;

/// Options of a command line in order: a name without hyphens, and the entries of its value. An entry
/// without a key has an empty key.
pub type Options = [(String, Vec<(String, String)>)];

/// The program that wrote a command line, which determines how to change it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Launcher {
    /// A person or a script.
    #[default]
    Qemu,
    Libvirt,
    /// KubeVirt, through libvirt.
    Kubevirt,
    /// Proxmox VE, with the VMID.
    Proxmox(String),
}

/// The properties on which advice depends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    pub launcher: Launcher,
    /// Why the guest seems to be Windows; `None` if nothing indicates it.
    pub windows: Option<String>,
    /// Enabled enlightenments for Windows, without `hv_`.
    pub(crate) enlightenments: BTreeSet<String>,
    /// Whether it has an HPET, as far as known.
    pub has_hpet: bool,
    /// Whether missed RTC ticks are delivered later.
    pub drift_fix: bool,
    /// The USB controller of a tablet, if the VMM has to poll it.
    pub polled_tablet: Option<&'static str>,
    /// Whether idle vCPUs keep their CPUs (`-overcommit cpu-pm=on`).
    pub keeps_cpus: bool,
}

/// The enlightenments that make an idle Windows cheap, and those that they need, with QEMU's names
/// (docs/system/i386/hyperv.rst).
pub const ENLIGHTENMENTS: [&str; 7] =
    ["relaxed", "vapic", "spinlocks", "vpindex", "time", "synic", "stimer"];

/// Enables all that KVM supports.
const PASSTHROUGH: &str = "passthrough";

/// `hv_vendor_id` and these are options of other enlightenments, not enlightenments.
const NO_ENLIGHTENMENTS: [&str; 3] = ["vendor_id", "enforce_cpuid", "no_nonarch_coresharing"];

impl Machine {
    pub fn of(options: &Options) -> Machine {
        let mut machine = Machine { has_hpet: true, ..Machine::default() };
        let (mut name, mut is_local) = (String::new(), false);
        let (mut is_libvirt, mut is_kubevirt) = (false, false);
        let (mut has_drivers, mut tablet) = (false, None);
        for (option, entries) in options {
            let value =
                |key: &str| entries.iter().rfind(|(of, _)| of == key).map(|(_, v)| v.as_str());
            match option.as_str() {
                "cpu" => machine.enlightenments = enlightenments(entries),
                "machine" | "M" => machine.has_hpet &= value("hpet").is_none_or(is_on),
                "no-hpet" => machine.has_hpet = false,
                "rtc" => {
                    is_local = value("base") == Some("localtime");
                    machine.drift_fix = value("driftfix") == Some("slew");
                }
                "name" => name = value("guest").or(value("")).unwrap_or_default().to_string(),
                "id" => {
                    let id = value("").filter(|id| id.bytes().all(|b| b.is_ascii_digit()));
                    machine.launcher = id.map_or(Launcher::Qemu, |id| Launcher::Proxmox(id.into()));
                }
                "overcommit" => machine.keeps_cpus = value("cpu-pm").is_some_and(is_on),
                "usbdevice" if value("") == Some("tablet") => tablet = Some("usb".to_string()),
                "device" if value("driver").or(value("")) == Some("usb-tablet") => {
                    tablet = Some(value("bus").unwrap_or("usb").to_string());
                }
                _ => {}
            }
            let values = entries.iter().map(|(_, value)| value.as_str());
            for value in values {
                is_libvirt |= matches!(value, "masterKey0" | "charmonitor");
                is_kubevirt |= value.contains("/kubevirt");
                has_drivers |= value.to_ascii_lowercase().contains("virtio-win");
            }
        }
        if is_libvirt {
            machine.launcher = if is_kubevirt { Launcher::Kubevirt } else { Launcher::Libvirt };
        }
        machine.polled_tablet = tablet.and_then(|bus| polled(options, &bus));
        machine.windows = match () {
            _ if !machine.enlightenments.is_empty() => Some("its CPU has hv_ options".into()),
            _ if is_local => Some("its clock has the local time (-rtc base=localtime)".into()),
            _ if has_drivers => Some("it has a disk with Windows' drivers (virtio-win)".into()),
            _ if is_of_windows(&name) => Some("of its name".into()),
            _ => None,
        };
        machine
    }

    pub fn is_enlightened(&self) -> bool {
        !self.enlightenments.is_empty()
    }

    pub fn has(&self, enlightenment: &str) -> bool {
        [enlightenment, PASSTHROUGH].iter().any(|name| self.enlightenments.contains(*name))
    }

    /// The [`ENLIGHTENMENTS`] that it lacks.
    pub fn missing(&self) -> Vec<&'static str> {
        ENLIGHTENMENTS.into_iter().filter(|name| !self.has(name)).collect()
    }
}

fn is_on(value: &str) -> bool {
    !matches!(value, "off" | "no" | "n" | "false" | "0")
}

/// Parses `hv_time`, `hv-time=on`, `+hv_time`; the last one of a name wins.
fn enlightenments(entries: &[(String, String)]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (key, value) in entries {
        let (key, is_on) = match (key.strip_prefix('-'), key.strip_prefix('+')) {
            (Some(key), _) => (key, false),
            (_, Some(key)) => (key, true),
            _ => (key.as_str(), is_on(value)),
        };
        let key = key.replace('-', "_");
        let Some(name) = key.strip_prefix("hv_") else { continue };
        let is_one = !NO_ENLIGHTENMENTS.contains(&name) && !name.starts_with("version_id");
        match is_one && is_on {
            true => all.insert(name.to_string()),
            false => all.remove(name),
        };
    }
    all
}

/// The kind of a controller that the VMM polls every millisecond or more often while the guest has it
/// enabled: UHCI and EHCI, found by the name of their bus. XHCI is not polled.
fn polled(options: &Options, bus: &str) -> Option<&'static str> {
    let id = bus.split('.').next().unwrap_or_default();
    let devices = options.iter().filter(|(option, _)| option == "device").map(|(_, entries)| {
        let value = |key: &str| entries.iter().rfind(|(of, _)| of == key).map(|(_, v)| v.as_str());
        (value("driver").or(value("")).unwrap_or_default(), value("id").unwrap_or_default())
    });
    let kind = |driver: &str| match driver {
        _ if driver.contains("xhci") => Some("XHCI"),
        _ if driver.contains("ehci") => Some("EHCI"),
        _ if driver.contains("uhci") => Some("UHCI"),
        _ => None,
    };
    let controllers: Vec<(&str, &str)> =
        devices.filter_map(|(driver, of)| Some((kind(driver)?, of))).collect();
    let named = controllers.iter().find(|(_, of)| *of == id);
    // Without a name it is the first one. The machine's own controller (`-usb`) is a UHCI.
    let found = named.or(controllers.first()).map_or("UHCI", |(kind, _)| kind);
    Some(found).filter(|kind| *kind != "XHCI")
}

fn is_of_windows(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let rest = name.strip_prefix("win").map(str::as_bytes);
    // win10, win-1, but not winter.
    rest.is_some_and(|rest| rest.first().is_none_or(|b| !b.is_ascii_alphabetic()))
        || name.contains("windows")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses a command line such as `-cpu host,hv_time`, without doubled commas.
    pub fn machine(line: &str) -> Machine {
        let mut options: Vec<(String, Vec<(String, String)>)> = Vec::new();
        for word in line.split_whitespace() {
            match word.strip_prefix('-') {
                Some(option) => options.push((option.into(), Vec::new())),
                None => {
                    let entry = |(at, text): (usize, &str)| match text.split_once('=') {
                        Some((key, value)) => (key.to_string(), value.to_string()),
                        None if at == 0 => (String::new(), text.to_string()),
                        None => (text.to_string(), "on".to_string()),
                    };
                    options.last_mut().unwrap().1 =
                        word.split(',').enumerate().map(entry).collect();
                }
            }
        }
        Machine::of(&options)
    }

    #[test]
    fn enlightenments_are_read_as_qemu_reads_them() {
        let all = "relaxed vapic spinlocks vpindex time synic stimer";
        let some = "-cpu host,hv_relaxed,hv-vapic=on,hv_spinlocks=0x1fff,+hv_vpindex,hv_time";
        let off = "-cpu host,hv-passthrough=off,hv_time";
        for (line, missing) in [
            ("-cpu host", all),
            ("", all),
            (some, "synic stimer"),
            ("-cpu host,hv_passthrough", ""),
            (off, "relaxed vapic spinlocks vpindex synic stimer"),
            ("-cpu host,hv_time,hv_time=off", all),
            ("-cpu host,hv_time,-hv_time", all),
            ("-cpu qemu64,hv_vendor_id=x", all),
        ] {
            assert_eq!(machine(line).missing().join(" "), missing, "{line}");
        }
        assert!(!machine("-cpu host,hv_vendor_id=x").is_enlightened());
        assert!(machine("-cpu host,hv_ipi").is_enlightened());
    }

    #[test]
    fn what_is_like_windows_is_taken_for_it() {
        for (line, is_windows) in [
            ("-cpu host,hv_time", true),
            ("-rtc base=localtime,driftfix=slew", true),
            ("-name guest=win11,debug-threads=on", true),
            ("-name Windows-2022", true),
            ("-drive file=/iso/virtio-win-0.1.iso,media=cdrom", true),
            ("-name winter", false),
            ("-name guest=darwin", false),
            ("-name web -rtc base=utc -cpu host", false),
        ] {
            assert_eq!(machine(line).windows.is_some(), is_windows, "{line}");
        }
    }

    #[test]
    fn launchers_and_devices() {
        let proxmox = "-id 104 -name web -device piix3-usb-uhci,id=uhci,bus=pci.0 \
                       -device usb-tablet,id=tablet,bus=uhci.0,port=1 -machine type=pc,hpet=off \
                       -rtc driftfix=slew,base=localtime";
        let proxmox = machine(proxmox);
        assert_eq!(proxmox.launcher, Launcher::Proxmox("104".into()));
        assert_eq!(proxmox.polled_tablet, Some("UHCI"));
        assert!(!proxmox.has_hpet && proxmox.drift_fix);
        let libvirt = "-name guest=web -object qom-type=secret,id=masterKey0 \
                       -device driver=qemu-xhci,id=usb -device driver=usb-tablet,id=input0,bus=usb.0";
        let libvirt = machine(libvirt);
        assert_eq!((libvirt.launcher, libvirt.polled_tablet), (Launcher::Libvirt, None));
        assert!(libvirt.has_hpet && !libvirt.drift_fix);
        let kubevirt =
            "-object id=masterKey0 -blockdev filename=/var/run/kubevirt-private/disk.img";
        assert_eq!(machine(kubevirt).launcher, Launcher::Kubevirt);
        for (line, tablet) in [
            ("-usb -device usb-tablet", Some("UHCI")),
            ("-usb -usbdevice tablet", Some("UHCI")),
            ("-device ich9-usb-ehci1,id=usb -device usb-tablet,bus=usb.0", Some("EHCI")),
            ("-device nec-usb-xhci -device usb-tablet", None),
            ("-device virtio-tablet-pci", None),
        ] {
            assert_eq!(machine(line).polled_tablet, tablet, "{line}");
        }
        assert!(!machine("-no-hpet").has_hpet && machine("-overcommit cpu-pm=on").keeps_cpus);
        assert_eq!(machine("-id x").launcher, Launcher::Qemu);
    }

    proptest! {
        #[test]
        fn no_command_line_makes_it_panic(
            options in prop::collection::vec(
                (prop_oneof![Just("cpu".into()), Just("device".into()), Just("name".into()), ".*"],
                 prop::collection::vec((".{0,40}", ".{0,40}"), 0..6)), 0..10),
        ) {
            let machine = Machine::of(&options);
            prop_assert!(machine.missing().len() <= ENLIGHTENMENTS.len());
        }
    }
}
