// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which VM a text means, and what to call VMs so that each is told from the others.

use crate::names::{forms, shown, Kind, ID_DIGITS};
use crate::VmProcess;
use std::collections::{BTreeSet, HashMap};

const UUID_LENGTH: usize = 36;

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

/// What commands would read as more than a name, or as the beginning of one.
fn is_special(text: &str) -> bool {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_like_uuid = text.len() == UUID_LENGTH && text.contains('-');
    (is_hex && text.len() >= ID_DIGITS)
        || is_like_uuid
        || explicit(text.as_bytes()).is_some()
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
    let parts = apart.map(|(kind, name)| format!("{}:{name}", kind.key()));
    let parts = parts.chain([format!("process {}", vm.pid)]);
    // Nobody is called so as a whole.
    let is_free = |text: &str| count(None, text.as_bytes()) == 0;
    let titles = parts.filter(|part| is_free(part)).map(|part| format!("{short} ({part})"));
    let is_clear = |title: &str| !(is_odd || title.contains('…'));
    let mut titles = titles.filter(|title| is_free(title) && (is_clear(title) || is_alone(title)));
    titles.next().unwrap_or(explicit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Monitor, Names};
    use proptest::prelude::*;

    /// VMs with these names, in the order of process ids from 1 on.
    fn vms(names: Vec<Names>) -> Vec<VmProcess> {
        let of = |(pid, names)| VmProcess::new(pid, Monitor::Other, names, Vec::new());
        let mut vms: Vec<VmProcess> = (1..).zip(names).map(of).collect();
        tell_apart(&mut vms);
        vms
    }

    fn found(vms: &[VmProcess], given: &[u8]) -> Vec<u32> {
        let is_meant = |vm: &&VmProcess| meant(given, Some(vm), None).is_some();
        vms.iter().filter(is_meant).map(|vm| vm.pid).collect()
    }

    #[test]
    fn a_text_means_what_it_says() {
        let uuid = "0a000000-0000-0000-0000-000000000001";
        let names = Names::default().with(Kind::Name, "web").with(Kind::Vmid, "104");
        let names = names.with(Kind::Pod, "prod/web-x").with(Kind::Unit, r"vm@a\x2db.service");
        let names = names.with(Kind::Uuid, uuid).with(Kind::ContainerId, "ab".repeat(32));
        let vm = VmProcess::new(7, Monitor::Qemu, names, Vec::new());
        let by = |given: &str| meant(given.as_bytes(), Some(&vm), Some("9-0"));
        for given in [
            "web",
            "name:web",
            "104",
            "vmid:104",
            "name:104",
            "pid:7",
            "pid:9",
            "pid:9-0",
            "9-0",
            "process 7",
            "prod/web-x",
            "web-x",
            "pod:web-x",
            "vm@a-b",
            "a-b",
            "unit:a-b",
            "unit:vm@a-b",
            r"vm@a\x2db.service",
            uuid,
            &uuid.to_uppercase(),
            "abababababab",
            "container_id:abababababababab",
            "web (process 7)",
            "web (vmid:104)",
            "104 (web)",
            "9-0 (web)",
            "7 (web, vmid:104)",
            "we…",
            "vm@a…",
        ] {
            assert_eq!(by(given), Some(By::Name), "{given}");
        }
        assert_eq!((by("7"), by("9")), (Some(By::Number), Some(By::Number)));
        for given in [
            "",
            "we",
            "pid:web",
            "pid:104",
            "vmid:7",
            "vmid:web",
            "uuid:104",
            "process 9 ",
            "9-1",
            "web (process 8)",
            "web (vmid:105)",
            "8 (web)",
            "7 (web, vmid:105)",
            "ababab",
            "…",
            "(web)",
            " (",
            "web ()",
            "name:",
            "pid:",
            "prod",
        ] {
            assert_eq!(by(given), None, "{given}");
        }
    }

    #[test]
    fn what_tells_vms_apart_is_shown() {
        let named = |name: &str| Names::default().with(Kind::Name, name);
        let long = "x".repeat(4000);
        let vms = vms(vec![
            named("web").with(Kind::Vmid, "104"),
            named("web").with(Kind::Vmid, "105"),
            named("db").with(Kind::Incus, "default/db").with(Kind::Unit, "incus.service"),
            named("db").with(Kind::Incus, "test/db").with(Kind::Unit, "incus.service"),
            named("twin"),
            named("twin"),
            named("1"),
            named("pid:1"),
            named(&long),
            named("a\n\u{202e}b"),
            Names::default(),
            named(&format!("sandbox-{}", "cd".repeat(32))).with(Kind::Pod, "prod/x"),
            named(&"ef".repeat(32)),
        ]);
        let titles: Vec<&str> = vms.iter().map(VmProcess::title).collect();
        let cut = "x".repeat(127) + "…";
        assert_eq!(
            titles,
            [
                "web (vmid:104)",
                "web (vmid:105)",
                "db (incus:default/db)",
                "db (incus:test/db)",
                "twin (process 5)",
                "twin (process 6)",
                "1 (process 7)",
                "pid:1 (process 8)",
                &cut,
                r"a\n\u{202e}b",
                "pid:11",
                "prod/x",
                "efefefefefef",
            ]
        );
    }

    /// Names that are, or look like, something else.
    fn name() -> impl Strategy<Value = Vec<u8>> {
        let odd = [
            "web",
            "db",
            "104",
            "1",
            "2",
            "pid:1",
            "pid:2",
            "process 1",
            "process 3",
            "name:web",
            "vmid:104",
            "web (process 1)",
            "web (process 2)",
            "web (vmid:104)",
            "web (web)",
            "we…",
            "web…",
            "…",
            "2-0",
            "(",
            ")",
            " (",
            "web (",
            "a, b",
            "web, 104",
            "prod/web",
            "vm@web",
            "web.service",
            "1 (web)",
            "abababababab",
            "ababababababa",
            "\u{202e}bew",
            "web\n",
            "\"",
            "'",
            "\\n",
            "C7A5FDB2-cdaf-9455-926a-d65c16db1809",
            "uuid:x",
            "web (pid:2)",
        ];
        let long = prop_oneof![Just(1), Just(2), Just(200), Just(4096)];
        prop_oneof![
            4 => prop::sample::select(odd.to_vec()).prop_map(|name| name.as_bytes().to_vec()),
            1 => Just(b"ab".repeat(32)),
            1 => Just([b"sandbox-".as_slice(), &b"ab".repeat(32)].concat()),
            1 => (any::<char>(), long)
                .prop_map(|(c, times): (char, usize)| c.to_string().repeat(times).into_bytes()),
            1 => prop::collection::vec(any::<u8>(), 1..40),
        ]
    }

    fn names() -> impl Strategy<Value = Names> {
        let kind = prop::sample::select(Kind::ALL.to_vec());
        let named = prop::collection::vec((kind, name()), 0..5);
        named.prop_map(|all| {
            let add = |names: Names, (kind, name): (Kind, Vec<u8>)| names.with(kind, name);
            all.into_iter().fold(Names::default(), add)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn every_title_means_its_vm_alone(names in prop::collection::vec(names(), 1..7)) {
            let vms = vms(names);
            for vm in &vms {
                let title = vm.title();
                prop_assert_eq!(found(&vms, title.as_bytes()), [vm.pid], "{:?}", title);
                prop_assert!(!title.contains(char::is_control) && title.chars().count() < 300);
                prop_assert_eq!(found(&vms, vm.selector().as_bytes()), [vm.pid]);
            }
        }

        #[test]
        fn every_name_means_its_vm_if_not_alone(names in prop::collection::vec(names(), 1..7)) {
            let vms = vms(names);
            for vm in &vms {
                for (kind, name) in vm.names.iter() {
                    for given in [name.as_bytes(), name.to_string().as_bytes()] {
                        let any = [b"name:", given].concat();
                        let explicit = [kind.key().as_bytes(), b":", given].concat();
                        prop_assert!(found(&vms, &any).contains(&vm.pid), "{:?}", name);
                        prop_assert!(found(&vms, &explicit).contains(&vm.pid), "{:?}", name);
                    }
                }
            }
        }

        #[test]
        fn no_text_makes_it_panic(given: Vec<u8>, names in names()) {
            let vms = vms(vec![names]);
            found(&vms, &given);
            found(&vms, &[given.as_slice(), b" (", &given, b")"].concat());
        }
    }
}
