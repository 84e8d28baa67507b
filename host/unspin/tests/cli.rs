// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command as users see it: its output and its exit codes.

mod common;

use common::script::script;
use common::{fails, json, text, unspin};
use std::path::Path;
use std::process::{Command, Stdio};
use unspin_scratch::Scratch;

#[test]
fn usage_errors_are_2() {
    fails(&["set", "mode"], 2, "KEY=VALUE");
    fails(&["frobnicate"], 2, "unrecognized subcommand");
}

#[test]
fn a_full_output_is_1_and_a_closed_one_is_no_error() {
    let bin = env!("CARGO_BIN_EXE_unspin");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = Command::new(bin).arg("man").stdout(full).stderr(Stdio::null()).status();
    assert_eq!(status.unwrap().code(), Some(1));
    let mut child = Command::new(bin).arg("man").stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_this_computer_cannot_do_is_77() {
    fails(&["status", "--sysfs", "/nonexistent"], 77, "not loaded");
    fails(&["set", "mode=off", "--sysfs", "/nonexistent"], 77, "not loaded");
    // Errors that do not depend on the module are reported first.
    fails(&["set", "turn_us=5", "--sysfs", "/nonexistent"], 2, "1000 to 100000 microseconds");
    fails(&["set", "cosheduling=con", "--sysfs", "/nonexistent"], 2, "no setting \"cosheduling\"");
    fails(&["set", "turn_us=6000", "turn_us=7000", "--sysfs", "/nonexistent"], 2, "given twice");
}

/// A kernel made of files.
#[test]
fn a_kernel_that_cannot_have_the_scheduler_is_77_and_says_why() {
    let root = Scratch::new();
    let write = |path: &str, text: &str| root.write(path, text);
    let run = |args: &[&str]| {
        let mut command = common::command(&["schedule"]);
        command
            .args(args)
            .env("UNSPIN_PROC", root.join("proc"))
            .env("UNSPIN_SYS", root.join("sys"));
        let out = command.output().unwrap();
        let text = [out.stdout, out.stderr].concat();
        (out.status.code(), String::from_utf8(text).unwrap())
    };
    write("proc/sys/kernel/osrelease", "6.12.1");
    for args in [&["--check"][..], &["--cpus", "0"]] {
        let (code, text) = run(args);
        assert!(code == Some(77) && text.contains("6.12.1 is too old"), "{text}");
    }
    let (code, text) = run(&["--check", "--json"]);
    assert!(code == Some(77) && text.contains("\"can\":false"), "{text}");
    write("proc/sys/kernel/osrelease", "7.3.1");
    assert!(run(&["--check"]).1.contains("has no sched_ext"));
    write("sys/kernel/sched_ext/state", "enabled");
    write("sys/kernel/sched_ext/root/ops", "lavd");
    write("sys/kernel/btf/vmlinux", "");
    let (code, text) = run(&["--cpus", "0"]);
    assert!(code == Some(77) && text.contains("is loaded: lavd"), "{text}");
    write("sys/kernel/sched_ext/state", "disabled");
    for (release, words) in [
        ("7.0.9", "the scheduler was tested on Linux 7.3 only: loading"),
        ("7.3.1", "was tested on Linux 7.3\n"),
    ] {
        write("proc/sys/kernel/osrelease", release);
        let (code, text) = run(&["--check"]);
        assert!(code == Some(0) && text.contains(words), "{text}");
    }
    write("proc/stat", "cpu  1\ncpu0 1\n");
    for (args, words) in [
        (&["--cpus", "0-1"][..], "CPU 1 of --cpus is not online; online: 0"),
        (&["--cpus", "x"], "a list of CPUs is like 8-63"),
        (&[], "--cpus <LIST>"),
        (&["--cpus", "0", "--no-gangs", "--gang", "a"], "cannot be used with"),
    ] {
        let (code, text) = run(args);
        assert!(code == Some(2) && text.contains(words), "{args:?}: {text}");
    }
}

#[test]
fn set_lists_every_setting() {
    let out = text(&unspin(&["set", "--help"]).stdout);
    for words in ["delta_max_cycles: 0 to", "epoch_min_us: 0 to 1000000", "mode: off, ", "reset: 1"]
    {
        assert!(out.contains(words), "{words}: {out}");
    }
}

/// .ci/deps with scripts in place of tools.
#[test]
fn what_must_be_there_first_is_named() {
    let dir = Scratch::new();
    let tool = |name: &str, lines: &str| script(&dir.join(name), lines);
    let deps = || {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", dir.display());
        let out = Command::new("bash").arg(".ci/deps").current_dir(root).env("PATH", path).output();
        let out = out.unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    tool("cargo", "exit 0");
    tool("apt-get", "echo 'E: dpkg was interrupted' >&2; exit 100");
    tool("dpkg-query", "exit 1");
    tool("id", "echo 0");
    for (version, wanted) in [
        ("1.84.1", "needs Rust 1.85 or newer, not 1.84.1"),
        ("1.9.0", "not 1.9.0"),
        ("1.85.0", "E: dpkg was interrupted"),
        ("1.100.0", "apt-get update failed"),
    ] {
        tool("rustc", &format!("echo 'rustc {version} (0123abcde 2025-01-01)'"));
        let (code, said) = deps();
        assert_eq!(code, Some(77), "{version}: {said}");
        assert!(said.contains(wanted), "{version}: {said}");
    }
}

#[test]
fn status_shows_vms_as_table_and_json() {
    let root = Scratch::with(&[
        ("version", "0.1.0\n"),
        ("window_control", "vmx\n"),
        ("default/mode", "apples\n"),
        ("vms/41-0/mode", "apples\n"),
        ("vms/41-0/inefficiency_last_ppm", "21000\n"),
        ("vms/41-0/wasteful_spin_cycles", "1200000\n"),
        ("vms/41-0/wasteful_switch_cycles", "345678\n"),
        ("vms/41-0/yields_resource_waiter", "901\n"),
        ("vms/41-0/yields_lock_waiter", "902\n"),
        ("vms/41-0/yields_yielded", "903\n"),
        ("vms/41-0/yields_none", "904\n"),
        ("vms/41-0/yields_gave_way", "905\n"),
        ("vms/41-0/yields_failed", "906\n"),
        ("vms/41-0/yields_woken", "907\n"),
        ("vms/41-0/coscheduling", "vcrd-both\n"),
        ("vms/41-0/turns_refused", "vCPUs of a real-time class\n"),
        ("vms/42-0/turns_refused", "none\n"),
        ("turns_excluded_cpus", "2-3\n"),
    ]);
    let sysfs = root.to_str().unwrap();
    let table = text(&unspin(&["status", "--sysfs", sysfs]).stdout);
    let counts = (901..=907).map(|n| n.to_string());
    let refused = "VM 41-0 has no turns: vCPUs of a real-time class\n";
    let words = ["41-0", "2.1 %", " 1.5 ", "no turns on CPUs 2-3", refused]
        .map(String::from)
        .into_iter()
        .chain(counts);
    let words: Vec<String> = words.collect();
    assert!(words.iter().all(|w| table.contains(w)), "{table}");
    assert!(!table.contains("VM 42-0 has no turns"), "{table}");
    let json = json(&unspin(&["status", "--json", "--sysfs", sysfs]));
    assert_eq!(json["vms"]["41-0"]["inefficiency_last_ppm"], 21000);
    assert_eq!(json["default"]["mode"], "apples");
    assert_eq!(json["turns_excluded_cpus"], "2-3");
    assert_eq!(json["vms"]["41-0"]["turns_refused"], "vCPUs of a real-time class");
    assert!(json["vms"]["42-0"]["turns_refused"].is_null(), "it may have turns");
    assert!(json["live_objects"].is_null(), "unknown is null");
    root.write("kernel/sched_ext/state", "enabled\n");
    let mut command = common::command(&["status", "--sysfs", sysfs]);
    let note = text(&command.env("UNSPIN_SYS", &root).output().unwrap().stdout);
    assert!(note.contains("Note: the sched_ext scheduler of unknown name is enabled"), "{note}");
}

/// Bash's completions after these words.
fn offered(words: &[&str]) -> String {
    let script = String::from_utf8(unspin(&["completions", "bash"]).stdout).unwrap();
    let ask = format!(
        "\nCOMP_WORDS=({})\nCOMP_CWORD={}\n__unspin_key unspin '{}' '{}'\necho \"${{COMPREPLY[*]}}\"\n",
        words.join(" "),
        words.len() - 1,
        words[words.len() - 1],
        words[words.len() - 2],
    );
    let out = Command::new("bash").arg("-c").arg(script + &ask).output().unwrap();
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn completions_offer_what_people_type() {
    for shell in ["bash", "zsh", "fish"] {
        let text = String::from_utf8(unspin(&["completions", shell]).stdout).unwrap();
        assert!(text.contains("put-back") && text.contains("mode="), "{shell}");
        for hidden in ["sysfs", "synthetic", "guard", "run-dir", "every-ms"] {
            assert!(!text.contains(hidden), "{shell}: {hidden}");
        }
        assert!(!text.contains("proc "), "{shell}");
    }
    assert!(offered(&["unspin", "diag"]).contains("diagnose"));
    assert_eq!(offered(&["unspin", "set", "mod"]).trim(), "mode=");
    assert!(offered(&["unspin", "top", "--"]).contains("--filter"));
}

#[test]
fn manuals_are_printed() {
    let dir = Scratch::new();
    let pages = dir.join("man");
    let write = || unspin(&["man", pages.to_str().unwrap()]);
    let refused = write();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no such directory"));
    std::fs::create_dir_all(&pages).unwrap();
    assert!(write().status.success());
    assert!(pages.join("unspin.1").is_file() && !pages.join("unspin-guard.1").exists());
    let mut count = 0;
    for page in std::fs::read_dir(&pages).unwrap() {
        let page = std::fs::read_to_string(page.unwrap().path()).unwrap();
        for head in [".SH NAME", ".SH \"EXIT STATUS\"", "\\fB77", ".SH EXAMPLES\n.TP\n\\fBunspin"] {
            assert!(page.contains(head), "{head}: {page}");
        }
        assert!(!page.contains("EXTRA") && !page.contains("\\-\\-sysfs"), "{page}");
        count += 1;
    }
    assert!(count > 12, "{count}");
    let page = std::fs::read_to_string(pages.join("unspin-run.1")).unwrap();
    for words in [
        "UNSPIN_LOCK",
        "UNSPIN_MUTEX",
        "UNSPIN_TAU_NS",
        "UNSPIN_VERBOSE",
        "LD_PRELOAD",
        "\\-\\-tau\\-us",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}
