// SPDX-License-Identifier: MIT OR Apache-2.0
//! VMs by the names people give them. The module calls a VM `<pid>-<n>`; without it there are the
//! processes.

use crate::exit::Usage;
use crate::sysfs::Module;
use anyhow::{bail, Context};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use unspin_host::{Host, VmProcess};

/// A VM, and the process behind it where it is known.
pub struct Vm {
    /// The module's, or where it is not asked the process's.
    pub id: String,
    pub process: Option<VmProcess>,
}

impl Vm {
    pub fn new(host: &Host, id: String) -> Vm {
        let process = host.of_module_id(&id);
        Vm { id, process }
    }

    /// Whether `given` is the id of its process, or of the thread that created it.
    pub fn has_pid(&self, given: u32) -> bool {
        let of_id = self.id.split_once('-').and_then(|(pid, _)| pid.parse().ok());
        of_id == Some(given) || self.process.as_ref().is_some_and(|p| p.pid == given)
    }

    /// Whether `given` is its name or its UUID.
    pub fn is_called(&self, given: &[u8]) -> bool {
        let Some(process) = &self.process else { return false };
        let uuid = process.uuid.as_ref().map(String::as_bytes);
        process.name.as_ref().is_some_and(|name| name.is_meant_by(given))
            || uuid.is_some_and(|uuid| uuid.eq_ignore_ascii_case(given))
    }

    /// Whether `given` is the module's id of it, or its process's id.
    fn is_numbered(&self, given: &[u8]) -> bool {
        let pid = || std::str::from_utf8(given).ok()?.parse().ok();
        self.id.as_bytes() == given || pid().is_some_and(|pid| self.has_pid(pid))
    }
}

/// `4242-0 (web1)`.
impl fmt::Display for Vm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)?;
        match self.process.as_ref().and_then(|p| p.name.as_ref()) {
            Some(name) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}

/// The VMs the module knows.
pub fn all(module: &Module, host: &Host) -> anyhow::Result<Vec<Vm>> {
    Ok(module.ids()?.into_iter().map(|id| Vm::new(host, id)).collect())
}

/// The module's id of the one VM that `given` names: by id, process id, name or UUID. `pid:` and
/// `name:` before it say which of the two kinds is meant.
pub fn find(module: &Module, host: &Host, given: &OsStr) -> anyhow::Result<String> {
    let wanted = Wanted::new(given);
    match one(all(module, host)?, given, |vm| wanted.is(vm)) {
        Ok(vm) => Ok(vm.id),
        Err(NotOne::None(why) | NotOne::Several(why)) => Err(Usage(why).into()),
    }
}

/// What the module calls the VMs of a process: after the threads that made them.
pub fn ids_of(module: &Module, host: &Host, process: &VmProcess) -> anyhow::Result<Vec<String>> {
    let threads = host.threads(process.pid);
    let is_its = |id: &String| {
        let maker = id.split_once('-').and_then(|(tid, _)| tid.parse::<u32>().ok());
        maker.is_some_and(|tid| tid == process.pid || threads.contains(&tid))
    };
    Ok(module.ids()?.into_iter().filter(is_its).collect())
}

/// The processes that have VMs, whether the module knows them or not. That a process has several is
/// not seen here.
pub fn processes(host: &Host) -> anyhow::Result<Vec<VmProcess>> {
    host.vm_processes().context("cannot look for VMs")
}

/// The one of these that `given` names, as [`find`] takes it.
pub fn find_process(
    processes: Vec<VmProcess>,
    host: &Host,
    given: &OsStr,
) -> anyhow::Result<VmProcess> {
    let wanted = Wanted::new(given);
    let pid = wanted.of_module_id(host);
    let is_meant = |vm: &Vm| wanted.is(vm) || pid.is_some_and(|pid| vm.has_pid(pid));
    let as_vm = |process: VmProcess| Vm { id: process.pid.to_string(), process: Some(process) };
    match one(processes.into_iter().map(as_vm).collect(), given, is_meant) {
        Ok(vm) => vm.process.context("a VM without a process"),
        Err(NotOne::None(why)) => bail!("{why}"),
        Err(NotOne::Several(why)) => Err(Usage(why).into()),
    }
}

/// A VM as named by the user.
struct Wanted<'a> {
    numbers: bool,
    names: bool,
    text: &'a [u8],
}

impl Wanted<'_> {
    fn new(given: &OsStr) -> Wanted<'_> {
        let bytes = given.as_bytes();
        if let Some(text) = bytes.strip_prefix(b"pid:") {
            Wanted { numbers: true, names: false, text }
        } else if let Some(text) = bytes.strip_prefix(b"name:") {
            Wanted { numbers: false, names: true, text }
        } else {
            Wanted { numbers: true, names: true, text: bytes }
        }
    }

    fn is(&self, vm: &Vm) -> bool {
        (self.numbers && vm.is_numbered(self.text)) || (self.names && vm.is_called(self.text))
    }

    /// The process behind `<pid>-<n>`.
    fn of_module_id(&self, host: &Host) -> Option<u32> {
        let id = std::str::from_utf8(self.text).ok().filter(|_| self.numbers)?;
        id.split_once('-').and_then(|(_, n)| n.parse::<u32>().ok())?;
        host.of_module_id(id).map(|process| process.pid)
    }
}

/// Why a name does not identify one VM.
enum NotOne {
    None(String),
    Several(String),
}

fn one(vms: Vec<Vm>, given: &OsStr, is_meant: impl Fn(&Vm) -> bool) -> Result<Vm, NotOne> {
    let (mut meant, others): (Vec<Vm>, Vec<Vm>) = vms.into_iter().partition(is_meant);
    let list = |vms: &[Vm]| vms.iter().map(Vm::to_string).collect::<Vec<_>>().join(", ");
    match meant.len() {
        1 => Ok(meant.remove(0)),
        0 if others.is_empty() => Err(NotOne::None(format!("no VM {given:?}; VMs: none"))),
        0 => Err(NotOne::None(format!("no VM {given:?}; VMs: {}", list(&others)))),
        _ => Err(NotOne::Several(format!(
            "{given:?} names several VMs: {}; use an id, for example pid:{}",
            list(&meant),
            meant[0].id
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn a_vm_is_found_by_all_its_names() {
        let fake = Fake::new("find");
        fake.vm("41-0", "guest=web,,1,debug-threads=on");
        fake.vm("42-0", "42\u{1b}[2J");
        fake.vm("43-0", "twin");
        fake.vm("44-0", "twin");
        fake.vm("50-0", "41-0");
        fake.vm("60-0", "two");
        fake.vm("60-1", "two");
        let find = |given: &str| find(&fake.module(), &fake.host(), OsStr::new(given));
        for given in ["web,1", "41", "pid:41-0", "name:web,1"] {
            assert_eq!(find(given).unwrap(), "41-0", "{given}");
        }
        assert_eq!(find("00000000-0000-0000-0000-000000000043").unwrap(), "43-0");
        assert_eq!(find("42\\u{1b}[2J").unwrap(), "42-0", "as it is written out");
        assert_eq!(find("42\u{1b}[2J").unwrap(), "42-0", "as it is");
        assert_eq!(find("name:41-0").unwrap(), "50-0");
        let wrong = |given: &str| {
            let e = find(given).unwrap_err();
            assert!(e.downcast_ref::<Usage>().is_some(), "{e}");
            e.to_string()
        };
        assert!(wrong("twin").contains("several VMs: 43-0 (twin), 44-0 (twin)"));
        assert!(wrong("41-0").contains("several VMs: 41-0 (web,1), 50-0 (41-0)"));
        assert!(wrong("60").contains("use an id, for example pid:60-0"));
        assert!(wrong("web").contains("VMs: 41-0 (web,1), 42-0 (42\\u{1b}[2J)"));
        assert!(wrong("pid:twin").contains("no VM"));
        assert!(wrong("").contains("no VM \"\""));
    }
    #[test]
    fn a_process_is_found_by_all_its_names_without_the_module() {
        let fake = Fake::new("find-process");
        fake.vm("41-0", "guest=web,,1,debug-threads=on");
        fake.vm("43-0", "twin");
        fake.vm("44-0", "twin");
        fake.vm("50-0", "41-0");
        // A thread that made the VM of 41.
        fake.write("proc/45/status", "Tgid:\t41");
        let host = fake.host();
        let find = |given: &str| find_process(processes(&host).unwrap(), &host, OsStr::new(given));
        for given in ["web,1", "41", "pid:41", "pid:41-0", "45-0", "name:web,1"] {
            assert_eq!(find(given).unwrap().pid, 41, "{given}");
        }
        assert_eq!(find("00000000-0000-0000-0000-000000000043").unwrap().pid, 43);
        assert_eq!(find("name:41-0").unwrap().pid, 50);
        for (given, is_usage, words) in [
            ("twin", true, "several VMs: 43 (twin), 44 (twin); use an id, for example pid:43"),
            ("41-0", true, "several VMs: 41 (web,1), 50 (41-0)"),
            ("web", false, "no VM \"web\"; VMs: 41 (web,1), 43 (twin), 44 (twin), 50 (41-0)"),
            ("41-x", false, "no VM"),
            ("pid:twin", false, "no VM"),
            ("", false, "no VM \"\""),
        ] {
            let e = find(given).unwrap_err();
            assert!(e.to_string().contains(words), "{e}");
            assert_eq!(e.downcast_ref::<Usage>().is_some(), is_usage, "{e}");
        }
        let nobody = find_process(Vec::new(), &host, OsStr::new("web")).unwrap_err();
        assert_eq!(nobody.to_string(), "no VM \"web\"; VMs: none");
    }
}
