// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cgroup that a thread's CPU time is controlled by, of version 2 or 1, and its quota.

use std::fs;
use std::path::{Path, PathBuf};

/// Where a thread is in the hierarchy that controls CPU time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// From the hierarchy's root on, with a slash first.
    pub path: String,
    pub version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

/// CPU time that a cgroup may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quota {
    /// CPUs' worth: time per period; above 0.
    pub cpus: f64,
}

impl Cgroup {
    /// Reads `/proc/TID/cgroup`. Where both versions are mounted the CPU controller is in one of them, and
    /// version 1 is asked first.
    pub fn parse(text: &str) -> Option<Cgroup> {
        let mut unified = None;
        for line in text.lines() {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let path = path.to_string();
            if controllers.split(',').any(|name| name == "cpu") {
                return Some(Cgroup { path, version: Version::One });
            }
            if controllers.is_empty() {
                unified = Some(Cgroup { path, version: Version::Two });
            }
        }
        unified
    }

    /// Its directory, below `root` (`/sys/fs/cgroup`).
    pub fn dir(&self, root: &Path) -> PathBuf {
        let root = match self.version {
            Version::Two => root.to_path_buf(),
            Version::One => root.join("cpu"),
        };
        root.join(self.path.trim_start_matches('/'))
    }

    /// The smallest quota of it and of all that it is in, below `root` (`/sys/fs/cgroup`).
    pub fn quota(&self, root: &Path) -> Option<Quota> {
        let mut dir = self.dir(root);
        let mut smallest: Option<Quota> = None;
        while dir.starts_with(root) {
            if let Some(quota) = self.quota_at(&dir) {
                smallest = smallest.filter(|s| s.cpus <= quota.cpus).or(Some(quota));
            }
            if !dir.pop() {
                break;
            }
        }
        smallest
    }

    fn quota_at(&self, dir: &Path) -> Option<Quota> {
        let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
        match self.version {
            Version::Two => quota(&read("cpu.max")?),
            Version::One => {
                quota(&format!("{} {}", read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?))
            }
        }
    }
}

/// `max 100000`, `50000 100000`, or version 1's `-1 100000`.
fn quota(text: &str) -> Option<Quota> {
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    let (time, period) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (time > 0.0 && period > 0.0).then_some(Quota { cpus: time / period })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_cpu_controllers_cgroup_is_found() {
        let of = |text| Cgroup::parse(text).map(|found| (found.path, found.version));
        assert_eq!(
            of("0::/machine.slice/a:b\n"),
            Some(("/machine.slice/a:b".into(), Version::Two))
        );
        let hybrid = "4:memory:/m\n3:cpu,cpuacct:/vm\n1:name=systemd:/s\n0::/u\n";
        assert_eq!(of(hybrid), Some(("/vm".into(), Version::One)));
        assert_eq!(of("2:cpuset:/x\n"), None);
        assert_eq!(of("nonsense"), None);
    }

    #[test]
    fn the_smallest_quota_on_the_way_up_holds() {
        let root = std::env::temp_dir().join(format!("unspin-cgroup-{}", std::process::id()));
        for (dir, max) in [("", "max 100000"), ("a", "150000 100000"), ("a/b", "200000 100000")] {
            fs::create_dir_all(root.join(dir)).unwrap();
            fs::write(root.join(dir).join("cpu.max"), max).unwrap();
        }
        fs::create_dir_all(root.join("cpu/v")).unwrap();
        fs::write(root.join("cpu/v/cpu.cfs_quota_us"), "50000\n").unwrap();
        fs::write(root.join("cpu/v/cpu.cfs_period_us"), "100000\n").unwrap();
        let quota = |path: &str, version| {
            Cgroup { path: path.into(), version }.quota(&root).map(|quota| quota.cpus)
        };
        assert_eq!(quota("/a/b/c", Version::Two), Some(1.5));
        assert_eq!(quota("/other", Version::Two), None);
        assert_eq!(quota("/v", Version::One), Some(0.5));
        fs::remove_dir_all(&root).unwrap();
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text: String) {
            Cgroup::parse(&text);
            quota(&text);
        }
    }
}
