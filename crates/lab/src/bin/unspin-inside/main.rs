// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one program the tests put into an emulated computer: what the agent does, VMs for a script
//! to keep busy, copies of the kernel's code to compare, and a guest whose spins are exact.

mod exact;
mod fail;
mod online;
mod text;
mod vms;

use std::process::exit;

const USAGE: &str = "usage: unspin-inside COMMAND
  agent PLAN.json [--out …]        as unspin-agent
  say TEXT… | say --end DONE FAILED
  online                           brings up every CPU that is not
  vm VCPUS (--ms N | --until FILE [-name NAME])
                                   one VM with a contended lock; says what it did
  churn VMS VCPUS                  so many VMs, one after the other
  text save FILE                   check values of all functions of kernel and KVM
  text diff FILE FILE              names of the functions that differ
  fail load FILE OPTIONS REFUSED   loads a module with each of its own allocations failing in turn;
                                   with options REFUSED it refuses to load before any of them
  fail write FILE VALUE            the same with writing to a file, which gets back what it held
  fail vm                          the same with making a VM and its vCPU
  ple SPINS PAUSES DISTANCE CPL    spins of exactly that length; says how many ended in an exit
  exit-cycles ROUNDS               hundredths of TSC cycles that an exit and its re-entry take
  switches MS [SLEEP_US]           one vCPU computes, another, if there is to be one, sleeps and wakes
                                   up: units of the first, TSC cycles, exits and context switches";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [command, ..] if *command == unspin_agent::AGENT_COMMAND => {
            exit(unspin_agent::agent_main(&args[1..]))
        }
        [command, ..] if *command == unspin_agent::SAY_COMMAND => {
            exit(unspin_agent::say_main(&args[1..]))
        }
        [command, ..] if *command == unspin_vmm::VM_PROCESS_COMMAND => {
            exit(unspin_vmm::vm_process_main(&args[1..]))
        }
        ["vm", vcpus, "--ms", ms] => {
            number(ms).and_then(|ms| vms::run(number(vcpus)?, &vms::End::After(ms.into())))
        }
        // A name is for who looks at the command line.
        ["vm", vcpus, "--until", file] | ["vm", vcpus, "--until", file, "-name", _] => {
            number(vcpus).and_then(|vcpus| vms::run(vcpus, &vms::End::File(file.into())))
        }
        ["churn", count, vcpus] => {
            number(count).and_then(|count| vms::churn(count, number(vcpus)?))
        }
        ["online"] => online::all(),
        ["text", "save", file] => text::save(file),
        ["text", "diff", a, b] => text::diff(a, b),
        ["fail", "load", file, options, refused] => fail::load(file, options, refused),
        ["fail", "vm"] => fail::vm(),
        ["fail", "write", file, value] => fail::write(file, value),
        ["exit-cycles", rounds] => {
            number(rounds).and_then(|n| exact::exit_cycles(n).map(|cycles| cycles.to_string()))
        }
        ["switches", ms] => number(ms).and_then(|ms| vms::switches(ms.into(), None)),
        ["switches", ms, sleep_us] => number(sleep_us).and_then(|sleep_us| {
            number(ms).and_then(|ms| vms::switches(ms.into(), Some(sleep_us)))
        }),
        ["ple", spins, pauses, distance, cpl] => ple_spin(spins, pauses, distance, cpl),
        _ => {
            eprintln!("{USAGE}");
            exit(2);
        }
    };
    match done {
        Ok(text) => println!("{text}"),
        Err(error) => {
            println!("{error}");
            exit(1);
        }
    }
}

fn ple_spin(spins: &str, pauses: &str, distance: &str, cpl: &str) -> Result<String, String> {
    exact::run(&exact::Spin {
        spins: number(spins)?,
        pauses: number(pauses)?,
        distance: number(distance)?,
        cpl: number(cpl)? as u8,
    })
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}
