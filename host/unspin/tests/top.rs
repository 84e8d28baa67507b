// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin top` with synthetic VMs: on a terminal, once as a table, and its refusals.

mod common;

use common::script::script;
use common::vm_host::signal;
use common::{json, said};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};
use unspin_scratch::Scratch;

const WAIT: Duration = Duration::from_secs(20);

/// The sequence that leaves the terminal's alternate screen; and the one that enters it.
const LEAVE: &str = "\u{1b}[?1049l";
const ENTER: &str = "\u{1b}[?1049h";

fn unspin(args: &[&str]) -> Output {
    common::unspin(&[&["top"], args].concat())
}

#[track_caller]
fn fails(args: &[&str], code: i32, words: &str) {
    common::fails(&[&["top"], args].concat(), code, words);
}

#[test]
fn wrong_usage_is_2() {
    fails(&["--delay", "0"], 2, "--delay");
    fails(&["--sort", "size"], 2, "[possible values: name,");
    fails(&["--json"], 2, "--once");
    fails(&["--synthetic", "1x1"], 2, "top needs a terminal, and standard output is not one");
}

/// A host without processes has no VM, regardless of its other files.
#[test]
fn a_host_without_vms_is_said_to_be_one() {
    let empty = Scratch::new();
    let out = unspin(&["--once", "--delay", "0.1", "--proc", empty.to_str().unwrap()]);
    let said = said(&out);
    match out.status.code() {
        Some(77) => assert!(said.starts_with("unspin: "), "{said}"),
        code => assert_eq!((code, said.as_str()), (Some(1), "unspin: no VM runs on this host\n")),
    }
}

#[test]
fn once_writes_a_table_or_what_diagnose_writes() {
    let args = ["--once", "--delay", "0.2", "--synthetic", "6x2"];
    let out = unspin(&args);
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 7, "{text}");
    assert_eq!(lines[0][..6], ["VM", "vCPUs", "lost%", "cause", "%RDY", "%CSTP"]);
    assert_eq!((lines[1][0], lines[1][3]), ("hpc1", "user-spin"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");

    let chosen = unspin(&[&args[..], &["--json", "--filter", "DB"]].concat());
    let json = json(&chosen);
    assert_eq!(json["schema"], 1);
    assert_eq!(json["vms"].as_array().unwrap().len(), 1);
    let vm = &json["vms"][0];
    assert_eq!((&vm["name"], &vm["dominant"]), (&"db1".into(), &"spin-switch".into()));
    assert_eq!(vm["vcpu"].as_array().unwrap().len(), 2);
    // It waits only for siblings.
    let costop = (&vm["costop_pct"], &vm["vcpu"][0]["costop_pct"]);
    assert_eq!(costop, (&vm["ready_pct"], &vm["vcpu"][0]["ready_pct"]));
    assert!(vm["ready_pct"].as_f64().unwrap() > 1.0 && vm["limit_pct"] == 0.0, "{vm}");
    assert_eq!((&vm["ready_by"][0]["vm"], &vm["ready_by"][0]["pid"]), (&"db1".into(), &vm["pid"]));
    fails(&[&args[..], &["--filter", "none"]].concat(), 1, "has \"none\" in its name");
}

#[test]
fn a_table_is_as_wide_as_columns_says() {
    for (columns, width) in
        [("20", 20), ("40", 40), ("120", 120), ("200", 200), ("1", 20), ("", 80)]
    {
        let mut top = common::command(&["top", "--once", "--delay", "0.1", "--synthetic", "9x2"]);
        let out = top.env("COLUMNS", columns).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        assert_eq!(text.lines().count(), 10, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        assert!(text.starts_with("VM ") && text.contains("\nhpc1 "), "{text}");
        assert_eq!(text.contains(" contention  spin-switch"), width == 200, "{text}");
    }
}

/// A terminal of 80 columns and 24 lines, on which top or another command runs.
struct Terminal {
    top: Child,
    keys: File,
    /// Our descriptor of the terminal, which stays open after top has ended.
    side: OwnedFd,
    /// The terminal's modes before.
    before: (u32, u32),
    shown: Receiver<Vec<u8>>,
    all: String,
}

fn modes(side: &OwnedFd) -> (u32, u32) {
    // SAFETY: zeroes are a value of it, and it is what the call writes to.
    let modes = unsafe {
        let mut modes: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(side.as_raw_fd(), &mut modes), 0);
        modes
    };
    (modes.c_lflag, modes.c_iflag)
}

impl Terminal {
    fn new() -> Terminal {
        Terminal::of(common::command(&["top", "--synthetic", "6x2", "--delay", "0.2"]))
    }

    fn of(mut command: Command) -> Terminal {
        let (mut ours, mut theirs) = (0, 0);
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let null = std::ptr::null_mut();
        // SAFETY: it writes the two descriptors, which nobody else has.
        let (ours, side) = unsafe {
            assert_eq!(libc::openpty(&mut ours, &mut theirs, null, null.cast(), &size), 0);
            (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
        };
        let before = modes(&side);
        let end = || Stdio::from(side.try_clone().unwrap());
        let top = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let (show, shown) = channel();
        let keys = File::from(ours);
        let mut screen = keys.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut part) {
                if show.send(part[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal { top, keys, side, before, shown, all: String::new() }
    }

    /// Waits until this word is shown, and discards the output up to it.
    #[track_caller]
    fn shows(&mut self, word: &str) {
        let end = Instant::now() + WAIT;
        loop {
            if let Some(at) = self.all.find(word) {
                self.all.drain(..at + word.len());
                return;
            }
            let left = end.saturating_duration_since(Instant::now());
            let part = self.shown.recv_timeout(left);
            let part = part.unwrap_or_else(|e| panic!("no {word:?}: {e}: {:?}", self.all));
            self.all += &String::from_utf8_lossy(&part);
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Presses keys, and Ctrl-L: this redraws everything, so that words come in one piece.
    #[track_caller]
    fn press_and_see(&mut self, keys: &str, word: &str) {
        self.press(keys);
        self.press("\u{c}");
        self.shows(word);
    }

    fn signal(&self, number: i32) {
        signal(self.top.id(), number);
    }

    #[track_caller]
    fn is_stopped_and_goes_on(&mut self) {
        self.shows(LEAVE);
        let end = Instant::now() + WAIT;
        let stat = format!("/proc/{}/stat", self.top.id());
        while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            assert!(Instant::now() < end, "it does not stop");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(modes(&self.side), self.before);
        self.signal(libc::SIGCONT);
        self.shows(ENTER);
    }

    #[track_caller]
    fn ends_well(mut self) {
        self.shows(LEAVE);
        assert!(self.top.wait().unwrap().success());
        assert_eq!(modes(&self.side), self.before);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.top.kill();
        let _ = self.top.wait();
    }
}

#[test]
fn keys_are_heard_and_the_terminal_is_given_back() {
    let mut terminal = Terminal::new();
    terminal.shows(ENTER);
    terminal.shows("hpc1");
    assert_ne!(modes(&terminal.side), terminal.before);
    terminal.press_and_see("\r", "spinning");
    // F1 as sent by xterm.
    terminal.press_and_see("\u{1b}OP", "PgUp");
    terminal.press_and_see("x", "SortBy");
    terminal.press("q");
    terminal.ends_well();
}

#[test]
fn signals_end_it_as_well() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let terminal = Terminal::new();
        let mut terminal = terminal;
        terminal.shows("hpc1");
        terminal.signal(signal);
        terminal.ends_well();
    }
}

#[test]
fn it_ends_with_its_terminal() {
    // The terminal belongs to script, which is killed.
    let mut script = Command::new("script");
    let top = format!("exec {} top --synthetic 6x2", env!("CARGO_BIN_EXE_unspin"));
    script.args(["-q", "-f", "-c", &top, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut script = script.spawn().unwrap();
    let mut shown = script.stdout.take().unwrap();
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&all).contains(ENTER) {
        let read = shown.read(&mut part).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&part[..read]);
    }
    let children = format!("/proc/{0}/task/{0}/children", script.id());
    let children = std::fs::read_to_string(children).unwrap();
    let stat = format!("/proc/{}/stat", children.trim());
    let is_there = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
    assert!(is_there());
    script.kill().unwrap();
    script.wait().unwrap();
    let end = Instant::now() + WAIT;
    while is_there() {
        assert!(Instant::now() < end, "it stays without a terminal");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_stop_gives_the_terminal_back_for_a_while() {
    let mut terminal = Terminal::new();
    for by_key in [false, true] {
        terminal.shows("hpc1");
        match by_key {
            true => terminal.press("\u{1a}"),
            false => terminal.signal(libc::SIGTSTP),
        }
        terminal.is_stopped_and_goes_on();
    }
    terminal.press("q");
    terminal.ends_well();
}

#[test]
fn on_a_terminal_the_manual_is_not_roff() {
    let tools = Scratch::new();
    script(&tools.join("man"), "echo \"man $*\"; exec head -n 1");
    let with = format!("{}:/usr/bin:/bin", tools.display());
    for (path, words) in [(&*with, ["man -l -", ".ie"]), ("/nonexistent", ["Usage:", "neighbours"])]
    {
        let mut man = common::command(&["man"]);
        man.env("PATH", path);
        let mut terminal = Terminal::of(man);
        words.iter().for_each(|word| terminal.shows(word));
        assert!(terminal.top.wait().unwrap().success());
    }
}
