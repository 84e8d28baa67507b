// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab plan`: the runs that a scenario expands to.

use crate::load::{self, Select};
use crate::worlds::time::length_ms;
use std::io::Write;
use std::path::PathBuf;
use unspin_scenario::plan::Run;
use unspin_scenario::split;
use unspin_scenario::Named;
use unspin_text::fit::{table, terminal_width, Column};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Scenario: a file, or a name.
    scenario: PathBuf,
    #[command(flatten)]
    select: Select,
    /// Print only this boot of the scenario, counted from 0.
    #[arg(long)]
    boot: Option<usize>,
    /// Print one line per run instead of JSON.
    #[arg(long)]
    list: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let loaded = load::scenario(&args.scenario, args.select.profile_dir.as_deref())?;
    let mut plan = loaded.plan(&args.select)?;
    if let Some(n) = args.boot {
        let parts = split(&plan, loaded.scenario.boots);
        let count = parts.len();
        plan = parts.into_iter().nth(n).ok_or_else(|| {
            crate::exit::Usage(format!("--boot {n}: the scenario has boots 0 to {}", count - 1))
        })?;
    }
    let mut out = std::io::stdout().lock();
    if !args.list {
        writeln!(out, "{}", plan.to_json())?;
        return Ok(());
    }
    out.write_all(list(&plan.runs, terminal_width()).as_bytes())?;
    let ms: u64 = plan.runs.iter().map(length_ms).sum();
    writeln!(out, "{} runs, about {:.1} s of machine time", plan.runs.len(), ms as f64 / 1e3)?;
    Ok(())
}

/// One line per run, wrapped to the width of the terminal.
fn list(runs: &[Run], width: usize) -> String {
    let columns = [
        Column::number("run", 0),
        Column::number("repeat", 4),
        Column::text("VMs", 2),
        Column::text("cgroups", 3),
        Column::text("profile, lock, arm", 1),
    ];
    let row = |r: &Run| {
        let cgroups = format!("{:?}", r.cgroup).to_lowercase();
        let what = format!("{}, {}, {}", r.profile, lock(r), r.arm.name);
        let vms = format!("{} x {}", r.vms.len(), r.vcpus_text());
        vec![r.id.to_string(), r.repeat.to_string(), vms, cgroups, what]
    };
    table(&columns, &runs.iter().map(row).collect::<Vec<_>>(), width)
}

/// The guests' lock; for a Linux guest, the lock of its kernel.
fn lock(run: &Run) -> String {
    let first = run.first();
    match &first.linux {
        Some(linux) => format!("linux {}", linux.guest.lock.called()),
        None => first.lock_choice().label(),
    }
}
