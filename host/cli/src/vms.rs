// SPDX-License-Identifier: MIT OR Apache-2.0
//! VMs by name. The module's id of a VM is `<pid>-<n>`; without the module, VMs are found by
//! process.

use crate::exit::Usage;
use crate::sysfs::Module;
use anyhow::{bail, Context};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use unspin_host::module::maker_of;
use unspin_host::{keep_told, meant, tell_apart, By, Host, Kind, Name, VmProcess};
use unspin_text::names::distance;

/// Limit of characters of a given name in messages.
const NAME_SHOWN_MAX: usize = 64;

/// A VM, and its process if known.
pub struct Vm {
    /// The module's id; without the module, the process id.
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
        maker_of(&self.id) == Some(given) || self.process.as_ref().is_some_and(|p| p.pid == given)
    }

    fn meant(&self, given: &[u8]) -> Option<By> {
        meant(given, self.process.as_ref(), Some(&self.id))
    }

    /// Distance of its names from `given`, in lower case: the number of edits, less if one contains
    /// the other.
    fn distance(&self, given: &str) -> usize {
        let Some(vm) = &self.process else { return usize::MAX };
        let names = vm.names.iter().map(|(_, name)| name.short(NAME_SHOWN_MAX).to_lowercase());
        let of = |name: String| match name.contains(given) || given.contains(&name) {
            true => 1 + name.len().abs_diff(given.len()) / 2,
            false => 1 + distance(given, &name),
        };
        names.map(of).min().unwrap_or(usize::MAX)
    }

    /// A text by which commands find this VM, whatever names others have.
    fn told_apart(&self) -> String {
        match self.process.as_ref().and_then(VmProcess::apart) {
            Some(apart) if !apart.contains(' ') => apart.to_string(),
            _ => format!("pid:{}", self.id),
        }
    }

    fn has_vmid(&self) -> bool {
        self.process.as_ref().is_some_and(|vm| vm.names.get(Kind::Vmid).is_some())
    }
}

/// `4242-0 (web1)`, or `4242-0 (web1, vmid:104)` if others have this name.
impl fmt::Display for Vm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.process {
            Some(process) => f.write_str(&process.label(&self.id)),
            None => f.write_str(&self.id),
        }
    }
}

/// The VMs of the module. The titles of their processes are distinct.
pub fn all(module: &Module, host: &Host) -> anyhow::Result<Vec<Vm>> {
    Ok(with_ids(module.ids()?, host))
}

/// The VMs with these ids.
pub fn with_ids(ids: Vec<String>, host: &Host) -> Vec<Vm> {
    let mut records = host.records();
    let mut of = |id: &str| host.vm_process_by(maker_of(id)?, &mut records);
    let mut vms: Vec<Vm> = ids.into_iter().map(|id| Vm { process: of(&id), id }).collect();
    let maker = |vm: &Vm| maker_of(&vm.id);
    let is_first = |vm: &&Vm| vm.process.as_ref().is_some_and(|of| Some(of.pid) == maker(vm));
    let makers: BTreeSet<u32> = vms.iter().filter(|vm| !is_first(vm)).filter_map(maker).collect();
    let makers: Vec<u32> = makers.into_iter().collect();
    let (mut processes, mut seen) = (Vec::new(), BTreeSet::new());
    for vm in vms.iter().filter_map(|vm| vm.process.as_ref()) {
        if seen.insert(vm.pid) {
            processes.push(vm.clone());
        }
    }
    tell_apart(&mut processes, &makers);
    for vm in vms.iter_mut().filter_map(|vm| vm.process.as_mut()) {
        if let Some(told) = processes.iter().find(|told| told.pid == vm.pid) {
            *vm = told.clone();
        }
    }
    vms
}

/// The module's id of the one VM that `given` names, by the rules of [`meant`]. If a bare number is a process
/// id, a message says so.
pub fn find(module: &Module, host: &Host, given: &OsStr) -> anyhow::Result<String> {
    Ok(one(all(module, host)?, given, |vm| vm.meant(given.as_bytes()))?.id)
}

/// The VMs that have `given` as a name.
pub fn called<'a>(vms: &[&'a Vm], given: &str) -> Vec<&'a Vm> {
    let by = |vm: &'a Vm| Some((vm.meant(given.as_bytes())?, vm));
    let mut found: Vec<(By, &Vm)> = vms.iter().filter_map(|vm| by(vm)).collect();
    keep_told(&mut found);
    found.into_iter().filter(|(by, _)| *by > By::Number).map(|(_, vm)| vm).collect()
}

/// Of several VMs, keeps those with vCPUs, if there are any.
fn keep_running(found: &mut Vec<(By, Vm)>) {
    let runs = |(_, vm): &(By, Vm)| vm.process.as_ref().is_none_or(VmProcess::has_vcpus);
    if found.iter().any(runs) {
        found.retain(runs);
    }
}

/// The error for a text that names several VMs: which ones, and how to select one.
pub fn ambiguous(given: &OsStr, found: &[&Vm]) -> String {
    let found: Vec<(By, &Vm)> = found.iter().map(|vm| (By::Name, *vm)).collect();
    several(&found, &shortened(given))
}

/// The module's ids of a process's VMs, which contain the threads that created them.
pub fn ids_of(module: &Module, host: &Host, process: &VmProcess) -> anyhow::Result<Vec<String>> {
    let threads = host.threads(process.pid);
    let is_its =
        |id: &String| maker_of(id).is_some_and(|tid| tid == process.pid || threads.contains(&tid));
    Ok(module.ids()?.into_iter().filter(is_its).collect())
}

/// The processes that have VMs, whether the module knows them or not. Several VMs of one process
/// count as one.
pub fn processes(host: &Host) -> anyhow::Result<Vec<VmProcess>> {
    host.vm_processes().context("cannot look for VMs")
}

/// Says that VMs may be missing, if this user may not look into all processes.
pub fn say_unseen(host: &Host) {
    if let Some(why) = host.unseen() {
        say!("unspin: {why}");
    }
}

/// The one of these that `given` names, by the rules of [`find`].
pub fn find_process(
    processes: Vec<VmProcess>,
    host: &Host,
    given: &OsStr,
) -> anyhow::Result<VmProcess> {
    // The module's id of a VM may begin with any thread of the process.
    let of_thread = of_module_id(host, given.as_bytes());
    let is_meant = |vm: &Vm| {
        let id = of_thread.filter(|(pid, _)| vm.has_pid(*pid)).map(|(_, id)| id);
        meant(given.as_bytes(), vm.process.as_ref(), id)
    };
    let as_vm = |process: VmProcess| Vm { id: process.pid.to_string(), process: Some(process) };
    let vm = one(processes.into_iter().map(as_vm).collect(), given, is_meant)?;
    vm.process.context("a VM without a process")
}

/// The process of `<pid>-<n>` or `pid:<pid>-<n>`, and the id. A name may follow in parentheses.
fn of_module_id<'g>(host: &Host, given: &'g [u8]) -> Option<(u32, &'g str)> {
    let id = std::str::from_utf8(given.strip_prefix(b"pid:").unwrap_or(given)).ok()?;
    let id = id.split_once(" (").map_or(id, |(id, _)| id);
    id.split_once('-').and_then(|(_, n)| n.parse::<u32>().ok())?;
    host.of_module_id(id).map(|process| (process.pid, id))
}

/// Limit of VMs in a message.
const NAMED_MAX: usize = 5;

/// The one VM that is named. None is a failure, several are wrong usage.
fn one(vms: Vec<Vm>, given: &OsStr, meant: impl Fn(&Vm) -> Option<By>) -> anyhow::Result<Vm> {
    let count = vms.len();
    let has_vmids = vms.iter().any(Vm::has_vmid);
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for vm in vms {
        match meant(&vm) {
            Some(by) => found.push((by, vm)),
            None => others.push(vm),
        }
    }
    keep_told(&mut found);
    keep_running(&mut found);
    let asked = shortened(given);
    match found.len() {
        1 => {
            let (by, vm) = found.remove(0);
            if by == By::Number && has_vmids {
                bail!(
                    "no VM has the VMID or name {asked}; process {asked} is VM {vm}: to select \
                     this VM, write pid:{asked}"
                )
            }
            if by == By::Number {
                say!("unspin: {asked} is taken as a process id: VM {vm}");
            }
            Ok(vm)
        }
        0 if others.is_empty() => bail!("no VM {asked}; VMs: none"),
        0 => bail!("no VM {asked}; {}", nearest(others, given, count)),
        _ => {
            let found: Vec<(By, &Vm)> = found.iter().map(|(by, vm)| (*by, vm)).collect();
            Err(Usage(several(&found, &asked)).into())
        }
    }
}

/// A given name in quotes, shortened for messages; a number without quotes.
fn shortened(given: &OsStr) -> String {
    let name = Name::new(given.as_bytes()).short(NAME_SHOWN_MAX);
    match !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        true => name,
        false => format!("\"{}\"", name.replace('"', "\\\"")),
    }
}

/// The VMs that `given` may have meant, by title, and their number.
fn nearest(vms: Vec<Vm>, given: &OsStr, count: usize) -> String {
    let given = Name::new(given.as_bytes()).short(NAME_SHOWN_MAX).to_lowercase();
    let mut vms: Vec<(usize, Vm)> = vms.into_iter().map(|vm| (vm.distance(&given), vm)).collect();
    vms.sort_by_key(|(distance, _)| *distance);
    let named: Vec<String> = vms.iter().take(NAMED_MAX).map(|(_, vm)| vm.to_string()).collect();
    match count > NAMED_MAX {
        false => format!("VMs: {}", named.join(", ")),
        true => format!("the nearest of {count} VMs: {}", named.join(", ")),
    }
}

fn several(found: &[(By, &Vm)], asked: &str) -> String {
    let mut list: Vec<String> =
        found.iter().take(NAMED_MAX).map(|(_, vm)| vm.to_string()).collect();
    if found.len() > NAMED_MAX {
        list.push(format!("and {} more", found.len() - NAMED_MAX));
    }
    let is_process = found.iter().any(|(by, _)| *by == By::Number);
    let by_name = found.iter().find(|(by, _)| *by == By::Name);
    let how = match (is_process, by_name) {
        (true, Some((_, vm))) => {
            let of_vm = vm.process.iter().flat_map(|vm| vm.names.iter());
            let number = asked.as_bytes();
            let kind = of_vm.filter(|(_, name)| name.as_bytes() == number).map(|(kind, _)| kind);
            let key = kind.min().map_or("name", Kind::key);
            format!("write {key}:{asked} for the VM of that name, pid:{asked} for the process")
        }
        _ => format!("use an id, for example {}", found[0].1.told_apart()),
    };
    format!("{asked} names several VMs: {}; {how}", list.join(", "))
}

/// Whether a VM may be changed that nobody has named: it is of root, or of a user that exists to run VMs. Any user
/// may start a process with a VM. `remedy`: how the VM is named, up to its name.
///
/// # Errors
/// In words, why not.
pub fn is_of_trusted(host: &Host, vm: &VmProcess, remedy: &str) -> Result<(), String> {
    match host.owner(vm.pid) {
        Some(owner) if owner.is_trusted() => Ok(()),
        Some(owner) => Err(format!("it belongs to user {owner}; {remedy} pid:{}", vm.pid)),
        None => Err("it is not known whose it is, or it has ended".into()),
    }
}

/// Whether the threads of its vCPUs are known, each with a number of its own.
///
/// # Errors
/// In words, why not.
pub fn has_distinct_vcpus(vm: &VmProcess) -> Result<(), String> {
    if !vm.is_all_known() {
        return Err(
            "it does not name its vCPU threads; start QEMU with -name debug-threads=on".into()
        );
    }
    let numbers: BTreeSet<u32> = vm.vcpus.iter().map(|vcpu| vcpu.index).collect();
    if numbers.len() < vm.vcpus.len() {
        return Err("2 of its vCPUs have the same number: its process has several VMs".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn a_vm_is_found_by_all_its_names() {
        let fake = Fake::new();
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
        for (given, is_usage, words) in [
            ("twin", true, "several VMs: 43-0 (twin), 44-0 (twin)"),
            ("41-0", true, "several VMs: 41-0 (web,1), 50-0 (41-0)"),
            ("60", true, "use an id, for example pid:60-0"),
            ("web", false, "; the nearest of 7 VMs: 41-0 (web,1)"),
            ("pid:twin", false, "no VM"),
            ("", false, "no VM \"\""),
        ] {
            let e = find(given).unwrap_err();
            assert!(e.to_string().contains(words), "{e}");
            assert_eq!(
                e.downcast_ref::<Usage>().is_some(),
                is_usage,
                "a VM that is not there: {e}"
            );
        }
    }

    #[test]
    fn a_process_without_vcpus_makes_no_name_ambiguous() {
        let fake = Fake::new();
        fake.vm("41-0", "phone");
        fake.vm("42-0", "phone");
        let find = |given: &str| {
            let all = processes(&fake.host()).unwrap();
            find_process(all, &fake.host(), OsStr::new(given)).map(|vm| vm.pid)
        };
        assert!(find("name:phone").is_err());
        fake.0.link("proc/42/fd/20", "anon_inode:kvm-vcpu:0");
        for (given, pid) in [("phone", 42), ("name:phone", 42), ("41", 41)] {
            assert_eq!(find(given).unwrap(), pid, "{given}");
        }
        // The module has a VM's id before the process has the vCPU's descriptor.
        let ids: Vec<Vm> = all(&fake.module(), &fake.host()).unwrap();
        let ids: Vec<&Vm> = ids.iter().collect();
        assert_eq!(called(&ids, "name:phone").len(), 2);
    }

    #[test]
    fn a_number_is_not_silently_a_process() {
        let fake = Fake::new();
        for (pid, vmid, name) in
            [(41, 104, "web"), (104, 41, "db"), (50, 105, "twin"), (51, 106, "twin")]
        {
            fake.vm(&format!("{pid}-0"), name);
            let line = format!("/usr/bin/kvm\0-id\0{vmid}\0-name\0{name},debug-threads=on\0");
            fake.0.write(format!("proc/{pid}/cmdline"), line);
            fake.write(&format!("proc/{pid}/cgroup"), &format!("0::/qemu.slice/{vmid}.scope"));
        }
        let (host, module) = (fake.host(), fake.module());
        let process = |given: &str| {
            find_process(processes(&host).unwrap(), &host, OsStr::new(given)).map(|vm| vm.pid)
        };
        let id = |given: &str| find(&module, &host, OsStr::new(given));
        for (given, pid) in [
            ("vmid:104", 41),
            ("pid:104", 104),
            ("process 104", 104),
            ("105", 50),
            ("twin (vmid:105)", 50),
            ("51 (twin, vmid:106)", 51),
            ("51-0 (twin, vmid:106)", 51),
            ("web (process 41)", 41),
        ] {
            assert_eq!(process(given).unwrap(), pid, "{given}");
            if !given.starts_with("51 ") {
                assert_eq!(id(given).unwrap(), format!("{pid}-0"), "{given}");
            }
        }
        let several =
            "names several VMs: 41 (web), 104 (db); write vmid:104 for the VM of that name, \
                       pid:104 for the process";
        let only =
            "no VM has the VMID or name 50; process 50 is VM 50 (twin, vmid:105): to select \
                    this VM, write pid:50";
        let apart =
            "\"twin\" names several VMs: 50 (twin, vmid:105), 51 (twin, vmid:106); use an id, for \
                     example vmid:105";
        for (given, words) in [("104", several), ("50", only), ("twin", apart)] {
            let e = process(given).unwrap_err().to_string();
            assert!(e.contains(words), "{e}");
            assert!(id(given).is_err(), "{given}");
        }
    }

    #[test]
    fn of_many_vms_the_nearest_are_named() {
        let fake = Fake::new();
        (100..160).for_each(|pid| fake.vm(&format!("{pid}-0"), &format!("web{pid}")));
        let host = fake.host();
        let wrong = |given: &[u8]| {
            let given = OsStr::from_bytes(given);
            find_process(processes(&host).unwrap(), &host, given).unwrap_err().to_string()
        };
        assert_eq!(
            wrong(b"wbe120"),
            "no VM \"wbe120\"; the nearest of 60 VMs: 120 (web120), 100 (web100), 102 (web102), \
             110 (web110), 121 (web121)"
        );
        let hostile = wrong(&[b"\"\n\x1b[2J\xff".as_slice(), &[b'x'; 4096]].concat());
        assert!(hostile.starts_with("no VM \"\\\"\\n\\u{1b}[2J\\xffxxx"), "{hostile}");
        assert!(hostile.len() < 300 && !hostile.contains(char::is_control), "{hostile}");
    }

    #[test]
    fn a_process_is_found_by_all_its_names_without_the_module() {
        let fake = Fake::new();
        fake.vm("41-0", "guest=web,,1,debug-threads=on");
        fake.vm("43-0", "twin");
        fake.vm("44-0", "twin");
        fake.vm("50-0", "41-0");
        // A thread that created the VM of process 41.
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
