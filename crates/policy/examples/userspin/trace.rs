// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples of a program's threads, each after 4 ms of the thread's own CPU time: what a host sees of
//! a vCPU at its ticks. By ptrace, so programs are as they come.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unspin_policy::userspin::{digest, Sample};

/// The period of a tick of 250 Hz.
const TICK_NS: u64 = 4_000_000;
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// A program's start is not what it does.
const STARTS_FOR: Duration = Duration::from_millis(500);
/// Code read before the instruction pointer, and as much after it: two samples of the widest range
/// leave no gap.
pub const CODE_BYTES: u64 = 160;

/// A sample, and what a caller of the policy would look up for it.
pub struct Seen {
    pub sample: Sample,
    /// From `address - CODE_BYTES` to `address + CODE_BYTES`.
    pub code: Vec<u8>,
    /// The file whose code it is.
    pub file: String,
    /// The thread's name.
    pub thread: String,
}

/// Samples per thread, oldest first.
pub type Threads = HashMap<i32, Vec<Seen>>;

/// Runs a program for some time and samples all its threads.
pub fn run(command: &mut Command, time: Duration) -> io::Result<Threads> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec only async-signal-safe calls are made.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let mut child = command.spawn()?;
    let mut seized = HashMap::new();
    let result = watch(&child, time, &mut seized);
    let pid = child.id();
    let is_leader = |tid: &i32| u32::try_from(*tid) == Ok(pid);
    // Where its end has been seen already, its number may be another's.
    if seized.keys().any(is_leader) {
        child.kill()?;
        // A process does not end before the ends of its traced threads have been looked at.
        for tid in seized.into_keys().filter(|tid| !is_leader(tid)) {
            // SAFETY: waits for a thread of this process's own tracee, or fails.
            unsafe { libc::waitpid(tid, std::ptr::null_mut(), libc::__WALL) };
        }
        child.wait()?;
    }
    result
}

/// `sampled_at` gets the threads seized, and at what CPU time each was sampled.
fn watch(child: &Child, time: Duration, sampled_at: &mut HashMap<i32, u64>) -> io::Result<Threads> {
    let pid = child.id();
    std::thread::sleep(STARTS_FOR);
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut threads = Threads::new();
    let end = Instant::now() + time;
    'watch: while Instant::now() < end {
        std::thread::sleep(LOOK_EVERY);
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { break };
        for tid in tasks.flatten().filter_map(|t| t.file_name().to_str()?.parse::<i32>().ok()) {
            let Some(ran_ns) = ran_ns(pid, tid) else { continue };
            if sampled_at.contains_key(&tid) && !goes_on(tid) {
                sampled_at.remove(&tid);
                if u32::try_from(tid) == Ok(pid) {
                    break 'watch;
                }
                continue;
            }
            let before = *sampled_at.entry(tid).or_insert_with(|| {
                // SAFETY: no memory is involved. A thread that has ended is not there later either.
                unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0, 0) };
                ran_ns
            });
            if ran_ns - before < TICK_NS {
                continue;
            }
            sampled_at.insert(tid, ran_ns);
            match sample(tid) {
                Some(sample) => {
                    threads.entry(tid).or_default().push(seen(sample, &memory, pid, tid));
                }
                None => {
                    sampled_at.remove(&tid);
                    if u32::try_from(tid) == Ok(pid) {
                        break 'watch;
                    }
                }
            }
        }
    }
    match threads.is_empty() {
        true => Err(io::Error::other("no sample: it ended, or may not be traced")),
        false => Ok(threads),
    }
}

/// Hands the signals over that came for a seized thread; `false` where it has ended.
fn goes_on(tid: i32) -> bool {
    let mut status = 0;
    // SAFETY: waits for a thread of this process's own tracee, or fails; no other memory is involved.
    unsafe {
        while libc::waitpid(tid, &mut status, libc::__WALL | libc::WNOHANG) == tid {
            if !libc::WIFSTOPPED(status) {
                return false;
            }
            let stopped_by_us = status >> 16 != 0;
            let signal = if stopped_by_us { 0 } else { libc::WSTOPSIG(status) };
            libc::ptrace(libc::PTRACE_CONT, tid, 0, signal);
        }
    }
    true
}

fn ran_ns(pid: u32, tid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Stops a thread where it is, reads its registers, lets it go on. `None` where it has ended.
fn sample(tid: i32) -> Option<Sample> {
    // SAFETY: the thread was seized; registers are plain data of this type.
    unsafe {
        if libc::ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0) != 0 {
            return None;
        }
        let mut status = 0;
        loop {
            if libc::waitpid(tid, &mut status, libc::__WALL) != tid || !libc::WIFSTOPPED(status) {
                return None;
            }
            if status >> 16 == libc::PTRACE_EVENT_STOP {
                break;
            }
            libc::ptrace(libc::PTRACE_CONT, tid, 0, libc::WSTOPSIG(status));
        }
        let mut r: libc::user_regs_struct = std::mem::zeroed();
        let read = libc::ptrace(libc::PTRACE_GETREGS, tid, 0, &mut r) == 0;
        libc::ptrace(libc::PTRACE_CONT, tid, 0, 0);
        let all = [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ];
        // Negative unless the kernel was entered by a system call or an exception.
        let user = u8::from((r.orig_rax as i64) < 0);
        read.then(|| Sample { address: r.rip, registers: digest(&all), user, pad: [0; 7] })
    }
}

fn seen(sample: Sample, memory: &File, pid: u32, tid: i32) -> Seen {
    let mut code = vec![0; 2 * CODE_BYTES as usize];
    let (before, after) = code.split_at_mut(CODE_BYTES as usize);
    // What is not mapped stays 0: one half may begin where nothing is.
    let _ = memory.read_at(before, sample.address.saturating_sub(CODE_BYTES));
    let _ = memory.read_at(after, sample.address);
    let file = file_at(pid, sample.address).unwrap_or_default();
    let comm = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    Seen { sample, code, file, thread: comm.trim_end().to_string() }
}

fn file_at(pid: u32, address: u64) -> Option<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let holds = |line: &&str| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let hex = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        range.is_some_and(|(from, to)| (hex(from)..hex(to)).contains(&address))
    };
    maps.lines().find(holds)?.split_whitespace().nth(5).map(str::to_string)
}
