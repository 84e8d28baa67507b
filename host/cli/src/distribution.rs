// SPDX-License-Identifier: MIT OR Apache-2.0
//! The distribution of a host, and its commands to install packages and kernel headers.

use std::path::Path;
use unspin_host::place::under;
use unspin_text::read_kernel;

/// Distributions by how they package kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// Debian, Ubuntu and their derivatives.
    Debian,
    /// A kernel of Proxmox, on any distribution.
    Proxmox,
    /// RHEL, Fedora and their derivatives.
    RedHat,
    /// Fedora CoreOS and others whose system is an image, changed by rpm-ostree.
    OsTree,
    /// SLES and openSUSE.
    Suse,
    /// SLE Micro, openSUSE MicroOS and others of SUSE whose system is read-only.
    Transactional,
    Arch,
    Alpine,
    NixOs,
    /// An unknown one.
    Other,
}

use Distribution::{
    Alpine, Arch, Debian, NixOs, OsTree, Other, Proxmox, RedHat, Suse, Transactional,
};

/// Words of `ID` and `ID_LIKE` in os-release(5).
const IDS: [(&str, Distribution); 15] = [
    ("debian", Debian),
    // It has no apt.
    ("ubuntu-core", Other),
    ("ubuntu", Debian),
    // Mageia names its packages in another way than Fedora.
    ("mandriva", Other),
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

/// The first kernel of Proxmox whose packages are called by its name, not by pve.
const PROXMOX_RENAMED: [u32; 4] = [6, 2, 16, 6];

/// The series of ELRepo's kernel-lt, for versions 9 and 10.
const LONG_TERM: [&str; 2] = ["6.1.", "6.12."];

/// Parts of the releases of kernels that come with other programs than the distribution.
const FOREIGN: [&str; 3] = ["microsoft", "linuxkit", "truenas"];

impl Distribution {
    /// The distribution of the host under `root`, which runs kernel `release`.
    pub fn of(root: &Path, release: &str) -> Distribution {
        if release.ends_with("-pve") {
            return Proxmox;
        }
        if FOREIGN.iter().any(|part| release.contains(part)) {
            return Other;
        }
        let files = ["etc/os-release", "usr/lib/os-release"];
        let text = files.iter().find_map(|file| read_kernel(under(root, file)).ok());
        match of_text(&String::from_utf8_lossy(&text.unwrap_or_default())) {
            RedHat if under(root, "run/ostree-booted").exists() => OsTree,
            // Endless OS and others have no apt.
            Debian if under(root, "run/ostree-booted").exists() => Other,
            distribution => distribution,
        }
    }

    /// How to install the headers of kernel `release`: a command, or what is missing.
    pub fn headers(self, release: &str) -> String {
        // The packages of these distributions contain the flavour, the last part of the release.
        let flavour = release.rsplit('-').next().unwrap_or_default();
        match self {
            Debian => self.install(&format!("linux-headers-{release}")),
            Proxmox => {
                let numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
                let is_old = numbers.lt(PROXMOX_RENAMED);
                let name = if is_old { "pve-headers" } else { "proxmox-headers" };
                self.install(&format!("{name}-{release}"))
            }
            RedHat | OsTree => self.install(&of_red_hat(release)),
            Suse | Transactional => format!(
                "{} (of the version of kernel {release})",
                self.install(&format!("kernel-{flavour}-devel"))
            ),
            Arch => self.install(&of_arch(release)),
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
            OsTree => "rpm-ostree install",
            Suse => "zypper install",
            Transactional => "transactional-update pkg install",
            Arch => "pacman -S",
            Alpine => "apk add",
            NixOs | Other => "install",
        };
        let restart = if matches!(self, OsTree | Transactional) { ", and restart" } else { "" };
        format!("{program} {packages}{restart}")
    }
}

/// The headers of a kernel of RHEL, Fedora or one for them. A variant follows a plus sign, as in
/// `5.14.0-503.el9.x86_64+rt`.
fn of_red_hat(release: &str) -> String {
    let (release, variant) = release.split_once('+').unwrap_or((release, ""));
    let is_of = |series: &&str| release.starts_with(series);
    let variant = match variant {
        "" if release.contains("uek") => "-uek".into(),
        "" if release.contains("elrepo") && LONG_TERM.iter().any(is_of) => "-lt".into(),
        "" if release.contains("elrepo") => "-ml".into(),
        // Amazon Linux 2023 began with 6.1.
        "" if release.contains(".amzn") && !is_of(&"6.1.") => {
            let series: Vec<&str> = release.split('.').take(2).collect();
            return format!("kernel{}-devel-{release}", series.join("."));
        }
        "" if release.contains(".rt") => "-rt".into(),
        "" => String::new(),
        variant => format!("-{variant}"),
    };
    format!("kernel{variant}-devel-{release}")
}

/// The headers of a kernel of Arch and its derivatives: the name of its package follows the package's number, as in
/// `6.14.2-zen1-1-zen`. Manjaro's packages contain the version instead.
fn of_arch(release: &str) -> String {
    let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = release.split('-').collect();
    let name = parts.iter().position(is_number).map_or(&[][..], |at| &parts[at + 1..]).join("-");
    let series: String = release.split('.').take(2).collect();
    match &*name {
        "MANJARO" => format!("linux{series}-headers"),
        "rt-MANJARO" => format!("linux{series}-rt-headers"),
        "" if release.contains("xanmod") => "linux-xanmod-headers".into(),
        "" => "linux-headers".into(),
        name => format!("linux-{name}-headers"),
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
    let is_image = ["coreos", "iot", "silverblue", "kinoite"].contains(&&*value("VARIANT_ID"));
    // openSUSE's are opensuse-leap, opensuse-tumbleweed.
    let words = all.split_whitespace().flat_map(|word| [Some(word), word.split('-').next()]);
    let mut known = words.flatten().filter_map(|word| IDS.iter().find(|(id, _)| *id == word));
    match known.next().map_or(Other, |(_, distribution)| *distribution) {
        RedHat if is_image || all.starts_with("rhcos") => OsTree,
        Suse if all.contains("micro") => Transactional,
        distribution => distribution,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of os-release and a kernel.
    const ADVICE: &[(&str, &str, &str)] = &[
        ("ID=debian", "6.12.43+deb13-amd64", "apt-get install linux-headers-6.12.43+deb13-amd64"),
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
        ("ID=debian", "6.1.15-1-pve", "apt-get install pve-headers-6.1.15-1-pve"),
        ("ID=debian", "6.2.16-3-pve", "apt-get install pve-headers-6.2.16-3-pve"),
        ("ID=debian", "6.2.16-19-pve", "apt-get install proxmox-headers-6.2.16-19-pve"),
        ("ID=debian", "7.0.14-1-pve", "apt-get install proxmox-headers-7.0.14-1-pve"),
        ("ID=ubuntu-core", "6.8.0-31-generic", "/lib/modules/6.8.0-31-generic/build/Makefile"),
        ("ID=ubuntu", "6.6.87.2-microsoft-standard-WSL2", "WSL2/build/Makefile"),
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
        ("ID=fedora", "6.14.2-300.fc42.x86_64", "dnf install kernel-devel-6.14.2-300.fc42.x86_64"),
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
        ("ID=\"opensuse-tumbleweed\"", "6.14.1-1-default", "zypper install kernel-default-devel"),
        (
            "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"",
            "5.14.0-503.el9.x86_64+rt",
            "dnf install kernel-rt-devel-5.14.0-503.el9.x86_64",
        ),
        ("ID=rocky\nID_LIKE=rhel", "6.13.2-1.el9.elrepo.x86_64", "kernel-ml-devel-6.13.2"),
        ("ID=rocky\nID_LIKE=rhel", "6.1.120-1.el9.elrepo.x86_64", "kernel-lt-devel-6.1.120-1"),
        ("ID=rocky\nID_LIKE=rhel", "6.12.30-1.el10.elrepo.x86_64", "kernel-lt-devel-6.12.30-1"),
        (
            "ID=\"amzn\"\nID_LIKE=\"fedora\"",
            "6.12.37-61.105.amzn2023.x86_64",
            "dnf install kernel6.12-devel-6.12.37-61.105.amzn2023.x86_64",
        ),
        ("ID=amzn\nID_LIKE=fedora", "6.1.119-129.201.amzn2023.x86_64", " kernel-devel-6.1.119-"),
        (
            "ID=fedora\nVARIANT_ID=coreos",
            "6.14.2-300.fc42.x86_64",
            "rpm-ostree install kernel-devel-6.14.2-300.fc42.x86_64, and restart",
        ),
        (
            "ID=\"sl-micro\"\nID_LIKE=\"suse\"",
            "6.4.0-150600.23.47-default",
            "transactional-update pkg install kernel-default-devel, and restart (of",
        ),
        ("ID=arch", "6.14.2-arch1-1", "pacman -S linux-headers"),
        ("ID=arch", "6.14.2-zen1-1-zen", "pacman -S linux-zen-headers"),
        ("ID=cachyos\nID_LIKE=arch", "6.14.2-2-cachyos-bore", "linux-cachyos-bore-headers"),
        ("ID=manjaro\nID_LIKE=arch", "6.12.20-1-MANJARO", "pacman -S linux612-headers"),
        ("ID=manjaro\nID_LIKE=arch", "6.12.20-1-rt-MANJARO", "pacman -S linux612-rt-headers"),
        ("ID=arch", "6.14.2-x64v3-xanmod1-1", "pacman -S linux-xanmod-headers"),
        ("ID=steamos\nID_LIKE=arch", "6.11.11-valve12-1-neptune-611", "linux-neptune-611-headers"),
        ("ID=manjaro\nID_LIKE='arch'", "6.12.20-1-lts", "pacman -S linux-lts-headers"),
        ("ID=alpine", "6.12.20-0-virt", "apk add linux-virt-dev"),
        ("ID=nixos", "6.12.20", "boot.extraModulePackages"),
        ("ID=mageia\nID_LIKE=\"mandriva fedora\"", "6.6.58-desktop-1.mga9", "mga9/build/Makefile"),
        ("ID=debian", "6.6.44-production+truenas", "truenas/build/Makefile"),
        ("ID=gentoo", "6.12.20-gentoo", "/lib/modules/6.12.20-gentoo/build/Makefile"),
        ("", "6.12.20", "/lib/modules/6.12.20/build/Makefile"),
        ("NAME=\"Caf\u{e9} \u{feff}\"\r\nID=debian\r", "6.12.20", "linux-headers-6.12.20"),
        ("rubbish\nID\n=\nID=\"", "6.12.20", "/lib/modules/6.12.20/build/Makefile"),
    ];

    #[test]
    fn each_distribution_installs_headers_its_way() {
        for (os_release, kernel, wanted) in ADVICE {
            let root = unspin_scratch::Scratch::new();
            root.write("etc/os-release", format!("NAME=x\n{os_release}\n"));
            let advice = Distribution::of(&root, kernel).headers(kernel);
            assert!(advice.contains(wanted), "{os_release}: {advice}");
        }
    }

    #[test]
    fn an_image_is_known_by_ostree() {
        let root = unspin_scratch::Scratch::with(&[("run/ostree-booted", "")]);
        root.write("etc/os-release", "ID=fedora\n");
        assert_eq!(Distribution::of(&root, "6.14.2"), OsTree);
        root.write("etc/os-release", "ID=endless\nID_LIKE=debian\n");
        assert_eq!(Distribution::of(&root, "6.8.0-31-generic"), Other);
    }

    /// This computer's file is that of another distribution.
    #[test]
    fn a_link_to_the_file_is_one_of_that_host() {
        let root = unspin_scratch::Scratch::with(&[("nix/store/a-os-release", "ID=nixos\n")]);
        root.link("etc/os-release", "/etc/static/os-release");
        root.link("etc/static", "/nix/store/etc");
        root.link("nix/store/etc/os-release", "/nix/store/a-os-release");
        assert_eq!(Distribution::of(&root, "6.12.20"), NixOs);
    }

    #[test]
    fn a_host_without_the_file_is_another() {
        assert_eq!(Distribution::of("/nonexistent".as_ref(), "6.1"), Other);
    }
}
