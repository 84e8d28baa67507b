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
use super::diagnose::{say_left_out, say_started, watched};
use super::written::{read, SCHEDULED, SHAPED};
use crate::exit::Usage;
use crate::fit::terminal_width;
use crate::out;
use crate::span::{seconds, stopped_by_signals, wait};
use crate::watch::facts::Detail;
use crate::watch::{Sample, Source, SourceArgs, SETTLE};
use anyhow::{bail, Context};
use app::{App, Then};
use line::{Column, Line};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::collections::BTreeSet;
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

--once prints a table and exits. The table is as wide as the terminal, or as COLUMNS, if that variable is \
set. Without a terminal, its width is 80. If there is no room for all columns, the least important are left out. --once --json prints the same document as `unspin diagnose --json`.

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
    let document = document(args.sort, &args.filter, &before, &after)?;
    match args.json {
        true => out::json(&document),
        false => out::print(&document.table(terminal_width())),
    }
}

/// What the VMs did that the filter chooses. Prints which of them are left out.
fn document(
    sort: Column,
    filter: &str,
    before: &Sample,
    after: &Sample,
) -> anyhow::Result<Document> {
    if before.vms.is_empty() && after.vms.is_empty() {
        bail!("no VM runs on this host");
    }
    say_left_out(before);
    say_started(before, after, |vm| line::is_called(vm, filter));
    let called = before.vms.iter().filter(|vm| line::is_called(&vm.process, filter));
    let chosen: BTreeSet<u32> = called.map(|vm| vm.process.pid).collect();
    if chosen.is_empty() && !filter.is_empty() {
        let filter = Name::new(filter).short(FILTER_SHOWN);
        bail!("no VM that ran during the whole measurement has {filter:?} in its name");
    }
    let mut watched = watched(&chosen, before, after)?;
    let mut lines: Vec<Line> = watched.iter().map(|vm| Line::of_vm(vm, before, after)).collect();
    sort.sort(&mut lines, false);
    let place = |pid| lines.iter().position(|line| line.id == pid);
    watched.sort_by_key(|vm| place(vm.vm.pid));
    Ok(Document::new(&watched, before, after).of(chosen.len()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Synthetic;

    fn chosen(filter: &str, before: &Sample, after: &Sample) -> anyhow::Result<(usize, u64)> {
        let json = serde_json::to_value(document(Column::Lost, filter, before, after)?).unwrap();
        let shown = json["vms"].as_array().unwrap().len();
        Ok((shown, json["not_watched"].as_u64().unwrap()))
    }

    /// One for which there is no room, one without vCPUs, and one that ends.
    #[test]
    fn vms_that_are_not_shown_are_counted() {
        let source = Synthetic::new(6, 2);
        let [mut before, mut after] = [1000, 1001].map(|s| source.at(Duration::from_secs(s)));
        assert_eq!(chosen("", &before, &after).unwrap(), (6, 0));
        let pids: Vec<u32> = before.vms.iter().map(|vm| vm.process.pid).collect();
        for sample in [&mut before, &mut after] {
            sample.left_out = 1;
            sample.seen.retain(|thread, _| thread.pid != pids[0] && thread.pid != pids[1]);
        }
        after.vms.remove(2);
        assert_eq!(chosen("", &before, &after).unwrap(), (3, 3));
        assert_eq!(chosen("mail", &before, &after).unwrap(), (1, 0));
        for (filter, why) in [("web", "no VM with vCPUs ran"), ("none", "has \"none\" in its name")]
        {
            let e = chosen(filter, &before, &after).unwrap_err().to_string();
            assert!(e.contains(why), "{e}");
        }
    }
}
