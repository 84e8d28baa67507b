// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tree of cgroups: its directories, and each cgroup's weight, quota and CPU time.

use crate::cgroup::REMOVED;
use crate::{cpus, Cgroup, Host, Version};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use unspin_text::read_kernel_text;

/// The weight of a cgroup with `cpu.idle`: 3 of 1024.
const IDLE: f64 = 100.0 * 3.0 / 1024.0;

/// Takes the place of bytes that are not UTF-8 in a path of a [`Cgroup`].
const REPLACED: char = char::REPLACEMENT_CHARACTER;

/// The file with a cgroup's weight.
fn weight_file(version: Version) -> &'static str {
    match version {
        Version::One => "cpu.shares",
        Version::Two => "cpu.weight",
    }
}

/// The tree of a host.
#[derive(Debug, Clone)]
pub struct Tree {
    host: Host,
    /// The hierarchies with the CPU controller: of version 1, and of version 2.
    cpu: PathBuf,
    unified: PathBuf,
    /// The hierarchy in which version 1 counts CPU time.
    cpuacct: PathBuf,
    /// How to read paths in /proc if this process is in a cgroup namespace.
    namespace: Option<Namespace>,
}

/// /proc shows paths relative to the namespace's root, with `..` for its ancestors.
#[derive(Debug, Clone)]
struct Namespace {
    /// Depth of its root below the host's root.
    depth: usize,
    /// Its root relative to the host's root, per hierarchy; `None` if not found.
    one: Option<String>,
    two: Option<String>,
    /// Whether the host's tree can be read, through the root directory of process 1.
    is_seen: bool,
}

/// CPU time of a cgroup and its descendants since it was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    pub cpu_ns: u64,
    /// How long its own quota kept tasks from running, summed over CPUs; 0 without a quota. `None`: the
    /// kernel does not show it.
    pub throttled_ns: Option<u64>,
}

impl Tree {
    pub fn of(host: &Host) -> Tree {
        let root = &host.sys.join("fs/cgroup");
        let of_first = host.cgroup(1).filter(|group| ups(&group.path) > 0);
        let Some(of_first) = of_first else { return Tree::below(host, root) };
        let inside = Tree::below(host, root);
        let outer = host.proc.join("1/root/sys/fs/cgroup");
        let (depth, is_seen) = (ups(&of_first.path), outer.is_dir());
        let tree = if is_seen { Tree::below(host, &outer) } else { inside.clone() };
        let found = |inside: &Path, outer: &Path| is_seen.then(|| find(inside, outer, depth))?;
        let one = found(&inside.cpu, &tree.cpu);
        let two = found(&inside.unified, &tree.unified);
        Tree { namespace: Some(Namespace { depth, one, two, is_seen }), ..tree }
    }

    fn below(host: &Host, root: &Path) -> Tree {
        let cpu = hierarchy(root, "cpu", "cpu.shares").unwrap_or_else(|| root.join("cpu"));
        let cpuacct = hierarchy(root, "cpuacct", "cpuacct.usage").unwrap_or_else(|| cpu.clone());
        let is_hybrid = !root.join("cgroup.controllers").exists() && root.join("unified").is_dir();
        let unified = if is_hybrid { root.join("unified") } else { root.to_path_buf() };
        Tree { host: host.clone(), cpu, unified, cpuacct, namespace: None }
    }

    /// The cgroup that controls a thread's CPU time. The error is the reason, in words, why it is
    /// unknown.
    pub fn group(&self, tid: u32) -> Result<Cgroup, String> {
        let text = self.host.text(tid, "cgroup").ok_or("its cgroup is unknown, or it has ended")?;
        let shown =
            Cgroup::parse(&text).ok_or("no hierarchy of cgroups on this host controls CPU time")?;
        let marked = format!(":{}{REMOVED}", shown.path);
        let is_marked = text.lines().any(|line| line.ends_with(&marked));
        let group = match &self.namespace {
            // The namespace is not known, and what is above its root is not in the tree.
            None if ups(&shown.path) > 0 => return Err(outside(&shown)),
            None => shown,
            Some(namespace) => namespace.outside(&shown).ok_or_else(|| outside(&shown))?,
        };
        // The mark may be the end of its name.
        let named = Cgroup { path: format!("{}{REMOVED}", group.path), version: group.version };
        match self.dir(&group).is_dir() {
            _ if is_marked && self.dir(&named).is_dir() => Ok(named),
            true => Ok(group),
            false => Err(outside(&group)),
        }
    }

    /// Its directory.
    pub fn dir(&self, group: &Cgroup) -> PathBuf {
        self.in_hierarchy(group, &self.cpu)
    }

    fn in_hierarchy(&self, group: &Cgroup, one: &Path) -> PathBuf {
        let root = match group.version {
            Version::One => one,
            Version::Two => &self.unified,
        };
        let path = group.path.trim_start_matches('/');
        match path.contains(REPLACED) {
            true => written(root, path).unwrap_or_else(|| root.join(path)),
            false => root.join(path),
        }
    }

    fn read(&self, group: &Cgroup, file: &str) -> Option<String> {
        read_kernel_text(self.dir(group).join(file)).ok()
    }

    /// The file with its weight, which exists if the CPU controller is on for it. Otherwise the scheduler
    /// treats its tasks as the parent's. `None`: the controller is off, as for the root.
    pub fn weight_file(&self, group: &Cgroup) -> Option<PathBuf> {
        let path = self.dir(group).join(weight_file(group.version));
        let is_first = group.version == Version::One && group.is_root();
        (!is_first && path.exists()).then_some(path)
    }

    /// Whether the scheduler divides CPU time between it and its siblings.
    pub fn is_on(&self, group: &Cgroup) -> bool {
        self.weight_file(group).is_some()
    }

    /// Its weight in units of `cpu.weight`, 1 to 10000, by default 100; less than 1 with
    /// `cpu.idle`.
    pub fn weight(&self, group: &Cgroup) -> Option<f64> {
        let text = read_kernel_text(self.weight_file(group)?).ok()?;
        if self.is_idle(group) {
            return Some(IDLE);
        }
        let number: f64 = text.trim().parse().ok()?;
        if !number.is_finite() || number <= 0.0 {
            return None;
        }
        Some(match group.version {
            Version::One => number * 100.0 / 1024.0,
            Version::Two => number,
        })
    }

    /// Whether its tasks run only when no others want to (`cpu.idle`).
    pub fn is_idle(&self, group: &Cgroup) -> bool {
        self.read(group, "cpu.idle").is_some_and(|text| text.trim() == "1")
    }

    /// The CPUs that it has alone, as the kernel lists them, if it is a partition of cpusets.
    pub fn own_cpus(&self, group: &Cgroup) -> Option<String> {
        let state = self.read(group, "cpuset.cpus.partition")?;
        let is_partition = matches!(state.trim(), "root" | "isolated");
        let cpus = self.read(group, "cpuset.cpus.effective").filter(|_| is_partition)?;
        Some(cpus.trim().to_string())
    }

    /// The CPUs on which its tasks may run; `None` if the kernel does not show them there.
    pub fn cpus(&self, group: &Cgroup) -> Option<BTreeSet<u32>> {
        cpus::parse(&self.read(group, "cpuset.cpus.effective")?)
    }

    /// Its own quota in CPUs (time per period), above 0; `None` if it has none.
    pub fn quota_cpus(&self, group: &Cgroup) -> Option<f64> {
        let text = match group.version {
            Version::Two => self.read(group, "cpu.max")?,
            Version::One => {
                let period = self.read(group, "cpu.cfs_period_us")?;
                format!("{} {period}", self.read(group, "cpu.cfs_quota_us")?)
            }
        };
        quota_cpus(&text)
    }

    /// Its CPU time; `None` if it cannot be read.
    pub fn used(&self, group: &Cgroup) -> Option<Used> {
        let stat = self.read(group, "cpu.stat").unwrap_or_default();
        let number = |key: &str| {
            let value = |line: &str| line.strip_prefix(key)?.trim().parse::<u64>().ok();
            stat.lines().find_map(value)
        };
        match group.version {
            Version::Two => {
                let ns = |key: &str| Some(number(key)?.saturating_mul(1000));
                let throttled_ns = ns("throttled_usec ");
                Some(Used { cpu_ns: ns("usage_usec ")?, throttled_ns })
            }
            Version::One => {
                let usage = self.in_hierarchy(group, &self.cpuacct).join("cpuacct.usage");
                let cpu_ns = read_kernel_text(usage).ok()?.trim().parse().ok()?;
                Some(Used { cpu_ns, throttled_ns: number("throttled_time ") })
            }
        }
    }

    pub fn children(&self, group: &Cgroup) -> Vec<Cgroup> {
        let entries = fs::read_dir(self.dir(group)).into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|is| is.is_dir()));
        let child = |entry: fs::DirEntry| group.child(&entry.file_name().to_string_lossy());
        let mut children: Vec<Cgroup> = dirs.map(child).collect();
        children.sort_unstable();
        children
    }

    /// Whether it or a descendant has a task.
    pub fn has_tasks(&self, group: &Cgroup) -> bool {
        match (self.read(group, "cgroup.events"), group.version) {
            (Some(events), Version::Two) => events.lines().any(|line| line == "populated 1"),
            _ => {
                let own = self.read(group, "cgroup.procs");
                own.is_some_and(|text| !text.trim().is_empty())
                    || self.children(group).iter().any(|child| self.has_tasks(child))
            }
        }
    }
}

impl Namespace {
    /// Converts a path shown in /proc to one from the host's root.
    fn outside(&self, shown: &Cgroup) -> Option<Cgroup> {
        let ups = ups(&shown.path);
        if !self.is_seen {
            return (ups == 0).then(|| shown.clone());
        }
        let rest = shown.path.split('/').filter(|part| !part.is_empty()).skip(ups);
        let own = match shown.version {
            Version::One => &self.one,
            Version::Two => &self.two,
        };
        let above: Vec<&str> = match self.depth.checked_sub(ups)? {
            0 => Vec::new(),
            depth => own.as_ref()?.split('/').skip(1).take(depth).collect(),
        };
        let parts: Vec<&str> = above.into_iter().chain(rest).collect();
        Some(Cgroup { path: format!("/{}", parts.join("/")), version: shown.version })
    }
}

/// The directory of version 1's hierarchy with this controller, whose cgroups have this file. It is called by the
/// controllers, in any order.
fn hierarchy(root: &Path, controller: &str, file: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| name.split(',').any(|of| of == controller)).collect();
    names.sort_unstable();
    let dirs: Vec<PathBuf> = names.iter().map(|name| root.join(name)).collect();
    dirs.iter().find(|dir| dir.join(file).exists()).or(dirs.first()).cloned()
}

/// The directory below `root` whose path is shown as this one. `None`: there is none, or more than one.
fn written(root: &Path, path: &str) -> Option<PathBuf> {
    path.split('/').try_fold(root.to_path_buf(), |dir, part| {
        if !part.contains(REPLACED) {
            return Some(dir.join(part));
        }
        let entries = fs::read_dir(dir).ok()?.flatten();
        let mut found = entries.filter(|entry| entry.file_name().to_string_lossy() == part);
        found.next().filter(|_| found.next().is_none()).map(|entry| entry.path())
    })
}

/// The number of leading `..` in a path.
fn ups(path: &str) -> usize {
    path.split('/').skip(1).take_while(|part| *part == "..").count()
}

fn outside(group: &Cgroup) -> String {
    format!(
        "its cgroup {} is not in the tree that is seen here; in a container, run with the host's \
         cgroup namespace, or as a privileged one with the host's processes",
        group.path.escape_debug()
    )
}

/// The path relative to `outer` of the directory `inside`, at this depth. If `inside` is not the namespace's root,
/// as when the host's /sys is mounted in a container, the path of the cgroup there that has this process.
fn find(inside: &Path, outer: &Path, depth: usize) -> Option<String> {
    let id = |path: &Path| fs::metadata(path).ok().map(|of| (of.dev(), of.ino()));
    let wanted = id(inside)?;
    let mut level = vec![outer.to_path_buf()];
    for _ in 0..depth {
        let entries = level.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|is| is.is_dir()));
        level = dirs.map(|entry| entry.path()).collect();
    }
    let own = std::process::id().to_string();
    let is_ours = |dir: &Path| {
        let pids = read_kernel_text(dir.join("cgroup.procs")).unwrap_or_default();
        pids.lines().any(|pid| pid == own)
    };
    let found = level.iter().find(|dir| id(dir) == Some(wanted));
    let found = found.or_else(|| level.iter().find(|dir| is_ours(dir)))?;
    Some(format!("/{}", found.strip_prefix(outer).ok()?.to_str()?))
}

/// Parses `max 100000`, `50000 100000`, or version 1's `-1 100000`.
fn quota_cpus(text: &str) -> Option<f64> {
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    let (time, period) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let cpus = time / period;
    (time > 0.0 && cpus > 0.0 && cpus.is_finite()).then_some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_of_a_namespace_are_read_from_the_hosts_root() {
        let own = Some("/kubepods/pod1/own".to_string());
        let namespace = Namespace { depth: 3, one: None, two: own, is_seen: true };
        let outside = |path: &str, version| {
            let shown = Cgroup { path: path.into(), version };
            namespace.outside(&shown).map(|group| group.path)
        };
        for (shown, is) in [
            ("/", "/kubepods/pod1/own"),
            ("/inner", "/kubepods/pod1/own/inner"),
            ("/../other", "/kubepods/pod1/other"),
            ("/../../pod2/vm", "/kubepods/pod2/vm"),
            ("/../../../init.scope", "/init.scope"),
            ("/../../..", "/"),
        ] {
            assert_eq!(outside(shown, Version::Two).as_deref(), Some(is), "{shown}");
        }
        assert_eq!(outside("/../../../x", Version::One).as_deref(), Some("/x"));
        assert_eq!(outside("/../x", Version::One), None, "its own root is unknown");
        assert_eq!(outside("/../../../../x", Version::Two), None, "above the host's root");
        let blind = Namespace { is_seen: false, ..namespace.clone() };
        assert_eq!(blind.outside(&Cgroup { path: "/../x".into(), version: Version::Two }), None);
    }

    proptest! {
        #[test]
        fn no_quota_makes_it_panic(text: String, time: f64, period: f64) {
            quota_cpus(&text);
            let cpus = quota_cpus(&format!("{time} {period}"));
            prop_assert!(cpus.is_none_or(|cpus| cpus > 0.0 && cpus.is_finite()));
        }
    }
}
