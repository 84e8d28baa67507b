// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux guests.

use crate::problems;
use unspin_scenario::parse_scenario;
use unspin_scenario::plan::GuestIdle;

const LINUX: &str = "title = \"x\"\n[host]\npcpus = 4\n[[vm]]\nguest = \"linux\"\nvcpus = 4\n\
    workload = \"hackbench\"\n[[arm]]\nname = \"stock\"\nbaseline = true\n";

#[test]
fn keys_of_one_kind_of_guest_are_refused_of_the_other() {
    assert_eq!(
        parse_scenario("x.toml", "x", LINUX).unwrap().vms[0].linux.as_ref().unwrap().kernel,
        "6.12"
    );
    let refused = |from: &str, to: &str, why: &str| {
        assert!(LINUX.contains(from), "{from}");
        let said = parse_scenario("x.toml", "x", &LINUX.replace(from, to)).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    };
    let with = |more: &str| format!("vcpus = 4\n{more}\n");
    for bench in ["lock = \"ticket\"", "cpl = 3", "threads = 4", "tick_hz = 250"] {
        refused("vcpus = 4\n", &with(bench), "a Linux guest has its own");
    }
    refused("guest = \"linux\"\n", "memory_mib = 128\n", "no Linux guest");
    refused("guest = \"linux\"\n", "idle = \"poll\"\n", "no Linux guest");
    refused("vcpus = 4\n", &with("guest_kernel = \"new\""), "is not a kernel series");
    refused("vcpus = 4\n", &with("guest_lock = \"mcs\""), "guest_lock");
    refused("vcpus = 4\n", &with("memory_mib = 1"), "memory_mib");
    refused("vcpus = 4\n", &with("extra_cmdline = \"\\u0007\""), "printable");
    let swept = |text: &str| format!("[sweep]\n{text}\n[host]\n");
    refused("[host]\n", &swept("locks = [\"ticket\"]"), "sweep.guest_locks");
    refused("baseline = true\n", "baseline = true\nlock = \"mcs\"\n", "sweep.guest_locks");
    let both = LINUX.replace("vcpus = 4\n", &with("guest_lock = \"pv\""));
    let both = both.replace("[host]\n", &swept("guest_locks = [\"pv\"]"));
    let said = parse_scenario("x.toml", "x", &both).unwrap_err().to_string();
    assert!(said.contains("no guest_lock in [[vm]]"), "{said}");
    let bench = LINUX.replace("guest = \"linux\"\n", "");
    let said =
        parse_scenario("x.toml", "x", &bench.replace("[host]\n", &swept("guest_locks = [\"pv\"]")));
    assert!(said.unwrap_err().to_string().contains("no [[vm]] has guest = \"linux\""));
    let polls = |text: &str| {
        let text = text.replace("baseline = true\n", "baseline = true\nidle = \"poll\"\n");
        parse_scenario("x.toml", "x", &text)
    };
    assert_eq!(polls(LINUX).unwrap().arms[0].idle, Some(GuestIdle::Poll));
    assert!(polls(&bench).unwrap_err().to_string().contains("no [[vm]] is a Linux guest"));
}

#[track_caller]
fn refused_of_linux(from: &str, to: &str, key: &str, words: &[&str]) {
    assert!(LINUX.contains(from), "{from}");
    let all = problems(&LINUX.replace(from, to));
    let [p] = &all[..] else { panic!("{all:#?}") };
    assert_eq!(p.key, key, "{p}");
    for words in words {
        assert!(p.to_string().contains(words), "{words}: {p}");
    }
}

#[test]
fn linux_and_bench_guests_do_not_mix() {
    let other = "[[vm]]\nvcpus = 4\nworkload = \"ebizzy\"\n[[arm]]\n";
    let words = ["another is Linux", "in every [[vm]], or in none"];
    refused_of_linux("[[arm]]\n", other, "vm[1]", &words);
    let said = other.replace("vcpus = 4\n", "vcpus = 4\nguest = \"bench\"\n");
    refused_of_linux("[[arm]]\n", &said, "vm[1].guest", &words);
    let two = other.replace("vcpus = 4\n", "vcpus = 4\nguest = \"linux\"\n");
    parse_scenario("x.toml", "x", &LINUX.replace("[[arm]]\n", &two)).unwrap();
}

#[test]
fn what_only_the_bench_guest_does_is_refused_of_linux_guests() {
    let trace = |text: &str| format!("[trace]\n{text}\n[host]\n");
    refused_of_linux("[host]\n", &trace("stalls = true"), "trace.stalls", &["long waits"]);
    parse_scenario("x.toml", "x", &LINUX.replace("[host]\n", &trace("stalls = false"))).unwrap();
    parse_scenario("x.toml", "x", &LINUX.replace("[host]\n", &trace("epochs = true"))).unwrap();
    let clock = "pcpus = 4\nlock_clock_mhz = 800\n";
    refused_of_linux("pcpus = 4\n", clock, "host.lock_clock_mhz", &["does not apply to locks"]);
}

#[test]
fn one_vcpu_has_no_pv_locks() {
    let one = |more: &str| format!("vcpus = 1\n{more}");
    let words = ["1 vCPU does not use", "2 vCPUs or more"];
    refused_of_linux("vcpus = 4\n", &one(""), "vm[0].vcpus", &words);
    refused_of_linux("vcpus = 4\n", &one("guest_lock = \"pv\"\n"), "vm[0].vcpus", &words);
    let good = LINUX.replace("vcpus = 4\n", &one("guest_lock = \"queued\"\n"));
    parse_scenario("x.toml", "x", &good).unwrap();
    let swept = |locks: &str| {
        let text = LINUX.replace("[host]\n", &format!("[sweep]\nguest_locks = {locks}\n[host]\n"));
        parse_scenario("x.toml", "x", &text.replace("vcpus = 4\n", &one("")))
    };
    assert!(swept("[\"queued\", \"pv\"]").unwrap_err().to_string().contains(words[0]));
    swept("[\"queued\", \"test-and-set\"]").unwrap();
}

#[test]
fn the_papers_locks_bring_their_kernel() {
    let kernels = |text: &str| -> Vec<String> {
        let s = parse_scenario("x.toml", "x", text).unwrap_or_else(|e| panic!("{e}"));
        s.vms.iter().map(|g| g.linux.as_ref().unwrap().kernel.clone()).collect()
    };
    let with = |more: &str| format!("vcpus = 4\n{more}\n");
    for lock in ["preemptable", "pv-preemptable", "oticket", "ticket"] {
        let text = LINUX.replace("vcpus = 4\n", &with(&format!("guest_lock = \"{lock}\"")));
        assert_eq!(kernels(&text), ["6.12-unspin"]);
    }
    let swept = |locks: &str| format!("[sweep]\nguest_locks = [{locks}]\n[host]\n");
    let compared = LINUX.replace("[host]\n", &swept("\"pv\", \"queued\", \"ticket\""));
    assert_eq!(kernels(&compared), ["6.12-unspin"]);
    let debians = LINUX.replace("[host]\n", &swept("\"pv\", \"queued\""));
    assert_eq!(kernels(&debians), ["6.12"]);
    let old = with("guest_lock = \"oticket\"\nguest_kernel = \"6.1\"");
    let words = ["6.1 has no lock oticket", "guest_kernel = \"6.12\""];
    refused_of_linux("vcpus = 4\n", &old, "vm[0].guest_kernel", &words);
    let module = with("guest_lock = \"ticket\"\nguest_module = true");
    let words = ["cannot watch the lock ticket", "guest_module = false"];
    refused_of_linux("vcpus = 4\n", &module, "vm[0].guest_module", &words);
}

#[test]
fn words_for_the_guests_kernel_do_not_undo_the_scenario() {
    let with = |words: &str| format!("vcpus = 4\nextra_cmdline = '{words}'\n");
    for (word, instead) in [
        ("nopvspin", "guest_lock"),
        ("spinlock=ticket", "guest_lock"),
        ("idle=poll", "idle"),
        ("maxcpus=2", "vcpus"),
        ("nr_cpus=2", "vcpus"),
        ("nr-cpus=2", "vcpus"),
        ("nosmp", "vcpus"),
        ("mem=64M", "memory_mib"),
        ("memmap=1M$2M", "reads counts"),
        ("init=/bin/sh", "runner"),
        ("rdinit=/bin/sh", "runner"),
        ("console=ttyS1", "console"),
        ("panic=0", "panics"),
        ("\"idle=poll\"", "idle"),
    ] {
        let shown = format!("{word:?} changes");
        let words = with(&format!("quiet {word} nohz=off"));
        refused_of_linux("vcpus = 4\n", &words, "vm[0].extra_cmdline", &[&shown, instead]);
    }
    for fine in ["nohz=off", "idlex=1", "mems=1", "no_init=1", "panic_on_oops=1", "threadirqs"] {
        parse_scenario("x.toml", "x", &LINUX.replace("vcpus = 4\n", &with(fine))).unwrap();
    }
}
