// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the VM that a text names, and gives VMs distinct titles.

use crate::names::{forms, shown, Kind, ID_DIGITS};
use crate::VmProcess;
use std::collections::{BTreeSet, HashMap};

const UUID_LENGTH: usize = 36;
/// Replaces the part that was cut out of a title.
const CUT: &str = "…";

/// How a text names a VM, from the weakest to the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// The number of its process or of a thread.
    Number,
    /// A name, or a part of what is shown.
    Name,
    /// It contains a kind, or is an id of the module.
    Told,
    /// The VM's title, or a kind with the VM's name of that kind.
    Exact,
}

/// Kinds of names that distinguish VMs with equal names, best first. Other kinds help people less than
/// the process id.
const APART: [Kind; 7] = [
    Kind::Vmid,
    Kind::Incus,
    Kind::Kubevirt,
    Kind::Pod,
    Kind::Container,
    Kind::Libvirt,
    Kind::Unit,
];

/// Whether `given` names the VM of this process, whose module id is `id`, and how:
///
/// * `NAME`: a name of any kind;
/// * `PID`, or the module's `PID-N`;
/// * `pid:PID`, `process PID`, `vmid:104` and so on: a name of that kind only. `name:NAME` is a name of any
///   kind if no VM has it as its kind `name`;
/// * its title, or its title with `…` in place of a part;
/// * `ONE (OTHER, …)`: each of them names the VM.
///
/// A text with a kind does not name VMs that merely have this text as a name: see [`keep_told`].
pub fn meant(given: &[u8], process: Option<&VmProcess>, id: Option<&str>) -> Option<By> {
    let title = process.map(VmProcess::title);
    Of { process, id, title, is_any_id: false }.is_called(given)
}

/// Of the VMs that a text names, keeps the strongest matches, if they are stronger than a name.
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
    /// Whether any module id of the process matches.
    is_any_id: bool,
}

impl<'a> Of<'a> {
    /// Matches without the title, and by any module id.
    fn any(process: &'a VmProcess) -> Of<'a> {
        Of { process: Some(process), id: None, title: None, is_any_id: true }
    }

    fn is_called(self, given: &[u8]) -> Option<By> {
        let title = self.title.map(str::as_bytes);
        if title == Some(given) {
            return Some(By::Exact);
        }
        let meant = self.is_meant(given).max(self.is_both(given, true));
        // If a part is cut out, the text may also name another VM, whatever its beginning is.
        let is_cut_short = given.ends_with(CUT.as_bytes());
        let meant = if is_cut_short { meant.map(|by| by.min(By::Name)) } else { meant };
        meant.or_else(|| title.filter(|title| is_cut(title, given)).map(|_| By::Name))
    }

    /// Matches `ONE (OTHER)` or `ONE (OTH…` if both name the VM. `ONE` may have this form itself.
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

    /// Matches a part of a text: a name, or another form.
    fn is_part(self, text: &[u8]) -> Option<By> {
        let by = self.is_meant(text).or_else(|| self.has_name(text).then_some(By::Name))?;
        let is_id = std::str::from_utf8(text).is_ok_and(is_id) && self.is_numbered(text);
        Some(by.max(if is_id { By::Told } else { By::Name }))
    }

    /// Messages separate a name and what distinguishes it by commas. Names may contain commas, too.
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

    /// Matches the module's id, the process id, or the id of the thread that created the VM.
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

/// Whether `given` is the title with `…` in place of a part.
fn is_cut(title: &[u8], given: &[u8]) -> bool {
    let cut = CUT.as_bytes();
    let mut marks = (0..given.len()).filter(|at| given[*at..].starts_with(cut));
    marks.any(|at| {
        let (begin, end) = (&given[..at], &given[at + cut.len()..]);
        let kept = begin.len() + end.len();
        kept > 0 && kept < title.len() && title.starts_with(begin) && title.ends_with(end)
    })
}

/// Whether the text has the form of the module's ids: `PID-N`.
fn is_id(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('-').is_some_and(|(pid, n)| is_number(pid) && is_number(n))
}

/// Splits a kind from the name after it. Without a kind, the rest is a number.
fn explicit(given: &[u8]) -> Option<(Option<Kind>, &[u8])> {
    let at = given.iter().position(|byte| *byte == b':')?;
    let (key, text) = (&given[..at], &given[at + 1..]);
    if key == b"pid" {
        return Some((None, text));
    }
    let kind = Kind::ALL.iter().find(|kind| kind.key().as_bytes() == key)?;
    Some((Some(*kind), text))
}

/// Whether the text says how it names a VM, so that it names no VM otherwise.
pub fn is_explicit(given: &[u8]) -> bool {
    explicit(given).is_some()
}

/// Whether commands would read the text as more than a name, or as the beginning of more.
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

/// How many VMs have a name, of a kind or of any kind.
type Known = HashMap<(Option<Kind>, Vec<u8>), u32>;

/// Gives each of these VMs a title that names no other of them: its best name, and what distinguishes it
/// from others with that name. `makers`: the threads that created VMs, if the module's ids contain them.
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

/// A VM's title.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Title {
    pub text: String,
    /// Where the part in parentheses begins that distinguishes it from VMs with the same name.
    pub apart_at: Option<usize>,
}

impl Title {
    /// The name, and what distinguishes it from equal names.
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
    // Whether it names this VM, and no other as strongly.
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
    // Another VM may have this as its module id, or as its cut title.
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
