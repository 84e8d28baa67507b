// SPDX-License-Identifier: MIT OR Apache-2.0
//! One file per subcommand.

mod apply;
mod diagnose;
mod export;
mod guard;
mod load;
mod run;
mod set;
mod shape;
mod spinners;
mod status;
mod top;
mod unload;

use clap::{CommandFactory, Parser, Subcommand};
use unspin_cli::{completions, help, man};

/// Stops vCPUs from spinning for a lock whose holder does not run, and shows what that costs.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage or a wrong file, 77 this computer cannot do it.
#[derive(Debug, Parser)]
#[command(
    name = "unspin",
    version,
    max_term_width = 100,
    after_help = "Scenarios, emulated computers and the simulator are commands of unspin-lab."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
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
    /// Print completions for a shell.
    Completions(completions::Args),
    /// Print the manual page, or write all of them to a directory.
    Man(man::Args),
    /// Puts back what a command has changed that is killed; started by that command.
    #[command(hide = true)]
    Guard(guard::Args),
}

/// Subcommands by who needs them.
const GROUPS: help::Groups = &[
    ("See what VMs lose", &["top", "diagnose", "spinners", "export"]),
    ("Change it", &["load", "unload", "status", "set", "apply", "shape"]),
    ("Locks in programs", &["run"]),
    ("The shell", &["completions", "man", "help"]),
];

/// The command line.
pub fn command() -> clap::Command {
    help::grouped(Cli::command(), GROUPS)
}

pub fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
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
        Command::Completions(a) => completions::run(&a, "unspin", &Cli::command()),
        Command::Man(a) => man::run(&a, Cli::command()),
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
}
