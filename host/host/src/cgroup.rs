// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cgroup that controls a thread's CPU time, of version 2 or 1.

/// A cgroup of the hierarchy that controls CPU time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cgroup {
    /// Path from the hierarchy's root, with a leading slash.
    pub path: String,
    pub version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    One,
    Two,
}

/// With this the kernel marks the path of a cgroup that was removed.
pub(crate) const REMOVED: &str = " (deleted)";

/// The controllers and the path in each line of `/proc/TID/cgroup`.
pub fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        Some((controllers, path.strip_suffix(REMOVED).unwrap_or(path)))
    })
}

impl Cgroup {
    /// Reads `/proc/TID/cgroup`. If both versions are mounted, only one has the CPU controller; version 1
    /// is checked first.
    pub fn parse(text: &str) -> Option<Cgroup> {
        let mut unified = None;
        for (controllers, path) in lines(text) {
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

    /// The last part of its path; empty for the root.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    pub fn is_root(&self) -> bool {
        self.path == "/"
    }

    /// The parent; `None` for the root.
    pub fn parent(&self) -> Option<Cgroup> {
        let (parent, name) = self.path.rsplit_once('/')?;
        let path = if parent.is_empty() { "/" } else { parent };
        (!name.is_empty()).then(|| Cgroup { path: path.into(), version: self.version })
    }

    /// This cgroup and its ancestors, up to the root.
    pub fn upwards(&self) -> impl Iterator<Item = Cgroup> {
        std::iter::successors(Some(self.clone()), Cgroup::parent)
    }

    pub fn child(&self, name: &str) -> Cgroup {
        let path = format!("{}/{name}", self.path.trim_end_matches('/'));
        Cgroup { path, version: self.version }
    }

    /// Whether `other` is this cgroup or inside it.
    pub fn holds(&self, other: &Cgroup) -> bool {
        let inside = other.path.strip_prefix(self.path.trim_end_matches('/'));
        self.version == other.version
            && inside.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
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
    fn a_cgroup_holds_what_is_below_it() {
        let at = |path: &str| Cgroup { path: path.into(), version: Version::Two };
        let ways: Vec<String> = at("/a/b").upwards().map(|group| group.path).collect();
        assert_eq!(ways, ["/a/b", "/a", "/"]);
        assert!(
            at("/").holds(&at("/a")) && at("/a").holds(&at("/a/b")) && at("/a").holds(&at("/a"))
        );
        assert!(!at("/a").holds(&at("/ab")) && !at("/a/b").holds(&at("/a")));
        assert!(!at("/").holds(&Cgroup { path: "/a".into(), version: Version::One }));
        assert_eq!(
            (at("/").child("a").path, at("/a").child("b").path),
            ("/a".into(), "/a/b".into())
        );
        assert_eq!((at("/").name(), at("/a/b").name()), ("", "b"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text: String) {
            let _ = Cgroup::parse(&text).map(|found| found.upwards().count());
        }
    }
}
