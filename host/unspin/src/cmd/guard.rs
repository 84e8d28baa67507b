// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin guard`: runs beside a command that changes settings of this host, and restores them if the
//! command is killed or hangs. The command starts it ([`crate::undo::Guard`]).

use crate::undo::{Undo, GOES_ON};
use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Read;
use std::path::PathBuf;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use unspin_host::journal::Error;

/// The kernel releases a killed command's journal within this time, unless the command never ends.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
const TRY_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    journal: PathBuf,
    #[arg(long)]
    proc: PathBuf,
    /// Kill the command after this time without a byte from it.
    #[arg(long)]
    silence_ms: u64,
    /// The command's process.
    #[arg(long)]
    of: u32,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    // Signals that end commands do not end the guard: the command ends it.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Default::default()).context("cannot take signals")?;
    }
    let words = words();
    let silence = Duration::from_millis(args.silence_ms);
    let end = loop {
        match words.recv_timeout(silence) {
            Ok(GOES_ON) => {}
            end => break end,
        }
    };
    // Reported at the end, because a write to a stopped terminal blocks.
    let why = match end {
        Ok(_) => return Ok(()),
        Err(RecvTimeoutError::Disconnected) => "ended before it restored its changes",
        Err(RecvTimeoutError::Timeout) => {
            kill_parent(args.of);
            "hung and was killed; its changes were restored"
        }
    };
    let start = Instant::now();
    loop {
        match Undo::open(&args.journal, &args.proc) {
            // The command is about to end, or another command is restoring.
            Err(e) if is_busy(&e) && start.elapsed() < ENDS_WITHIN => std::thread::sleep(TRY_EVERY),
            other => {
                say!("unspin: process {} {why}", args.of);
                return other.map(drop);
            }
        }
    }
}

fn is_busy(e: &anyhow::Error) -> bool {
    matches!(e.downcast_ref::<Error>(), Some(Error::Busy { .. }))
}

fn kill_parent(expected: u32) {
    // SAFETY: it has no arguments and cannot fail.
    let parent = unsafe { libc::getppid() };
    if u32::try_from(parent) == Ok(expected) {
        // SAFETY: the process is our parent, so its id is not reused.
        unsafe { libc::kill(parent, libc::SIGKILL) };
    }
}

/// Receives the command's bytes. The channel closes when the command has ended.
fn words() -> Receiver<u8> {
    let (tell, words) = channel();
    std::thread::spawn(move || {
        let said = std::io::stdin().lock().bytes().map_while(Result::ok);
        said.for_each(|word| {
            let _ = tell.send(word);
        });
    });
    words
}
