// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which VM a text means, and what to call VMs so that each is told from the others.

use crate::names::{forms, shown, Kind, ID_DIGITS};
use crate::VmProcess;
use std::collections::{BTreeSet, HashMap};

const UUID_LENGTH: usize = 36;
/// Stands for what was cut out of a title.
const CUT: &str = "…";

/// How a text means a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// It is a number, and that of a process or thread.
    Number,
    /// It is a name, or part of what is shown.
    Name,
    /// Part of it says the kind, or is an id of the module's.
    Told,
    /// It is the VM's title, or it says the kind, and the VM has it of that kind.
    Exact,
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
/// * `pid:PID`, `process PID`, `vmid:104` and so on: that kind only. `name:NAME` is a name of any kind where
///   no VM has it of the kind `name`;
/// * its title, and its title with `…` for a part that was cut out;
/// * `ONE (OTHER, …)`: each of them means it.
///
/// A text that says the kind means no VM that is only named like it: see [`keep_told`].
pub fn meant(given: &[u8], process: Option<&VmProcess>, id: Option<&str>) -> Option<By> {
    let title = process.map(VmProcess::title);
    Of { process, id, title, is_any_id: false }.is_called(given)
}

/// Of the VMs that a text means, leaves those that it means most, where it tells more than a name does.
pub fn keep_told<T>(found: &mut Vec<(By, T)>) {
    let most = found.iter().map(|(by, _)| *by).max();
    if let Some(most) = most.filter(|most| *most > By::Name) {
        found.retain(|(by, _)| *by == most);
    }
}

#[derive(Clone, Copy)]
struct Of<'a> {
    process: Option<&'a VmProcess>,
    id: Option<&'a str>,
    title: Option<&'a str>,
    /// Whether any id of the module's may be its.
    is_any_id: bool,
}

impl<'a> Of<'a> {
    /// Without its title, and by any id.
    fn any(process: &'a VmProcess) -> Of<'a> {
        Of { process: Some(process), id: None, title: None, is_any_id: true }
    }

    fn is_called(self, given: &[u8]) -> Option<By> {
        let title = self.title.map(str::as_bytes);
        if title == Some(given) {
            return Some(By::Exact);
        }
        let meant = self.is_meant(given).max(self.is_both(given, true));
        // A text with a part cut out may be another VM's, too, whatever its beginning says.
        let is_cut_short = given.ends_with(CUT.as_bytes());
        let meant = if is_cut_short { meant.map(|by| by.min(By::Name)) } else { meant };
        meant.or_else(|| title.filter(|title| is_cut(title, given)).map(|_| By::Name))
    }

    /// Whether it is `ONE (OTHER)`, or `ONE (OTH…`, and both mean it; `ONE` may be so itself.
    fn is_both(self, given: &[u8], is_first: bool) -> Option<By> {
        let inner = match given.ends_with(CUT.as_bytes()) {
            true => given,
            false => given.strip_suffix(b")")?,
        };
        let marks = (0..inner.len()).filter(|at| inner[*at..].starts_with(b" ("));
        let both = marks.filter_map(|at| {
            let (one, other) = (&inner[..at], &inner[at + 2..]);
            let other = match other == CUT.as_bytes() {
                true => By::Name,
                false => self.is_part(other).max(self.is_list(other))?,
            };
            let one = self.is_part(one).or_else(|| match is_first {
                true => self.is_both(one, false),
                false => None,
            })?;
            Some(one.max(other).min(By::Told))
        });
        both.max()
    }

    /// Whether it is a name, or means it in another way, as part of a text.
    fn is_part(self, text: &[u8]) -> Option<By> {
        let by = self.is_meant(text).or_else(|| self.has_name(text).then_some(By::Name))?;
        let is_id = std::str::from_utf8(text).is_ok_and(is_id) && self.is_numbered(text);
        Some(by.max(if is_id { By::Told } else { By::Name }))
    }

    /// Messages have a name and what tells it apart, between commas. A name may have commas, too.
    fn is_list(self, text: &[u8]) -> Option<By> {
        let commas = (0..text.len()).filter(|at| text[*at..].starts_with(b", "));
        let both = |at: usize| Some(self.is_part(&text[..at])?.max(self.is_part(&text[at + 2..])?));
        commas.filter_map(both).max()
    }

    fn is_meant(self, given: &[u8]) -> Option<By> {
        if let Some((kind, text)) = explicit(given) {
            let has_of = |kind| self.process.is_some_and(|vm| vm.names.has_of(kind, text));
            return match kind {
                None => self.is_numbered(text).then_some(By::Exact),
                Some(Kind::Name) if !has_of(Kind::Name) => self.has_name(text).then_some(By::Told),
                Some(kind) => has_of(kind).then_some(By::Exact),
            };
        }
        if given.strip_prefix(b"process ").is_some_and(|pid| self.is_numbered(pid)) {
            return Some(By::Exact);
        }
        if self.has_name(given) {
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
            || (self.is_any_id && is_id(text))
    }
}

/// Whether `given` is the title with `…` for a part of it.
fn is_cut(title: &[u8], given: &[u8]) -> bool {
    let cut = CUT.as_bytes();
    let mut marks = (0..given.len()).filter(|at| given[*at..].starts_with(cut));
    marks.any(|at| {
        let (begin, end) = (&given[..at], &given[at + cut.len()..]);
        let kept = begin.len() + end.len();
        kept > 0 && kept < title.len() && title.starts_with(begin) && title.ends_with(end)
    })
}

/// Whether the module may call a VM so: `PID-N`.
fn is_id(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('-').is_some_and(|(pid, n)| is_number(pid) && is_number(n))
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

/// Whether it says how it is meant, and so that no other VM is meant than those that have it so.
pub fn is_explicit(given: &[u8]) -> bool {
    explicit(given).is_some()
}

/// What commands would read as more than a name, or as the beginning of one.
fn is_special(text: &str) -> bool {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_like_uuid = text.len() == UUID_LENGTH && text.contains('-');
    (is_hex && text.len() >= ID_DIGITS)
        || is_like_uuid
        || explicit(text.as_bytes()).is_some()
        || text.starts_with("process ")
        || text.contains(CUT)
        || text.contains(" (")
}

/// How many VMs a text means, as a name of a kind, or of any.
type Known = HashMap<(Option<Kind>, Vec<u8>), u32>;

/// Says for each of these VMs what it is called, so that no other of them is meant by that: its best
/// name, with what tells it from others of that name. `makers`: the threads that made VMs, where the module
/// calls VMs after them.
pub fn tell_apart(vms: &mut [VmProcess], makers: &[u32]) {
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
    for maker in makers {
        *known.entry((None, maker.to_string().into_bytes())).or_default() += 1;
    }
    let titles: Vec<Title> = vms.iter().map(|vm| title(vm, vms, &known)).collect();
    for (vm, title) in vms.iter_mut().zip(titles) {
        vm.title = title;
    }
}

/// What a VM is called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Title {
    pub text: String,
    /// Where what tells it from others of its name begins, in its parentheses.
    pub apart_at: Option<usize>,
}

impl Title {
    /// The name, and what tells it from others of that name.
    pub fn parts(&self) -> (&str, Option<&str>) {
        match self.apart_at {
            Some(at) => (&self.text[..at], self.text[at..].get(2..self.text.len() - at - 1)),
            None => (&self.text, None),
        }
    }
}

impl From<String> for Title {
    fn from(text: String) -> Title {
        Title { text, apart_at: None }
    }
}

fn title(vm: &VmProcess, all: &[VmProcess], known: &Known) -> Title {
    let count = |kind: Option<Kind>, text: &[u8]| {
        known.get(&(kind, text.to_vec())).copied().unwrap_or_default()
    };
    let explicit = format!("pid:{}", vm.pid);
    let Some((kind, name)) = vm.names.best() else { return explicit.into() };
    let short = shown(kind, name);
    let others = || all.iter().filter(|other| other.pid != vm.pid);
    // Whether it means this VM, and no other as much.
    let is_alone = |text: &str| {
        let by = Of::any(vm).is_called(text.as_bytes());
        let others = || others().filter_map(|other| Of::any(other).is_called(text.as_bytes()));
        match by {
            Some(by) if by > By::Name => others().all(|by| by <= By::Name),
            Some(_) => others().next().is_none(),
            None => false,
        }
    };
    let is_odd = is_special(&short);
    // Another may be called so: by the module, or where its title is cut.
    let is_taken = is_id(&short) || name.to_string().contains(CUT);
    if count(None, short.as_bytes()) == 1 && !is_taken && (!is_odd || is_alone(&short)) {
        return short.into();
    }
    let apart = APART.iter().filter_map(|kind| Some((*kind, vm.names.get(*kind)?)));
    let apart = apart.map(|(kind, name)| (kind, shown(kind, name)));
    let apart = apart.filter(|(kind, name)| count(Some(*kind), name.as_bytes()) == 1);
    let parts = apart.map(|(kind, name)| format!("{}:{name}", kind.key()));
    let parts = parts.chain([format!("process {}", vm.pid)]);
    let titles = parts.map(|part| format!("{short} ({part})"));
    let is_clear = |title: &str| !(is_odd || title.contains(CUT));
    let mut titles = titles.filter(|title| is_clear(title) || is_alone(title));
    match titles.next() {
        Some(text) => Title { text, apart_at: Some(short.len()) },
        None => explicit.into(),
    }
}

#[cfg(test)]
mod tests;
