// SPDX-License-Identifier: MIT OR Apache-2.0
//! One file per subcommand.

#[cfg(feature = "module")]
mod apply;
mod diagnose;
mod examples;
mod export;
mod guard;
mod load;
mod neighbours;
#[cfg(feature = "module")]
mod run;
mod schedule;
#[cfg(feature = "module")]
mod set;
mod shape;
mod spinners;
mod status;
mod top;
#[cfg(feature = "module")]
mod unload;
mod written;

use clap::{CommandFactory, Parser, Subcommand};
use examples::EXAMPLES;
use unspin_cli::{completions, help, man};

/// Shows how much CPU time VMs lose, and runs the likely lock holder when a vCPU spins.
///
/// Exit codes: 0 success, 1 failure, 2 wrong usage or an error in a file, 77 not possible on this
/// computer.
#[derive(Debug, Parser)]
#[command(
    name = "unspin",
    version,
    max_term_width = 100,
    after_help = "The commands for scenarios, emulated computers and the simulator are those of unspin-lab.\n\
        `unspin bench` runs `unspin-lab bench`, and so on."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load the module into the host kernel.
    Load(load::Args),
    /// Unload the module; KVM runs its own code again.
    #[cfg(feature = "module")]
    Unload,
    /// Show the module, its defaults and every VM.
    Status(status::Args),
    /// Measure how much time VMs lose, name the causes, and advise.
    Diagnose(diagnose::Args),
    /// Show which VMs and services compete for CPU time, by which weights and quotas, and what each gets.
    #[command(alias = "neighbors")]
    Neighbours(neighbours::Args),
    /// Show live how much time VMs lose, and the causes.
    Top(top::Args),
    /// Serve metrics of VMs to Prometheus.
    Export(export::Args),
    /// Show in which functions of the guest kernel VMs spin, and where the host interrupts them.
    Spinners(spinners::Args),
    /// Change settings of the module, for all VMs or for one.
    #[cfg(feature = "module")]
    Set(set::Args),
    /// Divide the CPU time of running VMs among their vCPUs by what each can use.
    Shape(shape::Args),
    /// Schedule VMs on CPUs of their own, and run vCPUs that spin for each other at the same time (experimental).
    Schedule(schedule::Args),
    /// Apply the settings of /etc/unspin/unspin.toml to VMs, once or as a service.
    #[cfg(feature = "module")]
    Apply(apply::Args),
    /// Run a program with the locks of unspin in place of those of pthread, without a rebuild.
    #[cfg(feature = "module")]
    Run(run::Args),
    /// Print shell completions.
    Completions(completions::Args),
    /// Print the manual page, or write all manual pages to a directory.
    Man(man::Args),
    /// Restores the changes of a killed command; started by that command.
    #[command(hide = true)]
    Guard(guard::Args),
}

/// Subcommands by purpose.
const GROUPS: help::Groups = &[
    ("See what VMs lose", &["top", "diagnose", "neighbours", "spinners", "export"]),
    ("Change settings of VMs", &["load", "unload", "status", "set", "apply", "shape", "schedule"]),
    ("Locks in programs", &["run"]),
    ("The shell", &["completions", "man", "help"]),
];

pub fn command() -> clap::Command {
    help::grouped(Cli::command(), GROUPS)
}

pub fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Load(a) => load::run(&a),
        #[cfg(feature = "module")]
        Command::Unload => unload::run(),
        Command::Status(a) => status::run(&a),
        Command::Diagnose(a) => diagnose::run(&a),
        Command::Neighbours(a) => neighbours::run(&a),
        Command::Top(a) => top::run(&a),
        Command::Export(a) => export::run(&a),
        Command::Spinners(a) => spinners::run(&a),
        #[cfg(feature = "module")]
        Command::Set(a) => set::run(&a),
        Command::Shape(a) => shape::run(&a),
        Command::Schedule(a) => schedule::run(&a),
        #[cfg(feature = "module")]
        Command::Apply(a) => apply::run(&a),
        #[cfg(feature = "module")]
        Command::Run(a) => run::run(&a),
        Command::Completions(a) => completions::run(&a, "unspin", &Cli::command()),
        Command::Man(a) => man::run(&a, Cli::command(), EXAMPLES),
        Command::Guard(a) => guard::run(&a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subcommand_is_in_one_group() {
        assert_eq!(help::misplaced(&command(), GROUPS), Vec::<String>::new());
    }

    #[test]
    fn each_subcommand_has_examples_that_it_takes() {
        assert_eq!(man::wrong_examples(&command(), EXAMPLES), Vec::<String>::new());
    }
}
