// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches vCPUs' threads for the program that measures them. Prints `ready` when its BPF programs
//! are loaded. Each line on standard input requests a measurement; the answer, a line of JSON,
//! follows after the measuring time. The program ends with its standard input.
//!
//! It is a separate program, so that the agent needs no libbpf.

mod request;

use request::Request;
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;
use unspin_probe::{Probe, Seen, Thread};
use unspin_scenario::result::{VcpuStates, Watched};
use unspin_vmm::process::sleep_until;
use unspin_vmm::Realtime;

const USAGE: &str =
    "usage: unspin-watch [--brief | --takers], and lines of BEGIN_NS END_NS PID:TID,TID… …
  BEGIN_NS, END_NS   the window, by CLOCK_MONOTONIC
  PID:TID,TID…       a VM: its process, and its vCPUs' threads
  --brief            by the programs that unspin shape loads
  --takers           by those that unspin top loads, which also count who takes CPUs";
/// The module's directory, if it is loaded.
const MODULE: &str = "/sys/module/unspin";

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Probe(#[from] unspin_probe::Error),
    #[error("{0}; {USAGE}")]
    Request(String),
    #[error("the thread {0} ended while it was watched")]
    Gone(u32),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

fn main() {
    if let Err(error) = run() {
        eprintln!("unspin-watch: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut probe = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Probe::load(Path::new(MODULE).exists())?,
        ["--brief"] => Probe::load_brief()?,
        ["--takers"] => Probe::load_with_takers(Path::new(MODULE).exists())?,
        _ => return Err(Error::Request(format!("no such argument: {}", arguments.join(" ")))),
    };
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        let request = Request::parse(&line?).map_err(Error::Request)?;
        let watched = watch(&mut probe, &request)?;
        say(&serde_json::to_string(&watched).map_err(std::io::Error::from)?)?;
    }
    Ok(())
}

fn watch(probe: &mut Probe, request: &Request) -> Result<Watched, Error> {
    probe.watch(&request.vms.iter().flatten().copied().collect())?;
    let (before, after) = {
        // The measuring thread must not wait behind vCPUs.
        let _realtime = Realtime::enter();
        sleep_until(request.begin_ns);
        let before = probe.read()?;
        sleep_until(request.end_ns);
        (before, probe.read()?)
    };
    let of_vm = |vm: &Vec<Thread>| vm.iter().map(|thread| of(*thread, &before, &after)).collect();
    Ok(Watched { vms: request.vms.iter().map(of_vm).collect::<Result<_, _>>()? })
}

/// The times of a thread between two readings.
fn of(
    thread: Thread,
    before: &BTreeMap<Thread, Seen>,
    after: &BTreeMap<Thread, Seen>,
) -> Result<VcpuStates, Error> {
    let (Some(before), Some(after)) = (before.get(&thread), after.get(&thread)) else {
        return Err(Error::Gone(thread.tid));
    };
    let Seen { times, exits, switches, wakes, .. } = after.since(before);
    Ok(VcpuStates { ns: times, exits, switches, wakes })
}

fn say(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}
