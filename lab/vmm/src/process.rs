// SPDX-License-Identifier: MIT OR Apache-2.0
//! A VM as a process: reads commands as JSON lines on its standard input, answers on its standard
//! output, and ends with its parent.
//!
//! ```text
//! → {"config":{…}}                                   ← {"ready":{"tids":[…]}}
//! → {"run":{"start_at_ns":…,"all_run_at_ns":…}}      ← "works" when it has done some work since
//! → {"sample":{"at_ns":[…,…]}}                       ← {"samples":[{…},{…}]} after the second
//! → "stop"                                           ← "stopped" or {"failed":"…"}
//! ```
//! Times are absolute times of CLOCK_MONOTONIC. So all VMs of a run start and are read at chosen
//! moments, without messages at these moments. The thread that reads the counts runs under SCHED_FIFO,
//! so that spinning vCPUs cannot delay it.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::thread::clock_ns;
use crate::{Error, Realtime, VcpuSample, Vm, VmConfig};

/// The argument with which a binary calls [`vm_process_main`].
pub const VM_PROCESS_COMMAND: &str = "vm-process";

/// Time limit for vCPUs to end by themselves.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval of checks whether the vCPUs have done some work.
const LOOK_NS: u64 = 1_000_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    Config(VmConfig),
    Run(Schedule),
    Sample(Moments),
    Stop,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    Ready { tids: Vec<i32> },
    Works,
    Samples(Vec<Sample>),
    Stopped,
    Failed(String),
}

/// When to start the vCPUs, and when those of all VMs run, by CLOCK_MONOTONIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    pub start_at_ns: u64,
    pub all_run_at_ns: u64,
}

/// When to read the counts, by CLOCK_MONOTONIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moments {
    pub at_ns: [u64; 2],
}

/// The counts of all vCPUs at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub at_ns: u64,
    pub vcpus: Vec<VcpuSample>,
}

/// Runs the process, without further arguments. Returns its exit code.
pub fn vm_process_main(args: &[String]) -> i32 {
    if !args.is_empty() {
        eprintln!("{VM_PROCESS_COMMAND} takes no arguments; it is started by the agent");
        return 2;
    }
    // SAFETY: no memory involved. A VM must not survive the program that started it.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    match serve() {
        Ok(()) => 0,
        Err(error) => {
            reply(&Reply::Failed(error.to_string()));
            1
        }
    }
}

fn serve() -> Result<(), Error> {
    // SAFETY: nothing else in this process reads standard input.
    let mut input = BufReader::new(unsafe { File::from_raw_fd(0) });
    let Command::Config(config) = command(&mut input)? else {
        return Err(Error::Command("the first must be `config`".into()));
    };
    let mut vm = Vm::new(&config)?;
    // Enter after the vCPU threads exist, because they would inherit it. It lasts until the process
    // ends.
    std::mem::forget(Realtime::enter());
    reply(&Reply::Ready { tids: vm.tids() });
    match command(&mut input)? {
        Command::Run(schedule) => run(&mut vm, &schedule, &mut input)?,
        Command::Stop => {}
        other => return Err(Error::Command(format!("not before it runs: {other:?}"))),
    }
    vm.stop(STOP_TIMEOUT)?;
    reply(&Reply::Stopped);
    Ok(())
}

fn run(vm: &mut Vm, schedule: &Schedule, input: &mut BufReader<File>) -> Result<(), Error> {
    if wait_until(vm, input, Some(schedule.start_at_ns))? == Woken::Word {
        return Ok(());
    }
    vm.start();
    if !works(vm, schedule.all_run_at_ns, input)? {
        return Ok(());
    }
    reply(&Reply::Works);
    wait_until(vm, input, None)?;
    match next(input)? {
        Some(Command::Sample(moments)) => samples(vm, &moments, input),
        None | Some(Command::Stop) => Ok(()),
        Some(other) => Err(Error::Command(format!("not when it runs: {other:?}"))),
    }
}

/// Waits until the vCPUs have done some work since `since_ns`, for any time. Returns whether they
/// have; a command on standard input also ends the wait.
fn works(vm: &mut Vm, since_ns: u64, input: &BufReader<File>) -> Result<bool, Error> {
    let work = |vm: &Vm| vm.sample().iter().map(|vcpu| vcpu.units).sum::<u64>();
    let (mut at_ns, mut before) = (since_ns, None);
    loop {
        if wait_until(vm, input, Some(at_ns))? == Woken::Word {
            return Ok(false);
        }
        let done = work(vm);
        if *before.get_or_insert(done) < done {
            return Ok(true);
        }
        at_ns += LOOK_NS;
    }
}

/// Reads the counts at both moments, writes them, and waits for a command.
fn samples(vm: &mut Vm, moments: &Moments, input: &BufReader<File>) -> Result<(), Error> {
    let mut samples = Vec::with_capacity(2);
    for at_ns in moments.at_ns {
        if wait_until(vm, input, Some(at_ns))? == Woken::Word {
            return Ok(());
        }
        samples.push(Sample { at_ns: now_ns(), vcpus: vm.sample() });
        if samples.len() == 1 {
            vm.reset_max_wait();
        }
    }
    reply(&Reply::Samples(samples));
    wait_until(vm, input, None)?;
    Ok(())
}

#[derive(PartialEq, Eq)]
enum Woken {
    Time,
    Word,
}

/// Waits for the time, for a command on standard input, or for its end. If a vCPU fails, returns
/// its error.
fn wait_until(vm: &mut Vm, input: &BufReader<File>, at_ns: Option<u64>) -> Result<Woken, Error> {
    if !input.buffer().is_empty() {
        return Ok(Woken::Word);
    }
    loop {
        let timeout = match at_ns.map(|at| at.checked_sub(now_ns())) {
            Some(None) => return Ok(Woken::Time),
            Some(Some(left)) => Some(timespec(left)),
            None => None,
        };
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [poll(input.get_ref().as_raw_fd()), poll(vm.ended_fd())];
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: both descriptors and the timeout outlive the call.
        let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), 2, timeout, std::ptr::null()) };
        if ready < 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Err(Error::os("ppoll"));
        }
        if ready > 0 && fds[0].revents != 0 {
            return Ok(Woken::Word);
        }
        if ready > 0 && fds[1].revents != 0 && vm.error().is_some() {
            vm.stop(STOP_TIMEOUT)?;
        }
    }
}

fn command(input: &mut BufReader<File>) -> Result<Command, Error> {
    next(input)?.ok_or_else(|| Error::Command("none came".into()))
}

/// The next command; `None` at the end of standard input.
fn next(input: &mut BufReader<File>) -> Result<Option<Command>, Error> {
    let mut line = String::new();
    let read = input.read_line(&mut line);
    match read.map_err(|source| Error::Os { what: "standard input".into(), source })? {
        0 => Ok(None),
        _ => serde_json::from_str(&line).map(Some).map_err(|e| Error::Command(e.to_string())),
    }
}

fn reply(reply: &Reply) {
    let line = serde_json::to_string(reply).expect("replies are plain data");
    let mut output = std::io::stdout().lock();
    // If the starting process has ended, no process reads the report.
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Sleeps until `at_ns` of CLOCK_MONOTONIC, the clock of [`now_ns`].
pub fn sleep_until(at_ns: u64) {
    let at = timespec(at_ns);
    // SAFETY: `at` is valid, and nothing is written if no rest is requested.
    while unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &at, std::ptr::null_mut())
    } == libc::EINTR
    {}
}

/// A time in the form of system calls.
pub fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}
