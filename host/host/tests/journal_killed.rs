// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that changes files and a real thread's CPUs, and is killed (SIGKILL) repeatedly.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use unspin_host::journal::{Back, Hands, Journal, Target};
use unspin_host::Host;
use unspin_scratch::{Killed, Scratch};

/// Environment variable that tells the test below that it is the process to kill, and where its
/// tree is.
const TREE: &str = "UNSPIN_TEST_JOURNAL_TREE";
const THREAD: &str = "UNSPIN_TEST_JOURNAL_THREAD";
const KILLS: u64 = 300;
const FILES: [&str; 3] = ["vm/mode", "vm/window", "kvm/halt_poll_ns"];

fn wanted(tree: &Path, tid: u32, value: &str) -> Vec<(Target, String)> {
    let file = |name: &&str| (Target::File { path: tree.join(name) }, value.to_string());
    let mut all: Vec<(Target, String)> = FILES.iter().map(file).collect();
    all.push((Target::Affinity { tid }, "0".into()));
    all
}

/// Changes and restores in an endless loop.
#[test]
fn the_process_to_kill() {
    let Some(tree) = std::env::var_os(TREE).map(PathBuf::from) else { return };
    let tid = std::env::var(THREAD).unwrap().parse().unwrap();
    let host = Host::default();
    let mut journal = Journal::open(&tree.join("run/journal"), "/proc".as_ref()).unwrap();
    for round in 0u64.. {
        journal.change(&host, &wanted(&tree, tid, &format!("{}", round << 20))).unwrap();
        journal.put_back(&host).unwrap();
    }
}

#[test]
fn whenever_it_is_killed_a_later_one_puts_back() {
    let sleeper = Killed(Command::new("sleep").arg("600").spawn().unwrap());
    let tid = sleeper.0.id();
    let host = Host::default();
    let tree = Scratch::with(&FILES.map(|name| (name, "before\n")));
    let read = || -> Vec<String> {
        wanted(&tree, tid, "").iter().map(|(target, _)| host.read(target).unwrap()).collect()
    };
    let before = read();
    if before[3] == "0" {
        println!("SKIPPED: of the CPUs there is only one to choose");
        return;
    }
    let (mut found_changed, mut restored) = (0, 0);
    for kill in 0..KILLS {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "the_process_to_kill"]).env(TREE, &*tree);
        process.env(THREAD, tid.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Killed(process.spawn().unwrap());
        // Wait until it has changed a value, on a computer of any load; then for a varying time, in
        // which it restores and changes again.
        while read() == before {
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(kill * 7919 % 9000));
        drop(process);
        found_changed += u32::from(read() != before);
        let mut journal = match Journal::open(&tree.join("run/journal"), "/proc".as_ref()) {
            Ok(journal) => journal,
            Err(e) => panic!("kill {kill}: {e}"),
        };
        for (change, back) in journal.put_back(&host).unwrap() {
            restored += u32::from(matches!(back, Back::Restored));
            assert!(matches!(back, Back::Restored | Back::AsBefore), "{change:?}: {back:?}");
        }
        assert_eq!(read(), before, "kill {kill}");
    }
    println!("{KILLS} kills, {found_changed} found values changed; {restored} put back");
    assert!(found_changed > 0 && restored > 0);
}
