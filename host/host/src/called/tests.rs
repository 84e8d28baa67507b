// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of which VM a text selects.

use super::*;
use crate::{Monitor, Names, Vcpu};
use proptest::prelude::*;

/// VMs with these names. Process ids count from 1.
fn vms(names: Vec<Names>) -> Vec<VmProcess> {
    let of = |(pid, names)| VmProcess::new(pid, Monitor::Other, names, Vec::new());
    let mut vms: Vec<VmProcess> = (1..).zip(names).map(of).collect();
    tell_apart(&mut vms, &[]);
    vms
}

/// The processes of the VMs that `given` selects. The module's id of each VM contains its process.
fn found(vms: &[VmProcess], given: &[u8]) -> Vec<u32> {
    let by = |vm: &VmProcess| meant(given, Some(vm), Some(&format!("{}-0", vm.pid)));
    let mut found = vms.iter().filter_map(|vm| Some((by(vm)?, vm.pid))).collect();
    keep_told(&mut found);
    found.into_iter().map(|(_, pid)| pid).collect()
}

/// Texts that may select the VM of [`a_text_means_what_it_says`], and texts that do not.
const MEANT: &str =
    "name:web | 104 | vmid:104 | name:104 | pid:7 | pid:9 | pid:9-0 | 9-0 | process 7 | \
     prod/web-x | web-x | pod:web-x | vm@a-b | a-b | unit:a-b | unit:vm@a-b | \
     vm@a\\x2db.service | abababababab | container_id:abababababababab | web (process 7) | \
     web (vmid:104) | 104 (web) | 9-0 (web) | 7 (web, vmid:104) | we… | vm@a… | w…b | …eb | \
     9-0 (web, vmid:104) (process 7)";
const NOT_MEANT: &str =
    "we | pid:web | pid:104 | pid:+7 | pid:07 | +7 | 07 | process +7 | vmid:7 | vmid:web | \
     uuid:104 | 9-1 | web (process 8) | web (vmid:105) | 8 (web) | 7 (web, vmid:105) | ababab | \
     … | w…x | web…b | (web) | web () | name: | pid: | prod";

#[test]
fn a_text_means_what_it_says() {
    let uuid = "0a000000-0000-0000-0000-000000000001";
    let names = Names::default().with(Kind::Name, "web").with(Kind::Vmid, "104");
    let names = names.with(Kind::Pod, "prod/web-x").with(Kind::Unit, r"vm@a\x2db.service");
    let names = names.with(Kind::Uuid, uuid).with(Kind::ContainerId, "ab".repeat(32));
    let vm = VmProcess::new(7, Monitor::Qemu, names, Vec::new());
    let by = |given: &str| meant(given.as_bytes(), Some(&vm), Some("9-0"));
    for given in MEANT.split(" | ").chain([uuid, &uuid.to_uppercase()]) {
        assert!(by(given) >= Some(By::Name), "{given}");
    }
    assert_eq!((by("7"), by("9")), (Some(By::Number), Some(By::Number)));
    for (given, expected) in [
        ("web", By::Exact),
        ("name:web", By::Exact),
        ("vmid:104", By::Exact),
        ("pid:9-0", By::Exact),
        ("process 7", By::Exact),
        ("name:104", By::Told),
        ("104 (process 7)", By::Told),
        ("9-0 (web)", By::Told),
        ("104", By::Name),
        ("9-0", By::Name),
        ("104 (web)", By::Name),
        ("we…", By::Name),
    ] {
        assert_eq!(by(given), Some(expected), "{given}");
    }
    for given in NOT_MEANT.split(" | ").chain(["", "process 9 ", " ("]) {
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

/// VMs with these names; a name that ends with `*` is of a process without vCPUs.
fn titles(names: &[&str]) -> Vec<String> {
    let of = |(pid, name): (u32, &&str)| {
        let names = Names::default().with(Kind::Name, name.trim_end_matches('*'));
        let vcpus = vec![Vcpu { index: 0, tid: pid }];
        let vcpus = if name.ends_with('*') { Vec::new() } else { vcpus };
        VmProcess::new(pid, Monitor::Other, names, vcpus)
    };
    let mut vms: Vec<VmProcess> = (1..).zip(names).map(of).collect();
    tell_apart(&mut vms, &[]);
    vms.iter().map(|vm| vm.title().to_string()).collect()
}

#[test]
fn a_name_of_several_words_is_shown_alone_where_it_means_no_other_vm() {
    let uuid = "0a000000-0000-0000-0000-000000000001";
    for (names, expected) in [
        (&["Windows 10 (old)", "web", uuid][..], &["Windows 10 (old)", "web", uuid][..]),
        (&["web (old)", "web"], &["web (old) (process 1)", "web"]),
        (&["2 (old)", "web"], &["2 (old) (process 1)", "web"]),
        (&["2-0 (web)"], &["2-0 (web) (process 1)"]),
        (&["a (b (c)", "a (b"], &["a (b (c) (process 1)", "a (b"]),
        (&["a (b)", "a (b)"], &["a (b) (process 1)", "a (b) (process 2)"]),
        (&["web", "web"], &["web (process 1)", "web (process 2)"]),
        (&["web", "web*", "web*"], &["web", "web (process 2)", "web (process 3)"]),
        (&["web*", "db"], &["web", "db"]),
    ] {
        assert_eq!(titles(names), expected);
    }
}

/// Of this thread: a busy computer makes none of it.
fn cpu_time() -> std::time::Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Without a bound, titles would take time with the square of the number of VMs, and a text with the cube of its
/// length.
#[test]
fn long_odd_names_take_little_time() {
    let begun = cpu_time();
    let odd = |number: usize| r"\ (, ".repeat(800) + &number.to_string();
    let odd: Vec<String> = (0..300).map(odd).collect();
    let names = odd.iter().map(|name| Names::default().with(Kind::Name, name.as_str()));
    let vms = vms(names.collect());
    for text in [&odd[0], &odd[0][..2000], &format!("1 ({})", &odd[0][..2000])] {
        found(&vms, text.as_bytes());
        found(&vms, format!("{text})").as_bytes());
    }
    assert_eq!(found(&vms, vms[7].title().as_bytes()), [8]);
    let took = cpu_time() - begun;
    assert!(took.as_secs() < 10, "{took:?}");
}

/// A name that looks like the title, the id, the label or a shortened title of another VM.
#[test]
fn no_name_hides_another_vm() {
    let named = |name: &str| Names::default().with(Kind::Name, name);
    let long = "customer-production-database";
    let hostile = [
        "web (vmid:104)",
        "web (process 1)",
        "1-0",
        "1 (web)",
        "1-0 (web, vmid:104)",
        "vmid:104",
        "customer-pro…(vmid:106)",
        "104",
        "a, b",
    ];
    let ids = vms(vec![named("2-0"), named("1-0")]);
    assert_eq!((found(&ids, b"1-0 (2-0)"), found(&ids, b"2-0 (1-0)")), (vec![1], vec![2]));
    let mut names = vec![
        named("web").with(Kind::Vmid, "104"),
        named("web").with(Kind::Vmid, "105"),
        named(long).with(Kind::Vmid, "106"),
        named(long).with(Kind::Vmid, "107"),
        named("a, b").with(Kind::Vmid, "108"),
    ];
    names.extend(hostile.map(named));
    let vms = vms(names);
    for vm in &vms {
        let id = format!("{}-0", vm.pid);
        for shown in [vm.title().to_string(), vm.label(&id)] {
            assert_eq!(found(&vms, shown.as_bytes()), [vm.pid], "{shown}");
        }
    }
    let of = |given: &str| found(&vms, given.as_bytes());
    assert_eq!(of("name:104"), [13], "the kind decides");
    assert_eq!((of("name:105"), of("vmid:104"), of("pid:1-0")), (vec![2], vec![1], vec![1]));
    assert_eq!(of("104"), [1, 13], "no kind, and two VMs");
    assert_eq!(of("1-0"), [1, 8], "an id of one, and a name of another");
    assert_eq!((of("customer-pro…(vmid:107)"), of("cust…(vmid:107)")), (vec![4], vec![4]));
    assert_eq!(of("customer-pro…(vmid:106)"), [3, 12]);
    let titles = [0, 5, 7].map(|at| vms[at].title());
    assert_eq!(titles, ["web (vmid:104)", "web (vmid:104) (process 6)", "1-0 (process 8)"]);
}

/// The number of the thread that created a VM selects the VM.
#[test]
fn a_number_that_is_anothers_thread_is_told_apart() {
    let named = |pid, name: &str| {
        let names = Names::default().with(Kind::Name, name);
        VmProcess::new(pid, Monitor::Qemu, names, Vec::new())
    };
    let mut vms = [named(41, "web"), named(42, "45")];
    tell_apart(&mut vms, &[45, 42]);
    assert_eq!(vms.each_ref().map(VmProcess::title), ["web", "45 (process 42)"]);
}

/// Names that are, or look like, something else.
fn name() -> impl Strategy<Value = Vec<u8>> {
    // One begins with a space.
    let odd = "web | db | 104 | 1 | 2 | pid:1 | pid:2 | process 1 | process 3 | name:web | \
        vmid:104 | web (process 1) | web (process 2) | web (vmid:104) | web (web) | we… | web… | \
        … | 2-0 | ( | ) |  ( | web ( | a, b | web, 104 | prod/web | vm@web | web.service | 1 (web) | \
        abababababab | ababababababa | \u{202e}bew | web\n | \" | ' | \\n | \
        C7A5FDB2-cdaf-9455-926a-d65c16db1809 | uuid:x | web (pid:2) | 1-0 | 2-0 (web) | \
        1 (web, vmid:104) | w…b | web…(process 1) | web (x | web (x (process 1) | a (b, c) | \
        uuid:web (process 1) | c7a5fdb2-cdaf-9455-926a-d65c16db1809 | .service | pid:5.service";
    let odd: Vec<&str> = odd.split(" | ").collect();
    let long = prop_oneof![Just(1), Just(2), Just(200), Just(4096)];
    prop_oneof![
        4 => prop::sample::select(odd).prop_map(|name| name.as_bytes().to_vec()),
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
            let name = vm.name_text().unwrap_or(title.into());
            prop_assert!(meant(name.as_bytes(), Some(vm), None).is_some(), "{:?}", name);
            let label = vm.label(&format!("{}-0", vm.pid));
            prop_assert_eq!(found(&vms, label.as_bytes()), [vm.pid], "{:?}", label);
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
                    let is_other = kind != Kind::Name && vms.iter().any(|vm| vm.names.has_of(Kind::Name, given));
                    prop_assert!(is_other || found(&vms, &any).contains(&vm.pid), "{:?}", name);
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

#[test]
fn names_that_differ_in_spaces_around_them_are_told_apart() {
    let of = |name: &str| Names::default().with(Kind::Name, name);
    let vms = vms(["web", "web ", " web", "my web"].map(of).to_vec());
    let titles: Vec<&str> = vms.iter().map(VmProcess::title).collect();
    assert_eq!(titles, ["web", "pid:2", "pid:3", "my web"]);
    for (vm, title) in vms.iter().zip(&titles) {
        assert_eq!(found(&vms, title.as_bytes()), [vm.pid]);
    }
    assert_eq!(found(&vms, b"web "), [2]);
}

#[test]
fn the_name_of_a_process_without_vcpus_selects_no_vm_with_some() {
    let of = |pid: u32, name: &str, vcpus: u32| {
        let names = Names::default().with(Kind::Name, name);
        let vcpus = (0..vcpus).map(|index| Vcpu { index, tid: 10 * pid + index }).collect();
        VmProcess::new(pid, Monitor::Qemu, names, vcpus)
    };
    let mut vms = vec![
        of(7, "web", 1),
        of(8, "7", 0),
        of(9, "web", 0),
        of(10, "70-0", 0),
        of(11, "9", 1),
        of(12, "db", 0),
    ];
    tell_apart(&mut vms, &[]);
    let names: Vec<String> = vms.iter().filter_map(VmProcess::name_text).collect();
    assert_eq!((&*names[0], &*names[4], &*names[5]), ("web", "9", "db"));
    for (vm, name) in vms.iter().zip(&names).skip(1).take(3) {
        assert_eq!(name, vm.title(), "{}", vm.pid);
        let running: Vec<u32> = vms.iter().filter(|vm| vm.has_vcpus()).map(|vm| vm.pid).collect();
        let found = found(&vms, name.as_bytes());
        assert!(found.contains(&vm.pid), "{name}");
        assert!(running.iter().all(|pid| !found.contains(pid)), "{name}");
    }
}
