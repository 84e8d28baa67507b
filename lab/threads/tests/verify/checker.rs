// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checker of `core/verify/`, with a lock and its environment.

use crate::common::{check, in_parallel, scratch};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use unspin_threads::locks::Lock;

/// Which threads may get the lock before others; the numbers are those of the checker's option `order`.
#[derive(Clone, Copy)]
enum Order {
    /// Any.
    Any,
    /// None of those in line before an earlier one of them.
    Line,
    /// None before an earlier one.
    Strict,
    /// None before an earlier one, but in its turn, after its time, or when it was overtaken itself.
    InTime,
}

/// What is said of a lock's order: its name, the member whose first update gives a thread its place in the
/// line, and who may overtake.
const ORDERS: &[(&str, Option<&str>, Order)] = &[
    ("tas", None, Order::Any),
    ("tas_nap", None, Order::Any),
    ("ticket", Some("both"), Order::Strict),
    ("mcs", Some("tail"), Order::Strict),
    ("preemptable", Some("both"), Order::InTime),
    ("pv_preemptable", Some("both"), Order::InTime),
    ("pv_ticket", Some("both"), Order::Strict),
    ("oticket", Some("ticket.both"), Order::Strict),
    ("oticket_spin", Some("ticket.both"), Order::Strict),
    ("oticket_wake", Some("ticket.both"), Order::Strict),
    ("iticket", Some("ticket.both"), Order::Strict),
    ("long_ticket", Some("ticket.both"), Order::Strict),
    ("pv_queued", Some("tail"), Order::Line),
    ("lease", Some("line"), Order::Line),
];

/// Locks with `lock_for()`.
pub const TIMED: &[&str] = &["lease", "tas_nap"];

pub fn verify_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/verify")
}

/// Runs a compiler.
pub fn compile(command: &mut Command) {
    check(command).unwrap_or_else(|said| panic!("{command:?}: {said}"));
}

/// What is built here; removed at the end.
pub fn work() -> PathBuf {
    scratch().join(format!("checker.{}", std::process::id()))
}

/// The compiler of what is checked.
pub fn cc() -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fno-stack-protector", "-I"])
        .arg(verify_dir().join("shim"));
    cc
}

pub fn link(object: &Path, program: &Path) {
    compile(Command::new("c++").arg(object).args(checker()).arg("-o").arg(program));
}

/// The checker without a lock, compiled once.
pub fn checker() -> &'static [PathBuf] {
    static CHECKER: OnceLock<Vec<PathBuf>> = OnceLock::new();
    CHECKER.get_or_init(|| {
        let dir = work();
        std::fs::create_dir_all(&dir).unwrap();
        let names = ["memory", "threads", "machine", "search"];
        let objects: Vec<_> = names.iter().map(|name| dir.join(name).with_extension("o")).collect();
        in_parallel(&objects, |object| {
            let source = verify_dir().join(object.file_stem().unwrap()).with_extension("cc");
            compile(
                Command::new("c++")
                    .args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-c", "-o"])
                    .args([object.as_path(), &source]),
            );
        });
        objects
    })
}

/// A lock's code with the checker. `headers` has the lock's header and those that it includes.
pub fn build(lock: &Lock, headers: &Path, name: &str, flag: Option<&str>) -> PathBuf {
    let (_, doorway, _) = ORDERS.iter().find(|(l, ..)| *l == lock.name).expect("in ORDERS");
    let dir = work();
    let (program, object) = (dir.join(name), dir.join(name).with_extension("o"));
    let verify = verify_dir();
    checker();
    let mut cc = cc();
    cc.arg(format!("-DUNSPIN_LOCK_ENV_HEADER=\"{}\"", verify.join("env.h").display()))
        .arg(format!("-DLOCK_HEADER=\"{}\"", headers.join(lock.header).display()))
        .arg(format!("-DLOCK(op)=unspin_{}_##op", lock.name))
        .args(lock.node.then_some("-DWITH_NODE"))
        .args(TIMED.contains(&lock.name).then_some("-DTIMED"))
        .args(doorway.map(|member| format!("-DDOORWAY={member}")))
        .args((lock.name == "pv_queued").then_some("-DCLOSED=UNSPIN_PV_QUEUED_PENDING"))
        .arg(format!("-DUNSPIN_LEASE_TURN_HEADER=\"{}\"", verify.join("lease_turn.h").display()))
        // The wish is in the low bits of the first word's high half.
        .args((lock.name == "lease").then_some("-DCLAIM=0x30000u"))
        .args(lock.start.map(|start| format!("-DSTART(v)={start}")))
        .args(flag)
        .arg("-c")
        .arg(verify.join("client.c"))
        .arg("-o")
        .arg(&object);
    compile(&mut cc);
    link(&object, &program);
    program
}

/// What a search says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No run breaks a check.
    Holds(String),
    /// It was given up.
    Incomplete(String),
    /// A check and how it was found.
    Rejected(String, String),
}

pub fn search(lock: &Lock, program: &Path, options: &str) -> Verdict {
    let (.., order) = ORDERS.iter().find(|(l, ..)| *l == lock.name).expect("in ORDERS");
    let order = format!("order={}", *order as u8);
    let mut command = Command::new(program);
    let output = command.args(options.split(' ')).arg(order).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).trim().to_string();
    match said.split_once(": ") {
        Some(("ok", how)) => Verdict::Holds(how.into()),
        Some(("incomplete", how)) => Verdict::Incomplete(how.into()),
        Some(("rejected", how)) => {
            let (check, how) = how.split_once(", ").unwrap();
            Verdict::Rejected(check.into(), how.into())
        }
        _ => panic!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)),
    }
}
