// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the VM that a text names, and gives VMs distinct titles.

use crate::names::{shown, Kind, ID_DIGITS};
use crate::VmProcess;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

const UUID_LENGTH: usize = 36;
/// Replaces the part that was cut out of a title.
const CUT: &str = "…";
/// Limit of a text that is read as `ONE (OTHER)`, in bytes: more than any title or label has.
const BOTH_MAX: usize = 2048;

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
/// * `ONE (OTHER, …)`, up to 2048 bytes: each of them names the VM.
///
/// A text with a kind does not name VMs that merely have this text as a name: see [`keep_told`].
pub fn meant(given: &[u8], process: Option<&VmProcess>, id: Option<&str>) -> Option<By> {
    Of { process, id }.is_called(given)
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
}

impl Of<'_> {
    fn is_called(self, given: &[u8]) -> Option<By> {
        let title = self.process.map(|vm| vm.title().as_bytes());
        if title == Some(given) {
            return Some(By::Exact);
        }
        let meant = self.is_meant(given).max(self.is_both(given));
        // If a part is cut out, the text may also name another VM, whatever its beginning is.
        let is_cut_short = given.ends_with(CUT.as_bytes());
        let meant = if is_cut_short { meant.map(|by| by.min(By::Name)) } else { meant };
        meant.or_else(|| title.filter(|title| is_cut(title, given)).map(|_| By::Name))
    }

    /// Matches `ONE (OTHER)` or `ONE (OTH…` if both name the VM. `ONE` may have this form itself.
    fn is_both(self, given: &[u8]) -> Option<By> {
        let inner = match given.ends_with(CUT.as_bytes()) {
            true => given,
            false => given.strip_suffix(b")")?,
        };
        if given.len() > BOTH_MAX {
            return None;
        }
        let marks = || marks(inner, b" (");
        let one = marks().filter_map(|at| Some((at, self.is_first(&inner[..at])?)));
        let both = one.flat_map(|(begin, first)| {
            let ends = marks().filter(move |end| *end > begin);
            let middle = ends.filter_map(move |end| {
                let text = inner[begin + 2..end].strip_suffix(b")")?;
                Some((end, first.max(self.is_other(text)?).min(By::Told)))
            });
            middle.chain([(begin, first)])
        });
        both.filter_map(|(at, by)| Some(by.max(self.is_other(&inner[at + 2..])?).min(By::Told)))
            .max()
    }

    /// Matches the part in parentheses, which may be cut.
    fn is_other(self, text: &[u8]) -> Option<By> {
        match text == CUT.as_bytes() {
            true => Some(By::Name),
            false => self.is_part(text).max(self.is_list(text)),
        }
    }

    /// Matches a part of a text: a name, or another form.
    fn is_part(self, text: &[u8]) -> Option<By> {
        let by = self.is_meant(text).or_else(|| self.has_name(text).then_some(By::Name))?;
        Some(by.max(By::Name))
    }

    /// Matches the part before the parentheses. An id there tells which VM it is; within them it may be the name of
    /// another.
    fn is_first(self, text: &[u8]) -> Option<By> {
        let by = self.is_part(text)?;
        let is_id = std::str::from_utf8(text).is_ok_and(is_id) && self.is_numbered(text);
        Some(by.max(if is_id { By::Told } else { By::Name }))
    }

    /// Messages separate a name and what distinguishes it by commas. Names may contain commas, too.
    fn is_list(self, text: &[u8]) -> Option<By> {
        let both = |at: usize| Some(self.is_part(&text[..at])?.max(self.is_part(&text[at + 2..])?));
        marks(text, b", ").filter_map(both).max()
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
            || self.process.is_some_and(|vm| is_pid(text, vm.pid))
    }
}

/// Whether the text is this process id as the kernel writes it: without a sign, and without zeros before it.
fn is_pid(text: &str, pid: u32) -> bool {
    text.parse() == Ok(pid) && !text.starts_with(['+', '0'])
}

/// Where `mark` is in the text.
fn marks<'a>(text: &'a [u8], mark: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    (0..text.len()).filter(move |at| text[*at..].starts_with(mark))
}

/// Whether `given` is the title with `…` in place of a part.
fn is_cut(title: &[u8], given: &[u8]) -> bool {
    let cut = CUT.as_bytes();
    marks(given, cut).any(|at| {
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
    text.contains(" (") || is_hex(text) || is_like_uuid(text) || says_more(text)
}

/// Whether it may be the beginning of a generated id.
fn is_hex(text: &str) -> bool {
    text.len() >= ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_like_uuid(text: &str) -> bool {
    text.len() == UUID_LENGTH && text.contains('-')
}

/// Whether it begins as a text does that names a VM without its name.
pub(crate) fn is_told(text: &str) -> bool {
    is_explicit(text.as_bytes()) || text.starts_with("process ")
}

fn says_more(text: &str) -> bool {
    is_told(text) || text.contains(CUT)
}

/// The texts that name a VM: forms of its names, each with its kind and without, and its process id.
type Texts<'a> = HashSet<(Option<Kind>, Cow<'a, [u8]>)>;

/// How many VMs have a text, and how many of those with vCPUs.
type Counts<'a> = HashMap<(Option<Kind>, Cow<'a, [u8]>), [u32; 2]>;

fn texts(vm: &VmProcess) -> Texts<'_> {
    let forms = vm.names.forms().map(|(kind, form)| match kind {
        // Upper and lower case are equal in a UUID.
        Kind::Uuid => (kind, Cow::from(form.to_ascii_lowercase())),
        _ => (kind, Cow::from(form)),
    });
    let both = forms.flat_map(|(kind, form)| [(None, form.clone()), (Some(kind), form)]);
    both.chain([(None, Cow::from(vm.pid.to_string().into_bytes()))]).collect()
}

/// Gives each of these VMs a title that names no other of them: its best name, and what distinguishes it
/// from others with that name. A process without vCPUs takes no name from a VM. `makers`: the threads that created
/// VMs, if the module's ids contain them.
pub fn tell_apart(vms: &mut [VmProcess], makers: &[u32]) {
    let mut counts = Counts::new();
    let own: Vec<Texts> = vms.iter().map(texts).collect();
    for (vm, text) in
        vms.iter().zip(&own).flat_map(|(vm, own)| own.iter().map(move |text| (vm, text)))
    {
        let [all, with_vcpus] = counts.entry(text.clone()).or_default();
        *all += 1;
        *with_vcpus += u32::from(vm.has_vcpus());
    }
    for maker in makers {
        let text = (None, Cow::from(maker.to_string().into_bytes()));
        counts.entry(text).or_default().iter_mut().for_each(|count| *count += 1);
    }
    let title = |(vm, own)| Told { vm, own, counts: &counts }.title();
    let titles: Vec<Title> = vms.iter().zip(&own).map(title).collect();
    for (vm, title) in vms.iter_mut().zip(titles) {
        vm.title = title;
    }
    let all: &[VmProcess] = vms;
    let taken: Vec<bool> = all.iter().map(|vm| is_name_taken(vm, all)).collect();
    for (vm, is_taken) in vms.iter_mut().zip(taken) {
        vm.title.is_name_taken = is_taken;
    }
}

/// Whether the VM has no vCPUs, and its name selects one that has.
fn is_name_taken(vm: &VmProcess, all: &[VmProcess]) -> bool {
    let Some(name) = vm.name().filter(|_| !vm.has_vcpus()) else { return false };
    let text = name.to_text();
    // Any thread of a VM may have created it.
    let is_meant = |other: &VmProcess| {
        other.has_vcpus() && (is_id(&text) || meant(text.as_bytes(), Some(other), None).is_some())
    };
    all.iter().any(is_meant)
}

/// A VM's title.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Title {
    pub text: String,
    /// Where the part in parentheses begins that distinguishes it from VMs with the same name.
    pub apart_at: Option<usize>,
    /// Whether the VM has no vCPUs, and its name selects one that has.
    pub is_name_taken: bool,
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
        Title { text, ..Title::default() }
    }
}

/// A VM to be told apart from others.
struct Told<'a> {
    vm: &'a VmProcess,
    own: &'a Texts<'a>,
    counts: &'a Counts<'a>,
}

impl Told<'_> {
    fn title(&self) -> Title {
        let by_pid = format!("pid:{}", self.vm.pid);
        let Some((kind, name)) = self.vm.names.best() else { return by_pid.into() };
        let short = shown(kind, name);
        // Nobody sees the difference to a name without them.
        if short.trim() != short {
            return by_pid.into();
        }
        // Another VM may have this as its module id, or as its cut title.
        let is_taken = is_id(&short) || name.to_string().contains(CUT);
        if !is_taken && !self.is_of_others(None, &short) && !self.is_claimed(&short) {
            return short.into();
        }
        let is_odd = is_special(&short);
        let apart = APART.iter().filter_map(|kind| Some((*kind, self.vm.names.get(*kind)?)));
        let apart = apart.map(|(kind, name)| (kind, shown(kind, name)));
        let mut apart = apart.filter(|(kind, name)| {
            !is_odd && !is_special(name) && !self.is_of_others(Some(*kind), name)
        });
        let part = match apart.next() {
            Some((kind, name)) => format!("{}:{name}", kind.key()),
            None => format!("process {}", self.vm.pid),
        };
        let text = format!("{short} ({part})");
        // A kind, and a name of another VM.
        let named = explicit(text.as_bytes()).map(|(_, name)| String::from_utf8_lossy(name));
        let is_taken = named.is_some_and(|name| self.is_of_others(None, &name));
        match is_taken {
            true => by_pid.into(),
            false => Title { text, apart_at: Some(short.len()), is_name_taken: false },
        }
    }

    /// Whether other VMs have the text as a name, of this kind or of any kind.
    fn is_of_others(&self, kind: Option<Kind>, text: &str) -> bool {
        let has = |text: &str| {
            let text = (kind, Cow::from(text.as_bytes()));
            let counts = self.counts.get(&text).copied().unwrap_or_default();
            counts[usize::from(self.vm.has_vcpus())] > u32::from(self.own.contains(&text))
        };
        let is_uuid = kind == Some(Kind::Uuid) || is_like_uuid(text);
        has(text) || (is_uuid && has(&text.to_ascii_lowercase()))
    }

    /// Whether a text that is more than a plain name may mean another VM, too.
    fn is_claimed(&self, text: &str) -> bool {
        let is_first =
            |one: &str| is_id(one) || is_hex(one) || says_more(one) || self.is_of_others(None, one);
        // The end of a long name is cut.
        says_more(text.strip_suffix(CUT).unwrap_or(text))
            || (is_hex(text) && self.is_of_others(None, &text[..ID_DIGITS]))
            || marks(text.as_bytes(), b" (").any(|at| is_first(&text[..at]))
    }
}

#[cfg(test)]
mod tests;
