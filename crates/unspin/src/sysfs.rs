// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module's files under /sys/module/unspin (docs/sysfs.md).

use crate::exit::{Cannot, Usage};
use anyhow::{bail, Context};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub const ROOT: &str = "/sys/module/unspin";

/// Files that can be written, and what they take.
pub const SETTINGS: &[(&str, &str)] = &[
    ("mode", "off, observe, aple, hvs or apples"),
    ("window_init_cycles", "TSC cycles, from window_min_cycles to window_max_cycles"),
    ("window_min_cycles", "TSC cycles, up to window_max_cycles"),
    ("window_max_cycles", "TSC cycles, from window_min_cycles"),
    ("delta_cycles", "TSC cycles; 0 holds the window still"),
    ("delta_max_cycles", "TSC cycles; up to delta_cycles keeps delta as it is"),
    ("epoch_ple_exits", "PLE exits, at least 1"),
    ("epoch_min_us", "microseconds an epoch lasts at least; 0 is the paper's"),
    ("hvs_variant", "hvs, paper, cpth-r, cpth-l or cch"),
];

/// The loaded module.
pub struct Module {
    root: PathBuf,
}

impl Module {
    pub fn open(root: &Path) -> anyhow::Result<Module> {
        if !root.is_dir() {
            return Err(Cannot("the module is not loaded (sudo unspin load)".to_string()).into());
        }
        Ok(Module { root: root.to_path_buf() })
    }

    /// A file of the module itself; `None` if it has none of that name.
    pub fn value(&self, name: &str) -> Option<String> {
        read(&self.root.join(name))
    }

    pub fn defaults(&self) -> BTreeMap<String, String> {
        values(&self.root.join("default"))
    }

    /// Every VM and its files. A VM may go while it is read: what is left of it is shown.
    pub fn vms(&self) -> anyhow::Result<Vec<(String, BTreeMap<String, String>)>> {
        let dir = self.root.join("vms");
        let entries = match fs::read_dir(&dir) {
            Ok(e) => e,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", dir.display())),
        };
        let mut vms: Vec<_> = entries
            .flatten()
            .filter(|e| e.path().is_dir())
            .map(|e| (e.file_name().to_string_lossy().into_owned(), values(&e.path())))
            .collect();
        vms.sort_by_key(|(id, _)| {
            let mut parts = id.split('-').map(|n| n.parse::<u64>().unwrap_or(u64::MAX));
            (parts.next(), parts.next())
        });
        Ok(vms)
    }

    /// Writes one setting of a VM, or of the defaults.
    pub fn set(&self, vm: Option<&str>, key: &str, value: &str) -> anyhow::Result<()> {
        let Some((_, allowed)) = SETTINGS.iter().find(|(k, _)| *k == key) else {
            let keys: Vec<&str> = SETTINGS.iter().map(|(k, _)| *k).collect();
            return Err(Usage(format!("no setting {key:?}; there are: {}", keys.join(", "))).into());
        };
        let dir = match vm {
            Some(id) => self.vm_dir(id)?,
            None => self.root.join("default"),
        };
        let path = dir.join(key);
        match fs::write(&path, value) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                Err(Cannot(format!("{}: only root may change it", path.display())).into())
            }
            Err(e) if is_refusal(&e) => {
                Err(Usage(format!("{key}={value} is refused; allowed: {allowed}")).into())
            }
            Err(e) if e.kind() == ErrorKind::NotFound && vm.is_some() => {
                bail!("the VM is gone")
            }
            Err(e) => Err(e).with_context(|| format!("cannot write {}", path.display())),
        }
    }

    fn vm_dir(&self, id: &str) -> anyhow::Result<PathBuf> {
        let vms = self.vms()?;
        // A process with one VM may be named by its pid alone.
        let of_pid = format!("{id}-");
        let found: Vec<&String> = vms
            .iter()
            .map(|(v, _)| v)
            .filter(|v| v.as_str() == id || v.starts_with(&of_pid))
            .collect();
        match found.as_slice() {
            [one] => Ok(self.root.join("vms").join(one)),
            [] => {
                let all: Vec<&str> = vms.iter().map(|(v, _)| v.as_str()).collect();
                let all = if all.is_empty() { "none".to_string() } else { all.join(", ") };
                Err(Usage(format!("no VM {id:?}; there are: {all}")).into())
            }
            many => Err(Usage(format!("process {id} has several VMs: {many:?}")).into()),
        }
    }
}

fn is_refusal(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ERANGE))
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|s| s.trim().to_string())
}

fn values(dir: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|e| Some((e.file_name().to_string_lossy().into_owned(), read(&e.path())?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("unspin-sysfs-{name}-{}", std::process::id()));
        for (path, text) in [
            ("live_objects", "3\n"),
            ("default/mode", "off\n"),
            ("vms/90-0/mode", "apples\n"),
            ("vms/90-0/ple_exits", "12\n"),
            ("vms/1200-0/mode", "off\n"),
            ("vms/1200-1/mode", "off\n"),
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn reads_defaults_and_vms_in_order() {
        let root = fake("read");
        let m = Module::open(&root).unwrap();
        assert_eq!(m.value("live_objects").as_deref(), Some("3"));
        assert_eq!(m.defaults()["mode"], "off");
        let ids: Vec<String> = m.vms().unwrap().into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["90-0", "1200-0", "1200-1"]);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn sets_what_exists_and_names_what_does_not() {
        let root = fake("set");
        let m = Module::open(&root).unwrap();
        m.set(None, "mode", "apples").unwrap();
        m.set(Some("90"), "mode", "hvs").unwrap();
        assert_eq!(fs::read_to_string(root.join("default/mode")).unwrap(), "apples");
        assert_eq!(fs::read_to_string(root.join("vms/90-0/mode")).unwrap(), "hvs");
        let wrong = m.set(None, "windw", "1").unwrap_err();
        assert!(
            wrong.downcast_ref::<Usage>().is_some() && wrong.to_string().contains("delta_cycles")
        );
        assert!(m.set(Some("7"), "mode", "off").unwrap_err().to_string().contains("90-0, 1200-0"));
        assert!(m.set(Some("1200"), "mode", "off").unwrap_err().to_string().contains("several"));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn without_the_module_it_cannot() {
        let e = Module::open(Path::new("/nonexistent/unspin")).err().unwrap();
        assert!(e.downcast_ref::<Cannot>().is_some());
    }
}
