// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts with hostile files: names that look like something else, files without an end.

mod common;

use common::vm_host::{VmHost, WAIT};
use common::{json, said, text};
use serde_json::Value;
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use unspin_cli::fake::Fake;
use unspin_text::fit::cells;

const LONG: &str = "customer-production-database";

fn names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        "web",
        "web (vmid:104)",
        "web (process 41)",
        "41-0",
        "41",
        "41-0 (web)",
        "vmid:104",
        "name:web",
        "pid:41",
        "104",
        "--json",
        "-h",
        "a\nb\r\tc",
        "\u{1b}[2J\u{1b}]0;x\u{7}",
        "\u{202e}bew\u{2066}\u{200f}",
        "it's \"it\" `id` $(id)",
        "\u{65e5}\u{672c}\u{8a9e}\u{306e}\u{540d}\u{524d}\u{306e}\u{4eee}\u{60f3}\u{6a5f}",
        "e\u{301}\u{1f43b}\u{1f469}\u{200d}\u{1f52c}",
        "customer-pro\u{2026}(vmid:104)",
        "\u{2026}",
        " ",
        "\\",
    ]
    .map(|name| name.as_bytes().to_vec())
    .to_vec();
    names.extend([LONG, LONG].map(|name| name.as_bytes().to_vec()));
    names.extend(["instance-00000001", "instance-00000002"].map(|name| name.as_bytes().to_vec()));
    names.extend([vec![b'x'; 4096], [&[b'x'; 4095], b"y".as_slice()].concat()]);
    names.push("\n\u{1b}".repeat(2048).into_bytes());
    names.push(b"\xff\xfe web \x80".to_vec());
    names
}

/// A host with a VM per name, from process 41 on. Two of the long names have VMIDs.
fn host() -> Fake {
    let host = Fake::new();
    let (mut vmid, mut pid) = (104, 41);
    for name in names() {
        host.vm(&format!("{pid}-0"), "");
        let name: Vec<u8> = name
            .iter()
            .flat_map(|byte| if *byte == b',' { vec![b','; 2] } else { vec![*byte] })
            .collect();
        let line =
            [b"/usr/bin/kvm\0-name\0guest=".as_slice(), &name, b",debug-threads=on\0"].concat();
        fs::write(host.path(&format!("proc/{pid}/cmdline")), line).unwrap();
        let scope = if name == LONG.as_bytes() || name == b"web" {
            vmid += 1;
            format!("qemu.slice/{}.scope", vmid - 1)
        } else {
            format!("machine.slice/machine-qemu\\x2d{pid}\\x2dx.scope")
        };
        host.write(&format!("proc/{pid}/cgroup"), &format!("0::/{scope}"));
        host.write(&format!("sys/fs/cgroup/{scope}/cpu.weight"), "100");
        host.write(&format!("sys/fs/cgroup/{scope}/cpu.stat"), "usage_usec 7");
        pid += 1;
    }
    for slice in ["qemu.slice", "machine.slice"] {
        host.write(&format!("sys/fs/cgroup/{slice}/cpu.weight"), "100");
    }
    host
}

/// The command on this host; `args` are its name and its options.
fn unspin(host: &Fake, args: &[&str]) -> Command {
    let mut command = common::command(&args[..1]);
    command.arg("--proc").arg(host.path("proc")).args(&args[1..]);
    command
}

fn status(host: &Fake) -> Command {
    let mut command = unspin(host, &["status"]);
    command.arg("--sysfs").arg(host.path("sys")).arg("--shaped").arg(host.path("shaped"));
    command
}

fn set(host: &Fake, vm: &OsStr) -> Command {
    let mut command = unspin(host, &["set"]);
    command.arg("--sysfs").arg(host.path("sys")).arg("--vm").arg(vm).arg("mode=hvs");
    command
}

fn neighbours(host: &Fake, args: &[&str]) -> Command {
    unspin(host, &[&["neighbours", "--seconds", "0.1"], args].concat())
}

fn check(host: &Fake) -> Command {
    let mut command = common::command(&["load", "--check", "--root"]);
    command.arg(host.path(""));
    command
}

/// Lines that fit a terminal of this width unchanged.
#[track_caller]
fn fits(text: &[u8], width: usize, what: &str) {
    let text = std::str::from_utf8(text).unwrap();
    assert!(!text.contains("panicked"), "{what}: {text}");
    for line in text.lines() {
        assert!(cells(line) <= width, "{what}: {} cells of {width}: {line}", cells(line));
        let is_plain = |c: char| !c.is_control() && !"\u{202e}\u{2066}\u{200f}".contains(c);
        assert!(line.chars().all(is_plain), "{what}: {line:?}");
    }
}

#[test]
fn no_name_breaks_a_table_or_a_message() {
    let host = host();
    let shaped = VmHost::new();
    let evil = "web\u{1b}[2J\n".repeat(300);
    let line = format!("/usr/bin/qemu-system-x86_64\0-name\0{evil}\0");
    shaped.dir.write(format!("proc/{}/cmdline", shaped.vm), line);
    for width in [40, 80] {
        for (what, mut command) in [
            ("status", status(&host)),
            ("neighbours", neighbours(&host, &[])),
            (
                "set",
                set(&host, OsStr::from_bytes(&[b"\x1b\n\xff".as_slice(), &[b'x'; 5000]].concat())),
            ),
            ("several", set(&host, OsStr::new("instance-0000\u{2026}"))),
            (
                "shape",
                shaped.command(
                    &["shape", "--synthetic-vcpus", "0.5r,0.25", "--dry-run", "--once"],
                    &[],
                ),
            ),
            ("diagnose", unspin(&host, &["diagnose", "nosuch"])),
            ("check", check(&host)),
        ] {
            let out = command.env("COLUMNS", width.to_string()).output().unwrap();
            fits(&out.stdout, width, what);
            fits(&out.stderr, width, what);
        }
    }
    let none = status(&host).env_remove("COLUMNS").output().unwrap();
    fits(&none.stdout, 80, "without a terminal");
}

/// The shown name of a VM, whole or shortened, selects it, or lists it among several.
#[test]
fn whatever_is_shown_is_taken() {
    let host = host();
    let vms = host.host().vm_processes().unwrap();
    assert_eq!(vms.len(), names().len());
    let found = |given: &str| {
        let out = neighbours(&host, &["--json", "--", given]).output().unwrap();
        json(&out)["vms"][0]["pid"].as_u64().unwrap()
    };
    for vm in &vms {
        assert_eq!(found(vm.title()), u64::from(vm.pid), "{}", vm.title());
        assert_eq!(found(&vm.label(&format!("{}-0", vm.pid))), u64::from(vm.pid));
    }
    let by_name = |name: &str| {
        let pid = names().iter().position(|of| of == name.as_bytes()).unwrap() as u64 + 41;
        assert_eq!(found(&format!("name:{name}")), pid, "{name}");
    };
    ["104", "41-0", "web", "vmid:104", "pid:41"].into_iter().for_each(by_name);
    let table = status(&host).env("COLUMNS", "40").output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    let end = table.find("yields").unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for line in table[..end].lines().filter(|line| line.starts_with("│ ")) {
        let cells: Vec<&str> = line.split('│').map(str::trim).collect();
        let is_whole = cells.len() > 3 && cells[1].ends_with("-0") && !cells[2].is_empty();
        if is_whole && cells[2].contains('…') && seen.insert(cells[2].to_string()) {
            let pid: u64 = cells[1].trim_end_matches("-0").parse().unwrap();
            let out = neighbours(&host, &["--", cells[2]]).output().unwrap();
            match out.status.code() {
                Some(2) => {
                    assert!(said(&out).contains(&format!("{pid}")), "{line}: {}", said(&out))
                }
                _ => assert_eq!(found(cells[2]), pid, "{line}"),
            }
        }
    }
}

#[test]
fn a_vm_that_is_not_there_is_1_everywhere_and_one_without_a_name_is_shown() {
    let host = Fake::new();
    host.vm("41-0", "web");
    host.vm("42-0", "");
    fs::write(host.path("proc/42/cmdline"), "/usr/bin/kvm\0").unwrap();
    for mut command in [
        set(&host, OsStr::new("nosuch")),
        unspin(&host, &["neighbours", "nosuch"]),
        set(&host, OsStr::new("99-0")),
    ] {
        let out = command.output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{}", said(&out));
        assert!(said(&out).starts_with("unspin: no VM \""), "{}", said(&out));
        assert!(
            said(&out).contains("; VMs: 41") && said(&out).contains(" (web), pid:42"),
            "{}",
            said(&out)
        );
    }
    let table = String::from_utf8(status(&host).output().unwrap().stdout).unwrap();
    assert!(table.contains("│ 42-0 │ pid:42 │"), "{table}");
}

/// No file below /proc or among cgroups blocks a command, or fills its memory.
#[test]
fn a_file_without_an_end_is_not_read() {
    let host = Fake::new();
    for (pid, name) in [(41, "web"), (42, "a"), (43, "b"), (44, "c"), (45, "d")] {
        host.vm(&format!("{pid}-0"), name);
        host.0.link(format!("proc/{pid}/fd/8"), "anon_inode:kvm-vcpu:0");
        host.write(&format!("proc/{pid}/task/{pid}/comm"), "kvm");
        host.write(&format!("proc/{pid}/cgroup"), &format!("0::/{name}.scope"));
        host.write(&format!("sys/fs/cgroup/{name}.scope/cpu.weight"), "100");
    }
    let replace = |path: &str, is_fifo: bool| {
        let path = host.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        if is_fifo {
            fifo(&path);
        } else {
            fs::File::create(&path).unwrap().set_len(1 << 42).unwrap();
        }
    };
    for (pid, is_fifo) in [(42, true), (43, false)] {
        for file in ["cmdline", "cgroup", "stat"] {
            replace(&format!("proc/{pid}/{file}"), is_fifo);
        }
        replace(&format!("proc/{pid}/task/{pid}/comm"), is_fifo);
    }
    for (name, is_fifo) in [("c", true), ("d", false)] {
        for file in ["cpu.stat", "cpu.max", "cpu.idle", "cgroup.procs", "cgroup.events"] {
            replace(&format!("sys/fs/cgroup/{name}.scope/{file}"), is_fifo);
        }
    }
    replace("proc/stat", true);
    replace("sys/kernel/sched_ext/state", true);
    replace("sys/vms/41-0/window", true);
    replace("etc/os-release", true);
    replace("proc/config.gz", true);
    replace("proc/sys/kernel/version", false);
    host.write("proc/sys/kernel/osrelease", "6.12.20");
    for (what, mut command) in [
        ("status", status(&host)),
        ("neighbours", neighbours(&host, &[])),
        ("diagnose", unspin(&host, &["diagnose", "web", "--seconds", "0.1"])),
        (
            "shape",
            unspin(&host, &["shape", "--dry-run", "--once", "--synthetic-vcpus", "0.5r,0.25"]),
        ),
        ("check", check(&host)),
    ] {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let end = Instant::now() + WAIT;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > end {
                let _ = child.kill();
                panic!("{what} waits");
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let out = child.wait_with_output().unwrap();
        assert!(!said(&out).contains("panicked"), "{what}: {}", said(&out));
        if matches!(what, "status" | "neighbours") {
            assert!(out.status.success(), "{what}: {}", said(&out));
            let text = text(&out.stdout);
            assert!(text.contains("web") && text.contains("pid:43"), "{what}: {text}");
        }
    }
}

/// Each VM is a sibling of all others.
#[test]
fn many_vms_are_shaped_in_little_time() {
    let host = Fake::new();
    host.write("proc/stat", "cpu  1\ncpu0 1\ncpu1 1");
    let slice = "sys/fs/cgroup/machine.slice";
    host.write(&format!("{slice}/cpu.weight"), "100");
    for pid in (5_000_000..).step_by(10).take(700) {
        host.0.vm(pid, &["/usr/bin/kvm", "-name", &format!("web{pid}")]);
        let scope = format!("machine-qemu\\x2d{pid}\\x2dx.scope");
        host.write(&format!("{slice}/{scope}/cpu.weight"), "100");
        host.write(&format!("{slice}/{scope}/cgroup.events"), "populated 1");
        for vcpu in 0..2 {
            let tid = pid + 1 + vcpu;
            host.write(&format!("proc/{pid}/task/{tid}/comm"), &format!("CPU {vcpu}/KVM"));
            let vcpu = format!("anon_inode:kvm-vcpu:{vcpu}");
            host.0.link(format!("proc/{pid}/fd/{}", 10 + tid - pid), &vcpu);
            let stat = format!("{tid} (x) S {}0", "0 ".repeat(39));
            host.write(&format!("proc/{tid}/stat"), &stat);
            host.write(&format!("proc/{tid}/status"), "Cpus_allowed_list:\t0-1");
            host.write(&format!("proc/{tid}/cgroup"), &format!("0::/machine.slice/{scope}"));
        }
        host.write(&format!("proc/{pid}/cgroup"), &format!("0::/machine.slice/{scope}"));
    }
    let mut command = unspin(&host, &["shape", "--dry-run", "--once", "--json"]);
    command.args(["--synthetic-vcpus", "1,0.5"]);
    let begun = Instant::now();
    let out = command.output().unwrap();
    let json = json(&out);
    assert_eq!(json["vms"].as_array().unwrap().len(), 700, "{}", said(&out));
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

/// A runner's service, or the root cgroup: each VM is beside all others.
#[test]
fn many_vms_in_one_cgroup_make_no_long_document() {
    let host = Fake::new();
    host.write("sys/fs/cgroup/runner.service/cpu.weight", "100");
    for pid in (5_000_000..).step_by(10).take(1000) {
        host.0.vm(pid, &["/usr/bin/kvm", "-name", &format!("web{pid}")]);
        host.write(&format!("proc/{pid}/task/{}/comm", pid + 1), "CPU 0/KVM");
        host.0.link(format!("proc/{pid}/fd/10"), "anon_inode:kvm-vcpu:0");
        for tid in [pid, pid + 1] {
            host.write(&format!("proc/{tid}/cgroup"), "0::/runner.service");
        }
    }
    let out = neighbours(&host, &[]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let notes = text.split_once("\n* ").unwrap().1.split_whitespace();
    let notes = notes.collect::<Vec<_>>().join(" ");
    assert!(notes.contains(" and 988 more share ") && notes.len() < 1000, "{notes}");
    let out = neighbours(&host, &["--json"]).output().unwrap();
    assert!(out.stdout.len() < 2 << 20, "{} bytes", out.stdout.len());
    let json = json(&out);
    let vms = json["vms"].as_array().unwrap();
    assert_eq!((vms.len(), &vms[7]["beside_count"]), (1000, &999.into()));
    assert_eq!(vms[7]["beside"][0], 5_000_000);
    let groups = json["groups"].as_array().unwrap();
    let all = |of: &Value| of["threads_of"].as_array().unwrap().len();
    assert_eq!(groups.iter().map(all).max(), Some(1000));
}

fn fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: it gets a string that ends.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}
