// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin agree`: makes measured runs again on machine `sim`, over several seeds, and says how far
//! the two agree: arms of a host that measures exits, or locks on machine `threads`. Markdown on
//! standard output.

mod bands;
mod count;
mod locks;
mod own;
mod row;

use crate::exit::Usage;
use crate::machine::sim;
use crate::out;
use anyhow::Context;
use count::{order, percent, Agreement, Job};
use row::{rows, Figures, Key, Pair, Row, AGREES};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use unspin_report::{read_files, Stream};
use unspin_scenario::plan::{CgroupLayout, Coscheduling, CoschedulingMechanism, Run, Window};
use unspin_scenario::result::{Begin, RunResult};
use unspin_sim::{simulate, Host, Kernel};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Result files of machines that measure (results.jsonl).
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Seeds to simulate each measured run with.
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    /// Instead of seeds: N worlds of the model's own costs for each measured arm, so that what is
    /// compared is bands.
    #[arg(long, value_name = "N", conflicts_with = "seeds", value_parser = clap::value_parser!(u32).range(10..=i64::from(unspin_worlds::SAMPLES_MAX)))]
    worlds: Option<u32>,
    /// Print the scores of all arms as JSON, one line.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let input = read_files(&args.files).map_err(|e| Usage(e.to_string()))?;
    for notice in &input.notices {
        say!("note: {notice}");
    }
    let mut pairs: BTreeMap<Key, Pair> = BTreeMap::new();
    let jobs = jobs(args, &input.streams, &mut pairs)?;
    if jobs.is_empty() {
        return Err(Usage(
            "no runs to make again: these are no results of `unspin bench`, or have none"
                .to_string(),
        )
        .into());
    }
    if args.worlds.is_some() {
        bands::say_time(&jobs)?;
    }
    for (key, world, figures) in simulate_all(&jobs)? {
        let pair = pairs.entry(key).or_default();
        pair.simulated.push(figures);
        pair.worlds.insert(world, figures.units_per_s);
    }
    let (locks, arms): (BTreeMap<_, _>, BTreeMap<_, _>) =
        pairs.into_iter().partition(|(key, _)| key.threads);
    if args.json {
        return out::json(&bands::scores(&arms, args.worlds));
    }
    let mut text = String::new();
    if !arms.is_empty() {
        let how = match args.worlds {
            Some(worlds) => format!("in {worlds} worlds"),
            None => format!("with {} seeds", args.seeds),
        };
        text += &page(&arms, &how);
        if args.worlds.is_some() {
            text += &bands::section(&arms);
        }
    }
    if !locks.is_empty() {
        text += if text.is_empty() { "" } else { "\n" };
        text += &locks::section(&locks, args.seeds);
    }
    out::print(&text)
}

/// What is to be simulated, and in `pairs` what was measured.
fn jobs(
    args: &Args,
    streams: &[Stream],
    pairs: &mut BTreeMap<Key, Pair>,
) -> anyhow::Result<Vec<Job>> {
    let mut jobs = Vec::new();
    let mut unseen = BTreeSet::new();
    for stream in streams {
        let host = host(&stream.begin)?;
        // Locks on threads are compared by seeds alone.
        let worlds = args.worlds.filter(|_| !is_threads(&stream.begin));
        let own = worlds.and_then(|worlds| own::Own::of(&stream.begin, worlds));
        for r in stream.runs.iter().filter(|r| !r.run.alone) {
            if let Some(why) = not_modelled(&r.run) {
                unseen.insert((r.run.arm.name.clone(), why));
                continue;
            }
            let key = key(&stream.begin, &r.run);
            let pair = pairs.entry(key.clone()).or_default();
            pair.is_baseline = r.run.arm.name == r.run.baseline;
            pair.measured.push(figures(r));
            if pair.measured.len() > 1 {
                continue;
            }
            pair.has_own_ranges = own.is_some();
            let run = as_simulated(&stream.begin, &r.run);
            jobs.extend(match (worlds, &own) {
                (_, Some(own)) => own.jobs(&key, &host, &run)?,
                (Some(worlds), None) => bands::jobs(&key, &host, &run, worlds),
                (None, None) => seeds(&key, &host, &run, args.seeds),
            });
        }
    }
    for (arm, why) in unseen {
        say!("note: arm {arm} is left out: {why}");
    }
    Ok(jobs)
}

/// A run with so many seeds, from its own on.
fn seeds(key: &Key, host: &Host, run: &Run, seeds: u32) -> Vec<Job> {
    let job = |world: u32| {
        let run = Run { seed: run.seed + u64::from(world), ..run.clone() };
        Job { key: key.clone(), world, host: host.clone(), run }
    };
    (0..seeds).map(job).collect()
}

/// `6.12` of `6.12.57+deb13-amd64`.
fn series(begin: &Begin) -> String {
    let release = begin.kernel.split(|c: char| c != '.' && !c.is_ascii_digit()).next();
    release.unwrap_or_default().split('.').take(2).collect::<Vec<_>>().join(".")
}

fn is_threads(begin: &Begin) -> bool {
    begin.machine == "threads"
}

/// Why the simulator does not model its turns, if it does not.
fn not_modelled(run: &Run) -> Option<&'static str> {
    match run.arm.coscheduling_mechanism {
        CoschedulingMechanism::Park => (),
        CoschedulingMechanism::Fifo => return Some("the simulator has no real-time class"),
        CoschedulingMechanism::SchedExt => return Some("the simulator has no sched_ext"),
    }
    let by_user = matches!(run.arm.coscheduling, Coscheduling::VcrdUser | Coscheduling::VcrdBoth);
    by_user.then_some("the simulator's guests do not spin in user space")
}

/// Threads have no hypervisor that could see them spin.
fn as_simulated(begin: &Begin, run: &Run) -> Run {
    let mut run = run.clone();
    if is_threads(begin) {
        run.arm.window = Window::Off;
    }
    run
}

fn host(begin: &Begin) -> anyhow::Result<Host> {
    if is_threads(begin) {
        let khz = begin.tsc_khz.context("the records do not say the rate of their TSC")?;
        // The newest scheduler that is modelled; their KVMs make no difference here.
        return Ok(Host::threads(begin.pcpus, khz, Kernel::V6_19));
    }
    let model = match begin.machine.as_str() {
        "emulated" => Host::lab,
        "kvm" => Host::server,
        other => {
            let files = "allowed: results of machines emulated, kvm and threads";
            return Err(Usage(format!("machine {other} measures nothing; {files}")).into());
        }
    };
    let kernel = sim::kernel(&series(begin))?;
    let slice = ["base_slice_ns", "min_granularity_ns"];
    let slice = slice.iter().find_map(|name| begin.settings.get(*name)?.parse().ok());
    let host = model(begin.pcpus, kernel);
    let khz = begin.tsc_khz.unwrap_or(host.khz);
    Ok(Host { slice_ns: slice, khz, ..host })
}

fn key(begin: &Begin, run: &Run) -> Key {
    Key {
        scenario: begin.scenario.clone(),
        threads: is_threads(begin),
        kernel: series(begin),
        cgroup: run.cgroup as u8,
        profile: run.profile.clone(),
        vms: run.vms,
        vcpus: run.vcpus,
        lock: run.lock_group.clone(),
        arm: run.arm.name.clone(),
    }
}

fn figures(r: &RunResult) -> Figures {
    let units: u64 = r.vm.iter().flat_map(|v| &v.units).sum();
    let modules: Option<Vec<_>> = r.vm.iter().map(|v| v.module.as_ref()).collect();
    let inefficiency = modules.map(|all| {
        let sum = |f: fn(&unspin_scenario::result::ModuleStats) -> u64| -> u64 {
            all.iter().map(|m| f(m)).sum()
        };
        let wasted = sum(|m| m.wasteful_spin_cycles) + sum(|m| m.wasteful_switch_cycles);
        wasted as f64 / sum(|m| m.cpu_cycles).max(1) as f64
    });
    Figures { units_per_s: units as f64 * 1e9 / r.window_ns as f64, inefficiency }
}

fn simulate_all(jobs: &[Job]) -> anyhow::Result<Vec<(Key, u32, Figures)>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let made: Vec<anyhow::Result<Vec<_>>> = std::thread::scope(|s| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                s.spawn(|| {
                    let mut made = Vec::new();
                    while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let what = || format!("{} on kernel {}", job.run.profile, job.key.kernel);
                        let simulated = simulate(&job.host, &job.run).with_context(what)?;
                        made.push((job.key.clone(), job.world, figures(&simulated.result)));
                    }
                    Ok(made)
                })
            })
            .collect();
        let joined = workers.into_iter().map(|w| w.join());
        joined.map(|r| r.unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    });
    Ok(made.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat())
}

fn page(pairs: &BTreeMap<Key, Pair>, how: &str) -> String {
    let rows = rows(pairs);
    let mut scenarios: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        scenarios.entry(&row.key.scenario).or_default().push(row);
    }
    let mut text = format!(
        "# The simulator against measured runs\n\n\
         For whoever wants to know how near machine `sim` comes to a machine that measures. \
         `unspin agree` makes this page: every measured arm simulated {how}, medians \
         compared. Performance is throughput against the baseline of the same machine; inefficiency \
         is the share of CPU time that is wasted. The two machines agree where they lie within \
         {:.0} points.\n\n",
        100.0 * AGREES
    );
    text += &summary(&rows);
    text += "\n| scenario | kernel | performance agrees | inefficiency agrees | both |\n\
             |---|---|---|---|---|\n";
    for (scenario, rows) in &scenarios {
        let kernels: BTreeSet<&str> = rows.iter().map(|r| r.key.kernel.as_str()).collect();
        for kernel in kernels {
            let of: Vec<&Row> = rows.iter().copied().filter(|r| r.key.kernel == kernel).collect();
            let a = Agreement::of(&of);
            let _ = writeln!(
                text,
                "| [{scenario}](#{scenario}) | {kernel} | {} | {} | {} |",
                counted(a.performance, a.arms),
                counted(a.inefficiency, a.rows),
                counted(a.both, a.arms)
            );
        }
    }
    for (scenario, rows) in &scenarios {
        let _ = write!(
            text,
            "\n## {scenario}\n\n\
             | kernel | profile | VMs | cgroups | arm | performance measured | simulated | inefficiency measured | simulated | |\n\
             |---|---|---|---|---|---|---|---|---|---|\n"
        );
        rows.iter().for_each(|row| line(&mut text, row));
    }
    text
}

fn counted(n: usize, of: usize) -> String {
    format!("{n} of {of} ({:.0} %)", percent(n, of))
}

fn summary(rows: &[Row]) -> String {
    let a = Agreement::of(&rows.iter().collect::<Vec<_>>());
    let (told, alike) = order(rows);
    let line = |what: &str, n, of| format!("| {what} | {n} | {of} | {:.0} % |\n", percent(n, of));
    [
        "| | agree | of | |\n|---|---|---|---|\n".to_string(),
        line("performance of the arms but the baseline", a.performance, a.arms),
        line("inefficiency of all arms", a.inefficiency, a.rows),
        line("both", a.both, a.arms),
        line("order of two arms that both machines tell apart by 5 points", alike, told),
    ]
    .concat()
}

fn line(text: &mut String, r: &Row) {
    let k = r.key;
    let layouts = [CgroupLayout::Flat, CgroupLayout::Vm, CgroupLayout::Vcpu, CgroupLayout::Libvirt];
    let cgroup = layouts.iter().find(|c| **c as u8 == k.cgroup);
    let cgroup = cgroup.map_or(String::new(), |c| format!("{c:?}").to_lowercase());
    let (a, b) = match r.inefficiency {
        Some((a, b)) => (format!("{:.1} %", 100.0 * a), format!("{:.1} %", 100.0 * b)),
        None => ("-".to_string(), "-".to_string()),
    };
    let mark = match (r.performance_agrees(), r.inefficiency_agrees()) {
        (true, true) => "",
        (false, true) => "performance differs",
        (true, false) => "inefficiency differs",
        (false, false) => "both differ",
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "| {} | `{}` | {} | {cgroup} | {} | {:.2} | {:.2} | {a} | {b} | {mark} |",
        k.kernel, k.profile, k.vms, k.arm, r.performance.0, r.performance.1
    );
}

#[cfg(test)]
mod tests {
    use super::row::tests::{key, pair};
    use super::*;

    #[test]
    fn arms_are_compared_to_their_own_machines_baseline() {
        let pairs = BTreeMap::from([
            (key("stock"), pair(100.0, 50.0, true)),
            (key("hvs"), pair(120.0, 62.0, false)),
            (key("off"), pair(10.0, 40.0, false)),
        ]);
        let rows = rows(&pairs);
        let of = |arm: &str| rows.iter().find(|r| r.key.arm == arm).unwrap();
        assert_eq!(of("hvs").performance, (1.2, 1.24));
        assert!(of("hvs").performance_agrees() && !of("off").performance_agrees());
        assert_eq!(order(&rows), (3, 3));
        let text = page(&pairs, "with 1 seeds");
        let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}:\n{text}"));
        let whole = at("| performance of the arms but the baseline | 1 | 2 | 50 % |");
        let part = at("| [s-1](#s-1) | 6.12 | 1 of 2 (50 %) | 3 of 3 (100 %) | 1 of 2 (50 %) |");
        let row = at("| 6.12 | `ebizzy` | 2 | flat | hvs | 1.20 | 1.24 | 10.0 % | 10.0 % |  |");
        assert!(whole < part && part < at("\n## s-1\n") && at("\n## s-1\n") < row, "{text}");
        at("| off | 0.10 | 0.80 | 10.0 % | 10.0 % | performance differs |");
    }
}
