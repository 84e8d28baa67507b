// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tracing instance of this process: its events do not appear in other traces, and removing it
//! removes everything in it.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::Error;

/// Where kernels have tracefs.
pub const TRACEFS: &str = "/sys/kernel/tracing";
/// Prefix of the process id in the instance's name.
const PREFIX: &str = "unspin-spinners-";

/// An instance is busy while one of its files is read.
const TRIES: u32 = 20;
const TRY_EVERY: Duration = Duration::from_millis(50);

/// The instance. Dropping it removes it.
#[derive(Debug)]
pub struct Instance {
    dir: PathBuf,
}

impl Instance {
    /// Creates an instance below `tracefs`, and removes those of killed processes.
    pub fn make(tracefs: &Path) -> Result<Instance, Error> {
        let instances = tracefs.join("instances");
        if !instances.is_dir() {
            return Err(match fs::metadata(&instances) {
                Err(e) if e.kind() == ErrorKind::PermissionDenied => Error::io(&instances, e),
                _ => Error::NoTracefs { dir: tracefs.to_path_buf() },
            });
        }
        remove_stale(&instances);
        let dir = unused(&instances);
        fs::create_dir(&dir).map_err(|e| Error::io(&dir, e))?;
        Ok(Instance { dir })
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    pub fn read(&self, file: &str) -> Result<String, Error> {
        let path = self.path(file);
        fs::read_to_string(&path).map_err(|e| Error::io(&path, e))
    }

    /// Sets or changes a trigger. Opening the file with O_TRUNC would remove its triggers.
    pub fn trigger(&self, file: &str, trigger: &str) -> Result<(), Error> {
        let path = self.path(file);
        let write = |mut file: fs::File| file.write_all(trigger.as_bytes());
        let opened = OpenOptions::new().append(true).open(&path);
        opened.and_then(write).map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Error::io(&path, source),
            _ => Error::Trigger { trigger: trigger.to_string(), source },
        })
    }

    /// Removes the instance. The error says why it stays.
    pub fn remove(mut self) -> Result<(), Error> {
        let dir = std::mem::take(&mut self.dir);
        remove(&dir).map_err(|source| Error::Stays { dir, source })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if !self.dir.as_os_str().is_empty() {
            // The next instance removes what remains.
            let _ = remove(&self.dir);
        }
    }
}

fn remove(dir: &Path) -> io::Result<()> {
    let mut tries = TRIES;
    loop {
        tries -= 1;
        match fs::remove_dir(dir) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && tries > 0 => {
                std::thread::sleep(TRY_EVERY);
            }
            result => return result,
        }
    }
}

/// A name that is not in use: a process may have several instances.
fn unused(instances: &Path) -> PathBuf {
    let pid = std::process::id();
    let name = |n: u32| instances.join(format!("{PREFIX}{pid}-{n}"));
    (0..).map(name).find(|dir| !dir.exists()).expect("some number is not taken")
}

/// Ignores errors: an instance that remains does no harm.
fn remove_stale(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
        let Some(pid) = number.and_then(|(pid, _)| pid.parse::<u32>().ok()) else { continue };
        if !Path::new("/proc").join(pid.to_string()).exists() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scratch::Scratch;

    fn tracefs() -> Scratch {
        let dir = Scratch::new();
        dir.dir("instances");
        dir
    }

    fn there(tracefs: &Path) -> Vec<String> {
        let entries = fs::read_dir(tracefs.join("instances")).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn instances_go_with_their_owner() {
        let tracefs = tracefs();
        let pid = std::process::id();
        let first = Instance::make(&tracefs).unwrap();
        let second = Instance::make(&tracefs).unwrap();
        assert_eq!(there(&tracefs), [format!("{PREFIX}{pid}-0"), format!("{PREFIX}{pid}-1")]);
        drop(first);
        second.remove().unwrap();
        assert!(there(&tracefs).is_empty());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let tracefs = tracefs();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        for name in [format!("{PREFIX}{gone}-0"), format!("{PREFIX}1-0"), "other".to_string()] {
            fs::create_dir(tracefs.join("instances").join(name)).unwrap();
        }
        drop(Instance::make(&tracefs).unwrap());
        assert_eq!(there(&tracefs), ["other".to_string(), format!("{PREFIX}1-0")]);
    }

    #[test]
    fn an_instance_that_stays_is_named() {
        let tracefs = tracefs();
        let instance = Instance::make(&tracefs).unwrap();
        let dir = instance.path("");
        fs::write(instance.path("file"), "").unwrap();
        let error = instance.remove().unwrap_err();
        assert!(matches!(error, Error::Stays { .. }), "{error}");
        assert!(error.to_string().contains(&dir.join("").to_string_lossy()[..20]));
    }

    #[test]
    fn no_tracefs_is_said() {
        let error = Instance::make(Path::new("/nonexistent")).unwrap_err();
        assert!(error.to_string().contains("mount -t tracefs"), "{error}");
        assert!(error.is_of_this_computer());
    }
}
