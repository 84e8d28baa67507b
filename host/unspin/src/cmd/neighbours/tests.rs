// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin neighbours` on hosts made of files: the document and the table.

use super::*;
use serde_json::Value;
use unspin_cli::fake::Fake;

/// Groups below /sys/fs/cgroup, with the CPU time of each per second, in ms.
fn read(fake: &Fake, groups: &[(&str, &str, u64)], seconds: u64) {
    for (path, weight, ms) in groups {
        let dir = format!("sys/fs/cgroup{path}");
        if !weight.is_empty() {
            fake.write(&format!("{dir}/cpu.weight"), weight);
        }
        fake.write(&format!("{dir}/cgroup.events"), "populated 1");
        let stat = format!("usage_usec {}\nthrottled_usec 0", ms * seconds * 1000);
        fake.write(&format!("{dir}/cpu.stat"), &stat);
    }
}

fn vm(fake: &Fake, pid: u32, name: &str, group: &str) {
    fake.vm(&format!("{pid}-0"), name);
    fake.0.link(format!("proc/{pid}/fd/8"), "anon_inode:kvm-vcpu:0");
    fake.write(&format!("proc/{pid}/cgroup"), &format!("0::{group}"));
}

/// The document of all VMs, or of one, after a second.
fn document(fake: &Fake, groups: &[(&str, &str, u64)], only: Option<u32>) -> Document {
    document_of(fake, groups, only, &[])
}

/// The same if these VMs have ended by then, and their cgroups with them.
fn document_of(
    fake: &Fake,
    groups: &[(&str, &str, u64)],
    only: Option<u32>,
    ended: &[(u32, &str)],
) -> Document {
    let host = fake.host();
    let all = vms::processes(&host).unwrap();
    let pids = all.iter().map(|vm| vm.pid);
    let chosen: BTreeSet<u32> = pids.filter(|pid| only.is_none_or(|of| of == *pid)).collect();
    read(fake, groups, 1);
    let tree = Tree::of(&host);
    let of_vms = Groups::of(&tree, &host, &all);
    let rivals = Rival::all(&tree, &of_vms, &chosen, only.is_some());
    let found = Found { host: &host, tree: &tree, groups: &of_vms, all: &all, chosen: &chosen };
    let of_chosen = OfVm::chosen(&found);
    let at = Instant::now();
    let read_at = |at| Read { at, ..Read::new(&tree, &host, &rivals, of_vms.vms()) };
    let mut before = read_at(at);
    before.vms = BTreeMap::from([(41, 0), (42, 0), (44, 0), (45, 0)]);
    read(fake, groups, 2);
    for (_, group) in ended.iter().filter(|(_, group)| !group.is_empty()) {
        std::fs::remove_dir_all(fake.path(&format!("sys/fs/cgroup{group}"))).unwrap();
    }
    for (pid, _) in ended.iter().filter(|(pid, _)| *pid != 0) {
        std::fs::remove_dir_all(fake.path(&format!("proc/{pid}"))).unwrap();
    }
    let mut after = read_at(at + Duration::from_secs(1));
    after.vms = BTreeMap::from([(41, 900_000_000), (42, 0), (44, 300_000_000), (45, 100_000_000)]);
    after.vms.retain(|pid, _| ended.iter().all(|(of, _)| of != pid));
    Document::new(&found, &rivals, of_chosen, [&before, &after])
}

const GROUPS: [(&str, &str, u64); 11] = [
    ("/", "", 4000),
    ("/machine.slice", "100", 2000),
    (r"/machine.slice/machine-qemu\x2d1\x2da-name-that-is-longer-than-a-line.scope", "100", 900),
    (
        r"/machine.slice/machine-qemu\x2d1\x2da-name-that-is-longer-than-a-line.scope/libvirt",
        "100",
        900,
    ),
    (r"/machine.slice/machine-qemu\x2d2\x2ddb.scope", "300", 1100),
    (r"/machine.slice/machine-qemu\x2d3\x2didle.scope", "100", 0),
    ("/system.slice", "100", 1900),
    ("/system.slice/runner.service", "100", 500),
    ("/system.slice/backup.service", "50", 1400),
    ("/system.slice/cron.service", "100", 1),
    ("/user.slice", "100", 2),
];

fn host() -> Fake {
    let fake = Fake::new();
    let of = |number: u32, name: &str| {
        format!(r"/machine.slice/machine-qemu\x2d{number}\x2d{name}.scope")
    };
    vm(
        &fake,
        41,
        "web \u{1f43b}\u{1f43b} of the first customer, in Oslo",
        &of(1, "a-name-that-is-longer-than-a-line"),
    );
    vm(&fake, 42, "db", &of(2, "db"));
    vm(&fake, 43, "idle", &of(3, "idle"));
    vm(&fake, 44, "fire1", "/system.slice/runner.service");
    vm(&fake, 45, "fire2", "/system.slice/runner.service");
    fake.write("proc/stat", "cpu  1\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1");
    let scope = of(1, "a-name-that-is-longer-than-a-line");
    fake.write("proc/41/cgroup", &format!("0::{scope}/libvirt"));
    fake.write(&format!("sys/fs/cgroup{scope}/cpu.max"), "150000 100000");
    fake
}

#[test]
fn the_table_fits_and_tells_who_competes_with_whom() {
    let fake = host();
    fake.write("sys/kernel/sched_ext/state", "enabled");
    fake.write("sys/kernel/sched_ext/root/ops", "lavd");
    let text = show::text(&document(&fake, &GROUPS, None), 80);
    let wide = |line: &str| line.replace('\u{1f43b}', "xx").chars().count();
    assert!(text.lines().all(|line| wide(line) <= 80), "{text}");
    let row = |words: &str| text.lines().find(|line| line.contains(words)).unwrap_or_default();
    let ends = |words: &str, end: &str| {
        let cells: Vec<&str> = row(words).split("  ").filter(|cell| !cell.is_empty()).collect();
        let cells: Vec<&str> = cells.iter().map(|cell| cell.trim()).collect();
        let cells = cells.join("|");
        assert!(cells.ends_with(end), "{words}: {cells}\n{text}");
    };
    assert!(text.starts_with("CPU time of 4 CPUs by cgroup, 1.0 s\n"), "{text}");
    // Two busy VMs with weights 100:300, in two busy slices with tasks beside them.
    ends("web", "|100|1.50|25.0 %|45.0 %|0.90");
    ends("db (machine", "|300|75.0 %|55.0 %|1.10");
    ends("idle (machine", "|100|idle|0.0 %|0.00");
    ends("machine.slice ", "|100|50.0 %|50.0 %|2.00");
    ends("tasks in no cgroup", "|2.5 %|0.10");
    ends("runner.service", "|100|66.7 %|26.3 %|0.50");
    ends("backup.service", "|50|33.3 %|73.6 %|1.40");
    ends("fire1", "|60.0 %|0.30");
    ends("other tasks", "|20.0 %|0.10");
    assert!(!text.contains("cron") && !text.contains("user.slice"), "{text}");
    let flat = text.replace("\n ", "");
    for words in [
        "fire1, fire2 share /system.slice/runner.service: they have no cgroup each",
        "2 cgroups that were idle",
        "the sched_ext scheduler lavd is enabled",
    ] {
        assert!(flat.contains(words), "{words}: {text}");
    }
}

/// A quota that does not limit anything, and a long name.
#[test]
fn no_quota_and_no_name_makes_it_wider_than_the_terminal() {
    let fake = host();
    fake.write("sys/fs/cgroup/system.slice/cpu.max", &format!("{} 1", u64::MAX));
    fake.vm("46-0", &"long-\u{202e}\n'\"".repeat(500));
    fake.write("proc/46/cgroup", r"0::/machine.slice/machine-qemu\x2d2\x2ddb.scope");
    for width in [40, 80] {
        let text = show::text(&document(&fake, &GROUPS, None), width);
        assert!(text.lines().all(|line| crate::fit::cells(line) <= width), "{text}");
        assert!(width == 40 || text.contains("≥ 1000000"), "{text}");
    }
}

#[test]
fn one_vm_is_shown_with_what_is_inside_and_json_has_all() {
    let fake = host();
    let found = document(&fake, &GROUPS, Some(41));
    let text = show::text(&found, 80);
    assert!(text.contains("libvirt") && !text.contains("fire1"), "{text}");
    assert!(text.contains("db (machine"), "who is beside it: {text}");
    let json: Value = serde_json::to_value(&found).unwrap();
    let groups = json["groups"].as_array().unwrap();
    for within in groups.iter().map(|group| &group["path"]) {
        let inside = groups.iter().filter(|group| &group["within"] == within);
        let shares: Vec<f64> = inside.filter_map(|group| group["entitled"].as_f64()).collect();
        let sum: f64 = shares.iter().sum();
        assert!(shares.is_empty() || (sum - 1.0).abs() < 1e-9, "{within}: {shares:?}");
    }
    assert_eq!((&json["schema"], json["vms"].as_array().unwrap().len()), (&1.into(), 1));
    let vm = &json["vms"][0];
    assert_eq!(
        (&vm["pid"], &vm["is_own"], &vm["weight"]),
        (&41.into(), &true.into(), &100.0.into())
    );
    assert_eq!((&vm["limit_cpus"], &vm["quotas"][0]["of"]), (&1.5.into(), &"vm".into()));
    assert!(vm["quotas"][0]["remedy"].as_str().unwrap().starts_with("virsh schedinfo "));
    assert!(json["sched_ext"].is_null() && vm["unknown"].is_null());
}

/// One in a cgroup of its own, one that shares a cgroup, and a cgroup without VMs.
#[test]
fn what_ends_is_idle_and_hides_nothing() {
    let fake = host();
    let db = r"/machine.slice/machine-qemu\x2d2\x2ddb.scope";
    let ended = [(42, db), (45, ""), (0, "/system.slice/backup.service")];
    let found = document_of(&fake, &GROUPS, None, &ended);
    let of = |end: &str| found.groups.iter().find(|of| of.path.ends_with(end)).unwrap();
    for (end, ended, entitled, got) in [
        ("ddb.scope", true, None, 0.0),
        ("line.scope", false, Some(1.0), 0.45),
        ("backup.service", true, None, 0.0),
        ("runner.service", false, Some(1.0), 500.0 / 1900.0),
    ] {
        let of = of(end);
        assert_eq!((of.ended, of.is_busy, of.entitled), (ended, Some(!ended), entitled), "{end}");
        assert!((of.got.unwrap() - got).abs() < 1e-9, "{of:?}");
    }
    assert!((of("runner.service").rest_cpus.unwrap() - 0.2).abs() < 1e-9, "without fire1");
    let vm = |pid: u32| found.vms.iter().find(|vm| vm.pid == pid).unwrap();
    assert_eq!(
        (vm(42).ended, vm(42).is_own, vm(42).group.as_deref()),
        (true, Some(true), Some(db))
    );
    assert!(vm(45).ended && !vm(41).ended && vm(42).cpus.is_none());
    let text = show::text(&found, 80);
    let flat = text.replace("\n  ", " ");
    assert!(flat.contains("* db, fire2, backup.service ended during the measurement"), "{text}");
    let row = text.lines().find(|line| line.contains("db (machine")).unwrap();
    assert!(row.contains(" ended ") && row.contains(" 0.0 % "), "{text}");
}

#[test]
fn a_cgroup_with_cpus_of_its_own_competes_with_none() {
    let fake = host();
    let runner = "sys/fs/cgroup/system.slice/runner.service";
    fake.write(&format!("{runner}/cpuset.cpus.effective"), "2-3");
    for (state, entitled, of_other) in [
        ("member", Some(100.0 / 150.0), 50.0 / 150.0),
        ("root invalid (Parent is not a partition root)", Some(100.0 / 150.0), 50.0 / 150.0),
        ("isolated", None, 1.0),
        ("root", None, 1.0),
    ] {
        fake.write(&format!("{runner}/cpuset.cpus.partition"), state);
        let found = document(&fake, &GROUPS, None);
        let of = |end: &str| found.groups.iter().find(|of| of.path.ends_with(end)).unwrap();
        assert_eq!(of("runner.service").entitled, entitled, "{state}");
        assert!((of("backup.service").entitled.unwrap() - of_other).abs() < 1e-9, "{state}");
        let text = show::text(&found, 200);
        let words = "/system.slice/runner.service has CPUs 2-3 alone";
        assert_eq!(text.contains(words), entitled.is_none(), "{text}");
    }
    fake.write(&format!("{runner}/cpuset.cpus.effective"), "");
    let text = show::text(&document(&fake, &GROUPS, None), 200);
    assert!(text.contains("runner.service is a cpuset partition whose CPUs are all"), "{text}");
}

#[test]
fn in_the_root_cgroup_sessions_may_compete() {
    let fake = host();
    vm(&fake, 46, "plain", "/");
    let text = || show::text(&document(&fake, &GROUPS, None), 200);
    assert!(text().contains("plain competes thread by thread, in no cgroup"), "{}", text());
    fake.write("proc/sys/kernel/sched_autogroup_enabled", "1");
    assert!(text().contains("plain is in no cgroup with a weight: there each"), "{}", text());
    assert!(!text().contains("plain compete"), "{}", text());
}

#[test]
fn vcpus_in_several_cgroups_are_told() {
    let fake = host();
    vm(&fake, 46, "split", "/a");
    fake.0.link("proc/46/fd/9", "anon_inode:kvm-vcpu:1");
    for (tid, group) in [(460, "/a"), (461, "/b")] {
        fake.write(&format!("proc/46/task/{tid}/comm"), &format!("CPU {}/KVM", tid - 460));
        fake.write(&format!("proc/{tid}/cgroup"), &format!("0::{group}"));
    }
    let more = [("/a", "100", 10), ("/b", "100", 10)];
    let text = show::text(&document(&fake, &[&GROUPS[..], &more].concat(), None), 200);
    assert!(text.contains("split: its vCPUs are in several cgroups: /a, /b"), "{text}");
    assert!(!text.contains("split compete"), "{text}");
}

/// By affinity, or by a cpuset that is no partition.
#[test]
fn vms_on_cpus_of_their_own_do_not_compete() {
    let fake = host();
    let idle = r"/machine.slice/machine-qemu\x2d3\x2didle.scope";
    let allow = |pid: u32, cpus: &str| {
        fake.write(&format!("proc/{pid}/task/{pid}0/comm"), "CPU 0/KVM");
        let scope = fake.read(&format!("proc/{pid}/cgroup"));
        fake.write(&format!("proc/{pid}0/cgroup"), &scope);
        fake.write(&format!("proc/{pid}0/status"), &format!("Cpus_allowed_list:\t{cpus}"));
    };
    for (web, db, entitled) in [
        ("0-1", "2-3", [None, None]),
        ("0-2", "2-3", [Some(0.25), Some(0.75)]),
        ("", "2-3", [Some(0.25), Some(0.75)]),
    ] {
        allow(41, web);
        allow(42, db);
        let found = document(&fake, &GROUPS, None);
        let of = |end: &str| found.groups.iter().find(|of| of.path.ends_with(end)).unwrap();
        let both = [of("line.scope"), of("ddb.scope")];
        assert_eq!(both.map(|of| of.entitled), entitled, "{web} {db}");
        let text = show::text(&found, 200);
        assert_eq!(text.contains("own CPUs: no busy cgroup beside it"), entitled[1].is_none());
    }
    // The others overlap with each other, and with it no more.
    allow(41, "0");
    allow(42, "1-2");
    fake.write(&format!("sys/fs/cgroup{idle}/cpuset.cpus.effective"), "2-3");
    let groups =
        GROUPS.map(|(path, weight, ms)| (path, weight, if path == idle { 500 } else { ms }));
    let found = document(&fake, &groups, None);
    let of = |end: &str| found.groups.iter().find(|of| of.path.ends_with(end)).unwrap();
    let all = ["line.scope", "ddb.scope", "didle.scope"].map(|end| of(end).entitled);
    assert_eq!(all, [None, Some(0.75), Some(0.25)]);
    assert_eq!(of("line.scope").apart_cpus.as_deref(), Some("0"));
}

#[test]
fn real_time_vcpus_are_told() {
    let fake = host();
    fake.write("proc/42/task/420/comm", "CPU 0/KVM");
    fake.write("proc/420/cgroup", &fake.read("proc/42/cgroup"));
    for (policy, is_told) in [(0, false), (1, true), (2, true), (3, false), (6, true)] {
        fake.write("proc/420/stat", &format!("420 (x) S {}{policy}", "0 ".repeat(37)));
        let text = show::text(&document(&fake, &GROUPS, None), 200);
        let words = "weights do not hold for real-time vCPUs, which run first: db";
        assert_eq!(text.contains(words), is_told, "{policy}: {text}");
    }
}

/// A VM's leaf beside a VM that competes thread by thread.
#[test]
fn no_cpu_time_of_a_vm_is_that_of_other_tasks_too() {
    let fake = host();
    let leaf = ("/system.slice/runner.service/fire2", "100", 100);
    fake.write("proc/45/cgroup", "0::/system.slice/runner.service/fire2");
    let found = document(&fake, &[&GROUPS[..], &[leaf]].concat(), None);
    let of = |end: &str| found.groups.iter().find(|of| of.path.ends_with(end)).unwrap();
    let runner = of("runner.service");
    assert_eq!(runner.threads_of, [44]);
    assert!((runner.rest_cpus.unwrap() - 0.1).abs() < 1e-9, "{runner:?}");
    assert!((of("fire2").got.unwrap() - 0.2).abs() < 1e-9, "of all tasks of runner.service");
}

#[test]
fn what_was_not_counted_is_unknown_and_not_nothing() {
    let fake = host();
    read(&fake, &GROUPS, 1);
    let (tree, host) = (Tree::of(&fake.host()), fake.host());
    fake.write("proc/42/cgroup", "0::/gone");
    for (path, ..) in GROUPS {
        let _ = std::fs::remove_file(fake.path(&format!("sys/fs/cgroup{path}/cpu.stat")));
    }
    let all = vms::processes(&host).unwrap();
    let groups = Groups::of(&tree, &host, &all);
    let chosen = all.iter().map(|vm| vm.pid).collect();
    let rivals = Rival::all(&tree, &groups, &chosen, false);
    let read = Read::new(&tree, &host, &rivals, std::iter::empty());
    let of = Found { host: &host, tree: &tree, groups: &groups, all: &all, chosen: &chosen };
    let vms = OfVm::chosen(&of);
    let found = Document { window_s: 1.0, ..Document::new(&of, &rivals, vms, [&read, &read]) };
    assert!(found.groups.iter().all(|of| of.cpus.is_none() && of.got.is_none()));
    let beside = |name: &str| found.groups.iter().find(|of| of.path.ends_with(name)).unwrap();
    assert_eq!(beside("cron.service").entitled, Some(100.0 / 250.0), "it may be busy");
    let text = show::text(&found, 80);
    assert!(text.contains("db is not in the table: its cgroup /gone is not in the tree"), "{text}");
}

/// A line of `/proc/PID/stat`.
fn stat(pid: u32, ticks: u64, start: u64) -> String {
    let [ten, six, more] = [10, 6, 30].map(|count| "0 ".repeat(count));
    format!("{pid} (x) S {ten}{ticks} 0 {six}{start} {more}")
}

/// Another process with the id of one that ended, a cgroup that was made again, and sums over CPUs that fall.
#[test]
fn what_began_again_is_not_what_it_was() {
    let fake = host();
    read(&fake, &GROUPS, 1);
    fake.write("proc/41/stat", &stat(41, 10_000, 7));
    fake.write("proc/42/stat", &stat(42, 100, 8));
    let (tree, host) = (Tree::of(&fake.host()), fake.host());
    let all = vms::processes(&host).unwrap();
    let groups = Groups::of(&tree, &host, &all);
    let chosen = all.iter().map(|vm| vm.pid).collect();
    let rivals = Rival::all(&tree, &groups, &chosen, false);
    let of = Found { host: &host, tree: &tree, groups: &groups, all: &all, chosen: &chosen };
    let of_chosen = OfVm::chosen(&of);
    let before = Read::new(&tree, &host, &rivals, groups.vms());
    let backup = "sys/fs/cgroup/system.slice/backup.service";
    fake.write(&format!("{backup}/cpu.stat"), "usage_usec 1399000\nthrottled_usec 0");
    fake.write("proc/41/stat", &stat(41, 9_998, 7));
    fake.write("proc/42/stat", &stat(42, 9_000_000, 9));
    // Its inode is not used again.
    let db = fake.path(r"sys/fs/cgroup/machine.slice/machine-qemu\x2d2\x2ddb.scope");
    std::fs::rename(&db, fake.path("old")).unwrap();
    read(&fake, &[(r"/machine.slice/machine-qemu\x2d2\x2ddb.scope", "300", 1200)], 1);
    let read = Read::new(&tree, &host, &rivals, groups.vms());
    let after = Read { at: before.at + Duration::from_secs(1), ..read };
    let found = Document::new(&of, &rivals, of_chosen, [&before, &after]);
    let vm = |pid: u32| found.vms.iter().find(|vm| vm.pid == pid).unwrap();
    assert_eq!((vm(41).ended, vm(41).cpus), (false, Some(0.0)));
    assert_eq!((vm(42).ended, vm(42).cpus), (true, None));
    let cpus = |end: &str| found.groups.iter().find(|of| of.path.ends_with(end)).unwrap().cpus;
    assert_eq!((cpus("backup.service"), cpus("ddb.scope")), (Some(0.0), Some(1.2)));
}

/// A cgroup has the CPUs of the partition below it that has all its busy tasks.
#[test]
fn a_cgroup_around_a_partition_competes_with_none() {
    let fake = Fake::new();
    vm(&fake, 41, "web", "/machine.slice/web.scope");
    let groups = [
        ("/", "", 4000),
        ("/machine.slice", "100", 2000),
        ("/machine.slice/web.scope", "100", 1999),
        ("/system.slice", "100", 2000),
    ];
    for (path, cpus) in [("machine.slice", "0-1"), ("system.slice", "0-1")] {
        fake.write(&format!("sys/fs/cgroup/{path}/cpuset.cpus.effective"), cpus);
    }
    let web = "sys/fs/cgroup/machine.slice/web.scope";
    fake.write(&format!("{web}/cpuset.cpus.effective"), "2-3");
    fake.write("proc/41/task/410/comm", "CPU 0/KVM");
    fake.write("proc/410/cgroup", "0::/machine.slice/web.scope");
    fake.write("proc/410/status", "Cpus_allowed_list:\t2-3");
    for (state, ms, entitled) in [
        ("isolated", 2000, [None, None]),
        ("member", 2000, [Some(0.5), Some(0.5)]),
        // There are other tasks in it.
        ("isolated", 2100, [Some(0.5), Some(0.5)]),
    ] {
        fake.write(&format!("{web}/cpuset.cpus.partition"), state);
        let groups = groups.map(|(path, weight, of)| match path {
            "/machine.slice" => (path, weight, ms),
            _ => (path, weight, of),
        });
        let found = document(&fake, &groups, None);
        let of = |end: &str| found.groups.iter().find(|of| of.path.ends_with(end)).unwrap();
        let both = [of("machine.slice"), of("system.slice")];
        assert_eq!(both.map(|of| of.entitled), entitled, "{state} {ms}");
        let cpus = both.map(|of| of.apart_cpus.as_deref());
        assert_eq!(cpus == [Some("2-3"), Some("0-1")], entitled[0].is_none(), "{cpus:?}");
    }
}

/// VMs in cgroups of their own, and in one that they share.
#[test]
fn rows_do_not_look_alike() {
    let fake = Fake::new();
    let mut groups = vec![("/".to_string(), "", 4000), ("/vms".to_string(), "100", 600)];
    for number in [1, 2, 3] {
        let name = format!("customer-production-database-server-rack-12-unit-0{number}");
        let scope = format!("/machine.slice/machine-qemu-{number}-{name}.scope");
        vm(&fake, 40 + number, &name, &scope);
        groups.push((scope, "100", 500));
        vm(
            &fake,
            50 + number,
            &format!("frontend-of-the-shop-in-Oslo-for-everybody-{number}"),
            "/vms",
        );
    }
    groups.push(("/machine.slice".into(), "100", 1500));
    let groups: Vec<(&str, &str, u64)> =
        groups.iter().map(|(path, weight, ms)| (path.as_str(), *weight, *ms)).collect();
    for (width, words) in [
        (80, ["├ custome", "unit-01 ", "unit-02 ", "unit-03 ", "body-1 ", "body-2 ", "body-3 "]),
        (20, ["CPU", "-01 ", "-02 ", "-03 ", "y-1 ", "y-2 ", "y-3 "]),
        (300, ["0 ", "01 (mach", "02 (mach", "03 (mach", "body-1 ", "body-2 ", "body-3 "]),
    ] {
        let found = document(&fake, &groups, None);
        let text = show::text(&found, width);
        let table: Vec<&str> = text.lines().take_while(|line| !line.starts_with('*')).collect();
        for words in words {
            assert!(table.iter().any(|line| format!("{line} ").contains(words)), "{words}: {text}");
        }
        assert!(text.lines().all(|line| crate::fit::cells(line) <= width), "{text}");
    }
}
