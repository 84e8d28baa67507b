// SPDX-License-Identifier: MIT OR Apache-2.0
//! One file per subcommand.

mod agent;
mod agree;
mod bench;
mod examples;
mod figures;
mod generate;
mod lab;
mod model;
mod plan;
mod replay;
mod report;
mod try_host;

use clap::{CommandFactory, Parser, Subcommand};
use examples::EXAMPLES;
use unspin_cli::{completions, help, man};

/// Measures and predicts the cost of spinning vCPUs: on KVM, on emulated computers, on threads, and in
/// a simulator.
///
/// Exit codes: 0 success, 1 failure, 2 wrong usage or an error in a file, 77 not possible on this
/// computer.
#[derive(Debug, Parser)]
#[command(name = "unspin-lab", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run scenarios and compare their arms.
    Bench(bench::Args),
    /// Show existing results, or convert them.
    Report(report::Args),
    /// Try unspin on this host: what it gains, and whether any VM loses. Takes 5 minutes, and restores
    /// all settings. Needs root, 4 CPUs and a host without VMs.
    Try(try_host::Args),
    /// Compare measured results with the simulator.
    Agree(agree::Args),
    /// Draw random scenarios from a space, and write them to files.
    Generate(generate::Args),
    /// Reproduce the figures of the papers on the simulator, and compare them.
    Figures(figures::Args),
    /// Predict how applications scale on a physical machine, and in a VM that shares it.
    Model(model::Args),
    /// Repeat the decisions of a recorded trace, and compare them.
    Replay(replay::Args),
    /// Build, boot, open or remove emulated computers.
    Lab(lab::Args),
    /// Print shell completions.
    Completions(completions::Args),
    /// Print the manual page, or write all manual pages to a directory.
    Man(man::Args),
    /// Print the runs of a scenario as JSON.
    Plan(plan::Args),
    /// Run a plan on this computer, and print records.
    #[command(hide = true)]
    Agent(agent::Args),
    /// One VM of a run; started by the agent.
    #[command(hide = true)]
    VmProcess(agent::Args),
    /// One run of machine threads; started by bench.
    #[command(hide = true)]
    ThreadsRun,
}

/// Subcommands by purpose.
const GROUPS: help::Groups = &[
    ("Measure", &["try", "plan", "bench", "report", "replay", "generate"]),
    ("Predict", &["model", "figures", "agree"]),
    ("Emulated computers, and the shell", &["lab", "completions", "man", "help"]),
];

/// The command line.
pub fn command() -> clap::Command {
    help::grouped(Cli::command(), GROUPS)
}

pub fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Bench(a) => bench::run(&a),
        Command::Report(a) => report::run(&a),
        Command::Try(a) => try_host::run(&a),
        Command::Agree(a) => agree::run(&a),
        Command::Generate(a) => generate::run(&a),
        Command::Figures(a) => figures::run(&a),
        Command::Model(a) => model::run(&a),
        Command::Replay(a) => replay::run(&a),
        Command::Lab(a) => lab::run(&a),
        Command::Completions(a) => completions::run(&a, "unspin-lab", &Cli::command()),
        Command::Man(a) => man::run(&a, Cli::command(), EXAMPLES),
        Command::Plan(a) => plan::run(&a),
        Command::Agent(a) => agent::run(&a, unspin_agent::agent_main),
        Command::VmProcess(a) => agent::run(&a, unspin_vmm::vm_process_main),
        Command::ThreadsRun => crate::machine::threads::run_process(),
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
