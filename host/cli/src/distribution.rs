// SPDX-License-Identifier: MIT OR Apache-2.0
//! The distribution of a host, and its commands to install packages and kernel headers.

use std::fs;
use std::path::Path;
use unspin_host::place::under;

/// Distributions by how they package kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// Debian, Ubuntu and their derivatives.
    Debian,
    /// A kernel of Proxmox, on any distribution.
    Proxmox,
    /// RHEL, Fedora and their derivatives.
    RedHat,
    /// SLES and openSUSE.
    Suse,
    Arch,
    Alpine,
    NixOs,
    /// An unknown one.
    Other,
}

use Distribution::{Alpine, Arch, Debian, NixOs, Other, Proxmox, RedHat, Suse};

/// Words of `ID` and `ID_LIKE` in os-release(5).
const IDS: [(&str, Distribution); 13] = [
    ("debian", Debian),
    ("ubuntu", Debian),
    ("rhel", RedHat),
    ("centos", RedHat),
    ("fedora", RedHat),
    ("openeuler", RedHat),
    ("sles", Suse),
    ("suse", Suse),
    ("opensuse", Suse),
    ("arch", Arch),
    ("archlinux", Arch),
    ("alpine", Alpine),
    ("nixos", NixOs),
];

impl Distribution {
    /// The distribution of the host under `root`, which runs kernel `release`.
    pub fn of(root: &Path, release: &str) -> Distribution {
        if release.ends_with("-pve") {
            return Proxmox;
        }
        let files = ["etc/os-release", "usr/lib/os-release"];
        let text = files.iter().find_map(|file| fs::read_to_string(under(root, file)).ok());
        of_text(&text.unwrap_or_default())
    }

    /// How to install the headers of kernel `release`: a command, or what is missing.
    pub fn headers(self, release: &str) -> String {
        // The packages of these distributions contain the flavour, the last part of the release.
        let flavour = release.rsplit('-').next().unwrap_or_default();
        match self {
            Debian => self.install(&format!("linux-headers-{release}")),
            // The name changed within 6.2, before Proxmox 8.
            Proxmox => match release.split('.').next().and_then(|major| major.parse().ok()) {
                Some(0..=5u32) => self.install(&format!("pve-headers-{release}")),
                _ => self.install(&format!("proxmox-headers-{release}")),
            },
            // The kernel of Oracle.
            RedHat if release.contains("uek") => {
                self.install(&format!("kernel-uek-devel-{release}"))
            }
            RedHat => self.install(&format!("kernel-devel-{release}")),
            Suse => format!(
                "{} (of the version of kernel {release})",
                self.install(&format!("kernel-{flavour}-devel"))
            ),
            Arch => match ["lts", "zen", "hardened", "rt"].contains(&flavour) {
                true => self.install(&format!("linux-{flavour}-headers")),
                false => self.install("linux-headers"),
            },
            Alpine => self.install(&format!("linux-{flavour}-dev")),
            NixOs => "NixOS keeps no headers in /lib/modules: build the module from \
                      config.boot.kernelPackages.kernel.dev, and add it to \
                      boot.extraModulePackages"
                .into(),
            Other => format!(
                "install the headers of kernel {release}, so that \
                 /lib/modules/{release}/build/Makefile is there"
            ),
        }
    }

    /// The command that installs packages, which have these names in all distributions.
    pub fn install(self, packages: &str) -> String {
        let program = match self {
            Debian | Proxmox => "apt-get install",
            RedHat => "dnf install",
            Suse => "zypper install",
            Arch => "pacman -S",
            Alpine => "apk add",
            NixOs | Other => "install",
        };
        format!("{program} {packages}")
    }
}

/// Parses os-release(5). `ID` takes precedence over `ID_LIKE`, whose words are ordered from near to
/// far.
fn of_text(text: &str) -> Distribution {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches(['"', '\'']).to_ascii_lowercase()
    };
    let all = format!("{} {}", value("ID"), value("ID_LIKE"));
    // openSUSE's are opensuse-leap, opensuse-tumbleweed.
    let words = all.split_whitespace().flat_map(|word| [Some(word), word.split('-').next()]);
    let mut known = words.flatten().filter_map(|word| IDS.iter().find(|(id, _)| *id == word));
    known.next().map_or(Other, |(_, distribution)| *distribution)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_distribution_installs_headers_its_way() {
        for (os_release, kernel, wanted) in [
            (
                "ID=debian",
                "6.12.43+deb13-amd64",
                "apt-get install linux-headers-6.12.43+deb13-amd64",
            ),
            (
                "ID=ubuntu\nID_LIKE=debian",
                "6.8.0-31-generic",
                "apt-get install linux-headers-6.8.0-31-generic",
            ),
            (
                "ID=linuxmint\nID_LIKE=\"ubuntu debian\"",
                "6.8.0-31-generic",
                "linux-headers-6.8.0-31-generic",
            ),
            ("ID=debian", "6.8.12-4-pve", "apt-get install proxmox-headers-6.8.12-4-pve"),
            ("ID=debian", "5.15.158-2-pve", "apt-get install pve-headers-5.15.158-2-pve"),
            (
                "ID=\"rhel\"\nID_LIKE=\"fedora\"",
                "5.14.0-503.el9.x86_64",
                "dnf install kernel-devel-5.14.0-503.el9.x86_64",
            ),
            (
                "ID=\"almalinux\"\nID_LIKE=\"rhel centos fedora\"",
                "5.14.0-503.el9.x86_64",
                "dnf install kernel-devel-5.14.0",
            ),
            (
                "ID=fedora",
                "6.14.2-300.fc42.x86_64",
                "dnf install kernel-devel-6.14.2-300.fc42.x86_64",
            ),
            (
                "ID=\"ol\"\nID_LIKE=\"fedora\"",
                "5.15.0-300.el9uek.x86_64",
                "dnf install kernel-uek-devel-5.15.0",
            ),
            (
                "ID=\"sles\"\nID_LIKE=\"suse\"",
                "6.4.0-150600.23.47-default",
                "zypper install kernel-default-devel (of",
            ),
            (
                "ID=\"opensuse-tumbleweed\"",
                "6.14.1-1-default",
                "zypper install kernel-default-devel",
            ),
            ("ID=arch", "6.14.2-arch1-1", "pacman -S linux-headers"),
            ("ID=manjaro\nID_LIKE='arch'", "6.12.20-1-lts", "pacman -S linux-lts-headers"),
            ("ID=alpine", "6.12.20-0-virt", "apk add linux-virt-dev"),
            ("ID=nixos", "6.12.20", "boot.extraModulePackages"),
            ("ID=gentoo", "6.12.20-gentoo", "/lib/modules/6.12.20-gentoo/build/Makefile"),
            ("", "6.12.20", "/lib/modules/6.12.20/build/Makefile"),
            ("rubbish\nID\n=\nID=\"", "6.12.20", "/lib/modules/6.12.20/build/Makefile"),
        ] {
            let root = unspin_scratch::Scratch::new();
            root.write("etc/os-release", format!("NAME=x\n{os_release}\n"));
            let advice = Distribution::of(&root, kernel).headers(kernel);
            assert!(advice.contains(wanted), "{os_release}: {advice}");
        }
    }

    #[test]
    fn a_host_without_the_file_is_another() {
        assert_eq!(Distribution::of("/nonexistent".as_ref(), "6.1"), Other);
    }
}
