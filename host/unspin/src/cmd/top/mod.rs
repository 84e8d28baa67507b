// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin top`: shows live how much time VMs lose.

mod app;
mod bar;
#[cfg(test)]
mod cost;
mod detail;
mod draw;
mod help;
pub(super) mod line;
mod paint;
mod table;
mod terminal;

use super::diagnose::show::Document;
use super::written::{read, SCHEDULED, SHAPED};
use crate::exit::Usage;
use crate::fit::terminal_width;
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
use unspin_host::Name;

/// Longest delay of the reaction to a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Limit of characters of a filter in messages.
const FILTER_SHOWN: usize = 64;

const HELP: &str = "\
Shows a line per VM, with a bar of its losses by cause. F5 or Enter shows the vCPUs of a VM, its \
states, and advice. F1 lists all keys, which follow htop.

--once prints a table and exits. It is as wide as the terminal, or as COLUMNS says; 80 without a terminal. \
Where there is no room for all columns, the least important are left out. --once --json prints the same document as `unspin diagnose --json`.

BPF programs in the host kernel collect the times, as for `unspin diagnose`. The module is optional. \
Requires root.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Seconds between refreshes, 0.1 to 3600.
    #[arg(short, long, value_name = "S", default_value = "1", value_parser = seconds)]
    delay: Duration,
    /// Show only VMs with a name that contains this text, ignoring case.
    #[arg(short = 'F', long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// Sort by this column: largest first, names from A to Z.
    #[arg(short, long, value_name = "COLUMN", value_enum, default_value = "lost")]
    sort: Column,
    /// Measure for one delay, print a table, and exit.
    #[arg(short = '1', long)]
    once: bool,
    /// With --once: print JSON, with all values.
    #[arg(long, requires = "once")]
    json: bool,
    #[command(flatten)]
    source: SourceArgs,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    if !args.once && !std::io::stdout().is_terminal() {
        let why = "top needs a terminal, and standard output is not one; --once prints a table";
        return Err(Usage(why.into()).into());
    }
    let mut source = args.source.open(if args.json { Detail::All } else { Detail::Takers })?;
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
    let is_chosen = |vm: &Watched| line::is_called(vm.vm, &args.filter);
    let between = after.vms.iter().filter_map(|vm| vm.between(&before.seen, &after.seen));
    let mut watched: Vec<Watched> = between.filter(is_chosen).collect();
    if watched.is_empty() && args.filter.is_empty() {
        bail!("no VM with vCPUs ran during the measurement");
    }
    if watched.is_empty() {
        let filter = Name::new(args.filter.as_str()).short(FILTER_SHOWN);
        bail!("no VM that ran during the whole measurement has {filter:?} in its name");
    }
    let mut lines: Vec<Line> = watched.iter().map(|vm| Line::of_vm(vm, &before, &after)).collect();
    args.sort.sort(&mut lines, false);
    let place = |pid| lines.iter().position(|line| line.id == pid);
    watched.sort_by_key(|vm| place(vm.vm.pid));
    let document = Document::new(&watched, &before, &after);
    match args.json {
        true => out::json(&document),
        false => out::print(&document.table(terminal_width())),
    }
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
            app.shaped = read(Path::new(SHAPED));
            app.scheduled = read(Path::new(SCHEDULED));
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
            // One read of the terminal may return several events.
            has_event = event::poll(Duration::ZERO).context("cannot read keys")?;
        }
    }
    Ok(())
}

/// Handles a key, or a change of the terminal's size.
fn press(app: &mut App) -> anyhow::Result<Then> {
    match event::read().context("cannot read keys")? {
        Event::Key(key) if key.kind != KeyEventKind::Release => Ok(app.press(key)),
        _ => Ok(Then::Stay),
    }
}
