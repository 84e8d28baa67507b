// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin top`: what VMs lose, on what, as it happens.

mod app;
mod bar;
#[cfg(test)]
mod cost;
mod detail;
mod draw;
mod help;
mod line;
mod once;
mod paint;
mod table;
mod terminal;

use super::diagnose::show::Document;
use super::shape::{what_is_shaped, SHAPED};
use crate::exit::Usage;
use crate::out;
use crate::span::{seconds, stopped_by_signals, wait};
use crate::watch::facts::Detail;
use crate::watch::{Source, SourceArgs, Watched, SETTLE};
use anyhow::{bail, Context};
use app::{App, Then};
use line::{Column, Line};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};
use terminal::{Signals, Taken};

/// How long a signal may wait.
const LOOK: Duration = Duration::from_millis(100);

const HELP: &str = "\
A line per VM, with a bar of what it loses to each cause. F5 or Enter shows the vCPUs of a VM, its states, \
and what would help. F1 shows all keys; they are those of htop, where htop has them.

--once writes a table and ends. --once --json writes what `unspin diagnose --json` writes.

BPF programs in the host's kernel count, as for `unspin diagnose`. The module need not be loaded. Only \
root may do this.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Seconds between two looks, 0.1 to 3600.
    #[arg(short, long, value_name = "S", default_value = "1", value_parser = seconds)]
    delay: Duration,
    /// Only VMs that have this in their names; upper and lower case are the same.
    #[arg(short = 'F', long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// What VMs are sorted by: the largest first, names from A on.
    #[arg(short, long, value_name = "COLUMN", value_enum, default_value = "lost")]
    sort: Column,
    /// Watch for one delay, write a table, and end.
    #[arg(short = '1', long)]
    once: bool,
    /// With --once: everything, as JSON.
    #[arg(long, requires = "once")]
    json: bool,
    #[command(flatten)]
    source: SourceArgs,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    if !args.once && !std::io::stdout().is_terminal() {
        let why = "top draws on a terminal, and standard output is none; --once writes a table";
        return Err(Usage(why.into()).into());
    }
    let mut source = args.source.open(if args.json { Detail::All } else { Detail::Causes })?;
    match args.once {
        true => once(args, source.as_mut()),
        false => live(args, source.as_mut()),
    }
}

fn once(args: &Args, source: &mut dyn Source) -> anyhow::Result<()> {
    let stop = stopped_by_signals()?;
    source.look()?;
    wait(SETTLE, &stop, &mut |_| {})?;
    let before = source.sample()?;
    wait(args.delay, &stop, &mut |_| {})?;
    let after = source.sample()?;
    if after.vms.is_empty() {
        bail!("no VM runs on this host");
    }
    let filter = args.filter.to_lowercase();
    let is_chosen = |vm: &Watched| line::name(vm.vm).to_lowercase().contains(&filter);
    let between = after.vms.iter().filter_map(|vm| vm.between(&before.seen, &after.seen));
    let watched: Vec<Watched> = between.filter(is_chosen).collect();
    if watched.is_empty() {
        bail!("no VM that ran all the time has {:?} in its name", args.filter);
    }
    if args.json {
        return out::json(&Document::new(&watched, &before.facts, &after.facts));
    }
    let mut lines: Vec<Line> = watched.iter().map(|vm| Line::of_vm(vm, &before, &after)).collect();
    args.sort.sort(&mut lines, false);
    out::print(&once::table(&lines))
}

fn live(args: &Args, source: &mut dyn Source) -> anyhow::Result<()> {
    let signals = Signals::take()?;
    let mut app = App::new(args.sort, args.filter.clone());
    source.look()?;
    let mut taken = Taken::new()?;
    let mut due = Instant::now() + SETTLE;
    let mut is_changed = true;
    while !signals.is_end() {
        if signals.had_stop()? {
            taken.take_again()?;
            is_changed = true;
        }
        if due <= Instant::now() && !app.is_paused {
            app.feed(source.sample()?);
            app.shaped = what_is_shaped(Path::new(SHAPED));
            due = Instant::now() + args.delay;
            is_changed = true;
        }
        if is_changed {
            let picture = |frame: &mut ratatui::Frame| {
                draw::draw(&mut app, args.delay, frame.area(), frame.buffer_mut());
            };
            taken.screen.draw(picture).context("cannot draw on the terminal")?;
        }
        let left = due.saturating_duration_since(Instant::now());
        let left = if app.is_paused { LOOK } else { left.min(LOOK) };
        is_changed = taken.wait(left)?;
        let mut has_event = is_changed;
        while has_event {
            match press(&mut app)? {
                Then::Quit => return Ok(()),
                Then::Stop => signals.ask_stop(),
                Then::Redraw => taken.take_again()?,
                Then::Stay => {}
            }
            // One reading of the terminal may be several.
            has_event = event::poll(Duration::ZERO).context("cannot read keys")?;
        }
    }
    Ok(())
}

/// Takes a key, or the terminal's new size.
fn press(app: &mut App) -> anyhow::Result<Then> {
    match event::read().context("cannot read keys")? {
        Event::Key(key) if key.kind != KeyEventKind::Release => Ok(app.press(key)),
        _ => Ok(Then::Stay),
    }
}
