// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which VM a text means, and what to call VMs so that each is told from the others.

use crate::names::{forms, shown, Kind};
use crate::VmProcess;
use std::collections::{BTreeSet, HashMap};

/// How a text means a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// It is a number, and that of a process or thread.
    Number,
    /// It is a name, or says what kind of number it is.
    Name,
}

/// Kinds by which VMs of one name are told apart, best first. Others tell people less than the process.
const APART: [Kind; 7] = [
    Kind::Vmid,
    Kind::Incus,
    Kind::Kubevirt,
    Kind::Pod,
    Kind::Container,
    Kind::Libvirt,
    Kind::Unit,
];

/// Whether `given` means the VM of this process, which the module calls `id`, and how:
///
/// * `NAME`: it has this name, of any kind;
/// * `PID`, or the module's `PID-N`;
/// * `pid:PID`, `process PID`, `name:NAME`, `vmid:104` and so on: that kind only;
/// * `ONE (OTHER, …)`: each of them means it.
pub fn meant(given: &[u8], process: Option<&VmProcess>, id: Option<&str>) -> Option<By> {
    let vm = Of { process, id };
    vm.is_meant(given).or_else(|| {
        let inner = given.strip_suffix(b")")?;
        let mut marks = (0..inner.len()).filter(|at| inner[*at..].starts_with(b" ("));
        let part = |text: &[u8]| vm.is_meant(text).is_some() || vm.has_name(text);
        let all = |text: &[u8]| {
            // Messages have more than one, between commas.
            std::str::from_utf8(text)
                .is_ok_and(|text| text.split(", ").all(|text| part(text.as_bytes())))
        };
        let rest = |at: usize| part(&inner[at + 2..]) || all(&inner[at + 2..]);
        let is_both = |at: usize| part(&inner[..at]) && rest(at);
        marks.any(is_both).then_some(By::Name)
    })
}

#[derive(Clone, Copy)]
struct Of<'a> {
    process: Option<&'a VmProcess>,
    id: Option<&'a str>,
}

impl Of<'_> {
    fn is_meant(self, given: &[u8]) -> Option<By> {
        if let Some((kind, text)) = explicit(given) {
            let is_it = match kind {
                None => self.is_numbered(text),
                Some(Kind::Name) => self.has_name(text),
                Some(kind) => self.process.is_some_and(|vm| vm.names.has_of(kind, text)),
            };
            return is_it.then_some(By::Name);
        }
        let is_process = |pid: &[u8]| self.is_numbered(pid);
        if self.has_name(given) || given.strip_prefix(b"process ").is_some_and(is_process) {
            return Some(By::Name);
        }
        match self.is_numbered(given) {
            true if given.contains(&b'-') => Some(By::Name),
            true => Some(By::Number),
            false => None,
        }
    }

    fn has_name(self, given: &[u8]) -> bool {
        self.process.is_some_and(|vm| vm.names.has(given))
    }

    /// Whether it is the module's id, or that of the process or of the thread that made the VM.
    fn is_numbered(self, given: &[u8]) -> bool {
        let Some(text) = std::str::from_utf8(given).ok().filter(|text| !text.is_empty()) else {
            return false;
        };
        let maker = self.id.and_then(|id| id.split_once('-')).map(|(tid, _)| tid);
        self.id == Some(text)
            || maker == Some(text)
            || self.process.is_some_and(|vm| text.parse() == Ok(vm.pid))
    }
}

/// The kind that stands before a name, and the name; without a kind: before a number.
fn explicit(given: &[u8]) -> Option<(Option<Kind>, &[u8])> {
    let at = given.iter().position(|byte| *byte == b':')?;
    let (key, text) = (&given[..at], &given[at + 1..]);
    if key == b"pid" {
        return Some((None, text));
    }
    let kind = Kind::ALL.iter().find(|kind| kind.key().as_bytes() == key)?;
    Some((Some(*kind), text))
}

/// What commands would read as more than a name.
fn is_special(text: &str) -> bool {
    explicit(text.as_bytes()).is_some()
        || text.starts_with("process ")
        || text.ends_with('…')
        || text.contains(" (")
}

/// How many VMs a text means, as a name of a kind, or of any.
type Known = HashMap<(Option<Kind>, Vec<u8>), u32>;

/// Says for each of these VMs what it is called, so that no other of them is meant by that: its best
/// name, with what tells it from others of that name.
pub fn tell_apart(vms: &mut [VmProcess]) {
    let mut known = Known::new();
    for vm in vms.iter() {
        let mut of_vm = BTreeSet::from([(None, vm.pid.to_string().into_bytes())]);
        for (kind, name) in vm.names.iter() {
            for form in forms(kind, name) {
                of_vm.insert((None, form.clone()));
                of_vm.insert((Some(kind), form));
            }
        }
        of_vm.into_iter().for_each(|text| *known.entry(text).or_default() += 1);
    }
    let titles: Vec<String> = vms.iter().map(|vm| title(vm, vms, &known)).collect();
    for (vm, title) in vms.iter_mut().zip(titles) {
        vm.title = title;
    }
}

fn title(vm: &VmProcess, all: &[VmProcess], known: &Known) -> String {
    let count = |kind: Option<Kind>, text: &[u8]| {
        known.get(&(kind, text.to_vec())).copied().unwrap_or_default()
    };
    let explicit = format!("pid:{}", vm.pid);
    let Some((kind, name)) = vm.names.best() else { return explicit };
    let short = shown(kind, name);
    let is_alone = |text: &str| {
        let others = all.iter().filter(|other| other.pid != vm.pid);
        meant(text.as_bytes(), Some(vm), None).is_some()
            && !others.into_iter().any(|other| meant(text.as_bytes(), Some(other), None).is_some())
    };
    let is_odd = is_special(&short);
    if count(None, short.as_bytes()) == 1 && (!is_odd || is_alone(&short)) {
        return short;
    }
    let apart = APART.iter().filter_map(|kind| Some((*kind, vm.names.get(*kind)?)));
    let apart = apart.map(|(kind, name)| (kind, shown(kind, name)));
    let apart = apart.filter(|(kind, name)| count(Some(*kind), name.as_bytes()) == 1);
    let with = apart.map(|(kind, name)| format!("{short} ({}:{name})", kind.key()));
    let with_process = std::iter::once(format!("{short} (process {})", vm.pid));
    let mut titles = with.chain(with_process);
    let is_free = |text: &String| count(None, text.as_bytes()) == 0 && (!is_odd || is_alone(text));
    titles.find(is_free).unwrap_or(explicit)
}
