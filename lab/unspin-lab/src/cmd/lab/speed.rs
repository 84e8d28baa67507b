// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much CPU time of this computer one virtual second of an emulated computer takes.

use crate::machine::lab::explain;
use crate::out;
use anyhow::{bail, Context};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use unspin_computers::{Computer, Emulator, Go, Kernel, Lab};
use unspin_scenario::plan::Plan;
use unspin_scenario::result::Record;
use unspin_scenario::{expand, parse_profile, parse_scenario, Selection, Workloads};
use unspin_text::counted;

/// CPUs of the computers, all of which are busy. The last is the largest number that an emulator
/// has.
const CPUS: [u32; 3] = [4, 8, 16];
/// Measuring times of two boots that are otherwise the same, in ms.
const WINDOWS_MS: [u32; 2] = [100, 1100];
const PROFILE: &str = include_str!("../../../../../profiles/compute.toml");

/// One emulator, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Speed {
    emulator: &'static str,
    /// Its exact build.
    build: String,
    /// CPU seconds per virtual second, by the number of CPUs.
    cpu_s_per_virtual_s: BTreeMap<u32, f64>,
}

/// Boots each computer of the requested emulator, or of all emulators, twice, and prints the cost
/// of the virtual second by which the two boots differ.
pub fn run(
    lab: &Lab,
    kernel: &Kernel,
    asked: Option<Emulator>,
    json: bool,
    go: &mut Go,
) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for emulator in Emulator::TIMED.into_iter().filter(|e| asked.is_none_or(|asked| asked == *e)) {
        let build = lab.program(emulator, go);
        let build = build.map_err(explain)?.name();
        let (emulator, cpu_s_per_virtual_s) =
            (emulator.name(), speeds(lab, kernel, emulator, go.stop)?);
        all.push(Speed { emulator, build, cpu_s_per_virtual_s });
    }
    match json {
        true => out::print(&format!("{}\n", serde_json::to_string(&all)?)),
        false => out::print(&all.iter().map(table).collect::<String>()),
    }
}

/// CPU seconds per virtual second, by the number of CPUs.
fn speeds(
    lab: &Lab,
    kernel: &Kernel,
    emulator: Emulator,
    stop: &AtomicBool,
) -> anyhow::Result<BTreeMap<u32, f64>> {
    let mut of = BTreeMap::new();
    for cpus in CPUS.into_iter().filter(|&cpus| cpus <= emulator.cpus_max()) {
        say!("{}: a computer of {}, two boots", emulator.name(), counted(cpus, "CPU"));
        let computer = Computer::of(emulator, cpus);
        let [short, long] = WINDOWS_MS.map(|ms| boot(lab, kernel, &computer, ms, stop));
        let virtual_s = f64::from(WINDOWS_MS[1] - WINDOWS_MS[0]) / 1000.0;
        of.insert(cpus, round((long? - short?) / virtual_s));
    }
    Ok(of)
}

fn table(speed: &Speed) -> String {
    let mut text = format!("{}\n", speed.build);
    for (cpus, s) in &speed.cpu_s_per_virtual_s {
        text += &format!("{}: {s} CPU seconds per virtual second\n", counted(*cpus, "busy CPU"));
    }
    text
}

fn round(s: f64) -> f64 {
    (s * 100.0).round() / 100.0
}

/// CPU seconds of one boot in which a VM computes on each CPU for this time.
fn boot(
    lab: &Lab,
    kernel: &Kernel,
    computer: &Computer,
    window_ms: u32,
    stop: &AtomicBool,
) -> anyhow::Result<f64> {
    let cpus = computer.cpus;
    let before = children_s()?;
    let mut error = None;
    let work = plan(cpus, window_ms).into();
    lab.boot_plan(kernel, computer, &work, &format!("speed-{cpus}"), stop, &mut |record| {
        if let Record::Failed { error: why, .. } = record {
            error = Some(why);
        }
    })
    .map_err(explain)?;
    match error {
        Some(why) => bail!("the computing VM failed: {why}"),
        None => Ok(children_s()? - before),
    }
}

fn plan(cpus: u32, window_ms: u32) -> Plan {
    let text = format!(
        "title = \"Speed\"\nseed = 1\nrepeats = 1\nepoch_ple_exits = 50\nepoch_min_us = 3000\n\
         [host]\npcpus = {cpus}\n[[vm]]\nvcpus = {cpus}\n[sweep]\nprofiles = [\"compute\"]\n\
         vms = [1]\n[measure]\nwarmup_ms = 20\nwindow_ms = {window_ms}\nalone = false\n\
         [[arm]]\nname = \"stock\"\nobserve = true\nbaseline = true\n"
    );
    let file = "speed.toml";
    let profile = parse_profile(file, "compute", PROFILE).expect("a profile of this tree");
    let scenario = parse_scenario(file, "speed", &text).expect("a scenario of this file");
    let profiles = BTreeMap::from([("compute".to_string(), (profile, PROFILE.to_string()))]);
    expand(&scenario, &text, &Workloads::from(profiles), &Selection::default())
        .expect("one run of one arm")
}

/// CPU time of ended child processes.
fn children_s() -> anyhow::Result<f64> {
    // SAFETY: plain data that the call fills.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a structure of the right type, for the length of the call.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) } != 0;
    if failed {
        return Err(std::io::Error::last_os_error()).context("getrusage");
    }
    let s = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(s(usage.ru_utime) + s(usage.ru_stime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_plans_are_one_run_on_all_cpus() {
        for cpus in CPUS {
            let plan = plan(cpus, 100);
            assert_eq!((plan.runs.len(), plan.host.pcpus), (1, cpus));
            let run = &plan.runs[0];
            assert_eq!((run.vms.len(), run.vms[0].vcpus, run.window_ms), (1, cpus, 100));
        }
    }

    #[test]
    fn it_is_a_list_of_emulators() {
        let of = BTreeMap::from([(4, round(9.7249)), (8, 19.0)]);
        let speed = Speed { emulator: "bochs", build: "Bochs 3.0".into(), cpu_s_per_virtual_s: of };
        assert_eq!(
            table(&speed).lines().nth(1).unwrap(),
            "4 busy CPUs: 9.72 CPU seconds per virtual second"
        );
        let json = serde_json::to_value([speed]).unwrap();
        assert_eq!(json[0]["cpu_s_per_virtual_s"]["4"], 9.72);
        assert_eq!(json[0]["emulator"], "bochs");
    }

    #[test]
    fn every_emulator_has_so_many_cpus() {
        for emulator in Emulator::TIMED {
            assert!(CPUS.contains(&emulator.cpus_max()), "{}", emulator.name());
        }
    }
}
