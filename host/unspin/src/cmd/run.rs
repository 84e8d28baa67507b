// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin run`: runs a program with the locks of this project.

use crate::exit::{Cannot, Usage};
use crate::preload;
use anyhow::Context;
use clap::builder::PossibleValuesParser;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What SIGPIPE does to this process since its start. Rust's runtime ignores the signal before main(), and
/// sets it to the default for programs that this one executes.
static SIGPIPE_AT_START: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

extern "C" fn remember_sigpipe() {
    // SAFETY: `action` is written before it is read; no handler is installed.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) == 0 {
            SIGPIPE_AT_START.store(action.sa_sigaction, Ordering::Relaxed);
        }
    }
}

/// Called before the runtime.
#[used]
#[link_section = ".init_array"]
static REMEMBER_SIGPIPE: extern "C" fn() = remember_sigpipe;

/// Services ignore SIGPIPE in their programs, which must find it so.
fn keep_sigpipe(command: &mut Command) {
    // SAFETY: signal() may be called between fork() and exec(); the disposition is one that exec() keeps.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGPIPE, SIGPIPE_AT_START.load(Ordering::Relaxed));
            Ok(())
        });
    }
}

const MORE: &str = "\
Locks:
  tas_nap         for spin locks: the first that asks gets it; a thread that has waited for long sleeps between tries
  lease           for mutexes only: few threads use it at a time, the others sleep in line
  preemptable     for measurements: first come, first served, but waiters without a CPU are overtaken; waiters \
spin
  pv_preemptable  for measurements: the same, but waiters sleep
  tas             for measurements: the first that asks gets it; waiters spin

Environment. The options set these variables for the program and its children; without an option a \
variable stays as it is:
  UNSPIN_LOCK=NAME      the lock; an unknown name is reported on standard error, and no lock is \
replaced
  UNSPIN_MUTEX=1        pthread_mutex_lock() and pthread_mutex_unlock() too
  UNSPIN_TAU_NS=N       tau in nanoseconds
  UNSPIN_VERBOSE=1      print a line of counts on standard error when a process exits, unless it \
has replaced its standard error
  A wrong value of UNSPIN_MUTEX, UNSPIN_TAU_NS or UNSPIN_VERBOSE is reported on standard error, and ignored.
  LD_PRELOAD            the library is appended to its list

Exit code: that of the program; 2 if the program is not found, 77 if it cannot be started.

To turn it off, run the program without `unspin run`. Only the library stays, in ~/.cache/unspin (root: \
/var/cache/unspin).";

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub struct Args {
    /// The lock [default: tas_nap for spin locks, lease for mutexes]. See below.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(preload::locks()))]
    lock: Option<String>,
    /// Replace pthread_mutex_lock() too, for plain and adaptive mutexes. Not for programs that stop
    /// threads by signals, as some garbage collectors do, or leave pthread_mutex_lock() by siglongjmp()
    /// or pthread_exit() in a handler.
    #[arg(long)]
    mutex: bool,
    /// How long a preemptable lock waits per waiter ahead of it, in microseconds; 0: no order [default:
    /// 2].
    #[arg(long, value_name = "N", value_parser = tau_ns)]
    tau_us: Option<u64>,
    /// When a process exits, print how many locks it took.
    #[arg(long)]
    verbose: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Parses microseconds, with a fraction if any, into nanoseconds.
fn tau_ns(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(us) if (0.0..=1e12).contains(&us) => Ok((us * 1000.0).round() as u64),
        _ => Err("allowed: 0 to 1e12 microseconds".into()),
    }
}

/// Whether mutexes are replaced: by this command line, or by the environment.
fn takes_mutexes(args: &Args) -> bool {
    args.mutex || std::env::var_os("UNSPIN_MUTEX").is_some_and(|value| value == "1")
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(lock) = args.lock.as_deref().filter(|lock| preload::MUTEX_ONLY.contains(lock)) {
        if !takes_mutexes(args) {
            let text = format!(
                "{lock} is too large for spin locks: add --mutex to use it for \
                                mutexes"
            );
            return Err(Usage(text).into());
        }
    }
    let (program, rest) = args.command.split_first().context("no program")?;
    let path = find(program)?;
    let mut command = Command::new(&path);
    command.arg0(program).args(rest);
    let ignored = preload::ignores(&path);
    if let Some(why) = &ignored {
        say!("unspin: no effect on {}: {why}", path.display());
    }
    // A foreign dynamic linker would complain. Processes that others start may load the library.
    if !matches!(ignored, Some(preload::Ignores::Foreign(_))) {
        let library = preload::library()?;
        command.env("LD_PRELOAD", with(std::env::var_os("LD_PRELOAD"), &library));
    }
    if let Some(lock) = &args.lock {
        command.env("UNSPIN_LOCK", lock);
    }
    if args.mutex {
        command.env("UNSPIN_MUTEX", "1");
    }
    if let Some(ns) = args.tau_us {
        command.env("UNSPIN_TAU_NS", ns.to_string());
    }
    if args.verbose {
        command.env("UNSPIN_VERBOSE", "1");
    }
    keep_sigpipe(&mut command);
    let error = command.exec();
    Err(Cannot(format!("cannot start {}: {error}", path.display())).into())
}

/// Appends the library to the present value, unless it is in it.
fn with(present: Option<OsString>, library: &Path) -> OsString {
    let Some(mut all) = present.filter(|p| !p.is_empty()) else { return library.into() };
    let is_there = all.to_string_lossy().split([' ', ':']).any(|one| Path::new(one) == library);
    if !is_there {
        all.push(":");
        all.push(library);
    }
    all
}

/// Finds the program as execvp() does.
fn find(program: &OsStr) -> anyhow::Result<PathBuf> {
    let named = Path::new(program);
    let is_file = |path: &PathBuf| path.is_file();
    let found = if program.as_encoded_bytes().contains(&b'/') {
        Some(named.to_path_buf()).filter(is_file)
    } else {
        let dirs = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let mut paths = std::env::split_paths(&dirs).map(|dir| dir.join(named)).filter(is_file);
        let is_executable = |path: &PathBuf| {
            use std::os::unix::fs::PermissionsExt;
            path.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
        };
        paths.find(is_executable)
    };
    found.ok_or_else(|| Usage(format!("{}: program not found", named.display())).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_stays_so() {
        let library = Path::new("/c/l.so");
        assert_eq!(with(None, library), "/c/l.so");
        assert_eq!(with(Some("".into()), library), "/c/l.so");
        assert_eq!(with(Some("/a.so /b.so".into()), library), "/a.so /b.so:/c/l.so");
        assert_eq!(with(Some("/a.so:/c/l.so".into()), library), "/a.so:/c/l.so");
    }

    #[test]
    fn tau_is_a_time() {
        assert_eq!(tau_ns("2"), Ok(2000));
        assert_eq!(tau_ns("0.5"), Ok(500));
        for wrong in ["", "-1", "nan", "inf", "1e13", "2us"] {
            assert!(tau_ns(wrong).is_err(), "{wrong}");
        }
    }
}
