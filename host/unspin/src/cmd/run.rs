// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin run`: runs a program with the locks of this project.

mod at_start;

use crate::exit::{Cannot, Usage};
use crate::{preload, program};
use anyhow::Context;
use clap::builder::PossibleValuesParser;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const MORE: &str = "\
Locks:
  tas_nap         for spin locks: the first thread that asks while it is free gets it; a thread that has waited \
for long sleeps between attempts
  lease           for mutexes only: few threads compete for it at a time; the others sleep in a queue
  preemptable     for measurements: first come, first served, but others overtake waiters without a CPU; waiters \
spin
  pv_preemptable  for measurements: the same, but waiters sleep
  tas             for measurements: the first thread that asks while it is free gets it; waiters spin

Environment. The options set these variables for the program and its children. If an option is not given, its \
variable does not change:
  UNSPIN_LOCK=NAME      the lock; an unknown name is reported on standard error, and no lock is \
replaced
  UNSPIN_MUTEX=1        replace pthread_mutex_lock() and pthread_mutex_unlock() too
  UNSPIN_TAU_NS=N       tau in nanoseconds
  UNSPIN_VERBOSE=1      print a line of counts on standard error when a process exits, unless the \
process has replaced its standard error
  A wrong value of UNSPIN_MUTEX, UNSPIN_TAU_NS or UNSPIN_VERBOSE is reported on standard error, and ignored.
  LD_PRELOAD            the library is appended to its list

Exit code: that of the program; 2 if the program is not found, 77 if it cannot be started.

To turn it off, run the program without `unspin run`. Only the library's file stays, in ~/.cache/unspin (root: \
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
    /// Time per waiter ahead after which a waiter may overtake, in microseconds; 0: no order
    /// [default: 2]. Only for the locks preemptable and pv_preemptable.
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

/// Checks that the options fit the lock, which they or the environment name.
fn check_lock(args: &Args) -> anyhow::Result<()> {
    let set = std::env::var("UNSPIN_LOCK").unwrap_or_default();
    let lock = args.lock.as_deref().unwrap_or(&set);
    if preload::MUTEX_ONLY.contains(&lock) && !takes_mutexes(args) {
        let why = "is too large for spin locks: add --mutex to use it for mutexes";
        if args.lock.is_some() {
            return Err(Usage(format!("{lock} {why}")).into());
        }
        say!("unspin: no effect: UNSPIN_LOCK={lock} {why}");
    }
    if args.tau_us.is_some() && !preload::WITH_TAU.contains(&lock) {
        let locks = preload::WITH_TAU.join(" or --lock ");
        return Err(Usage(format!("this lock has no tau: --tau-us needs --lock {locks}")).into());
    }
    Ok(())
}

/// Sets a variable for the program. Command::env() would sort the environment, and drop what is there twice or
/// without a `=`. Of two settings the dynamic linker takes the last and getenv() the first, so only one stays.
fn set(name: &str, value: impl AsRef<OsStr>) {
    std::env::remove_var(name);
    std::env::set_var(name, value);
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    check_lock(args)?;
    let (name, rest) = args.command.split_first().context("no program")?;
    let path = program::find(name)?;
    let ignored = program::ignores(&path);
    if let Some(why) = &ignored {
        say!("unspin: no effect on {}: {why}", path.display());
    }
    // A foreign dynamic linker would complain. Processes that others start may load the library.
    if !matches!(ignored, Some(program::Ignores::Foreign(_))) {
        let library = preload::library()?;
        let all = std::env::vars_os().filter(|(name, _)| name == "LD_PRELOAD");
        set("LD_PRELOAD", with(all.last().map(|(_, present)| present), &library));
    }
    if let Some(lock) = &args.lock {
        set("UNSPIN_LOCK", lock);
    }
    if args.mutex {
        set("UNSPIN_MUTEX", "1");
    }
    if let Some(ns) = args.tau_us {
        set("UNSPIN_TAU_NS", ns.to_string());
    }
    if args.verbose {
        set("UNSPIN_VERBOSE", "1");
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(rest);
    at_start::restore(&mut command);
    let error = command.exec();
    let why = program::why_not(&path, &error);
    Err(Cannot(format!("cannot start {}: {why}", path.display())).into())
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
