// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin apply` as in unspin.service, with a module made of files, which our own `modprobe` and
//! `rmmod` create and remove.

mod common;

use common::script::script;
use common::vm_host::signal;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use unspin_scratch::{Killed, Scratch};

struct Host(Scratch);

const CONFIG: &str = "[default]\nmode = \"observe\"\n[vm.\"web,1\"]\nmode = \"apples\"\n";

impl Host {
    fn new() -> Host {
        let host = Host(Scratch::new());
        host.write("proc/cmdline", "quiet unspin=on xunspin=off");
        host.write("unspin.toml", CONFIG);
        let root = host.0.display();
        let make = format!(
            "[ \"$1\" = unspin ] || exit 1\nmkdir -p {root}/sys/default\n\
             cp {root}/version {root}/sys/version\necho off >{root}/sys/default/mode"
        );
        host.tool("modprobe", &make);
        host.tool("rmmod", &format!("[ \"$1\" = unspin ] && rm -r {root}/sys"));
        host.write("version", env!("CARGO_PKG_VERSION"));
        fs::create_dir(host.0.join("run")).unwrap();
        host
    }

    fn tool(&self, name: &str, lines: &str) {
        script(&self.0.dir("bin").join(name), lines);
    }

    fn write(&self, path: &str, text: &str) {
        self.0.line(path, text);
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap_or_default().trim().to_string()
    }

    fn has(&self, path: &str) -> bool {
        self.0.join(path).exists()
    }

    fn vm(&self, pid: u32, name: &str) {
        self.0.vm(pid, &["qemu-system-x86_64", "-name", &format!("guest={name}")]);
        let mode = self.read("sys/default/mode");
        self.write(&format!("sys/vms/{pid}-0/mode"), &mode);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
        let path = format!("{}/bin:/usr/bin:/bin", self.0.display());
        command.args(args).current_dir(&self.0).env("PATH", path).stdin(Stdio::null());
        command.args(["--sysfs", "sys", "--proc", "proc"]);
        command
    }

    fn apply(&self, args: &[&str]) -> Command {
        let more = ["--config", "unspin.toml", "--run-dir", "run", "--every-ms", "20"];
        self.command(&[&["apply"], args, &more].concat())
    }

    /// Checks that a condition becomes true soon.
    #[track_caller]
    fn wait(&self, what: &str, is_so: impl Fn(&Host) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{what}; said: {}", self.read("said"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// `unspin apply --stay`, with its output in the file `said`.
struct Service(Killed);

impl Service {
    fn start(host: &Host) -> Service {
        let socket = UnixDatagram::bind(host.0.join("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let said = fs::File::create(host.0.join("said")).unwrap();
        let mut command = host.apply(&["--stay"]);
        command.stderr(said).env("NOTIFY_SOCKET", host.0.join("notify"));
        let service = Service(Killed(command.spawn().unwrap()));
        let mut text = [0; 64];
        let got = socket.recv(&mut text).unwrap_or_else(|e| panic!("{e}: {}", host.read("said")));
        assert_eq!(&text[..got], b"READY=1");
        service
    }

    fn signal(&self, number: i32) {
        signal(self.0 .0.id(), number);
    }

    fn code(&mut self) -> Option<i32> {
        self.0 .0.wait().unwrap().code()
    }
}

fn failed(out: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "{said}");
    said
}

#[test]
fn the_service_loads_sets_reads_again_and_leaves_all_as_it_was() {
    let host = Host::new();
    let mut service = Service::start(&host);
    assert_eq!(host.read("sys/default/mode"), "observe");
    host.vm(41, "web,,1");
    host.wait("a VM that came later", |h| h.read("sys/vms/41-0/mode") == "apples");
    let second = host.apply(&["--stay"]).output().unwrap();
    assert!(failed(&second, 1).contains("another unspin"));
    // A file with an error changes nothing; a correct one does.
    host.write("unspin.toml", "[default]\nmode = \"hvs\"\n[vm.a]\nmode = \"on\"\n");
    service.signal(libc::SIGHUP);
    host.wait("the refusal", |h| h.read("said").contains("the settings are unchanged"));
    assert!(host.read("said").contains("unspin.toml:4:8: `vm.a.mode`: \"on\" is not allowed"));
    assert_eq!(host.read("sys/default/mode"), "observe");
    host.write("unspin.toml", "[default]\nmode = \"hvs\"\n[pid.41]\nmode = \"aple\"\n");
    service.signal(libc::SIGHUP);
    host.wait("the new file", |h| h.read("sys/vms/41-0/mode") == "aple");
    assert_eq!(host.read("sys/default/mode"), "hvs");
    service.signal(libc::SIGTERM);
    assert_eq!(service.code(), Some(0), "{}", host.read("said"));
    assert!(!host.has("sys") && !host.has("run/loaded"), "{}", host.read("said"));
    assert!(host.read("said").contains("VM 41-0 (web,1): mode=apples"));
}

#[test]
fn a_module_loaded_by_others_stays_and_is_off() {
    let host = Host::new();
    host.write("sys/version", env!("CARGO_PKG_VERSION"));
    host.write("sys/default/mode", "hvs");
    host.vm(41, "web,,1");
    let mut service = Service::start(&host);
    assert_eq!(host.read("sys/vms/41-0/mode"), "apples");
    service.signal(libc::SIGINT);
    assert_eq!(service.code(), Some(0));
    assert_eq!(host.read("sys/default/mode"), "off");
}

#[test]
fn what_a_killed_service_leaves_is_cleared() {
    let host = Host::new();
    let mut service = Service::start(&host);
    service.signal(libc::SIGKILL);
    service.code();
    assert_eq!(host.read("sys/default/mode"), "observe");
    // A module that stays loaded is off.
    host.tool("rmmod", "echo 'rmmod: ERROR: Module unspin is in use' >&2; exit 1");
    let out = host.apply(&["--stop"]).output().unwrap();
    assert!(failed(&out, 0).contains("stays loaded, in mode off: rmmod: ERROR"));
    assert_eq!(host.read("sys/default/mode"), "off");
    host.tool("rmmod", &format!("rm -r {}/sys", host.0.display()));
    host.write("run/loaded", "");
    assert!(host.apply(&["--stop"]).status().unwrap().success());
    assert!(!host.has("sys") && !host.has("run/loaded"));
    assert!(host.apply(&["--stop"]).status().unwrap().success(), "nothing is left to do");
}

#[test]
fn the_service_ends_where_somebody_unloads_the_module() {
    let host = Host::new();
    let mut service = Service::start(&host);
    fs::remove_dir_all(host.0.join("sys")).unwrap();
    assert_eq!(service.code(), Some(0), "{}", host.read("said"));
    assert!(host.read("said").contains("the module was unloaded"));
}

#[test]
fn what_keeps_the_service_from_starting_changes_nothing() {
    let host = Host::new();
    let refused = |code: i32, words: &str| {
        let out = host.apply(&["--stay"]).output().unwrap();
        let said = failed(&out, code);
        assert!(said.contains(words), "{said}");
        assert!(!host.has("sys") && !host.has("run/loaded"), "{said}");
    };
    host.write("proc/cmdline", "quiet unspin=off");
    refused(77, "the kernel command line has unspin=off");
    host.write("proc/cmdline", "quiet");
    host.write("unspin.toml", "[defaults]");
    refused(2, "did you mean `default`?");
    let check = host.apply(&["--check"]).output().unwrap();
    assert!(failed(&check, 2).contains("unspin.toml:1:2"));
    host.write("unspin.toml", CONFIG);
    assert!(host.apply(&["--check"]).status().unwrap().success());
    host.write("version", "0.0.9");
    refused(77, "the loaded module has version 0.0.9");
    host.tool("modprobe", "echo 'modprobe: FATAL: Module unspin not found' >&2; exit 1");
    refused(77, "not found");
}

#[test]
fn a_single_run_tells_what_it_sets_what_is_refused_and_which_table_counts() {
    let host = Host::new();
    assert!(failed(&host.apply(&[]).output().unwrap(), 77).contains("not loaded"));
    host.write("sys/version", env!("CARGO_PKG_VERSION"));
    host.write("sys/default/mode", "off");
    host.vm(41, "web,,1");
    let out = host.apply(&[]).output().unwrap();
    assert!(failed(&out, 0).contains("VM 41-0 (web,1): mode=apples"));
    assert_eq!(host.read("sys/vms/41-0/mode"), "apples");
    assert_eq!(host.read("sys/default/mode"), "observe");
    host.write(
        "unspin.toml",
        "[vm.\"41-0\"]\nmode = \"aple\"\n[vm.\"web,1\"]\nmode = \"apples\"\n",
    );
    let said = failed(&host.apply(&[]).output().unwrap(), 0);
    let words =
        "VM 41-0 (web,1): [vm.\"41-0\"] sets mode=aple, and [vm.\"web,1\"] sets mode=apples; \
                 the latter counts";
    assert!(said.contains(words), "{said}");
    assert_eq!(host.read("sys/vms/41-0/mode"), "apples");
    host.write("sys/vms/41-0/parks", "0");
    // Even root cannot write this.
    fs::remove_file(host.0.join("sys/vms/41-0/mode")).unwrap();
    fs::create_dir(host.0.join("sys/vms/41-0/mode")).unwrap();
    let said = failed(&host.apply(&[]).output().unwrap(), 1);
    assert!(said.contains("VM 41-0 (web,1) is unchanged: cannot write"), "{said}");
}

#[test]
fn names_serve_in_status_and_set() {
    let host = Host::new();
    host.write("sys/version", env!("CARGO_PKG_VERSION"));
    host.write("sys/default/mode", "off");
    host.vm(41, "web,,1");
    host.vm(42, "a\u{1b}[2J");
    host.vm(43, "twin");
    host.vm(44, "twin");
    let out = host.command(&["status"]).output().unwrap();
    let table = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(table.contains("│ web,1") && table.contains("a\\u{1b}[2J"), "{table}");
    assert!(!table.contains('\u{1b}'));
    let out = host.command(&["status", "--json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["vms"]["41-0"]["name"], "web,1");
    assert_eq!(json["vms"]["42-0"]["name"], "a\u{1b}[2J");
    let set = |vm: &str| host.command(&["set", "--vm", vm, "mode=hvs"]).output().unwrap();
    failed(&set("web,1"), 0);
    assert_eq!(host.read("sys/vms/41-0/mode"), "hvs");
    assert!(failed(&set("twin"), 2).contains("several VMs: 43-0 (twin), 44-0 (twin)"));
    failed(&set("44"), 0);
    assert_eq!(host.read("sys/vms/44-0/mode"), "hvs");
    // A module of another version is shown, but not set.
    host.write("sys/version", "0.0.9");
    assert!(failed(&set("web,1"), 77).contains("has version 0.0.9, this command has"));
    let out = host.command(&["status"]).output().unwrap();
    assert!(failed(&out, 0).contains("has version 0.0.9") && !out.stdout.is_empty());
}
