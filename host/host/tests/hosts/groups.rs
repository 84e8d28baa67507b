// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cgroups that are in no manager's layout: out of the tree, shared, removed, hidden, or any.

use crate::fake::Fake;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use unspin_host::{Groups, Limited, Rival, Tree, VmProcess};

/// In a cgroup namespace where process 1 is not seen, or in the same namespace.
#[test]
fn a_cgroup_out_of_the_tree_is_unknown() {
    let fake = Fake::new();
    fake.line("sys/fs/cgroup/cpu.max", "50000 100000");
    fake.placed(100, "0::/..", &["0::/.."]);
    fake.placed(101, "0::/../../cgroup", &["0::/../../cgroup"]);
    for of_first in ["0::/", "0::/../x", "0::/../../x", "0::/../../../../x"] {
        fake.line("proc/1/cgroup", of_first);
        let (tree, groups, _) = fake.groups();
        for pid in [100, 101] {
            let why = groups.place(&tree, pid).unwrap_err();
            assert!(why.contains("is not in the tree"), "{of_first}, {pid}: {why}");
            assert_eq!(groups.limits(&tree, pid), []);
        }
    }
}

/// Version 1 may be mounted without it, and a kernel may have no cgroups.
#[test]
fn a_host_without_the_cpu_controller_is_named() {
    for lines in ["5:cpuset:/x\n1:name=systemd:/system.slice/vm.service", ""] {
        let fake = Fake::new();
        fake.placed(100, lines, &[lines]);
        let (tree, groups, _) = fake.groups();
        let why = groups.place(&tree, 100).unwrap_err();
        assert_eq!(why, "no hierarchy of cgroups on this host controls CPU time");
    }
}

/// Two whose names are shown alike are not taken for each other.
#[test]
fn cgroups_whose_names_are_no_text_compete() {
    let fake = Fake::new();
    let dir = |name: &[u8]| fake.join("sys/fs/cgroup").join(OsStr::from_bytes(name));
    for (name, weight) in [(&b"a.scope"[..], "100\n"), (b"\xff.scope", "300\n")] {
        fake.write(dir(name).join("cpu.weight"), weight);
        fake.write(dir(name).join("cgroup.procs"), "1\n");
    }
    fake.placed(100, "0::/a.scope", &["0::/a.scope"]);
    fake.placed(101, "", &[""]);
    for tid in [101, 1010] {
        fake.write(format!("proc/{tid}/cgroup"), b"0::/\xff.scope\n");
    }
    let rivals = || {
        let (tree, groups, _) = fake.groups();
        let rivals = Rival::all(&tree, &groups, &BTreeSet::from([100]), false);
        rivals.into_iter().map(|rival| (rival.weight, rival.own)).collect::<Vec<_>>()
    };
    let both = [(None, None), (Some(100.0), Some(100)), (Some(300.0), Some(101))];
    assert_eq!(rivals(), both);
    fs::create_dir(dir(b"\xfe.scope")).unwrap();
    assert_eq!(rivals(), both[..2]);
}

/// Two cgroups, with two VMs in the first.
fn two() -> Fake {
    let fake = Fake::new();
    for path in ["a/cpu.weight", "b/cpu.weight"] {
        fake.line(format!("sys/fs/cgroup/{path}"), "100");
    }
    fake.placed(100, "0::/a", &["0::/a"]);
    fake.placed(101, "0::/a", &["0::/a"]);
    fake
}

#[test]
fn what_ends_or_moves_is_forgotten() {
    let fake = two();
    let host = fake.host();
    let (tree, mut groups, all) = fake.groups();
    let own = |groups: &Groups, pid| groups.place(&tree, pid).unwrap().is_own;
    assert!(!own(&groups, 100) && !own(&groups, 101));
    fake.proc("101/cgroup", "0::/b\n");
    fake.proc("1010/cgroup", "0::/b\n");
    groups.renew(&tree, &host, &all[1]);
    assert!(own(&groups, 100) && own(&groups, 101));
    groups.retain(|pid| pid == 101);
    assert!(groups.place(&tree, 100).unwrap_err().contains("not looked at"));
    fs::remove_file(fake.join("proc/1010/cgroup")).unwrap();
    groups.renew(&tree, &host, &all[1]);
    assert!(groups.place(&tree, 101).unwrap_err().contains("has ended"));
}

#[test]
fn a_vm_that_hides_its_vcpus_has_a_place_where_all_its_threads_have_one() {
    let fake = two();
    fake.comm(100, 1000, "kvm");
    let place = || {
        let (tree, groups, _) = fake.groups();
        groups.place(&tree, 100).map(|place| place.group.unwrap().path)
    };
    assert_eq!(place().as_deref(), Ok("/a"));
    fake.proc("1000/cgroup", "0::/b\n");
    assert!(place().unwrap_err().contains("not known which of them run vCPUs"));
}

/// libvirt's cgroups are known by their scope. A quota inside it may be of a vCPU or of others.
#[test]
fn a_vm_that_hides_its_vcpus_has_the_place_of_its_unit() {
    let fake = Fake::new();
    let scope = r"machine.slice/machine-qemu\x2d1\x2dweb.scope";
    for (path, text) in [
        ("cpu.weight", "300"),
        ("cpu.max", "200000 100000"),
        ("libvirt/emulator/cpu.weight", "100"),
        ("libvirt/emulator/cpu.max", "20000 100000"),
        ("libvirt/vcpu0/cpu.weight", "100"),
    ] {
        fake.write(format!("sys/fs/cgroup/{scope}/{path}"), text);
    }
    let [emulator, vcpu] = ["emulator", "vcpu0"].map(|part| format!("0::/{scope}/libvirt/{part}"));
    fake.placed(100, &emulator, &[&vcpu]);
    fake.comm(100, 1000, "kvm");
    fake.descriptor(100, 20, "anon_inode:kvm-vcpu:0");
    let (tree, groups, _) = fake.groups();
    let place = groups.place(&tree, 100).unwrap();
    assert_eq!((place.group.unwrap().path, place.is_own), (format!("/{scope}"), true));
    let limits = groups.limits(&tree, 100).into_iter().map(|limit| (limit.cpus, limit.of));
    assert_eq!(limits.collect::<Vec<_>>(), [(2.0, Limited::Vm)]);
}

/// Such as a helper that has inherited the descriptor.
#[test]
fn a_process_without_vcpus_takes_nothing_from_a_vm() {
    let fake = Fake::new();
    fake.line("sys/fs/cgroup/a/cpu.weight", "100");
    fake.placed(100, "0::/a", &["0::/a"]);
    fake.placed(101, "0::/a", &[]);
    let (tree, groups, all) = fake.groups();
    assert_eq!(all.iter().map(VmProcess::has_vcpus).collect::<Vec<_>>(), [true, false]);
    let place = |pid| groups.place(&tree, pid).unwrap();
    assert!(place(100).is_own && place(100).beside.is_empty());
    assert_eq!((place(101).is_own, place(101).beside), (false, BTreeSet::from([100])));
    let rivals = Rival::all(&tree, &groups, &BTreeSet::from([100]), false);
    let own: Vec<Option<u32>> = rivals.iter().map(|rival| rival.own).collect();
    assert_eq!(own, [None, Some(100)]);
    assert!(rivals.iter().all(|rival| rival.threads_of.is_empty()));
}

/// The kernel marks a cgroup that was removed in the same way.
#[test]
fn a_cgroup_whose_name_ends_like_the_mark_is_known() {
    let fake = Fake::new();
    for (path, weight) in [("vm", "100"), ("vm (deleted)", "300")] {
        fake.write(format!("sys/fs/cgroup/{path}/cpu.weight"), weight);
    }
    let of = |path: &str| {
        fake.proc("7/cgroup", format!("0::{path}\n"));
        Tree::of(&fake.host()).group(7).map(|group| group.path)
    };
    assert_eq!(of("/vm (deleted)").as_deref(), Ok("/vm (deleted)"));
    assert_eq!(of("/vm").as_deref(), Ok("/vm"));
    fs::remove_dir_all(fake.join("sys/fs/cgroup/vm (deleted)")).unwrap();
    assert_eq!(of("/vm (deleted)").as_deref(), Ok("/vm"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    /// For any cgroups of VMs, and any cgroups with the controller on.
    #[test]
    fn no_vm_is_at_two_places(
        on in prop::collection::vec(any::<bool>(), 15),
        vms in prop::collection::vec((0..15usize, 0..15usize), 1..6),
    ) {
        let fake = Fake::new();
        let path = |at: usize| -> String {
            let bits: Vec<String> = (0..4).filter(|bit| at >> bit > 0).map(|bit| format!("g{}", at >> bit & 1)).collect();
            bits.into_iter().rev().fold(String::new(), |all, part| all + "/" + &part)
        };
        for (at, on) in on.iter().enumerate().filter(|(at, _)| *at > 0) {
            let file = if *on { "cpu.weight" } else { "cgroup.procs" };
            fake.line(format!("sys/fs/cgroup{}/{file}", path(at)), "100");
        }
        for (index, (main, vcpu)) in vms.iter().enumerate() {
            let of = |at: &usize| format!("0::{}", if *at == 0 { "/".into() } else { path(*at) });
            fake.placed(100 + index as u32, &of(main), &[&of(vcpu), &of(main)]);
        }
        let (tree, groups, all) = fake.groups();
        let pids: BTreeSet<u32> = all.iter().map(|vm| vm.pid).collect();
        let rivals = Rival::all(&tree, &groups, &pids, true);
        let mut seen: Vec<u32> = rivals.iter().flat_map(|of| of.threads_of.iter().chain(&of.own)).copied().collect();
        seen.sort_unstable();
        prop_assert_eq!(&seen, &pids.iter().copied().collect::<Vec<_>>(), "each at one place");
        for rival in &rivals {
            prop_assert!(rival.own.is_none() || rival.threads_of.is_empty());
            let within = rival.within.map(|within| &rivals[within]);
            prop_assert!(within.is_none_or(|of| of.group.holds(&rival.group) && of.is_divided));
        }
        for pid in &pids {
            let place = groups.place(&tree, *pid).unwrap();
            let group = place.group.as_ref();
            prop_assert!(group.is_none_or(|group| tree.is_on(group)));
            prop_assert!(!place.is_own || place.beside.is_empty() && group.is_some());
            for other in &place.beside {
                prop_assert!(!groups.place(&tree, *other).unwrap().is_own || group != groups.place(&tree, *other).unwrap().group.as_ref());
            }
        }
    }
}
