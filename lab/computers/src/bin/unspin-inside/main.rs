// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that the tests put into an emulated computer: the agent's commands, VMs for scripts,
//! copies of the kernel's code to compare, and a guest whose spins are exact.

mod btf;
mod clock;
mod exact;
mod ext;
mod fail;
mod machine;
mod many;
mod nested;
mod online;
mod places;
mod rival;
mod spinner;
mod starve;
mod text;
mod unserved;
mod vms;
mod watched;
mod windows;

use std::process::exit;
use std::str::FromStr;
use unspin_replay::schedule::{self, Tally};
use unspin_uapi::report;
use vms::End;

const USAGE: &str = "usage: unspin-inside COMMAND
  agent PLAN.json [--out …]        as unspin-agent
  say TEXT… | say --end DONE FAILED
  online                           brings up every CPU that is not
  vm VCPUS (--ms N | --until FILE [-name NAME])
                                   one VM with a contended lock; says what it did
  vm-in-user-space VCPUS --until FILE
                                   the same in guest user space
  vm-that-reports VCPUS CPL --until FILE
                                   the same, and it reports each wait that is not short
  vm-that-starts VCPUS --until FILE
                                   the same as vm, and it starts threads that sleep all the time
  vm-that-arrives VCPUS BEGIN --until FILE
                                   the same as vm, and its vCPUs wait until the file BEGIN exists
  vm-with-vhost VCPUS BEGIN --until FILE
                                   the same as vm-that-arrives, and a thread on CPU 0 gives a worker of vhost work
                                   all the time
  vm-that-forks VCPUS BEGIN --until FILE
                                   the same as vm, and it starts a process, and one of that process,
                                   whenever the file BEGIN is there, which it removes
  meet VCPUS ITERATIONS --until FILE
                                   one VM whose vCPUs compute so many iterations, and halt until all have
  ext COMMAND                      becomes a shell with SCHED_EXT that runs COMMAND
  churn VMS VCPUS                  so many VMs, one after the other
  many VMS FIRST SECOND            makes so many VMs with a vCPU each, which never run, and a shell runs
                                   FIRST; makes one more, twice, a shell runs SECOND between: how long the
                                   two took, us
  refused TIMES                    KVM refuses so many vCPUs of 2 VMs, then one of a third, and the second VM
                                   gets one that runs; says what CPU time is counted for the third
  text save FILE                   check values of all functions of kernel and KVM
  text diff FILE FILE              names of the functions that differ
  fail load FILE OPTIONS REFUSED   loads a module with each of its own allocations failing in turn;
                                   with options REFUSED it refuses to load before any of them
  fail write FILE VALUE            the same with writing to a file, which gets back what it held
  fail vm                          the same with making a VM and its vCPU
  ple SPINS PAUSES DISTANCE CPL    spins of exactly that length; says how many ended in an exit
  hypercalls TIMES NUMBER FIRST SECOND CPL
                                   so many hypercalls (NUMBER: report, or any); says how many were
                                   taken and ignored, and whether the VM was HIGH soon and 2 s after
  windows COMMAND                  windows of a vCPU that runs and of one that sleeps, before and after
                                   a shell's COMMAND, told by their exits (KVM with ple_window_grow=0)
  nested ON OFF                    a nested guest loses its CPU, a shell's ON runs, then its hypervisor;
                                   the same with OFF
  starve HOW HOG_MS                a real-time thread takes a vCPU's CPU (HOW: preempted, woken, slept)
                                   while its siblings yield to each other; says when KVM got the VM
  beside COMMAND                   a VM whose vCPU has run and does not while a shell runs COMMAND
  unserved MS PROCESS…             vCPUs of VMs that always run: how many, the longest time that one had
                                   no CPU time, the longest between two looks, and how much of the first
                                   it waited for a CPU and did not sleep, ms
  places PROCESS LOOKS             where a VM's vCPUs are, at so many looks: how often all of them wanted to
                                   run, had a core each, and these in one cache
  class real-time|normal|batch THREAD
                                   gives a thread SCHED_FIFO, SCHED_OTHER or SCHED_BATCH
  replay FILE                      repeats the decisions of a trace of unspin schedule; says how many were alike
  btf BASE FILE STRUCT             makes a structure longer in a module's type information
  hand-over THREADS                a vCPU that one thread after the other runs
  exit-cycles ROUNDS               hundredths of TSC cycles that an exit and its re-entry take
  rival INTERRUPTS                 a vCPU computes (INTERRUPTS: on, off, turned-off) and a thread on its
                                   CPU too: exits for host interrupts, the thread's longest wait in us
  switches MS [SLEEP_US]           one vCPU computes, another, if there is to be one, sleeps and wakes
                                   up: units of the first, TSC cycles, exits and context switches
  clock MS [BESIDE_US]             one vCPU reads its clock, beside a thread that sleeps and computes for
                                   BESIDE_US each: for how long it was in the guest, us
With UNSPIN_WATCH=PIPE the last two and exit-cycles have unspin-watch, which reads the pipe, watch them.";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = unspin_agent::command_main(&args) {
        exit(code);
    }
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(text) => println!("{text}"),
        Err(error) => {
            println!("{error}");
            exit(1);
        }
    }
}

fn run(words: &[&str]) -> Result<String, String> {
    match words {
        [kind, ..] if kind.starts_with("vm") => vm(words),
        ["meet", vcpus, iterations, "--until", file] => {
            vms::meet(number(vcpus)?, number(iterations)?, &End::File(file.into()))
        }
        ["ext", line] => ext::shell(line),
        ["churn", count, vcpus] => vms::churn(number(count)?, number(vcpus)?),
        ["many", count, first, second] => many::hold(number(count)?, first, second),
        ["refused", times] => many::refused(number(times)?),
        ["online"] => online::all(),
        ["text", "save", file] => text::save(file),
        ["text", "diff", a, b] => text::diff(a, b),
        ["fail", "load", file, options, refused] => fail::load(file, options, refused),
        ["fail", "vm"] => fail::vm(),
        ["fail", "write", file, value] => fail::write(file, value),
        ["windows", line] => windows::around(line),
        ["starve", how, hog_ms] => starve::run(starve::How::parse(how)?, number(hog_ms)?),
        ["hand-over", threads] => starve::hand_over(number(threads)?),
        ["unserved", ms, pids @ ..] => unserved::longest(number(ms)?, pids),
        ["places", pid, looks] => places::seen(pid, number(looks)?),
        ["class", class @ ("real-time" | "normal"), thread] => {
            machine::set_class(number(thread)?, *class == "real-time").map(|()| String::new())
        }
        ["class", "batch", thread] => ext::be_batch(number(thread)?),
        ["replay", file] => replay(file),
        ["beside", line] => starve::beside(line),
        ["btf", base, file, name] => btf::lengthen(base, file, name),
        ["nested", on, off] => nested::around(on, off),
        ["exit-cycles", rounds] => exact::exit_cycles(number(rounds)?).map(|n| n.to_string()),
        ["rival", interrupts] => rival::beside(interrupts),
        ["switches", ms] => vms::switches(number(ms)?, None),
        ["switches", ms, sleep_us] => vms::switches(number(ms)?, Some(number(sleep_us)?)),
        ["clock", ms] => clock::run(number(ms)?, None),
        ["clock", ms, beside_us] => clock::run(number(ms)?, Some(number(beside_us)?)),
        ["ple", spins, pauses, distance, cpl] => exact::run(&exact::Spin {
            spins: number(spins)?,
            pauses: number(pauses)?,
            distance: number(distance)?,
            cpl: number(cpl)?,
        }),
        ["hypercalls", times, called, first, second, cpl] => exact::calls(&exact::Call {
            times: number(times)?,
            number: if *called == "report" { report::HYPERCALL } else { number(called)? },
            arguments: [number(first)?, number(second)?],
            cpl: number(cpl)?,
        }),
        _ => usage(),
    }
}

fn usage() -> ! {
    eprintln!("{USAGE}");
    exit(2);
}

fn vm(words: &[&str]) -> Result<String, String> {
    match words {
        ["vm", vcpus, "--ms", ms] => vms::run(number(vcpus)?, 0, &End::After(number(ms)?)),
        // A name, to be found on the command line.
        ["vm", vcpus, "--until", file] | ["vm", vcpus, "--until", file, "-name", _] => {
            vms::run(number(vcpus)?, 0, &End::File(file.into()))
        }
        ["vm-that-starts", vcpus, "--until", file] => {
            ext::start_threads();
            vms::run(number(vcpus)?, 0, &End::File(file.into()))
        }
        [kind @ ("vm-that-arrives" | "vm-with-vhost"), vcpus, begin, "--until", file] => {
            if *kind == "vm-with-vhost" {
                ext::start_vhost()?;
            }
            let (begin, end) = (End::File(begin.into()), End::File(file.into()));
            vms::run_later(number(vcpus)?, &begin, &end)
        }
        ["vm-that-forks", vcpus, begin, "--until", file] => {
            ext::start_processes(begin);
            vms::run(number(vcpus)?, 0, &End::File(file.into()))
        }
        ["vm-in-user-space", vcpus, "--until", file] => {
            vms::run(number(vcpus)?, 3, &End::File(file.into()))
        }
        ["vm-that-reports", vcpus, cpl, "--until", file] => {
            vms::run_reporting(number(vcpus)?, number(cpl)?, &End::File(file.into()))
        }
        _ => usage(),
    }
}

/// Fails if a decision differs, or if the trace is incomplete.
fn replay(file: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let mut tally = Tally::default();
    schedule::replay(&text, &mut tally).map_err(|e| format!("{file}: {e:#}"))?;
    match &tally.first {
        Some(first) => Err(format!("{first}; {tally}")),
        None if tally.lost + tally.broken_off > 0 => Err(tally.to_string()),
        None => Ok(tally.to_string()),
    }
}

fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}
