// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loaded module's files (docs/sysfs.md): one value per file, for the defaults and for each VM.

use crate::place;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use unspin_text::read_kernel_text;
use unspin_uapi::setting_files;

/// The module's directory, which exists while the module is loaded.
pub fn root() -> PathBuf {
    place::sys().join("module/unspin")
}

/// File names of a directory of the module, and their contents without the newline.
pub type Files = BTreeMap<String, String>;

/// The loaded module.
#[derive(Debug, Clone)]
pub struct Module {
    root: PathBuf,
}

/// Whose settings: the defaults, or those of the VM with this id of the module.
#[derive(Debug, Clone, Copy)]
pub enum Whose<'a> {
    Defaults,
    Vm(&'a str),
}

/// A setting that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub struct Refused {
    pub path: PathBuf,
    pub setting: String,
    pub value: String,
    pub source: Error,
    /// Settings that were written before the failure and could not be restored.
    pub changed: Vec<StaysChanged>,
}

/// A setting that could not be restored.
#[derive(Debug, thiserror::Error)]
#[error("{setting} stays changed (it was {was}): {source}")]
pub struct StaysChanged {
    pub setting: &'static str,
    pub was: String,
    pub source: Error,
}

impl Module {
    /// The module whose directory is `root`; `None` if it is not loaded.
    pub fn open(root: &Path) -> Option<Module> {
        root.is_dir().then(|| Module { root: root.to_path_buf() })
    }

    pub fn is_loaded(&self) -> bool {
        self.root.is_dir()
    }

    /// A file of the module itself; `None` if there is no such file.
    pub fn value(&self, name: &str) -> Option<String> {
        read(&self.root.join(name)).ok()
    }

    /// The directory of these settings. It disappears with the VM.
    pub fn dir(&self, whose: Whose) -> PathBuf {
        match whose {
            Whose::Defaults => self.root.join("default"),
            Whose::Vm(id) => self.root.join("vms").join(id),
        }
    }

    /// Reads one file.
    ///
    /// # Errors
    /// The file is missing, for example because the VM has ended, or cannot be read.
    pub fn file(&self, whose: Whose, name: &str) -> Result<String, Error> {
        read(&self.dir(whose).join(name))
    }

    /// All files; empty if the VM has ended.
    pub fn files(&self, whose: Whose) -> Files {
        let Ok(entries) = fs::read_dir(self.dir(whose)) else { return Files::new() };
        let file = |entry: fs::DirEntry| {
            Some((entry.file_name().to_string_lossy().into_owned(), read(&entry.path()).ok()?))
        };
        entries.flatten().filter_map(file).collect()
    }

    pub fn defaults(&self) -> Files {
        self.files(Whose::Defaults)
    }

    /// The files of a VM; empty if it has ended.
    pub fn vm(&self, id: &str) -> Files {
        self.files(Whose::Vm(id))
    }

    /// Those of the settings that it has.
    pub fn settings(&self, whose: Whose) -> Files {
        let value = |name: &str| Some((name.to_string(), self.file(whose, name).ok()?));
        setting_files().filter_map(value).collect()
    }

    /// Those of the named files that a VM has.
    pub fn vm_files(&self, id: &str, names: &[&str]) -> Files {
        let file = |name: &&str| Some((name.to_string(), self.file(Whose::Vm(id), name).ok()?));
        names.iter().filter_map(file).collect()
    }

    /// Every VM and its files. If a VM ends meanwhile, the files read so far are returned.
    ///
    /// # Errors
    /// As [`Module::ids`].
    pub fn vms(&self) -> Result<Vec<(String, Files)>, Error> {
        let with_files = |id: String| (id.clone(), self.vm(&id));
        Ok(self.ids()?.into_iter().map(with_files).collect())
    }

    /// The module's ids of VMs, ordered by process and number; empty if there are none.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn ids(&self) -> Result<Vec<String>, Error> {
        let dir = self.root.join("vms");
        let named = |e: Error| Error::new(e.kind(), format!("cannot read {}: {e}", dir.display()));
        let entries = match fs::read_dir(&dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(named)?,
        };
        let vms = entries.flatten().filter(|entry| entry.path().is_dir());
        let mut ids: Vec<String> =
            vms.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        ids.sort_by_key(|id| parts_of(id));
        Ok(ids)
    }

    /// Writes settings in this order: all of them, or none if the module refuses one. Also restores
    /// values that a refused write has moved.
    ///
    /// # Errors
    /// The first refused setting.
    pub fn write<K: AsRef<str>, V: AsRef<str>>(
        &self,
        whose: Whose,
        settings: &[(K, V)],
    ) -> Result<(), Refused> {
        let before = self.settings(whose);
        for (setting, value) in settings.iter().map(|(k, v)| (k.as_ref(), v.as_ref())) {
            let path = self.dir(whose).join(setting);
            if let Err(source) = fs::write(&path, value) {
                let changed = self.put_back(whose, &before);
                let (setting, value) = (setting.to_string(), value.to_string());
                return Err(Refused { path, setting, value, source, changed });
            }
        }
        Ok(())
    }

    /// Restores the settings in `before`. It compares all of them, because writing a bound may move
    /// others.
    pub fn put_back(&self, whose: Whose, before: &Files) -> Vec<StaysChanged> {
        let dir = self.dir(whose);
        let stays = |setting: &'static str| {
            let (was, path) = (before.get(setting)?, dir.join(setting));
            if read(&path).is_ok_and(|now| now == *was) {
                return None;
            }
            let source = fs::write(&path, was).err()?;
            Some(StaysChanged { setting, was: was.clone(), source })
        };
        setting_files().filter_map(stays).collect()
    }
}

/// The thread id and number in a VM's id; the largest numbers for a malformed id.
fn parts_of(id: &str) -> (u64, u64) {
    let mut parts = id.split('-').map(|n| n.parse().unwrap_or(u64::MAX));
    (parts.next().unwrap_or(u64::MAX), parts.next().unwrap_or(u64::MAX))
}

/// The thread in a VM's id, which created the VM; `None` for a malformed id.
pub fn maker_of(id: &str) -> Option<u32> {
    id.split_once('-')?.0.parse().ok()
}

fn read(path: &Path) -> Result<String, Error> {
    read_kernel_text(path).map(|text| text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scratch::Scratch;

    fn fake() -> Scratch {
        Scratch::with(&[
            ("live_objects", "3\n"),
            ("default/mode", "off\n"),
            ("default/window_max_cycles", "32768\n"),
            ("vms/90-0/mode", "apples\n"),
            ("vms/90-0/ple_exits", "12\n"),
            ("vms/1200-0/mode", "off\n"),
            ("vms/1200-1/mode", "off\n"),
        ])
    }

    #[test]
    fn reads_defaults_and_vms_in_order() {
        let root = fake();
        let m = Module::open(&root).unwrap();
        assert_eq!(m.value("live_objects").as_deref(), Some("3"));
        assert_eq!(m.value("none"), None);
        assert_eq!(m.defaults()["mode"], "off");
        let ids: Vec<String> = m.vms().unwrap().into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["90-0", "1200-0", "1200-1"]);
        assert_eq!(ids.iter().map(|id| maker_of(id)).collect::<Vec<_>>()[1], Some(1200));
        assert_eq!(maker_of("x"), None);
        assert_eq!(m.vm("90-0")["ple_exits"], "12");
        assert_eq!(m.vm_files("90-0", &["mode", "none"]).len(), 1);
        assert!(m.vm("91-0").is_empty() && m.file(Whose::Vm("91-0"), "mode").is_err());
        fs::remove_dir_all(&root).unwrap();
        assert!(Module::open(&root).is_none() && !m.is_loaded() && m.ids().unwrap().is_empty());
    }

    #[test]
    fn what_was_written_before_a_refusal_is_put_back() {
        let root = fake();
        let m = Module::open(&root).unwrap();
        let dir = m.dir(Whose::Defaults);
        let now = |setting: &str| fs::read_to_string(dir.join(setting)).unwrap();
        // Even root cannot write this.
        fs::create_dir(dir.join("delta_cycles")).unwrap();
        let settings = [("window_max_cycles", "9000"), ("delta_cycles", "5"), ("mode", "hvs")];
        let refused = m.write(Whose::Defaults, &settings).unwrap_err();
        assert_eq!((refused.setting.as_str(), refused.changed.len()), ("delta_cycles", 0));
        assert!(refused.to_string().contains("default/delta_cycles"), "{refused}");
        assert_eq!((now("window_max_cycles"), now("mode")), ("32768".into(), "off\n".into()));
        m.write(Whose::Defaults, &[("mode", "hvs")]).unwrap();
        m.write(Whose::Vm("90-0"), &[("mode".to_string(), "off".to_string())]).unwrap();
        assert_eq!((now("mode"), &*m.vm("90-0")["mode"]), ("hvs".into(), "off"));
    }
}
