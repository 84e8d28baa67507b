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
    /// Talos and others whose system is an image without headers and compilers.
    Image,
    /// An unknown one.
    Other,
}

use Distribution::{
    Alpine, Arch, Debian, Image, NixOs, OsTree, Other, Proxmox, RedHat, Suse, Transactional,
};

/// Words of `ID` and `ID_LIKE` in os-release(5).
const IDS: [(&str, Distribution); 18] = [
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
    ("talos", Image),
    ("flatcar", Image),
    ("bottlerocket", Image),
];

/// The first kernel of Proxmox whose packages are called by its name, not by pve.
const PROXMOX_RENAMED: [u32; 4] = [6, 2, 16, 6];

/// The series of ELRepo's kernel-lt, and the versions of RHEL that it is for.
const LONG_TERM: [(&str, &str); 2] = [("6.1.", ".el9."), ("6.12.", ".el10.")];

/// The processors in the releases of kernels of RHEL and Fedora.
const PROCESSORS: [&str; 3] = [".x86_64", ".x86_64_v2", ".aarch64"];

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

    /// Whether modules become part of the system only where it is made.
    pub fn is_image(self) -> bool {
        matches!(self, NixOs | Image)
    }

    /// Whether the distribution's own kernels may have this release. No package has the headers of others.
    fn may_have(self, release: &str) -> bool {
        match self {
            Debian => is_of_debian(release),
            RedHat | OsTree => {
                let release = release.split('+').next().unwrap_or_default();
                PROCESSORS.iter().any(|processor| release.ends_with(processor))
            }
            Suse | Transactional | Alpine => ends_with_flavour(release),
            Arch => is_of_arch(release),
            Proxmox | NixOs | Image | Other => true,
        }
    }

    /// How to install the headers of kernel `release`: a command, or what is missing.
    pub fn headers(self, release: &str) -> String {
        let own = if self.may_have(release) { self } else { Other };
        let after = format!("of kernel {release}; after an upgrade of the kernel, restart first");
        // The packages of these distributions contain the flavour, the last part of the release.
        let flavour = release.rsplit('-').next().unwrap_or_default();
        match own {
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
            Arch => format!("{} ({after})", self.install(&of_arch(release))),
            Alpine => format!("{} ({after})", self.install(&format!("linux-{flavour}-dev"))),
            NixOs => "NixOS keeps no headers in /lib/modules: build the module from \
                      config.boot.kernelPackages.kernel.dev, and add it to \
                      boot.extraModulePackages"
                .into(),
            Image => format!(
                "this system is an image, to which no package is added: build the module for \
                 kernel {release} where the image is made"
            ),
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
            NixOs | Image | Other => "install",
        };
        let restart = if matches!(self, OsTree | Transactional) { ", and restart" } else { "" };
        format!("{program} {packages}{restart}")
    }
}

/// The headers of a kernel of RHEL, Fedora or one for them. A variant follows a plus sign, as in
/// `5.14.0-503.el9.x86_64+rt`.
fn of_red_hat(release: &str) -> String {
    let (release, variant) = release.split_once('+').unwrap_or((release, ""));
    let is_of =
        |(series, version): &(&str, &str)| release.starts_with(series) && release.contains(version);
    let variant = match variant {
        "" if release.contains("uek") => "-uek".into(),
        "" if release.contains("elrepo") && LONG_TERM.iter().any(is_of) => "-lt".into(),
        "" if release.contains("elrepo") => "-ml".into(),
        // Amazon Linux 2023 began with 6.1.
        "" if release.contains(".amzn") && !release.starts_with("6.1.") => {
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
    let parts: Vec<&str> = release.split('-').collect();
    let name = parts
        .iter()
        .position(|part| is_number(part))
        .map_or(&[][..], |at| &parts[at + 1..])
        .join("-");
    let series: String = release.split('.').take(2).collect();
    match &*name {
        "MANJARO" => format!("linux{series}-headers"),
        "rt-MANJARO" => format!("linux{series}-rt-headers"),
        "" if release.contains("xanmod") => "linux-xanmod-headers".into(),
        "" => "linux-headers".into(),
        name => format!("linux-{name}-headers"),
    }
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether the part of a release is of a kernel that somebody built from a git tree.
fn is_of_git(part: &str) -> bool {
    let is_hash = |hash: &str| hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    part == "dirty" || part.strip_prefix('g').is_some_and(is_hash)
}

/// Names of packages have no other characters. Ubuntu's builds of unchanged kernels, such as
/// `6.12.5-061205-generic`, are in no archive.
fn is_of_debian(release: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+.~-".contains(&byte);
    let number = release.strip_suffix("-generic").and_then(|rest| rest.rsplit('-').next());
    let is_unchanged =
        |number: &str| number.len() == 6 && number.starts_with('0') && is_number(number);
    release.bytes().all(is_plain) && !number.is_some_and(is_unchanged)
}

/// Whether the release is a version, the package's number, and a flavour, as in `6.12.20-0-virt`.
fn ends_with_flavour(release: &str) -> bool {
    let mut parts = release.rsplit('-');
    let flavour = parts.next().unwrap_or_default();
    let is_name = !flavour.is_empty() && flavour.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_packaged = parts.next().is_some_and(|number| number.split('.').all(is_number));
    is_name && !is_of_git(flavour) && is_packaged && parts.next().is_some()
}

fn is_of_arch(release: &str) -> bool {
    let mut parts = release.split('-');
    let is_packaged = parts.any(is_number) && !parts.any(is_of_git);
    is_packaged || ["arch", "xanmod", "MANJARO"].iter().any(|name| release.contains(name))
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

    /// Of the lines of os-release, which `; ` separates here, and of a kernel.
    const ADVICE: &str = r#"
ID=debian | 6.12.43+deb13-amd64 | apt-get install linux-headers-6.12.43+deb13-amd64
ID=ubuntu; ID_LIKE=debian | 6.8.0-31-generic | apt-get install linux-headers-6.8.0-31-generic
ID=linuxmint; ID_LIKE="ubuntu debian" | 6.8.0-31-generic | linux-headers-6.8.0-31-generic
ID=debian | 6.8.12-4-pve | apt-get install proxmox-headers-6.8.12-4-pve
ID=debian | 5.15.158-2-pve | apt-get install pve-headers-5.15.158-2-pve
ID=debian | 6.1.15-1-pve | apt-get install pve-headers-6.1.15-1-pve
ID=debian | 6.2.16-3-pve | apt-get install pve-headers-6.2.16-3-pve
ID=debian | 6.2.16-19-pve | apt-get install proxmox-headers-6.2.16-19-pve
ID=debian | 7.0.14-1-pve | apt-get install proxmox-headers-7.0.14-1-pve
ID=ubuntu-core | 6.8.0-31-generic | /lib/modules/6.8.0-31-generic/build/Makefile
ID=ubuntu | 6.6.87.2-microsoft-standard-WSL2 | WSL2/build/Makefile
ID="rhel"; ID_LIKE="fedora" | 5.14.0-503.el9.x86_64 | dnf install kernel-devel-5.14.0-503.el9.x86_64
ID="almalinux"; ID_LIKE="rhel centos fedora" | 5.14.0-503.el9.x86_64 | dnf install kernel-devel-5.14.0
ID=fedora | 6.14.2-300.fc42.x86_64 | dnf install kernel-devel-6.14.2-300.fc42.x86_64
ID="ol"; ID_LIKE="fedora" | 5.15.0-300.el9uek.x86_64 | dnf install kernel-uek-devel-5.15.0
ID="sles"; ID_LIKE="suse" | 6.4.0-150600.23.47-default | zypper install kernel-default-devel (of
ID="opensuse-tumbleweed" | 6.14.1-1-default | zypper install kernel-default-devel
ID="rocky"; ID_LIKE="rhel centos fedora" | 5.14.0-503.el9.x86_64+rt | dnf install kernel-rt-devel-5.14.0-503.el9.x86_64
ID=rocky; ID_LIKE=rhel | 6.13.2-1.el9.elrepo.x86_64 | kernel-ml-devel-6.13.2
ID=rocky; ID_LIKE=rhel | 6.1.120-1.el9.elrepo.x86_64 | kernel-lt-devel-6.1.120-1
ID=rocky; ID_LIKE=rhel | 6.12.30-1.el10.elrepo.x86_64 | kernel-lt-devel-6.12.30-1
ID=rocky; ID_LIKE=rhel | 6.12.20-1.el9.elrepo.x86_64 | kernel-ml-devel-6.12.20-1
ID="amzn"; ID_LIKE="fedora" | 6.12.37-61.105.amzn2023.x86_64 | dnf install kernel6.12-devel-6.12.37-61.105.amzn2023.x86_64
ID=amzn; ID_LIKE=fedora | 6.1.119-129.201.amzn2023.x86_64 |  kernel-devel-6.1.119-
ID=fedora; VARIANT_ID=coreos | 6.14.2-300.fc42.x86_64 | rpm-ostree install kernel-devel-6.14.2-300.fc42.x86_64, and restart
ID="sl-micro"; ID_LIKE="suse" | 6.4.0-150600.23.47-default | transactional-update pkg install kernel-default-devel, and restart (of
ID=arch | 6.14.2-arch1-1 | pacman -S linux-headers
ID=arch | 6.14.2-arch1-1 | (of kernel 6.14.2-arch1-1; after an upgrade
ID=arch | 6.14.2-zen1-1-zen | pacman -S linux-zen-headers
ID=cachyos; ID_LIKE=arch | 6.14.2-2-cachyos-bore | linux-cachyos-bore-headers
ID=manjaro; ID_LIKE=arch | 6.12.20-1-MANJARO | pacman -S linux612-headers
ID=manjaro; ID_LIKE=arch | 6.12.20-1-rt-MANJARO | pacman -S linux612-rt-headers
ID=arch | 6.14.2-x64v3-xanmod1-1 | pacman -S linux-xanmod-headers
ID=steamos; ID_LIKE=arch | 6.11.11-valve12-1-neptune-611 | linux-neptune-611-headers
ID=manjaro; ID_LIKE='arch' | 6.12.20-1-lts | pacman -S linux-lts-headers
ID=alpine | 6.12.20-0-virt | apk add linux-virt-dev
ID=nixos | 6.12.20 | boot.extraModulePackages
ID=talos | 6.12.20-talos | where the image is made
ID=flatcar; ID_LIKE=coreos | 6.6.74-flatcar | where the image is made
ID=mageia; ID_LIKE="mandriva fedora" | 6.6.58-desktop-1.mga9 | mga9/build/Makefile
ID=debian | 6.6.44-production+truenas | truenas/build/Makefile
ID=gentoo | 6.12.20-gentoo | /lib/modules/6.12.20-gentoo/build/Makefile
"#;

    #[test]
    fn each_distribution_installs_headers_its_way() {
        let odd = [
            ["", "6.12.20", "/lib/modules/6.12.20/build/Makefile"],
            ["NAME=\"Caf\u{e9} \u{feff}\"\r\nID=debian\r", "6.12.20", "linux-headers-6.12.20"],
            ["rubbish\nID\n=\nID=\"", "6.12.20", "/lib/modules/6.12.20/build/Makefile"],
        ];
        let plain = ADVICE.trim().lines().map(|line| {
            let mut parts = line.split(" | ");
            [(); 3].map(|()| parts.next().unwrap())
        });
        for [os_release, kernel, wanted] in plain.chain(odd) {
            let os_release = os_release.replace("; ", "\n");
            let root = unspin_scratch::Scratch::new();
            root.write("etc/os-release", format!("NAME=x\n{os_release}\n"));
            let advice = Distribution::of(&root, kernel).headers(kernel);
            assert!(advice.contains(wanted), "{os_release}: {advice}");
        }
    }

    #[test]
    fn a_kernel_that_is_not_the_distributions_has_no_package() {
        for (id, kernel) in [
            ("debian", "6.12.9-My_Kernel"),
            ("ubuntu", "6.12.5-061205-generic"),
            ("rhel", "6.15.0-rc3+"),
            ("fedora", "6.15.0-dirty"),
            ("opensuse-tumbleweed", "6.15.0-rc3+"),
            ("opensuse-tumbleweed", "6.12.20"),
            ("sles", "6.15.0-rc3-00123-gabcdef"),
            ("alpine", "6.12.20"),
            ("alpine", "6.12.20-mine"),
            ("arch", "6.15.0-rc3-00123-gabcdef-dirty"),
            ("arch", "6.14.2"),
        ] {
            let root = unspin_scratch::Scratch::with(&[("etc/os-release", format!("ID={id}"))]);
            let advice = Distribution::of(&root, kernel).headers(kernel);
            assert_eq!(advice, Other.headers(kernel), "{id}");
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
