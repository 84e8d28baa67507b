// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin schedule`: a scheduler for VMs by sched_ext, on CPUs of their own.

mod again;
mod document;
mod fit;
mod host_use;
mod outside;
mod shares;
mod taken;
mod trace;
mod user_spin;

pub use document::{Document, Taken};

use crate::cmd::written::{Writer, SCHEDULED};
use crate::exit::{Cannot, Usage};
use crate::out;
use crate::span::{end_with_input, stopped_by_signals, wait};
use crate::undo::{told, Guard, Undo};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;
use taken::Taking;
use trace::Tracer;
use unspin_host::journal::JOURNAL;
use unspin_host::{cpus, place, Host};
use unspin_schedule::{ext, Error, Options, Scheduler, Trace, KERNEL_TESTED};
use unspin_uapi::schedule_trace::{Begin, SCHEMA, TRACE};

const HELP: &str = "\
This command is experimental. It loads a scheduler into the kernel (sched_ext, Linux 7.0 and later) and gives it \
all threads of VMs on the CPUs of --cpus. There, CPU time is divided between VMs by the weights of their cgroups. \
A VM whose vCPUs spin for each other is a gang: its vCPUs run at the same time, in turns of --turn-us. Other VMs have no turns.

Tasks of the host, and VMs that this scheduler does not take, run before its VMs: keep both off these CPUs. A message \
names each such VM that may run there.

A VM with a CPU quota (cpu.max) is refused, because the kernel does not apply quotas to such schedulers. A VM \
whose vCPUs have a real-time policy is refused, too.

Each thread that is taken gets the policy SCHED_EXT, and may only run on these CPUs. The thread's original policy and CPUs are first \
recorded in /run/unspin/journal. They are restored when the command ends (Ctrl-C, TERM, HUP), on an error, and by a guard \
process if this process is killed or hangs. If both are killed, unspin diagnose --put-back restores them. Until then, \
the fair scheduler runs these threads.";

/// How often it looks for VMs and threads that started or ended.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The VMs: any of their names, their UUID or VMID, or PID-N from `unspin status`. KIND:NAME selects
    /// the kind of name, as in pid:4242. Default: all VMs, including those that start later, whose process runs as
    /// root, or as a user that exists to run VMs (qemu, libvirt-qemu, …).
    #[arg(value_name = "VM")]
    vms: Vec<OsString>,
    /// The CPUs for VMs, such as 8-63.
    #[arg(long, value_name = "LIST", value_parser = cpu_list, required_unless_present = "check")]
    cpus: Option<Cpus>,
    /// Always run the vCPUs of this VM together. May be given several times. The vCPUs of other VMs run together
    /// while they spin. Pause-loop exits show spinning, on Intel only in the guest's kernel. The module shows
    /// spinning in user space, if the VM has coscheduling=vcrd-user or vcrd-both and a mode other than off and
    /// observe.
    #[arg(long, value_name = "VM", conflicts_with = "no_gangs")]
    gang: Vec<OsString>,
    /// Never run the vCPUs of a VM together: divide CPU time by weight only.
    #[arg(long)]
    no_gangs: bool,
    /// Report whether this kernel supports the scheduler, and change nothing. The exit code is 77 if it does
    /// not.
    #[arg(long)]
    check: bool,
    /// Print a line of JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Length of a gang's turn, in microseconds, 1000 to 20000.
    #[arg(long, value_name = "US", default_value = "6000",
          value_parser = clap::value_parser!(u64).range(1000..=20_000))]
    turn_us: u64,
    /// Write each decision of the scheduler and its input to this file, which is replaced. `unspin-lab replay`
    /// repeats the decisions.
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    trace: Option<PathBuf>,
    #[arg(long, hide = true, default_value = JOURNAL)]
    journal: PathBuf,
    /// Prints `ready` once VMs are taken, and exits when its standard input is closed.
    #[arg(long, hide = true)]
    beside: bool,
}

#[derive(Debug, Clone)]
struct Cpus(BTreeSet<u32>);

fn cpu_list(text: &str) -> Result<Cpus, String> {
    let list = cpus::parse(text).filter(|list| !list.is_empty());
    list.map(Cpus).ok_or("a list of CPUs is like 8-63 or 2,4-7".into())
}

/// This computer cannot have it, or something else failed.
fn explain(e: Error) -> anyhow::Error {
    match e.is_of_computer() {
        true => Cannot(e.to_string()).into(),
        false => e.into(),
    }
}

/// What --check says if this kernel can have it.
fn supported(is_tested: bool) -> String {
    let (major, minor) = KERNEL_TESTED;
    let tested = format!("the scheduler was tested on Linux {major}.{minor}");
    match is_tested {
        true => format!("this kernel supports the scheduler; {tested}\n"),
        false => format!(
            "this kernel has what the scheduler needs, but {tested} only: loading it shows whether \
             this kernel accepts it\n"
        ),
    }
}

fn check(args: &Args) -> anyhow::Result<()> {
    let (why, is_tested) = (unspin_schedule::check().err(), unspin_schedule::is_tested());
    let shown = match args.json {
        true => out::json(&document::Checked::of(why.as_ref(), is_tested)),
        false if why.is_none() => out::print(&supported(is_tested)),
        false => Ok(()),
    };
    // The exit code is the verdict, whether anybody reads the output or not.
    why.map_or(shown, |why| Err(explain(why)))
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.check {
        return check(args);
    }
    let Some(Cpus(cpus)) = args.cpus.clone() else {
        return Err(Usage("name the CPUs for VMs, as in --cpus 8-63".into()).into());
    };
    let stop = stopped_by_signals()?;
    unspin_schedule::check().map_err(explain)?;
    let proc = place::proc();
    let host = Host::at(&proc);
    let there = host.online_cpus().unwrap_or_default();
    if let Some(cpu) = cpus.iter().find(|cpu| !there.contains(cpu)) {
        let list = cpus::list(&there);
        return Err(Usage(format!("CPU {cpu} of --cpus is not online; online: {list}")).into());
    }
    let mut undo = Undo::open(&args.journal, &proc)?;
    let turn = Duration::from_micros(args.turn_us);
    // It is there before VMs are taken: their threads are never without it.
    let is_traced = args.trace.is_some();
    let options = Options { turn, is_traced, ..Options::new(cpus.clone()) };
    let file = args.trace.as_deref().map(trace::create).transpose()?;
    let scheduler = Scheduler::load(&options).map_err(explain)?;
    if let Some(why) = scheduler.blind.as_ref().filter(|_| !args.no_gangs) {
        say!("unspin: pause-loop exits cannot be counted, so only VMs of --gang are gangs: {why}");
    }
    let mut guard = Guard::start(&args.journal, &proc)?;
    let mut readers = Readers::new(args);
    if let Some((path, file)) = args.trace.as_deref().zip(file) {
        let tracer = Tracer::begin(path, file, &begin(args, &cpus, &proc))?;
        readers.trace = Some((scheduler.trace()?, tracer));
    }
    let mut taking = Taking::new(args, &host, cpus, scheduler);
    let result = go_on(args, &mut taking, &mut undo, &mut guard, &mut readers, &stop);
    let shown = result.and_then(|()| taking.document()).map(|document| readers.print(&document));
    readers.end();
    // First the kernel's fair scheduler gets all VMs at once. None is then behind others whose turn comes later.
    drop(taking);
    let back = undo.put_back();
    if back.is_ok() {
        guard.done();
    }
    let count = back.iter().flatten().filter_map(|(change, back)| told(change, back)).count();
    if count > 0 {
        say!("restored: {count} values");
    }
    if let (Err(_), Err(e)) = (&shown, &back) {
        say!("unspin: {e:#}");
    }
    shown.and(back.map(drop))
}

/// The first line of a trace.
fn begin(args: &Args, cpus: &BTreeSet<u32>, proc: &Path) -> Begin {
    Begin {
        trace: TRACE.into(),
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").into(),
        kernel: ext::release(proc),
        cpus: cpus::list(cpus),
        turn_us: args.turn_us,
    }
}

/// Who is told what it does. VMs are scheduled whether anybody can read that or not: of each way, the first error is
/// said.
struct Readers {
    json: bool,
    file: Writer,
    has_no_file: bool,
    has_no_output: bool,
    trace: Option<(Trace, Tracer)>,
}

impl Readers {
    fn new(args: &Args) -> Readers {
        let file = Writer::beside(&args.journal, SCHEDULED);
        Readers { json: args.json, file, has_no_file: false, has_no_output: false, trace: None }
    }

    fn write(&mut self, document: &Document) {
        first_error(self.file.write(document), &mut self.has_no_file);
        self.traces(|_, tracer| tracer.vms(document.vms.iter().map(Taken::traced)));
    }

    /// Writes the decisions since the last call to the trace.
    fn follow(&mut self) {
        self.traces(|trace, tracer| tracer.follow(trace.take()));
    }

    fn traces(&mut self, write: impl FnOnce(&Trace, &mut Tracer) -> anyhow::Result<()>) {
        let written = self.trace.as_mut().map(|(trace, tracer)| write(trace, tracer));
        if let Some(Err(e)) = written {
            say!("unspin: {e:#}; the trace ends here, and VMs are still scheduled");
            self.trace = None;
        }
    }

    fn end(mut self) {
        self.follow();
        match self.trace.take().map(|(_, tracer)| tracer.end()) {
            Some(Ok(text)) => say!("{text}"),
            Some(Err(e)) => say!("unspin: {e:#}"),
            None => {}
        }
    }

    fn print(&mut self, document: &Document) {
        let printed = match self.json {
            true => out::json(document),
            false => out::print(&document.text()),
        };
        first_error(printed, &mut self.has_no_output);
    }
}

/// Says an error unless one was said.
fn first_error(done: anyhow::Result<()>, said: &mut bool) {
    if let Err(e) = done {
        if !std::mem::replace(said, true) {
            say!("unspin: {e:#}; VMs are still scheduled");
        }
    }
}

fn go_on(
    args: &Args,
    taking: &mut Taking,
    undo: &mut Undo,
    guard: &mut Guard,
    readers: &mut Readers,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    taking.look(undo)?;
    let document = taking.document()?;
    readers.write(&document);
    if taking.is_empty() && !args.vms.is_empty() {
        anyhow::bail!("no VM is taken: {}", taking.refusals());
    }
    if args.beside {
        out::print("ready\n")?;
        end_with_input(stop);
    } else {
        readers.print(&document);
    }
    while wait(LOOK, stop, &mut |_| readers.follow()).is_ok() {
        guard.go_on()?;
        let changed = taking.look(undo)?;
        let document = taking.document()?;
        readers.write(&document);
        if changed && !args.beside {
            readers.print(&document);
        }
    }
    Ok(())
}
