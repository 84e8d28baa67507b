// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of a VM: from its VMM, and from its scope, pod or container.

use crate::name::Name;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fmt;

/// Limit of characters of a displayed name.
const SHOWN_MAX: usize = 128;

/// Number of hexadecimal digits that abbreviate a container's id, as in `docker ps`.
pub(crate) const ID_DIGITS: usize = 12;

/// Number of hexadecimal digits from which a name counts as a generated id.
const ID_DIGITS_MIN: usize = 32;

/// The source of a name. A VM has at most one name of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The VMM: `-name`, `--id`, or the file or directory of its socket.
    Name,
    /// libvirt: from the name of the VM's scope.
    Libvirt,
    /// Proxmox VE: the VMID.
    Vmid,
    /// Incus or LXD: `project/instance`.
    Incus,
    /// KubeVirt: `namespace/vm`.
    Kubevirt,
    /// OpenStack: the name that its user gave the instance.
    Nova,
    /// Kubernetes: `namespace/pod`.
    Pod,
    /// The container in which the VMM runs: its name, or `namespace/pod/container`.
    Container,
    /// `-uuid`, `-smbios type=1,uuid=…`, or `--platform uuid=…`, in lower case.
    Uuid,
    /// systemd: the innermost service or scope.
    Unit,
    /// Kubernetes: the pod's UID.
    PodUid,
    ContainerId,
}

impl Kind {
    pub const ALL: [Kind; 12] = [
        Kind::Name,
        Kind::Libvirt,
        Kind::Vmid,
        Kind::Incus,
        Kind::Kubevirt,
        Kind::Nova,
        Kind::Pod,
        Kind::Container,
        Kind::Uuid,
        Kind::Unit,
        Kind::PodUid,
        Kind::ContainerId,
    ];

    /// The key in JSON, and before a name in commands: `vmid:104`.
    pub fn key(self) -> &'static str {
        match self {
            Kind::Name => "name",
            Kind::Libvirt => "libvirt",
            Kind::Vmid => "vmid",
            Kind::Incus => "incus",
            Kind::Kubevirt => "kubevirt",
            Kind::Nova => "nova",
            Kind::Pod => "pod",
            Kind::Container => "container",
            Kind::Uuid => "uuid",
            Kind::Unit => "unit",
            Kind::PodUid => "pod_uid",
            Kind::ContainerId => "container_id",
        }
    }
}

/// The kinds of names to show, best first. If the VMM's name was generated, as by Kata's runtime, the
/// pod's or the container's name is better.
const BEST: [Kind; 7] = [
    Kind::Name,
    Kind::Libvirt,
    Kind::Pod,
    Kind::Container,
    Kind::Vmid,
    Kind::Unit,
    Kind::ContainerId,
];

/// The names of a VM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Names(Vec<Known>);

/// A name, with its kind and its forms.
#[derive(Clone, PartialEq, Eq)]
struct Known {
    kind: Kind,
    name: Name,
    /// As it is, as it is written, as it is shown, then those of its kind and the cgroup that has it.
    forms: Vec<Vec<u8>>,
}

impl Names {
    /// Adds a name, unless it is empty or there already is one of this kind. A unit whose name is blank without
    /// its type has none.
    pub fn add(&mut self, kind: Kind, name: impl Into<Vec<u8>>) {
        let name = name.into();
        let is_blank = kind == Kind::Unit && unescape(stem(&name)).trim_ascii().is_empty();
        if !name.is_empty() && !is_blank && self.get(kind).is_none() {
            let name = Name::new(name);
            let forms = forms(kind, &name);
            self.0.push(Known { kind, name, forms });
            self.0.sort_by_key(|known| known.kind);
        }
    }

    /// Adds a name that the cgroup `part` contains. Tables show the cgroup, and commands accept it.
    pub fn add_as(&mut self, kind: Kind, name: impl Into<Vec<u8>>, part: &str) {
        let name = name.into();
        self.add(kind, &*name);
        let known = self.0.iter_mut().find(|known| known.kind == kind);
        let form = part.as_bytes().to_vec();
        match known.filter(|known| known.name.as_bytes() == name) {
            Some(known) if !known.forms.contains(&form) => known.forms.push(form),
            _ => {}
        }
    }

    /// Returns the names with this one added.
    #[must_use]
    pub fn with(mut self, kind: Kind, name: impl Into<Vec<u8>>) -> Names {
        self.add(kind, name);
        self
    }

    pub fn get(&self, kind: Kind) -> Option<&Name> {
        self.known(kind).map(|known| &known.name)
    }

    fn known(&self, kind: Kind) -> Option<&Known> {
        self.0.iter().find(|known| known.kind == kind)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Kind, &Name)> {
        self.0.iter().map(|known| (known.kind, &known.name))
    }

    /// All forms of the names without their kinds, except abbreviations.
    pub(crate) fn forms(&self) -> impl Iterator<Item = (Kind, &[u8])> {
        self.0.iter().flat_map(|known| known.forms.iter().map(|form| (known.kind, &**form)))
    }

    /// The name by which people know the VM, if it has one other than a UUID.
    pub fn best(&self) -> Option<(Kind, &Name)> {
        let of = |kind: Kind| Some((kind, self.get(kind)?));
        let first = of(Kind::Name).filter(|(_, name)| made_up(name.as_bytes()).is_none());
        let given = || BEST[1..4].iter().find_map(|kind| of(*kind));
        let rest = || BEST.iter().find_map(|kind| of(*kind));
        first.or_else(given).or_else(rest)
    }

    /// `namespace/vm` in KubeVirt's container of a pod, or in a pod of which no record can be read. KubeVirt joins
    /// both with an underscore; neither contains one.
    pub(crate) fn kubevirt(&self) -> Option<Vec<u8>> {
        let of = |kind| self.get(kind).map(Name::to_text).unwrap_or_default();
        let is_launcher = of(Kind::Pod).contains("/virt-launcher-");
        let has = |kind| self.get(kind).is_some();
        let is_unknown = has(Kind::PodUid) && !has(Kind::Pod) && !has(Kind::Container);
        let is_kubevirt = is_unknown || is_launcher || of(Kind::Container).ends_with("/compute");
        let name = self.get(Kind::Name).filter(|_| is_kubevirt)?.as_bytes();
        let parts: Vec<&[u8]> = name.split(|byte| *byte == b'_').collect();
        match parts[..] {
            [namespace, vm] if !namespace.is_empty() && !vm.is_empty() => {
                Some([namespace, vm].join(&b'/'))
            }
            _ => None,
        }
    }

    /// The id in a generated name of the VMM, such as Kata's name of a pod's VM.
    pub(crate) fn sandbox(&self) -> Option<String> {
        let id = self.get(Kind::Name).and_then(|name| made_up(name.as_bytes()))?;
        String::from_utf8(id.to_vec()).ok()
    }

    /// Whether `given` is one of the names, as it is or as displayed.
    pub fn has(&self, given: &[u8]) -> bool {
        self.0.iter().any(|known| known.is_meant(given))
    }

    /// Whether `given` is the name of this kind.
    pub fn has_of(&self, kind: Kind, given: &[u8]) -> bool {
        self.known(kind).is_some_and(|known| known.is_meant(given))
    }
}

impl Known {
    fn is_meant(&self, given: &[u8]) -> bool {
        let is_uuid = self.kind == Kind::Uuid && self.name.as_bytes().eq_ignore_ascii_case(given);
        let is_form = || self.forms.iter().any(|form| form == given);
        !given.is_empty() && (is_uuid || is_form() || self.is_begun_by(given))
    }

    /// Whether `given` is a valid abbreviation: the first digits of an id, or the displayed part of a name
    /// before `…`.
    fn is_begun_by(&self, given: &[u8]) -> bool {
        let is_id = |id: &[u8]| given.len() >= ID_DIGITS && id.starts_with(given);
        // A column of a table may cut the name further.
        let is_cut = |cut: &[u8]| {
            !cut.is_empty() && self.forms[1..].iter().any(|form| form.starts_with(cut))
        };
        given.strip_suffix("…".as_bytes()).is_some_and(is_cut)
            || (matches!(self.kind, Kind::Name | Kind::ContainerId)
                && made_up(self.name.as_bytes()).is_some_and(is_id))
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(kind, name)| (kind.key(), name))).finish()
    }
}

/// An object with the name of each kind under its key.
impl Serialize for Names {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (kind, name) in self.iter() {
            map.serialize_entry(kind.key(), &name.to_text())?;
        }
        map.end()
    }
}

/// The id in a generated name: hexadecimal digits, or those after a prefix such as Kata's
/// `sandbox-`.
fn made_up(name: &[u8]) -> Option<&[u8]> {
    let id = name.strip_prefix(b"sandbox-".as_slice()).unwrap_or(name);
    (id.len() >= ID_DIGITS_MIN && id.iter().all(u8::is_ascii_hexdigit)).then_some(id)
}

/// A unit's name without its type.
fn stem(unit: &[u8]) -> &[u8] {
    let end = unit.iter().rposition(|byte| *byte == b'.').unwrap_or(unit.len());
    &unit[..end]
}

/// A name in one line of printable characters, at most [`SHOWN_MAX`] of them. Ids are abbreviated.
pub fn shown(kind: Kind, name: &Name) -> String {
    match kind {
        Kind::Name | Kind::ContainerId => match made_up(name.as_bytes()) {
            Some(id) => Name::new(&id[..ID_DIGITS]).to_string(),
            None => name.short(SHOWN_MAX),
        },
        Kind::Unit => Name::new(unescape(stem(name.as_bytes()))).short(SHOWN_MAX),
        _ => name.short(SHOWN_MAX),
    }
}

fn forms(kind: Kind, name: &Name) -> Vec<Vec<u8>> {
    let bytes = name.as_bytes();
    let mut forms = vec![bytes.to_vec(), name.to_string().into_bytes()];
    forms.push(shown(kind, name).into_bytes());
    match kind {
        Kind::Pod | Kind::Kubevirt => forms.extend(after(bytes, b'/')),
        Kind::Unit => {
            let stem = stem(bytes);
            forms.push(stem.to_vec());
            // The instance name of a template unit.
            forms.extend(after(stem, b'@').map(|instance| unescape(&instance)));
        }
        _ => {}
    }
    forms
}

fn after(text: &[u8], mark: u8) -> Option<Vec<u8>> {
    let at = text.iter().position(|byte| *byte == mark)?;
    Some(text[at + 1..].to_vec()).filter(|rest| !rest.is_empty())
}

/// Reverts systemd's `\xNN` escapes.
pub(crate) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let byte = rest.strip_prefix(br"\x").and_then(|hex| {
            let digits = std::str::from_utf8(hex.get(..2)?).ok()?;
            u8::from_str_radix(digits, 16).ok()
        });
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &rest[4..] } else { after };
    }
    out
}
