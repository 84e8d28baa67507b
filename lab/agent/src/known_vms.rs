// SPDX-License-Identifier: MIT OR Apache-2.0
//! The VMs that the module knows, with its counts.

use std::path::Path;
use std::time::{Duration, Instant};

use unspin_host::module::{maker_of, Whose};
use unspin_scenario::result::{ModuleStats, WentBack};
use unspin_uapi::{turns_refused, TURNS_REFUSED};

use crate::module::Module;
use crate::Error;

impl Module {
    fn ids(&self) -> Result<Vec<String>, Error> {
        self.files.ids().map_err(|e| Error::io("the module's VMs", e))
    }

    /// An error naming the VMs the module knows beside those of processes `own`. One whose process has
    /// ended is only waiting to be forgotten.
    pub(crate) fn check_alone(&self, own: &[u32]) -> Result<(), Error> {
        let is_other = |vm: &String| {
            let lives = |pid: &u32| Path::new("/proc").join(pid.to_string()).exists();
            maker_of(vm).filter(lives).is_some_and(|pid| !own.contains(&pid))
        };
        let others: Vec<String> = self.ids()?.into_iter().filter(is_other).collect();
        match others.is_empty() {
            true => Ok(()),
            false => Err(Error::OtherVms { vms: others.join(", ") }),
        }
    }

    /// The last VM that process `pid` created. A process has one VM, but the numbers of a reused
    /// process id continue. `None` if the module knows no VM of it.
    fn id(&self, pid: u32) -> Result<Option<String>, Error> {
        Ok(self.ids()?.into_iter().rfind(|id| maker_of(id) == Some(pid)))
    }

    /// The same for a VM that may have been created just now: a kernel worker of the module makes
    /// its directory later.
    pub(crate) fn id_soon(&self, pid: u32, patience: Duration) -> Result<Option<String>, Error> {
        let start = Instant::now();
        loop {
            let id = self.id(pid)?;
            if id.is_some() || start.elapsed() >= patience {
                return Ok(id);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Counters of the VM that process `pid` created; `None` if the module does not know it. An
    /// error if one of them cannot be read: unknown is not 0.
    pub(crate) fn stats(&self, pid: u32) -> Result<Option<ModuleStats>, Error> {
        let Some(id) = self.id(pid)? else { return Ok(None) };
        let vm = Whose::Vm(&id);
        let count = |name: &str| {
            let path = self.files.dir(vm).join(name);
            let text = self.files.file(vm, name).map_err(|e| Error::io(&path, e))?;
            text.parse::<u64>().map_err(|_| Error::Counter {
                path: path.display().to_string(),
                text: text.chars().take(40).collect(),
            })
        };
        ModuleStats::read(count).map(Some)
    }

    /// Why the VM that process `pid` created has no turns. `None` if it may have them, or if the
    /// module has no such file.
    pub(crate) fn turns_refused(&self, pid: u32) -> Result<Option<String>, Error> {
        let Some(id) = self.id(pid)? else { return Ok(None) };
        let vm = Whose::Vm(&id);
        match self.files.file(vm, TURNS_REFUSED) {
            Ok(text) => Ok(turns_refused(&text).map(str::to_string)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(self.files.dir(vm).join(TURNS_REFUSED), e)),
        }
    }
}

/// What happened between two readings.
pub(crate) fn difference(first: &ModuleStats, second: &ModuleStats) -> Result<ModuleStats, Error> {
    let lost = |WentBack { counter, from, to }| Error::WentBack { counter, from, to };
    second.since(first).map_err(lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::tests::{at, counters, root_with_vms};
    use std::fs;

    #[test]
    fn other_vms_are_refused_and_ended_ones_are_not() {
        let root = unspin_scratch::Scratch::new();
        let vms = at(&root);
        vms.check_alone(&[]).unwrap();
        // No process has a number above the largest there can be.
        root.dir("vms/4194305-0");
        vms.check_alone(&[]).unwrap();
        let alive = format!("{}-0", std::process::id());
        root.dir(format!("vms/{alive}"));
        let error = vms.check_alone(&[]).unwrap_err();
        assert!(error.to_string().contains(&format!("({alive})")), "{error}");
    }

    #[test]
    fn a_vm_is_found_by_its_process() {
        let root = root_with_vms(&[("41-0", "1"), ("4-0", "2"), ("4-1", "3\n")]);
        let vms = at(&root);
        assert_eq!(vms.stats(4).unwrap().unwrap().ple_exits, 3);
        assert_eq!(vms.stats(41).unwrap().unwrap().ple_exits, 1);
        assert!(vms.stats(1).unwrap().is_none());
        fs::remove_dir_all(&root).unwrap();
        assert!(vms.stats(4).unwrap().is_none());
    }

    #[test]
    fn a_vm_without_turns_has_a_reason_and_an_older_module_says_nothing() {
        let root = root_with_vms(&[("4-0", "1"), ("5-0", "1")]);
        let vms = at(&root);
        assert_eq!(vms.turns_refused(4).unwrap(), None, "no such file");
        assert_eq!(vms.turns_refused(6).unwrap(), None, "no such VM");
        let write = |vm: &str, text: &str| {
            fs::write(root.join("vms").join(vm).join("turns_refused"), text).unwrap();
        };
        write("4-0", "none\n");
        write("5-0", "vCPUs of a real-time class\n");
        assert_eq!(vms.turns_refused(4).unwrap(), None);
        let reason = vms.turns_refused(5).unwrap();
        assert_eq!(reason.as_deref(), Some("vCPUs of a real-time class"));
    }

    #[test]
    fn a_vm_that_was_made_just_now_is_waited_for() {
        let root = root_with_vms(&[("4-0", "1")]);
        let vms = at(&root);
        let later = root.join("vms/5-0");
        let made = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            fs::create_dir(later).unwrap();
        });
        assert_eq!(vms.id_soon(5, Duration::from_secs(60)).unwrap().as_deref(), Some("5-0"));
        made.join().unwrap();
        assert_eq!(vms.id_soon(6, Duration::from_millis(5)).unwrap(), None);
    }

    #[test]
    fn a_counter_that_cannot_be_read_is_not_0() {
        let root = root_with_vms(&[("4-0", "2")]);
        let vms = at(&root);
        for counter in counters() {
            let path = root.join("vms/4-0").join(counter);
            fs::write(&path, "many").unwrap();
            let error = vms.stats(4).unwrap_err().to_string();
            assert!(error.contains(counter) && error.contains("many"), "{error}");
            fs::remove_file(&path).unwrap();
            assert!(vms.stats(4).unwrap_err().to_string().contains(counter), "{counter}");
            fs::write(&path, "2").unwrap();
        }
    }

    #[test]
    fn a_counter_that_goes_back_is_not_0() {
        let at = |ple_exits| ModuleStats { ple_exits, window_cycles: 7, ..Default::default() };
        assert_eq!(difference(&at(5), &at(9)).unwrap(), at(4));
        let error = difference(&at(9), &at(5)).unwrap_err().to_string();
        assert!(error.contains("ple_exits fell from 9 to 5"), "{error}");
    }
}
