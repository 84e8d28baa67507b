// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin diagnose VM --ab CAUSE`: measures the cost of a cause for a running VM, by alternating two
//! settings.

mod document;
mod placement;
mod switch;
mod trial;
mod work;

use super::show::title;
use crate::exit::Cannot;
use crate::out;
use crate::span::stopped_by_signals;
use crate::undo::{told, Guard, Undo, SILENCE_MAX};
use crate::vms;
use crate::watch::facts::Detail;
use crate::watch::{Kernel, Mixes, Script, Scripted, Source};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use document::Document;
use serde::Serialize;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use switch::{has_none, Places, Switch};
use trial::{Asked, Trial, Window};
use unspin_diagnosis::Cause;
use unspin_host::journal::JOURNAL;
use unspin_host::{place, Host};

/// Default length of a phase.
const WINDOW: Duration = Duration::from_secs(5);

// Its group would have the same name as that of the arguments around it.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Run an experiment instead of a diagnosis: alternate the running VM between 2 settings, and
    /// compare them. spin-switch: with and without pause-loop exits (needs the module). idle-switch:
    /// with and without polling after HLT (needs a host with 1 VM). cache: vCPUs as placed now, and
    /// within one last-level cache.
    #[arg(long, value_name = "CAUSE", requires = "vm", value_parser = causes())]
    ab: Option<Cause>,
    /// With --ab: number of rounds, 2 to 100. A round is one phase of A and one of B.
    #[arg(long, value_name = "N", requires = "ab", default_value = "4",
          value_parser = clap::value_parser!(u32).range(2..=100))]
    rounds: u32,
    /// With --ab: a command that prints a number which grows with the work of the VM, such as requests
    /// served. /bin/sh runs it at both ends of each phase.
    #[arg(long, value_name = "COMMAND", requires = "ab")]
    work: Option<String>,
    /// Restore the settings that a killed experiment left changed, and exit.
    #[arg(long, conflicts_with_all = ["ab", "vm", "rounds", "work", "seconds", "details"])]
    pub put_back: bool,
    #[arg(long, hide = true, default_value = JOURNAL)]
    journal: PathBuf,
    #[arg(long, hide = true, default_value_os_t = place::sys())]
    sys: PathBuf,
    /// Synthetic states, for tests.
    #[arg(long, hide = true, requires = "ab")]
    synthetic_states: Option<Mixes>,
}

#[derive(Serialize)]
struct PutBack {
    schema: u32,
    /// What became of each change, in words.
    restored: Vec<String>,
}

/// Accepts all causes. A cause without a switch then gets an error of its own.
fn causes() -> impl TypedValueParser<Value = Cause> {
    let value = |cause: Cause| PossibleValue::new(cause.name()).hide(has_none(cause).is_some());
    let of = |name: String| Cause::ALL.into_iter().find(|cause| cause.name() == name);
    PossibleValuesParser::new(Cause::ALL.map(value))
        .map(move |name| of(name).unwrap_or(Cause::Cache))
}

pub struct Asking<'a> {
    pub vm: &'a OsStr,
    pub seconds: Option<Duration>,
    pub json: bool,
    pub sysfs: &'a Path,
    pub proc: &'a Path,
}

impl Args {
    pub fn cause(&self) -> Option<Cause> {
        self.ab
    }

    pub fn put_back(&self, proc: &Path, json: bool) -> anyhow::Result<()> {
        // Only root may look into the directory; for other users the journal seems to be missing.
        let is_there = match self.journal.symlink_metadata() {
            Err(e) if e.kind() == ErrorKind::NotFound => false,
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                let why = "only root may restore settings of this host: use sudo";
                return Err(Cannot(why.to_string()).into());
            }
            _ => true,
        };
        let restored = match is_there {
            true => Undo::open(&self.journal, proc)?.left,
            false => Vec::new(),
        };
        if restored.is_empty() {
            say!("nothing to restore");
        }
        match json {
            true => out::json(&PutBack { schema: 1, restored }),
            false => Ok(()),
        }
    }

    pub fn run(&self, cause: Cause, asking: &Asking) -> anyhow::Result<()> {
        if let Some(usage) = has_none(cause) {
            return Err(usage.into());
        }
        let stop = stopped_by_signals()?;
        let mut undo = Undo::open(&self.journal, asking.proc)?;
        let host = Host::at(asking.proc);
        let mut source = self.source(&host, asking)?;
        let all = vms::processes(&host)?;
        let vm = vms::find_process(all.clone(), &host, asking.vm)?;
        let (sysfs, sys) = (asking.sysfs, &self.sys);
        let places = Places { host: &host, sysfs, sys, vm: &vm, all: &all };
        let switch = Switch::new(cause, &places)?;
        let window = asking.seconds.unwrap_or(WINDOW);
        let work = self.work.as_deref();
        let asked = Asked { vm: &vm, rounds: self.rounds as usize, window, work };
        // Reports an error of the command before any change.
        work.map(|work| work::ask(work, &stop)).transpose()?;
        say!(
            "{}: A is {}; B is {}. Takes about {} s; restored after {} s at the latest",
            title(&vm),
            switch.a,
            switch.b,
            asked.takes().as_secs(),
            (asked.limit() + SILENCE_MAX).as_secs()
        );
        let windows = self.guarded(&asked, &switch, &mut *source, &mut undo, asking.proc, &stop)?;
        let document = Document::new(&asked, &switch, &windows);
        match asking.json {
            true => out::json(&document),
            false => out::print(&document.text(crate::fit::terminal_width())),
        }
    }

    /// Runs the phases. Restores the settings in every case.
    fn guarded(
        &self,
        asked: &Asked,
        switch: &Switch,
        source: &mut dyn Source,
        undo: &mut Undo,
        proc: &Path,
        stop: &AtomicBool,
    ) -> anyhow::Result<Vec<Window>> {
        source.look()?;
        let mut guard = Guard::start(&self.journal, proc)?;
        let mut trial = Trial { asked, switch, source, undo, guard: &mut guard, stop };
        let windows = trial.run();
        let back = undo.put_back();
        if let (Err(_), Ok(back)) = (&windows, &back) {
            let told: Vec<String> =
                back.iter().filter_map(|(change, back)| told(change, back)).collect();
            if !told.is_empty() {
                say!("restored: {}", told.join("; "));
            }
        }
        if back.is_ok() {
            guard.done();
        }
        let windows = windows?;
        back.map(|_| windows)
    }

    fn source(&self, host: &Host, asking: &Asking) -> anyhow::Result<Box<dyn Source>> {
        let (host, sysfs) = (host.clone(), asking.sysfs);
        Ok(match &self.synthetic_states {
            Some(mixes) => {
                let (mixes, sys, sysfs) = (mixes.clone(), self.sys.clone(), sysfs.to_path_buf());
                Box::new(Scripted::new(host, Script::Arms { mixes, sys, sysfs }))
            }
            None => Box::new(Kernel::new(host, sysfs, Detail::Causes)?),
        })
    }
}
