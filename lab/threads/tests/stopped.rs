// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holders and waiters that stand still: stopped by a signal handler or by SIGSTOP, one thread at a
//! time, as a host preempts one vCPU. No thread enters a held lock, no wake-up is lost, and if the
//! lock is free, only first-come locks wait for a thread without a CPU (VEE 2013, section 4).

mod common;

use common::{in_parallel, Build};
use std::collections::BTreeSet;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use unspin_threads::locks::{Lock, LOCKS};

/// Hand the lock over to the next in line, whether it runs or not.
const FIRST_COME: &[&str] = &[
    "ticket",
    "mcs",
    "pv_ticket",
    "oticket",
    "oticket_spin",
    "oticket_wake",
    "iticket",
    "long_ticket",
];

/// Acquisitions of others while one thread is stopped, and after it went on.
fn stopped(lock: &Lock, budgets: &str, who: &str, wait_ms: &str) -> (u64, u64) {
    let variant = format!("stopped-{budgets}");
    let flag = format!("-D{budgets}");
    let program = Build::new(lock, "stopped", &variant, &["-DYIELDING", &flag]).make();
    let output = Command::new(program).args([who, wait_ms]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{} {flag} {who}: {} {said}", lock.name, output.status);
    let counts: Vec<u64> = said.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let [meanwhile, after] = counts[..] else { panic!("{} {flag}: {said}", lock.name) };
    (meanwhile, after)
}

/// Every lock with each of these budgets.
fn with_budgets(budgets: [&'static str; 2]) -> Vec<(&'static Lock, &'static str)> {
    LOCKS.iter().flat_map(|lock| budgets.map(|budgets| (lock, budgets))).collect()
}

/// A lock as it is, and with budgets that are spent before the first look.
const AS_IT_IS_OR_SPENT: [&str; 2] = ["PATIENT", "SPENT"];

#[test]
fn a_stopped_holder_keeps_everybody_out() {
    in_parallel(&with_budgets(AS_IT_IS_OR_SPENT), |&(lock, budgets)| {
        let (meanwhile, after) = stopped(lock, budgets, "holder", "100");
        assert_eq!(meanwhile, 0, "{} {budgets}", lock.name);
        assert!(after > 0, "{} {budgets}", lock.name);
    });
}

/// The purpose of the preemptable locks; the first-come locks show that the test detects the
/// difference.
#[test]
fn a_stopped_waiter_holds_up_first_come_locks_alone() {
    in_parallel(&with_budgets(AS_IT_IS_OR_SPENT), |&(lock, budgets)| {
        let first_come = FIRST_COME.contains(&lock.name);
        let wait_ms = if first_come { "100" } else { "120000" };
        let (meanwhile, after) = stopped(lock, budgets, "waiter", wait_ms);
        assert_eq!(meanwhile == 0, first_come, "{} {budgets}: {meanwhile}", lock.name);
        assert!(after > 0, "{} {budgets}", lock.name);
    });
}

fn threads_of(pid: libc::pid_t) -> BTreeSet<libc::pid_t> {
    let names = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn ptrace(request: libc::c_uint, tid: libc::pid_t) -> io::Result<()> {
    // SAFETY: the requests used here take no memory of ours.
    match unsafe { libc::ptrace(request, tid, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Whether the program came to its end; it has not been waited for.
fn has_ended(pid: libc::pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// The next event of a traced thread: it stopped, or it ended.
fn next_of(tid: libc::pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: `status` is ours.
    let waited = unsafe { libc::waitpid(tid, &mut status, libc::__WALL) };
    (waited > 0).then_some(status)
}

/// Stops one thread after the other with SIGSTOP, each for 1 ms, then continues all to their end.
/// Returns the exit status of the program and how often a thread was stopped. `None`: tracing is
/// not allowed.
fn stop_threads_of(pid: libc::pid_t, times: u32) -> Option<(i32, u32)> {
    while threads_of(pid).len() < 2 && !has_ended(pid) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut threads: Vec<libc::pid_t> = threads_of(pid).into_iter().collect();
    if let Err(e) = ptrace(libc::PTRACE_SEIZE, pid) {
        assert_eq!(e.raw_os_error(), Some(libc::EPERM), "{e}");
        // On a busy computer it may have come to its end meanwhile.
        return if has_ended(pid) { next_of(pid).map(|status| (status, 0)) } else { None };
    }
    // The first thread waits for the others: it is not among those stopped.
    threads.retain(|tid| *tid != pid && ptrace(libc::PTRACE_SEIZE, *tid).is_ok());
    let mut stopped = 0;
    for turn in 0..times as usize {
        if threads.is_empty() {
            break;
        }
        let at = turn % threads.len();
        let tid = threads[at];
        // SAFETY: no memory involved; a thread that has ended is no error to us.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGSTOP) };
        match next_of(tid) {
            Some(status) if libc::WIFSTOPPED(status) => {
                std::thread::sleep(Duration::from_millis(1));
                stopped += 1;
                // Continues without the signal, which would stop the others as well.
                let _ = ptrace(libc::PTRACE_CONT, tid);
            }
            _ => {
                threads.remove(at);
            }
        }
    }
    // A tracer must collect every thread's end before the program's.
    for tid in threads {
        while next_of(tid).is_some_and(|status| libc::WIFSTOPPED(status)) {
            let _ = ptrace(libc::PTRACE_CONT, tid);
        }
    }
    next_of(pid).map(|status| (status, stopped))
}

#[test]
fn locks_survive_sigstop_of_single_threads() {
    let stopped = AtomicU32::new(0);
    let may_trace = AtomicBool::new(true);
    in_parallel(&with_budgets(["HASTY", "SPENT"]), |&(lock, budgets)| {
        let flag = format!("-D{budgets}");
        let variant = format!("sigstop-{budgets}");
        let flags = ["-DYIELDING", "-DMS_ENOUGH=500", &flag];
        let program = Build::new(lock, "stress", &variant, &flags).make();
        let mut child = Command::new(program).args(["6", "20000"]).spawn().unwrap();
        let pid = libc::pid_t::try_from(child.id()).unwrap();
        let Some((status, times)) = stop_threads_of(pid, 60) else {
            may_trace.store(false, Relaxed);
            child.wait().unwrap();
            return;
        };
        let ended = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        assert!(ended, "{} {budgets}: wait status {status:#x} after {times} stops", lock.name);
        stopped.fetch_add(times, Relaxed);
    });
    if may_trace.into_inner() {
        assert!(stopped.into_inner() > 0, "no thread was stopped");
    } else {
        println!("SKIPPED: SIGSTOP of single threads: this user may not trace programs");
    }
}
