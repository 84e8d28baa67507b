// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab bench`: runs scenarios on a machine, stores the records, and shows the comparison.
//!
//! `OUT/boots/` holds the records of each boot during and after its run (`.part` until its End
//! record). `OUT/results.jsonl` holds all of them; the report is beside it.

mod check;
mod drawn;

use crate::boots::{write_record, Boot};
use crate::exit::Usage;
use crate::load::{self, Loaded, Select};
use crate::machine::emulator::Timed;
use crate::machine::{self, sim, Choice, Job, Machine, Takes, Wish};
use crate::out;
use crate::progress::Progress;
use crate::share::Share;
use crate::signals;
use crate::worlds::Inputs;
use anyhow::{bail, Context};
use drawn::{say_usual, Drawn, WorldArgs};
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use unspin_cli::progress::human;
use unspin_report::{documents, read_files, write_dir, Document, Stream};
use unspin_scenario::plan::Plan;
use unspin_scenario::result::Record;
use unspin_scenario::split;
use unspin_text::fit::terminal_width;
use unspin_text::{counted, shown, write_atomic, Lock};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Scenarios: files, or names.
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<PathBuf>,
    /// Machine to run the scenarios on.
    #[arg(long, value_enum, default_value = "auto")]
    machine: Choice,
    /// Emulator: bochs (Intel, up to 8 CPUs) or qemu-amd (AMD, up to 16). qemu-amd takes settings, such
    /// as qemu-amd,quantum=200,pause=1,topology=2x4x2. quantum: instructions that a CPU executes before the
    /// next CPU's turn. pause: length of a PAUSE, in instructions. topology: SOCKETSxCORESxTHREADS. Both
    /// emulators take module=no: boot without the module, for arms that do not need it.
    #[arg(long, value_parser = Timed::parse, default_value = "bochs")]
    emulator: Timed,
    /// If this host can run the scenario (machine kvm) and the module is not loaded, build and load it,
    /// and unload it at the end.
    #[arg(long)]
    load: bool,
    #[command(flatten)]
    select: Select,
    /// Kernel series to run on, instead of the scenario's.
    #[arg(long, value_name = "SERIES", value_delimiter = ',')]
    kernel: Vec<String>,
    /// Directory for results and report [default: out/SCENARIO].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run only share I of N of the runs, to divide them among N computers. Results go to shard-I-of-N
    /// in the scenario's directory; `unspin-lab report` combines them.
    #[arg(long, value_name = "I/N", value_parser = Share::parse)]
    shard: Option<Share>,
    /// Attribute the VMs' time to the 5 factors of virtualization overhead, and also run every arm with
    /// each factor switched off (machine sim).
    #[arg(long)]
    attribute: bool,
    #[command(flatten)]
    worlds: WorldArgs,
    /// Print summaries as JSON, one line per scenario and kernel.
    #[arg(long)]
    json: bool,
    /// Continue an interrupted bench with the same arguments.
    #[arg(long)]
    resume: bool,
    /// Emulated computers, or simulated runs, to run in parallel [default: number of CPUs].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
    /// Directory for kernels and boots of emulated computers [default: out/lab; for an installed unspin
    /// ~/.cache/unspin/lab, for root /var/cache/unspin/lab].
    #[arg(long, value_name = "DIR")]
    lab_dir: Option<PathBuf>,
    /// Print only the result (to standard output) and errors.
    #[arg(long, short)]
    quiet: bool,
    /// Show the log of the machine.
    #[arg(long, short)]
    verbose: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.worlds.is_asked() && (args.machine != Choice::Sim || args.attribute) {
        let why = "--worlds, --design: only a model can vary unknown values";
        return Err(Usage(format!("{why}; allowed: --machine sim, without --attribute")).into());
    }
    let stop = signals::stop_or_lost_terminal()?;
    // Read all scenarios before the first runs, so that an error in the last one costs no time.
    let mut loaded = Vec::new();
    for s in &args.scenarios {
        let l = load::scenario(s, args.select.profile_dir.as_deref())?;
        let plan = l.plan(&args.select)?;
        let plan = if args.attribute { plan.attributed() } else { plan };
        loaded.push((l, plan));
    }
    let wish = Wish {
        pcpus: loaded.iter().map(|(_, plan)| plan.host.pcpus).max().unwrap_or(1),
        load: args.load,
        lab_dir: args.lab_dir.as_deref(),
        emulator: args.emulator,
        stop: &stop,
    };
    let machine = machine::choose(args.machine, &wish)?;
    if args.attribute && machine.name() != "sim" {
        let why = "--attribute: only a model can switch off factors of virtualization overhead";
        return Err(Usage(format!("{why}; allowed: --machine sim")).into());
    }
    if args.shard.is_some() && !machine.boots() {
        let why = "--shard: hosts differ, so runs on several hosts cannot be compared";
        return Err(Usage(format!("{why}; allowed: machines emulated and sim")).into());
    }
    let machine = machine.as_ref();
    let benches = loaded.iter().map(|(loaded, plan)| {
        let out = out_dir(args, &loaded.scenario.name);
        Bench { args, loaded, plan, machine, out, stop: &stop }
    });
    let benches: Vec<Bench> = benches.collect();
    for bench in &benches {
        bench.check()?;
    }
    check_dirs(&benches)?;
    let mut complete = true;
    for bench in &benches {
        complete &= bench.run()?;
    }
    if !complete {
        bail!("some runs failed or are lost; the notes list them");
    }
    Ok(())
}

/// One scenario on a machine.
struct Bench<'a> {
    args: &'a Args,
    loaded: &'a Loaded,
    plan: &'a Plan,
    machine: &'a dyn Machine,
    /// Directory of its results and its report.
    out: PathBuf,
    stop: &'a AtomicBool,
}

/// Files that a bench leaves in its directory in any case.
const FILES: [&str; 5] = ["results.jsonl", "summary.json", "table.txt", "table.csv", "report.html"];

/// Refuses scenarios with the same name, because they would overwrite each other's results, and
/// results that could not be written at the end.
fn check_dirs(benches: &[Bench]) -> Result<(), Usage> {
    let mut names = HashSet::new();
    for bench in benches {
        let name = &bench.loaded.scenario.name;
        if !names.insert(name) {
            let dir = shown(&bench.out);
            let why = format!("2 scenarios are called {name:?}, and both would write {dir}");
            return Err(Usage(format!(
                "{why}; run them one by one, each with an --out of its own"
            )));
        }
        check_dir(&bench.out)?;
    }
    Ok(())
}

fn check_dir(out: &Path) -> Result<(), Usage> {
    let is_no_dir = match fs::metadata(out) {
        Ok(meta) => !meta.is_dir(),
        Err(error) => error.kind() == ErrorKind::NotADirectory,
    };
    if is_no_dir {
        let why = "a file stands in place of this directory or of one above it";
        return Err(Usage(format!("{}: {why}; use another --out", shown(out))));
    }
    let is_dir = |file: &PathBuf| fs::symlink_metadata(file).is_ok_and(|meta| meta.is_dir());
    match FILES.iter().map(|name| out.join(name)).find(is_dir) {
        None => Ok(()),
        Some(file) => {
            let why = "it is a directory; remove it, or use another --out";
            Err(Usage(format!("cannot write {}: {why}", shown(&file))))
        }
    }
}

fn out_dir(args: &Args, scenario: &str) -> PathBuf {
    let dir = match &args.out {
        Some(d) if args.scenarios.len() > 1 => d.join(scenario),
        Some(d) => d.clone(),
        None => Path::new("out").join(scenario),
    };
    match args.shard {
        Some(s) => dir.join(s.to_string()),
        None => dir,
    }
}

impl Bench<'_> {
    /// Makes the missing runs, and shows all results. Returns whether all runs succeeded.
    fn run(&self) -> anyhow::Result<bool> {
        let image = self.machine.image(self.stop)?;
        let mut boots = self.boots(&image)?;
        // A second bench would write the same files.
        let _held = Lock::take(&self.boots_dir())?;
        if self.args.worlds.is_asked() {
            let inputs = Inputs::of(self.loaded, &self.args.worlds.inputs)?;
            let drawn = Drawn::new(self, &inputs, &image);
            let design = drawn.design()?;
            drawn.say_time(&design)?;
            boots.extend(drawn.boots(&design)?);
        } else if !self.args.quiet {
            say_usual(self.loaded);
        }
        let made = self.make(&boots);
        let (docs, whole) = gather(&boots, &self.out)?;
        let printed = self.show(&docs);
        made?;
        // The exit code does not depend on who reads the output.
        if whole {
            printed?;
        }
        Ok(whole)
    }

    /// Directory of the boots' records.
    fn boots_dir(&self) -> PathBuf {
        self.out.join("boots")
    }

    /// The boots of this computer's share of the plan.
    fn boots(&self, image: &str) -> anyhow::Result<Vec<Boot>> {
        let (scenario, machine) = (&self.loaded.scenario, self.machine);
        if self.plan.runs.is_empty() {
            return Err(Usage(format!("{}: the selection is empty", scenario.name)).into());
        }
        let shard = self.args.shard.map(|s| s.of(self.plan.runs.len()));
        let shared =
            shard.map(|s| unspin_scenario::shard(self.plan, s.index, s.of, machine.measures()));
        let shares = split(shared.as_ref().unwrap_or(self.plan), machine.shares(scenario.boots));
        let mut boots = Vec::new();
        for kernel in self.kernels() {
            for (at, share) in shares.iter().enumerate() {
                let mut boot = Boot::new(machine.name(), &kernel, share, image, &self.boots_dir());
                boot.shard = shard;
                if shares.len() > 1 {
                    boot.title += &format!(", boot {} of {}", at + 1, shares.len());
                }
                boots.push(boot);
            }
        }
        Ok(boots)
    }

    fn kernels(&self) -> Vec<String> {
        let of_scenario = &self.loaded.scenario.kernels;
        let mut kernels = if !self.args.kernel.is_empty() {
            self.args.kernel.clone()
        } else if self.machine.boots() && !of_scenario.is_empty() {
            of_scenario.clone()
        } else {
            vec![self.machine.default_kernel().to_string()]
        };
        // Two boots of one kernel would write the same files.
        let mut seen = HashSet::new();
        kernels.retain(|kernel| seen.insert(kernel.clone()));
        kernels
    }

    /// The number of boots that run at once.
    fn jobs(&self) -> usize {
        match self.args.jobs {
            Some(n) => usize::from(n),
            None => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Runs the missing boots, some at a time.
    fn make(&self, boots: &[Boot]) -> anyhow::Result<()> {
        let plans: Vec<&Plan> = boots.iter().map(|b| &b.plan).collect();
        let progress = Mutex::new(Progress::new(&plans, self.args.quiet));
        for b in boots {
            if !self.args.resume {
                b.renew()?;
                continue;
            }
            b.reopen()?;
            if b.is_complete() {
                lock(&progress).skip(&b.plan);
            }
        }
        let todo: Vec<&Boot> = boots.iter().filter(|b| !b.is_complete()).collect();
        let jobs = self.jobs();
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let at_once = jobs.min(todo.len());
        let threads = jobs / at_once.max(1);
        if !self.args.quiet {
            self.say_time(&todo, at_once);
        }
        std::thread::scope(|s| {
            for _ in 0..at_once {
                s.spawn(|| {
                    while let Some(b) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if self.stop.load(Ordering::Relaxed) || lock(&failed).is_some() {
                            return;
                        }
                        if let Err(e) = self.make_one(b, threads, &progress) {
                            lock(&failed).get_or_insert(e);
                        }
                    }
                });
            }
        });
        lock(&progress).finish();
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(e) => Err(e),
            None if self.stop.load(Ordering::Relaxed) => {
                bail!("interrupted; finished runs are kept, and --resume does the rest")
            }
            None => Ok(()),
        }
    }

    /// Estimates how long the boots take, this many at once, where the machine can tell.
    fn say_time(&self, todo: &[&Boot], at_once: usize) {
        let takes = |b: &&Boot| self.machine.takes(&b.plan);
        let Some(takes) = todo.iter().map(takes).collect::<Option<Vec<Takes>>>() else { return };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let side_by_side = at_once.min(cpus).max(1);
        let human = |cpu_s: f64| human(Duration::from_secs_f64(cpu_s / side_by_side as f64));
        let runs = todo.iter().map(|b| b.plan.runs.len()).sum::<usize>();
        if runs > 0 {
            say!(
                "estimate for this computer: {} to boot {}, {side_by_side} at a time, and {} for {}",
                human(takes.iter().map(|t| t.boot_s).sum()),
                counted(todo.len(), "emulated computer"),
                human(takes.iter().map(|t| t.runs_s).sum()),
                counted(runs, "run"),
            );
        }
    }

    fn make_one(&self, b: &Boot, threads: usize, progress: &Mutex<Progress>) -> anyhow::Result<()> {
        let (machine, stop) = (self.machine, self.stop);
        fs::create_dir_all(&b.dir).with_context(|| format!("cannot make {}", shown(&b.dir)))?;
        // Omit worlds from the log: they are many and short.
        if b.world.is_none() {
            lock(progress).say(&b.title);
        }
        // An emulated boot starts again, and gives the same values. On a host the boot continues
        // after the runs that have finished.
        let plan = if machine.boots() { b.plan.clone() } else { b.remaining() };
        let part = b.part();
        let mut file = b.open(!machine.boots())?;
        let mut ended = false;
        let mut sink = |mut record: Record| -> anyhow::Result<()> {
            name_origin(&mut record, machine.name(), b);
            ended = matches!(record, Record::End { .. });
            write_record(&mut file, &record)
                .with_context(|| format!("cannot write {}", shown(&part)))?;
            let mut p = lock(progress);
            match &record {
                Record::Log { text } if self.args.verbose => p.log(text),
                Record::Failed { id, error } if b.world.is_none() => {
                    p.log(&format!("run {id} failed: {error}"))
                }
                _ => {}
            }
            p.record(&record);
            Ok(())
        };
        let say = |text: &str| lock(progress).say(text);
        let job = Job { plan: &plan, kernel: &b.kernel, dir: &b.dir, threads, stop, say: &say };
        match &b.refusal {
            Some(why) => sim::refuse(&job, why, &mut sink)?,
            None => machine.run(&job, &mut sink)?,
        }
        if !ended {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            bail!(
                "{} on {}: the machine stopped before the end of its plan",
                plan.scenario,
                b.kernel
            );
        }
        b.complete(&file)
    }

    fn show(&self, docs: &[Document]) -> anyhow::Result<()> {
        if docs.is_empty() {
            return Ok(());
        }
        if self.args.json {
            for d in docs {
                out::json(&d.summary)?;
            }
        } else {
            out::print(&unspin_report::text(docs, terminal_width()))?;
        }
        if !self.args.quiet {
            say!("page: {}", shown(&self.out.join("report.html")));
        }
        Ok(())
    }
}

/// Locks a mutex, even if a thread panicked while holding it: the values are never half-written.
fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds what the agent cannot know: its machine, and what started it.
fn name_origin(record: &mut Record, machine: &str, boot: &Boot) {
    if let Record::Begin(b) = record {
        b.image = Some(boot.image.clone());
        b.shard = boot.shard;
        b.world.clone_from(&boot.world);
        b.machine = machine.to_string();
        b.title = boot.plan.title.clone();
        b.commit = option_env!("UNSPIN_COMMIT").map(str::to_string);
        b.version = Some(env!("CARGO_PKG_VERSION").to_string());
    }
}

/// Writes results.jsonl and the report of all records. Returns whether these are all requested
/// ones.
fn gather(boots: &[Boot], out: &Path) -> anyhow::Result<(Vec<Document>, bool)> {
    let mut all = Vec::new();
    for b in boots {
        all.extend(b.records()?);
    }
    if all.is_empty() {
        return Ok((Vec::new(), false));
    }
    let results = out.join("results.jsonl");
    write_atomic(&results, &all)?;
    let input = read_files(&[results])?;
    let is_made = |s: &Stream| s.failed.is_empty() || s.begin.world.is_some();
    let whole = boots.iter().all(Boot::is_complete) && input.streams.iter().all(is_made);
    let docs = documents(&input);
    write_dir(out, &docs)?;
    Ok((docs, whole))
}

#[cfg(test)]
mod tests;
