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
use unspin_uapi::report;

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
                                   no CPU time, and the longest between two looks, ms
  places PROCESS LOOKS             where a VM's vCPUs are, at so many looks: how often all of them wanted to
                                   run, had a core each, and these in one cache
  class real-time|normal THREAD    gives a thread SCHED_FIFO or SCHED_OTHER
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

/// A VM that runs until a file is there.
fn until(vcpus: &str, ring: vms::Ring, file: &str) -> Result<String, String> {
    vms::run(number(vcpus)?, ring, &vms::End::File(file.into()))
}

fn meet(vcpus: &str, iterations: &str, file: &str) -> Result<String, String> {
    vms::meet(number(vcpus)?, number(iterations)?, &vms::End::File(file.into()))
}

fn set_class(class: &str, thread: &str) -> Result<String, String> {
    machine::set_class(number(thread)?, class == "real-time").map(|()| String::new())
}

fn switches(ms: &str, sleep_us: Option<&str>) -> Result<String, String> {
    let sleep_us = sleep_us.map(number).transpose()?;
    vms::switches(number(ms)?.into(), sleep_us)
}

fn vm_for(vcpus: &str, ms: &str) -> Result<String, String> {
    let end = vms::End::After(number(ms)?.into());
    vms::run(number(vcpus)?, vms::Ring::Kernel, &end)
}

fn clock(ms: &str, beside_us: Option<&str>) -> Result<String, String> {
    let beside_us = beside_us.map(number).transpose()?;
    clock::run(number(ms)?.into(), beside_us.map(u64::from))
}

/// The exit code of the agent's own commands; `None` for others.
fn agent(args: &[String]) -> Option<i32> {
    let (command, rest) = args.split_first()?;
    match command.as_str() {
        unspin_agent::AGENT_COMMAND => Some(unspin_agent::agent_main(rest)),
        unspin_agent::SAY_COMMAND => Some(unspin_agent::say_main(rest)),
        unspin_vmm::VM_PROCESS_COMMAND => Some(unspin_vmm::vm_process_main(rest)),
        _ => None,
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = agent(&args) {
        exit(code);
    }
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["vm", vcpus, "--ms", ms] => vm_for(vcpus, ms),
        // A name, to be found on the command line.
        ["vm", vcpus, "--until", file] | ["vm", vcpus, "--until", file, "-name", _] => {
            until(vcpus, vms::Ring::Kernel, file)
        }
        ["vm-that-starts", vcpus, "--until", file] => {
            ext::start_threads();
            until(vcpus, vms::Ring::Kernel, file)
        }
        ["meet", vcpus, iterations, "--until", file] => meet(vcpus, iterations, file),
        ["ext", line] => ext::shell(line),
        ["vm-in-user-space", vcpus, "--until", file] => until(vcpus, vms::Ring::User, file),
        ["vm-that-reports", vcpus, cpl, "--until", file] => {
            let end = vms::End::File(file.into());
            number(vcpus).and_then(|vcpus| vms::run_reporting(vcpus, vms::Ring::of(cpl), &end))
        }
        ["churn", count, vcpus] => {
            number(count).and_then(|count| vms::churn(count, number(vcpus)?))
        }
        ["many", count, first, second] => {
            number(count).and_then(|count| many::hold(count, first, second))
        }
        ["refused", times] => number(times).and_then(many::refused),
        ["online"] => online::all(),
        ["text", "save", file] => text::save(file),
        ["text", "diff", a, b] => text::diff(a, b),
        ["fail", "load", file, options, refused] => fail::load(file, options, refused),
        ["fail", "vm"] => fail::vm(),
        ["fail", "write", file, value] => fail::write(file, value),
        ["windows", line] => windows::around(line),
        ["starve", how, hog_ms] => {
            number(hog_ms).and_then(|ms| starve::run(starve::How::parse(how)?, ms.into()))
        }
        ["hand-over", threads] => number(threads).and_then(starve::hand_over),
        ["unserved", ms, pids @ ..] => number(ms).and_then(|ms| unserved::longest(ms.into(), pids)),
        ["places", pid, looks] => number(looks).and_then(|looks| places::seen(pid, looks)),
        ["class", class @ ("real-time" | "normal"), thread] => set_class(class, thread),
        ["beside", line] => starve::beside(line),
        ["btf", base, file, name] => btf::lengthen(base, file, name),
        ["nested", on, off] => nested::around(on, off),
        ["exit-cycles", rounds] => {
            number(rounds).and_then(|n| exact::exit_cycles(n).map(|cycles| cycles.to_string()))
        }
        ["rival", interrupts] => rival::Interrupts::parse(interrupts).and_then(rival::beside),
        ["switches", ms] => switches(ms, None),
        ["switches", ms, sleep_us] => switches(ms, Some(sleep_us)),
        ["clock", ms] => clock(ms, None),
        ["clock", ms, beside_us] => clock(ms, Some(beside_us)),
        ["ple", spins, pauses, distance, cpl] => ple_spin(spins, pauses, distance, cpl),
        ["hypercalls", times, called, first, second, cpl] => {
            hypercalls(times, called, first, second, cpl)
        }
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

fn hypercalls(
    times: &str,
    called: &str,
    first: &str,
    second: &str,
    cpl: &str,
) -> Result<String, String> {
    exact::calls(&exact::Call {
        times: number(times)?,
        number: if called == "report" { report::HYPERCALL } else { number(called)? },
        arguments: [number(first)?, number(second)?],
        cpl: number(cpl)? as u8,
    })
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}
