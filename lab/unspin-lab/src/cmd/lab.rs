// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab lab`: emulated computers.

mod speed;

use crate::exit::{Cannot, Usage};
use crate::machine::lab::{agent, explain, missing, open, series};
use crate::machine::Refusal;
use crate::{out, signals};
use anyhow::bail;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::path::PathBuf;
use std::sync::Arc;
use unspin_computers::{
    Computer, Debian, Emulator, Flavour, Go, KernelPackage, Lab, Program, BOCHS_TOOLS,
    GUEST_KERNEL_TOOLS, QEMU_TOOLS,
};

/// CPUs of the computers that are booted here.
const CPUS: u32 = 4;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory for kernels and boots [default: out/lab; for an installed unspin ~/.cache/unspin/lab,
    /// for root /var/cache/unspin/lab].
    #[arg(long, global = true, value_name = "DIR")]
    lab_dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Fetch a kernel and build the module for it.
    Build(Build),
    /// Boot a computer, and report whether KVM and the module work.
    Boot(Boot),
    /// Build an emulator for timed runs (bochs or qemu-amd), and print its name. For qemu, which is
    /// Debian's, only print the name.
    Emulator {
        #[arg(value_parser = one_of(EMULATORS), default_value = Emulator::Bochs.name())]
        emulator: Emulator,
    },
    /// Measure how much CPU time a virtual second of an emulated computer takes here (10 boots).
    Speed {
        /// Measure only this emulator.
        #[arg(long, value_parser = one_of(Emulator::TIMED))]
        emulator: Option<Emulator>,
        /// Print the result as JSON, a list of emulators.
        #[arg(long)]
        json: bool,
    },
    /// Boot a computer under QEMU with a shell on this terminal.
    Shell(Kernel),
    /// Build the kernel for Linux guests with guest_lock = "preemptable", "pv-preemptable", "oticket" or
    /// "ticket" from the distribution's sources, and print its path.
    GuestKernel,
    /// Print the symbols of a guest kernel in the format of /proc/kallsyms.
    Symbols {
        /// Kernel series: 6.1, 6.12 or 7.3.
        series: String,
    },
    /// Remove kernels, emulators and boots.
    Clean,
}

#[derive(Debug, clap::Args)]
struct Kernel {
    /// Kernel series: 6.1, 6.12 or 7.3.
    #[arg(long, value_name = "SERIES", default_value = "6.12")]
    kernel: String,
    /// Debian release to take the packages from [default: 12; for series 7.3: 13].
    #[arg(long, value_name = "NUMBER")]
    debian: Option<String>,
    /// Flavour of the kernel: cloud-amd64, or amd64 for any PC.
    #[arg(long, default_value = Flavour::Cloud.name())]
    flavour: String,
}

#[derive(Debug, clap::Args)]
struct Build {
    #[command(flatten)]
    kernel: Kernel,
    /// Fetch only the headers of the kernel, which are enough to build the module.
    #[arg(long)]
    headers_only: bool,
}

#[derive(Debug, clap::Args)]
struct Boot {
    #[command(flatten)]
    kernel: Kernel,
    /// bochs emulates VT-x with pause-loop exiting, qemu-amd SVM with a pause filter. qemu (Debian's)
    /// emulates SVM without a pause filter, and its times mean nothing.
    #[arg(long, value_parser = one_of(EMULATORS), default_value = Emulator::Bochs.name())]
    emulator: Emulator,
}

const EMULATORS: [Emulator; 3] = [Emulator::Bochs, Emulator::QemuAmd, Emulator::Qemu];

/// Accepts the names of these emulators.
fn one_of<const N: usize>(all: [Emulator; N]) -> impl TypedValueParser<Value = Emulator> {
    PossibleValuesParser::new(all.map(Emulator::name))
        .try_map(move |name| all.into_iter().find(|e| e.name() == name).ok_or("no emulator"))
}

fn tools(emulator: Emulator) -> &'static [&'static str] {
    match emulator {
        Emulator::Bochs => BOCHS_TOOLS,
        Emulator::QemuAmd | Emulator::Qemu => QEMU_TOOLS,
    }
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let stop = match args.command {
        // The shell's Ctrl-C is for programs in the computer.
        Command::Shell(_) => Arc::default(),
        _ => signals::stop()?,
    };
    let mut say = |text: &str| say!("{text}");
    let go = &mut Go::new(&stop, &mut say);
    match &args.command {
        Command::Build(b) => {
            let lab = open(args.lab_dir.as_deref())?;
            let release = match b.headers_only {
                true => lab.build_module(package(&b.kernel)?, go),
                false => lab.build(package(&b.kernel)?, go).map(|kernel| kernel.release),
            };
            out::print(&format!("{}\n", release.map_err(explain)?))
        }
        Command::Boot(b) => boot(args, b, go),
        Command::Emulator { emulator } => {
            let lab = with_tools(args, &[])?;
            out::print(&format!("{}\n", program(&lab, *emulator, go)?.name()))
        }
        Command::Speed { emulator, json } => {
            let lab = with_tools(args, tools(emulator.unwrap_or(Emulator::Bochs)))?;
            let kernel = lab.build(unspin_computers::Series::V6_12, go).map_err(explain)?;
            speed::run(&lab, &kernel, *emulator, *json, go)
        }
        Command::Shell(k) => {
            let lab = with_tools(args, QEMU_TOOLS)?;
            let kernel = build(&lab, k, go)?;
            lab.shell(&kernel).map_err(explain)
        }
        Command::Symbols { series: name } => {
            let series = series(name).map_err(Usage::from)?;
            let lab = with_tools(args, &[])?;
            let kernel = lab.guest_kernel(series.into(), go).map_err(explain)?;
            out::print(&unspin_computers::kernel_symbols(&kernel).map_err(explain)?)
        }
        Command::GuestKernel => {
            let lab = with_tools(args, GUEST_KERNEL_TOOLS)?;
            let kernel = lab.build_locks_kernel(go).map_err(explain)?;
            out::print(&format!("{}\n", kernel.display()))
        }
        Command::Clean => with_tools(args, &[])?.clean(go).map_err(explain),
    }
}

fn boot(args: &Args, b: &Boot, go: &mut Go) -> anyhow::Result<()> {
    let lab = with_tools(args, tools(b.emulator))?;
    let kernel = build(&lab, &b.kernel, go)?;
    let emulator = program(&lab, b.emulator, go)?.name();
    say!("booting {} under {emulator}", kernel.release);
    let mut lost = Ok(());
    let good = lab
        .check(&kernel, &Computer::of(b.emulator, CPUS), go.stop, &mut |line| {
            lost = std::mem::replace(&mut lost, Ok(()))
                .and_then(|()| out::print(&format!("{line}\n")));
        })
        .map_err(explain)?;
    lost?;
    if !good {
        bail!(
            "the boot of the computer failed; its console is in {}",
            lab.dir().join("boots").display()
        );
    }
    Ok(())
}

fn program(lab: &Lab, emulator: Emulator, go: &mut Go) -> anyhow::Result<Program> {
    lab.program(emulator, go).map_err(explain)
}

fn with_tools(args: &Args, tools: &[&str]) -> anyhow::Result<Lab> {
    missing(tools).map_err(Cannot)?;
    Lab::open(args.lab_dir.clone(), agent()?).map_err(explain)
}

fn build(lab: &Lab, k: &Kernel, go: &mut Go) -> anyhow::Result<unspin_computers::Kernel> {
    lab.build(package(k)?, go).map_err(explain)
}

fn package(k: &Kernel) -> anyhow::Result<KernelPackage> {
    let mut package = KernelPackage::from(series(&k.kernel).map_err(Usage::from)?);
    let debians = package.series.debians();
    if let Some(name) = &k.debian {
        let found = Debian::parse(name).filter(|debian| debians.contains(debian));
        package.debian = found.ok_or_else(|| {
            Usage::from(Refusal {
                message: format!("Debian {name:?} has no package of kernel {}", k.kernel),
                allowed: debians.iter().map(|d| d.name()).collect::<Vec<_>>().join(", "),
            })
        })?;
    }
    package.flavour = Flavour::parse(&k.flavour).ok_or_else(|| {
        Usage::from(Refusal {
            message: format!("no kernel has the flavour {:?}", k.flavour),
            allowed: Flavour::ALL.map(Flavour::name).join(", "),
        })
    })?;
    Ok(package)
}
