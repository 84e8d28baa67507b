// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's /proc and /sys. Tests build another host in directories of their own, and name these in the
//! environment.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// As the kernel has it.
const LINKS_MAX: usize = 40;

/// `/proc`, or the directory in `UNSPIN_PROC`.
pub fn proc() -> PathBuf {
    of(std::env::var_os("UNSPIN_PROC").as_deref(), "/proc")
}

/// `/sys`, or the directory in `UNSPIN_SYS`.
pub fn sys() -> PathBuf {
    sys_named().unwrap_or("/sys".into())
}

/// The directory in `UNSPIN_SYS`.
pub(crate) fn sys_named() -> Option<PathBuf> {
    std::env::var_os("UNSPIN_SYS").filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// The file `path` of the host whose root directory is `root`. Under `/`, `proc/…` and `sys/…` are in
/// [`proc()`] and [`sys()`], and other files are those of that host.
pub fn under(root: &Path, path: &str) -> PathBuf {
    match path.split_once('/').unwrap_or((path, "")) {
        ("proc", rest) if root == Path::new("/") => proc().join(rest),
        ("sys", rest) if root == Path::new("/") => sys().join(rest),
        _ if root == Path::new("/") => inside(&of_proc(&proc()), path),
        _ => inside(root, path),
    }
}

/// The file `path` below `root`, also through absolute links, which mean places below it: /etc/os-release is one in
/// NixOS, and /lib/modules/…/build is one almost everywhere.
fn inside(root: &Path, path: &str) -> PathBuf {
    let mut path = PathBuf::from(path);
    // A chain of more links is a loop.
    for _ in 0..LINKS_MAX {
        let parts: Vec<&OsStr> = path.iter().collect();
        let begins = (1..=parts.len()).map(|end| (end, parts[..end].iter().collect::<PathBuf>()));
        let mut links = begins.map(|(end, link)| (end, fs::read_link(root.join(&link)), link));
        let Some((end, Ok(to), link)) = links.find(|(_, to, _)| to.is_ok()) else { break };
        let mut target = match to.strip_prefix("/") {
            Ok(below) => below.to_path_buf(),
            Err(_) => link.with_file_name(to),
        };
        target.extend(&parts[end..]);
        path = target;
    }
    root.join(path)
}

/// The root directory of the host with this `proc`: that of its first process if it is seen, or what is beside `proc`.
/// Beside `/hostproc` is what belongs to this container.
pub(crate) fn of_proc(proc: &Path) -> PathBuf {
    let root = Path::new("/");
    let (of_first, beside) = (proc.join("1/root"), proc.parent().unwrap_or(root));
    let is_ours = proc == Path::new("/proc");
    match is_ours || (beside != root && !of_first.join("etc").is_dir()) {
        true => beside.to_path_buf(),
        false => of_first,
    }
}

/// An empty value counts as unset.
fn of(named: Option<&OsStr>, usual: &str) -> PathBuf {
    named.filter(|name| !name.is_empty()).map_or_else(|| usual.into(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_name_is_none() {
        assert_eq!(of(None, "/proc"), Path::new("/proc"));
        assert_eq!(of(Some(OsStr::new("")), "/proc"), Path::new("/proc"));
        assert_eq!(of(Some(OsStr::new("/x")), "/proc"), Path::new("/x"));
    }

    #[test]
    fn a_hosts_files_are_not_those_of_this_container() {
        assert_eq!(of_proc(Path::new("/proc")), Path::new("/"));
        assert_eq!(of_proc(Path::new("/host/proc")), Path::new("/host"));
        assert_eq!(of_proc(Path::new("/hostproc")), Path::new("/hostproc/1/root"));
    }

    #[test]
    fn a_link_leads_below_the_root() {
        let root = unspin_scratch::Scratch::with(&[("store/b/name", "x"), ("opt/name", "y")]);
        for (link, to) in [
            ("etc/name", "static/name"),
            ("etc/static", "/store/a"),
            ("store/a", "../store/b"),
            ("lib", "/opt"),
            ("etc/loop", "/etc/loop"),
        ] {
            root.link(link, to);
        }
        for (path, is) in [
            ("etc/name", "store/../store/b/name"),
            ("lib/name", "opt/name"),
            ("lib/none", "opt/none"),
            ("etc/loop", "etc/loop"),
        ] {
            assert_eq!(under(&root, path), root.join(is), "{path}");
        }
    }

    #[test]
    fn another_root_has_its_own() {
        let path = under(Path::new("/r"), "proc/sys/kernel/osrelease");
        assert_eq!(path, Path::new("/r/proc/sys/kernel/osrelease"));
        assert_eq!(under(Path::new("/"), "dev/kvm"), Path::new("/dev/kvm"));
    }
}
