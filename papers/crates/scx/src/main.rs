// SPDX-License-Identifier: MIT OR Apache-2.0
//! Schedules vCPUs' threads by Credit as ASMan's Algorithm 4 has it, a scheduler of sched_ext
//! (bpf/credit.bpf.c), until its standard input ends. Prints `ready` when they are scheduled by it, and at the end the
//! scheduler's counts.

mod arguments;
mod config;
mod error;
mod scheduler;
mod shared;

use std::io::{Read, Write};
use std::process::exit;

use arguments::Arguments;
use error::Error;
use scheduler::Scheduler;

const USAGE: &str =
    "usage: unspin-scx none|con|vcrd CAPPED SLOT_US PCPUS SEED WEIGHT:NAMED:TID,TID… …
  none   plain Credit
  con    vCPUs of VMs with NAMED 1 run together
  vcrd   vCPUs run together while their guest says so
  CAPPED 1: no VM gets more than its weight's share; 0: it gets what others leave";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = run(&words) {
        eprintln!("unspin-scx: {error}");
        exit(match error {
            Error::Usage(_) => 2,
            _ => 1,
        });
    }
}

fn run(words: &[String]) -> Result<(), Error> {
    let asked = Arguments::parse(words)?;
    let scheduler = Scheduler::load(&config::config(&asked)?)?;
    say("ready")?;
    let ended = std::io::stdin().read_to_end(&mut Vec::new());
    ended.map_err(|source| Error::Io { what: "standard input".into(), source })?;
    let did = scheduler.check()?;
    let ran: Vec<String> =
        did.run_ns[..asked.vms.len()].iter().map(|ns| (ns / 1000).to_string()).collect();
    say(&format!(
        "{} decisions, {} switches, {} gangs, {} reports, {} locks lost, VMs ran {} us",
        did.picks,
        did.switches,
        did.gangs,
        did.reports,
        did.lost_locks,
        ran.join(" ")
    ))
}

fn say(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout();
    let said = writeln!(out, "{text}").and_then(|()| out.flush());
    said.map_err(|source| Error::Io { what: "standard output".into(), source })
}
