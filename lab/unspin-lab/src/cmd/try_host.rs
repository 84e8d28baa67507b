// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab try`: whether unspin suits this host, and what it gains. The host is unchanged
//! afterwards.

mod judge;
mod rollback;

use crate::exit::Cannot;
use crate::host;
use crate::machine::emulator::Timed;
use crate::machine::kvm::Kvm;
use crate::machine::Wish;
use crate::out;
use crate::signals;
use crate::sysfs::{root, Module};
use anyhow::{bail, Context};
use judge::{Check, Gain};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;
use unspin_report::{documents, read_files, write_dir, Document};
use unspin_text::fit::{terminal_width, wrap_lines};
use unspin_text::write_atomic;
use unspin_vmm::ends_with_this_thread;

/// CPUs of the host on which the VMs run.
const CPUS: u32 = 4;
const SCHEMA: u32 = 1;

/// A scenario of the repository with the values used here: the measuring time, the number of
/// repeats, and the arms besides the baseline (empty: all).
struct Part {
    name: &'static str,
    text: &'static str,
    window_ms: u32,
    repeats: u32,
    arms: &'static [&'static str],
}

macro_rules! part {
    ($name:literal, $window_ms:literal, $repeats:literal, $arms:expr) => {
        Part {
            name: $name,
            text: include_str!(concat!("../../../../scenarios/", $name, ".toml")),
            window_ms: $window_ms,
            repeats: $repeats,
            arms: &$arms,
        }
    };
}

/// The scenarios, in the order of their runs. The 99.9th percentile of answers needs 10,000
/// answers: 27 s.
const PARTS: [Part; 5] = [
    part!("try", 1000, 3, []),
    part!("try-user", 1000, 3, []),
    part!("gangs-victim", 9000, 3, ["gangs", "gangs-always"]),
    part!("gangs-escape", 2000, 1, []),
    part!("gangs-quota", 2000, 1, []),
];

macro_rules! profiles {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../../profiles/", $name, ".toml")))),*]
    };
}

const PROFILES: [(&str, &str); 6] =
    profiles!["ebizzy", "hackbench", "compute", "lock-bound", "interactive", "exits"];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory for the results: report.html for people, try.json to send back.
    #[arg(long, value_name = "DIR", default_value = "out/try")]
    out: PathBuf,
    /// Print try.json instead of the summary.
    #[arg(long)]
    json: bool,
    /// Print no progress.
    #[arg(long, short)]
    quiet: bool,
    /// Measures each run once, for this long in ms, after a warm-up of the same length; for tests.
    #[arg(long, value_name = "MS", hide = true)]
    window_ms: Option<u32>,
    /// Times that turns are begun and ended.
    #[arg(long, value_name = "N", hide = true, default_value_t = 20)]
    rounds: u32,
}

/// The contents of try.json: no names of hosts, VMs or people, no addresses.
#[derive(Debug, Serialize)]
struct Tried {
    schema: u32,
    unspin: &'static str,
    kernel: String,
    cpu_model: String,
    host_cpus: usize,
    /// How the module sets windows, or why it cannot.
    window_control: Option<String>,
    seconds: u64,
    gains: Vec<Gain>,
    checks: Vec<Check>,
    /// `passed`, `failed`, or `incomplete` if a check was not possible.
    verdict: &'static str,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let began = Instant::now();
    let stop = signals::stop()?;
    let wish =
        Wish { pcpus: CPUS, load: true, lab_dir: None, emulator: Timed::default(), stop: &stop };
    // Loads the module if it is not loaded, and unloads it again at the end.
    let _host = Kvm::new(Path::new("/"), &wish)
        .map_err(|e| Cannot(format!("unspin cannot be tried on this host: {e:#}")))?;
    let files = args.out.join("scenarios");
    lay_out(&files, args.window_ms)?;
    let mut documents = Vec::new();
    for part in &PARTS {
        documents.extend(measure(args, part, &files)?);
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted; nothing is left changed");
        }
    }
    let module = Module::open(&root())?;
    let mut checks = judge::checks(&documents);
    checks.push(rollback::check(&module, args.rounds, CPUS, &stop)?);
    write_dir(&args.out, &documents)?;
    let tried = Tried {
        schema: SCHEMA,
        unspin: env!("CARGO_PKG_VERSION"),
        kernel: host::release(Path::new("/"))?,
        cpu_model: documents[0].summary.provenance.cpu_model.clone(),
        host_cpus: std::thread::available_parallelism().map_or(0, usize::from),
        window_control: module.value("window_control"),
        seconds: began.elapsed().as_secs(),
        gains: judge::gains(&documents),
        verdict: judge::verdict(&checks),
        checks,
    };
    let file = args.out.join("try.json");
    write_atomic(&file, &serde_json::to_vec_pretty(&tried)?)?;
    let printed = match args.json {
        true => out::json(&tried),
        false => {
            let text = judge::text(&tried.gains, &tried.checks, tried.verdict);
            out::print(&wrap_lines(&text, terminal_width()))
        }
    };
    say!("page: {}\nto send back: {}", args.out.join("report.html").display(), file.display());
    match tried.verdict {
        // The exit code does not depend on who reads the output.
        "failed" => bail!("unspin is not fit for this host: a check failed"),
        _ => printed,
    }
}

/// Writes the scenarios and profiles to where `unspin-lab bench` finds them.
fn lay_out(dir: &Path, window_ms: Option<u32>) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for part in &PARTS {
        let text = match window_ms {
            Some(ms) => fitted(part.text, ms, 1).replace("warmup_ms = ", "warmup_ms = 50 # "),
            None => fitted(part.text, part.window_ms, part.repeats),
        };
        write_atomic(&dir.join(format!("{}.toml", part.name)), text.as_bytes())?;
    }
    for (name, text) in PROFILES {
        write_atomic(&dir.join(format!("{name}.toml")), text.as_bytes())?;
    }
    Ok(())
}

/// A scenario with another measuring time and number of repeats.
fn fitted(text: &str, window_ms: u32, repeats: u32) -> String {
    let line = |line: &str| match line.split_once(" = ") {
        Some(("window_ms", _)) => format!("window_ms = {window_ms}\n"),
        Some(("repeats", _)) => format!("repeats = {repeats}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Runs a scenario by `unspin-lab bench`, in a process that ends with this one.
fn measure(args: &Args, part: &Part, files: &Path) -> anyhow::Result<Vec<Document>> {
    let dir = args.out.join(part.name);
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut bench = Command::new(program);
    bench.arg("bench").arg(files.join(format!("{}.toml", part.name)));
    bench.args(["--machine", "kvm", "--profile-dir"]).arg(files).arg("--out").arg(&dir);
    bench.args(part.arms.iter().flat_map(|arm| ["--arm", arm]));
    bench.args(args.quiet.then_some("--quiet")).stdin(Stdio::null()).stdout(Stdio::null());
    ends_with_this_thread(&mut bench, libc::SIGTERM);
    if !args.quiet {
        say!("{}:", part.name);
    }
    let status = bench.status().context("cannot start unspin-lab bench")?;
    if !status.success() {
        bail!("{}: unspin-lab bench ended with {status}", part.name);
    }
    Ok(documents(&read_files(&[dir])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use unspin_scenario::parse_scenario;

    #[test]
    fn the_parts_are_scenarios_that_need_no_other_files() {
        let there: BTreeSet<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
        for part in &PARTS {
            let text = fitted(part.text, 123, 2);
            let scenario = parse_scenario(part.name, part.name, &text).unwrap();
            assert_eq!((scenario.repeats, scenario.host.pcpus), (2, CPUS), "{}", part.name);
            assert!(text.contains("window_ms = 123\n"), "{}", part.name);
            for name in scenario.profile_names() {
                assert!(there.contains(name.as_str()), "{}: {name}", part.name);
            }
        }
    }

    /// The command's duration: measuring times, warm-ups, and the other steps as they last on a
    /// present host.
    #[test]
    fn it_takes_five_minutes_at_most() {
        let mut ms = 0;
        for part in &PARTS {
            let text = fitted(part.text, part.window_ms, part.repeats);
            let scenario = parse_scenario(part.name, part.name, &text).unwrap();
            let of_sweep = match part.name {
                "try" => 3,
                "gangs-quota" => 2,
                _ => 1,
            };
            let arms = match part.arms.len() {
                0 => scenario.arms.len(),
                named => 1 + named,
            };
            let runs = of_sweep * arms as u32 * part.repeats;
            ms += runs * (part.window_ms + 1500);
        }
        assert!(ms < 240_000, "{ms} ms");
    }
}
