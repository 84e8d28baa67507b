// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab bench`: runs scenarios on a machine, keeps the records, shows the comparison.
//!
//! `OUT/boots/` holds the records of each boot while and after it runs (`.part` until its End
//! record), `OUT/results.jsonl` all of them; the report stands beside it.

mod drawn;

use crate::boots::{write_record, Boot};
use crate::exit::Usage;
use crate::load::{self, Loaded, Select};
use crate::machine::emulator::Timed;
use crate::machine::{self, sim, Choice, Job, Machine, Refusal, Wish};
use crate::out;
use crate::progress::Progress;
use crate::share::Share;
use crate::worlds::Inputs;
use anyhow::{bail, Context};
use drawn::{say_usual, Drawn, WorldArgs};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use unspin_agent::is_ignored;
use unspin_report::{documents, read_files, write_dir, Document};
use unspin_scenario::module;
use unspin_scenario::plan::{
    Arm, CgroupLayout, Coscheduling, CoschedulingMechanism, HostScheduler, Plan, Run,
};
use unspin_scenario::result::Record;
use unspin_scenario::split;
use unspin_text::{write_atomic, Lock};
use unspin_uapi::any_of;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Scenarios: files, or names.
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<PathBuf>,
    /// Machine to run them on.
    #[arg(long, value_enum, default_value = "auto")]
    machine: Choice,
    /// Emulator: bochs (Intel, up to 8 CPUs) or qemu-amd (AMD, up to 16). qemu-amd takes settings, such
    /// as qemu-amd,quantum=200,pause=1,topology=2x4x2: instructions that a CPU runs before the next CPU,
    /// instructions that a PAUSE takes, and SOCKETSxCORESxTHREADS.
    #[arg(long, value_parser = Timed::parse, default_value = "bochs")]
    emulator: Timed,
    /// Build and load the module if it is not loaded and this host can be the machine. It is unloaded at
    /// the end.
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
    /// Print only the result, to standard output, and errors.
    #[arg(long, short)]
    quiet: bool,
    /// Show the log of the machine.
    #[arg(long, short)]
    verbose: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.worlds.is_asked() && (args.machine != Choice::Sim || args.attribute) {
        let why = "--worlds, --design: only a model has worlds";
        return Err(Usage(format!("{why}; allowed: --machine sim, without --attribute")).into());
    }
    let stop = Arc::new(AtomicBool::new(false));
    take_signals(&stop)?;
    // All scenarios are read before the first runs: a slip in the last costs no time.
    let mut loaded = Vec::new();
    for s in &args.scenarios {
        let l = load::scenario(s, args.select.profile_dir.as_deref())?;
        let plan = l.plan(&args.select)?;
        let plan = if args.attribute { plan.attributed() } else { plan };
        loaded.push((l, plan));
    }
    let wish = Wish {
        pcpus: loaded.iter().map(|(_, plan)| plan.pcpus).max().unwrap_or(1),
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
    for (l, plan) in &loaded {
        check(args, l, plan, machine.as_ref())?;
    }
    let mut complete = true;
    for (l, plan) in &loaded {
        let out = out_dir(args, &l.scenario.name);
        let boots = boots(args, &l.scenario, plan, machine.as_ref(), &out, &stop)?;
        // Two benches would write the same files.
        let _held = Lock::take(&boots_dir(&out))?;
        let (made, docs, whole) = match args.worlds.is_asked() {
            true => with_worlds(args, (l, plan), machine.as_ref(), boots, &out, &stop)?,
            false => {
                if !args.quiet {
                    say_usual(l);
                }
                let made = make(args, machine.as_ref(), &boots, &stop);
                let (docs, whole) = gather(&boots, &out)?;
                (made, docs, whole)
            }
        };
        show(args, &docs, &out)?;
        made?;
        complete &= whole;
    }
    if !complete {
        bail!("some runs failed; the notes list them");
    }
    Ok(())
}

/// What was made of a bench, and whether that is all of it.
type Made = (anyhow::Result<()>, Vec<Document>, bool);

/// The runs with the usual values, and the worlds.
fn with_worlds(
    args: &Args,
    (l, plan): (&Loaded, &Plan),
    machine: &dyn Machine,
    mut boots: Vec<Boot>,
    out: &Path,
    stop: &AtomicBool,
) -> anyhow::Result<Made> {
    let inputs = Inputs::of(l, &args.worlds.inputs)?;
    let drawn = Drawn::new(&args.worlds, (l, plan, &inputs), &args.select, args.shard);
    let kernels = kernels(args, &l.scenario, machine);
    let (dir, image) = (boots_dir(out), machine.image(stop)?);
    let place = drawn::Place { kernels: &kernels, image: &image, dir: &dir };
    let design = drawn.design()?;
    drawn.say_time(&design, &place, jobs(args))?;
    boots.extend(drawn.boots(&design, &place)?);
    let made = make(args, machine, &boots, stop);
    let (docs, whole) = gather(&boots, out)?;
    Ok((made, docs, whole))
}

/// Signals that end a bench in order set `stop`.
fn take_signals(stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let take = |signal| signal_hook::flag::register(signal, Arc::clone(stop));
    for signal in [SIGINT, SIGTERM] {
        // The second signal ends the program at once.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(stop))
            .and_then(|_| take(signal))
            .context("cannot take signals")?;
    }
    // A lost terminal may say so twice, itself and by its shell.
    if !is_ignored(SIGHUP) {
        take(SIGHUP).context("cannot take signals")?;
    }
    Ok(())
}

/// Whether the machine has what is asked of it; before anything is made.
fn check(args: &Args, l: &Loaded, plan: &Plan, machine: &dyn Machine) -> Result<(), Usage> {
    for k in &args.kernel {
        machine.check_kernel(k)?;
    }
    if args.kernel.is_empty() && machine.boots() {
        for k in &l.scenario.kernels {
            machine.check_kernel(k).map_err(|why| l.refused("kernel", &why))?;
        }
    }
    for run in &plan.runs {
        let vcpus = (0..run.vms).map(|vm| run.vcpus_of(vm)).max().unwrap_or(run.vcpus);
        machine.check_vcpus(vcpus).map_err(|why| l.refused("vm", &why))?;
    }
    let is_run = |arm: &Arm| plan.runs.iter().any(|run| run.arm.name == arm.name);
    if let Some(key) = l.scenario.refused_by(machine.name(), is_run) {
        let message = format!("machine {} does not support this: {}", machine.name(), key.help);
        let allowed = format!("left out, or --machine {}", any_of(key.machines.iter().copied()));
        return Err(l.refused(&key.path, &Refusal { message, allowed }));
    }
    if machine.name() != "sim" {
        check_coscheduling(l)?;
        check_scheduler(l, plan, machine.name())?;
    }
    let pcpus = l.scenario.host.pcpus;
    machine.check_pcpus(pcpus).map_err(|why| l.refused("host.pcpus", &why))?;
    machine.check_plan(plan).map_err(|(key, why)| l.refused(key, &why))
}

/// What the module can do of an arm's coscheduling, where it is no model of it. Turns that others make
/// need nothing of it.
fn check_coscheduling(l: &Loaded) -> Result<(), Usage> {
    for (i, arm) in l.scenario.arms.iter().enumerate() {
        let parks = arm.coscheduling_mechanism == CoschedulingMechanism::Park;
        if arm.coscheduling != Coscheduling::None && parks && !module::acts(arm) {
            let message = format!("arm {:?} leaves its VMs to KVM alone", arm.name);
            let allowed =
                "yield_to or window of the module in addition to coscheduling".to_string();
            return Err(l.refused(&format!("arm[{i}].coscheduling"), &Refusal { message, allowed }));
        }
    }
    Ok(())
}

/// A machine that is no model has its kernel's scheduler, which caps cgroups.
fn check_scheduler(l: &Loaded, plan: &Plan, machine: &str) -> Result<(), Usage> {
    let scheduler = l.scenario.host.scheduler;
    let refused = |message: String, allowed: &str| {
        Err(l.refused("host.scheduler", &Refusal { message, allowed: allowed.to_string() }))
    };
    if scheduler.is_credit() {
        let message =
            format!("machine {machine} has the scheduler of its kernel, not Xen's Credit");
        return refused(
            message,
            "\"fair\" or \"fair-capped\" beside coscheduling_mechanism = \"sched-ext\" in an arm, or \
             --machine sim",
        );
    }
    let flat = |run: &Run| run.cgroup == CgroupLayout::Flat && !run.alone;
    if scheduler == HostScheduler::FairCapped && plan.runs.iter().any(flat) {
        return refused("caps need cgroups".into(), "sweep.cgroups without \"flat\"");
    }
    Ok(())
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

/// Where the records of boots are.
fn boots_dir(out: &Path) -> PathBuf {
    out.join("boots")
}

fn boots(
    args: &Args,
    scenario: &unspin_scenario::Scenario,
    plan: &Plan,
    machine: &dyn Machine,
    out: &Path,
    stop: &AtomicBool,
) -> anyhow::Result<Vec<Boot>> {
    if plan.runs.is_empty() {
        return Err(Usage(format!("{}: the selection is empty", scenario.name)).into());
    }
    let shard = args.shard.map(|s| s.of(plan.runs.len()));
    let shared = shard.map(|s| unspin_scenario::shard(plan, s.index, s.of, machine.measures()));
    let plan = shared.as_ref().unwrap_or(plan);
    let kernels = kernels(args, scenario, machine);
    let image = machine.image(stop)?;
    let dir = boots_dir(out);
    let shares = split(plan, machine.shares(scenario.boots));
    let mut boots = Vec::new();
    for kernel in kernels {
        for (at, share) in shares.iter().enumerate() {
            let mut boot = Boot::new(machine.name(), &kernel, share, &image, &dir);
            boot.shard = shard;
            if shares.len() > 1 {
                boot.title += &format!(", boot {} of {}", at + 1, shares.len());
            }
            boots.push(boot);
        }
    }
    Ok(boots)
}

fn kernels(
    args: &Args,
    scenario: &unspin_scenario::Scenario,
    machine: &dyn Machine,
) -> Vec<String> {
    if !args.kernel.is_empty() {
        args.kernel.clone()
    } else if machine.boots() && !scenario.kernels.is_empty() {
        scenario.kernels.clone()
    } else {
        machine.default_kernels()
    }
}

/// How many boots are made at once.
fn jobs(args: &Args) -> usize {
    match args.jobs {
        Some(n) => usize::from(n),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// Makes the boots that are not there yet, some at a time.
fn make(
    args: &Args,
    machine: &dyn Machine,
    boots: &[Boot],
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let plans: Vec<&Plan> = boots.iter().map(|b| &b.plan).collect();
    let progress = Mutex::new(Progress::new(&plans, args.quiet));
    for b in boots {
        if !args.resume {
            b.renew()?;
        } else if b.is_complete() {
            lock(&progress).skip(&b.plan);
        }
    }
    let todo: Vec<&Boot> = boots.iter().filter(|b| !b.is_complete()).collect();
    let jobs = jobs(args);
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let at_once = jobs.min(todo.len());
    let threads = jobs / at_once.max(1);
    std::thread::scope(|s| {
        for _ in 0..at_once {
            s.spawn(|| {
                while let Some(b) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if stop.load(Ordering::Relaxed) || lock(&failed).is_some() {
                        return;
                    }
                    if let Err(e) = make_one(args, machine, b, threads, stop, &progress) {
                        lock(&failed).get_or_insert(e);
                    }
                }
            });
        }
    });
    lock(&progress).finish();
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(e) => Err(e),
        None if stop.load(Ordering::Relaxed) => {
            bail!("interrupted; finished runs are kept, and --resume does the rest")
        }
        None => Ok(()),
    }
}

/// A lock whose holder panicked still guards whole values here.
fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

fn make_one(
    args: &Args,
    machine: &dyn Machine,
    b: &Boot,
    threads: usize,
    stop: &AtomicBool,
    progress: &Mutex<Progress>,
) -> anyhow::Result<()> {
    fs::create_dir_all(&b.dir).with_context(|| format!("cannot make {}", b.dir.display()))?;
    // Worlds are many and short.
    if b.world.is_none() {
        lock(progress).say(&b.title);
    }
    // An emulated boot replays from its start, to the same values; a host goes on after the runs
    // it has made.
    let plan = if machine.boots() { b.plan.clone() } else { b.remaining() };
    let part = b.part();
    let mut file = b.open(!machine.boots())?;
    let mut ended = false;
    let mut sink = |mut record: Record| -> anyhow::Result<()> {
        name_origin(&mut record, machine.name(), b);
        ended = matches!(record, Record::End { .. });
        write_record(&mut file, &record)
            .with_context(|| format!("cannot write {}", part.display()))?;
        let mut p = lock(progress);
        match &record {
            Record::Log { text } if args.verbose => p.log(text),
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
        bail!("{} on {}: the machine stopped before the end of its plan", plan.scenario, b.kernel);
    }
    b.complete(&file)
}

/// The agent knows its kernel, not what it runs on or what started it.
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

/// results.jsonl and the report, of all that is there; whether that is all of what was asked for.
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
    let whole =
        input.streams.iter().all(|s| s.ended && (s.failed.is_empty() || s.begin.world.is_some()));
    let docs = documents(&input);
    write_dir(out, &docs)?;
    Ok((docs, whole))
}

fn show(args: &Args, docs: &[Document], out: &Path) -> anyhow::Result<()> {
    if docs.is_empty() {
        return Ok(());
    }
    if args.json {
        for d in docs {
            out::json(&d.summary)?;
        }
    } else {
        out::print(&unspin_report::text(docs))?;
    }
    if !args.quiet {
        say!("page: {}", out.join("report.html").display());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
