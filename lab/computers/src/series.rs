// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernels that the lab supports: series, Debian release of the packages, flavour.

/// A kernel series that the module supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Series {
    V6_1,
    V6_12,
    V7_3,
}

impl Series {
    pub const ALL: [Series; 3] = [Series::V6_1, Series::V6_12, Series::V7_3];

    pub fn name(self) -> &'static str {
        match self {
            Series::V6_1 => "6.1",
            Series::V6_12 => "6.12",
            Series::V7_3 => "7.3",
        }
    }

    pub fn parse(name: &str) -> Option<Series> {
        Series::ALL.into_iter().find(|series| series.name() == name)
    }

    /// The series of a kernel from its release (`uname -r`).
    pub fn of_release(release: &str) -> Option<Series> {
        Series::ALL.into_iter().find(|series| {
            release.strip_prefix(series.name()).is_some_and(|rest| rest.starts_with('.'))
        })
    }

    /// The Debian releases that have it, the preferred one first.
    pub fn debians(self) -> &'static [Debian] {
        match self {
            Series::V6_1 => &[Debian::Bookworm],
            Series::V6_12 => &[Debian::Bookworm, Debian::Trixie],
            Series::V7_3 => &[Debian::Trixie],
        }
    }
}

/// A release of Debian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Debian {
    /// Debian 12. Its packages come from this computer's package lists.
    Bookworm,
    /// Debian 13. Its packages come from the lab's own lists, and its headers need its compiler.
    Trixie,
}

impl Debian {
    pub const ALL: [Debian; 2] = [Debian::Bookworm, Debian::Trixie];

    /// Its number, as in `--debian`.
    pub fn name(self) -> &'static str {
        match self {
            Debian::Bookworm => "12",
            Debian::Trixie => "13",
        }
    }

    pub fn parse(name: &str) -> Option<Debian> {
        Debian::ALL.into_iter().find(|debian| debian.name() == name)
    }
}

/// A configuration of Debian's kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// For virtual machines: few drivers, so that it boots fastest.
    Cloud,
    /// For any PC, as hosts use it.
    Pc,
}

impl Flavour {
    pub const ALL: [Flavour; 2] = [Flavour::Cloud, Flavour::Pc];

    /// The last part of the kernel's own release.
    pub fn name(self) -> &'static str {
        match self {
            Flavour::Cloud => "cloud-amd64",
            Flavour::Pc => "amd64",
        }
    }

    pub fn parse(name: &str) -> Option<Flavour> {
        Flavour::ALL.into_iter().find(|flavour| flavour.name() == name)
    }
}

/// A kernel package of Debian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelPackage {
    pub series: Series,
    pub debian: Debian,
    pub flavour: Flavour,
}

impl From<Series> for KernelPackage {
    /// The default kernel of the lab.
    fn from(series: Series) -> KernelPackage {
        KernelPackage { series, debian: series.debians()[0], flavour: Flavour::Cloud }
    }
}

impl KernelPackage {
    /// The series' name, followed by the differences from the series' own package.
    pub fn name(self) -> String {
        let own = KernelPackage::from(self.series);
        let mut name = self.series.name().to_string();
        if self.debian != own.debian {
            name += &format!("-debian{}", self.debian.name());
        }
        if self.flavour != own.flavour {
            name += &format!("-{}", self.flavour.name());
        }
        name
    }

    /// The suite with the package, if it is not the release itself.
    pub(crate) fn suite(self) -> Option<&'static str> {
        (self.series == Series::V7_3).then_some("trixie-backports")
    }

    /// Meta packages that depend on its current version, the preferred one first.
    pub(crate) fn meta_packages(self) -> [String; 2] {
        let flavour = self.flavour.name();
        [format!("linux-image-{}-{flavour}", self.series.name()), format!("linux-image-{flavour}")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_and_tell_packages_apart() {
        let mut names = Vec::new();
        for series in Series::ALL {
            assert_eq!(Series::parse(series.name()), Some(series));
            assert_eq!(KernelPackage::from(series).name(), series.name());
            for &debian in series.debians() {
                assert_eq!(Debian::parse(debian.name()), Some(debian));
                for flavour in Flavour::ALL {
                    assert_eq!(Flavour::parse(flavour.name()), Some(flavour));
                    names.push(KernelPackage { series, debian, flavour }.name());
                }
            }
        }
        assert!(names.contains(&"6.12-debian13-amd64".to_string()), "{names:?}");
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_release_tells_its_series() {
        for (release, series) in [
            ("6.1.0-40-amd64", Some(Series::V6_1)),
            ("6.12.117+deb12-cloud-amd64", Some(Series::V6_12)),
            ("7.3.4+deb13-cloud-amd64", Some(Series::V7_3)),
            ("6.13.1", None),
            ("7.30.1", None),
            ("17.3.1", None),
        ] {
            assert_eq!(Series::of_release(release), series, "{release}");
        }
    }
}
