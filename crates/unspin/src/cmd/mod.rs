// SPDX-License-Identifier: MIT OR Apache-2.0
//! One file per subcommand.

mod agent;
mod agree;
mod apply;
mod bench;
mod completions;
mod diagnose;
mod export;
mod figures;
mod generate;
mod guard;
mod help;
mod lab;
mod load;
mod man;
mod model;
mod plan;
mod replay;
mod report;
mod run;
mod set;
mod shape;
mod spinners;
mod status;
mod top;
mod unload;

use clap::{CommandFactory, Parser, Subcommand};

/// Stops vCPUs from spinning for a lock whose holder does not run, and shows what that costs.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage or a wrong file, 77 this computer cannot do it.
#[derive(Debug, Parser)]
#[command(name = "unspin", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run scenarios and compare their arms.
    Bench(bench::Args),
    /// Show results again, or in another form.
    Report(report::Args),
    /// Compare measured results with the simulator.
    Agree(agree::Args),
    /// Draw scenarios from a space by a seed, and write them.
    Generate(generate::Args),
    /// Make the papers' figures again on the simulator and compare.
    Figures(figures::Args),
    /// Say how far applications scale on a machine, and in a VM that shares it.
    Model(model::Args),
    /// Load the module into this host's kernel.
    Load(load::Args),
    /// Take the module out; KVM goes on as if it had never been there.
    Unload,
    /// Show the module, its defaults and every VM.
    Status(status::Args),
    /// Show what VMs lose, on what, and what would help.
    Diagnose(diagnose::Args),
    /// Show what VMs lose, on what, as it happens.
    Top(top::Args),
    /// Serve metrics of VMs to Prometheus.
    Export(export::Args),
    /// Show where VMs spin and where the host interrupts them, by function of the guest's kernel.
    Spinners(spinners::Args),
    /// Change settings of the module, of all VMs or of one.
    Set(set::Args),
    /// Share CPU time out among a VM's vCPUs by what each can use, while it runs.
    Shape(shape::Args),
    /// Set VMs, by name or process, as /etc/unspin/unspin.toml says; once, or as a service.
    Apply(apply::Args),
    /// Run a program with our locks in place of pthread's, without building it anew.
    Run(run::Args),
    /// Make the decisions of a recorded trace again and compare.
    Replay(replay::Args),
    /// Build, boot, enter or remove emulated computers.
    Lab(lab::Args),
    /// Print completions for a shell.
    Completions(completions::Args),
    /// Print the manual page, or write all of them to a directory.
    Man(man::Args),
    /// Print the runs a scenario expands to, as JSON.
    Plan(plan::Args),
    /// Run a plan on this computer and print records.
    #[command(hide = true)]
    Agent(agent::Args),
    /// One VM of a run; started by the agent.
    #[command(hide = true)]
    VmProcess(agent::Args),
    /// Puts back what a command has changed that is killed; started by that command.
    #[command(hide = true)]
    Guard(guard::Args),
    /// One run of machine threads; started by bench.
    #[command(hide = true)]
    ThreadsRun,
}

/// The command line, its subcommands grouped by who needs them.
pub fn command() -> clap::Command {
    help::grouped(Cli::command())
}

pub fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Bench(a) => bench::run(&a),
        Command::Report(a) => report::run(&a),
        Command::Agree(a) => agree::run(&a),
        Command::Generate(a) => generate::run(&a),
        Command::Figures(a) => figures::run(&a),
        Command::Model(a) => model::run(&a),
        Command::Load(a) => load::run(&a),
        Command::Unload => unload::run(),
        Command::Status(a) => status::run(&a),
        Command::Diagnose(a) => diagnose::run(&a),
        Command::Top(a) => top::run(&a),
        Command::Export(a) => export::run(&a),
        Command::Spinners(a) => spinners::run(&a),
        Command::Set(a) => set::run(&a),
        Command::Shape(a) => shape::run(&a),
        Command::Apply(a) => apply::run(&a),
        Command::Run(a) => run::run(&a),
        Command::Replay(a) => replay::run(&a),
        Command::Lab(a) => lab::run(&a),
        Command::Completions(a) => completions::run(&a, &Cli::command()),
        Command::Man(a) => man::run(&a, Cli::command()),
        Command::Plan(a) => plan::run(&a),
        Command::Agent(a) => agent::agent(&a),
        Command::VmProcess(a) => agent::vm_process(&a),
        Command::Guard(a) => guard::run(&a),
        Command::ThreadsRun => crate::machine::threads::run_process(),
    }
}
