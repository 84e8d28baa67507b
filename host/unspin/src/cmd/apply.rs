// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin apply`: applies the settings of a file, once or as a service (unspin.service).

use crate::config::{Config, FILE, HELP};
use crate::exit::{said, Cannot, Told, FAILED, USAGE};
use crate::keep::{Keeper, TRIES};
use crate::span::signals;
use crate::sysfs::{root, Module};
use crate::{host, notify};
use anyhow::Context;
use signal_hook::consts::SIGHUP;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use unspin_host::{place, Host};
use unspin_text::{read_kernel_text, Lock};

/// Disables the service if it is on the kernel command line.
const SWITCH: &str = "unspin=off";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The configuration file.
    #[arg(long, value_name = "FILE", default_value = FILE)]
    config: PathBuf,
    /// Check the file, and change nothing.
    #[arg(long, conflicts_with = "stay")]
    check: bool,
    /// Keep running, and apply the settings to VMs that start later, too. Loads the module if it is not
    /// loaded. SIGHUP reads the file again. On exit every VM is set to mode off, and the module is unloaded
    /// if this command loaded it.
    #[arg(long)]
    stay: bool,
    /// Set all VMs to mode off, and unload the module if a killed --stay loaded it.
    #[arg(long, hide = true, conflicts_with_all = ["stay", "check"])]
    stop: bool,
    #[arg(long, hide = true, default_value_os_t = root())]
    sysfs: PathBuf,
    #[arg(long, hide = true, default_value_os_t = place::proc())]
    proc: PathBuf,
    /// Directory of the note that this service loaded the module.
    #[arg(long, hide = true, default_value = "/run/unspin")]
    run_dir: PathBuf,
    /// How often it looks for new VMs.
    #[arg(long, hide = true, default_value_t = 1000)]
    every_ms: u64,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.stop {
        return stop(args);
    }
    let config = Config::read(&args.config)?;
    if args.check {
        return Ok(());
    }
    if args.stay {
        return stay(args, config);
    }
    let module = Module::open_same_version(&args.sysfs)?;
    let keeper = Keeper::start(module, Host::at(&args.proc), config, 1)?;
    match (keeper.is_ambiguous(), keeper.is_refused()) {
        (true, _) => Err(Told(USAGE).into()),
        (false, true) => Err(Told(FAILED).into()),
        (false, false) => Ok(()),
    }
}

fn stay(args: &Args, config: Config) -> anyhow::Result<()> {
    let cmdline = args.proc.join("cmdline");
    let words =
        read_kernel_text(&cmdline).with_context(|| format!("cannot read {}", cmdline.display()))?;
    if words.split_whitespace().any(|word| word == SWITCH) {
        return Err(Cannot(format!(
            "the kernel command line has {SWITCH}, which disables this \
                                   service"
        ))
        .into());
    }
    // Signals must not end it between loading the module and recording that.
    let signals = signals()?;
    let _alone = Lock::take(&args.run_dir)?;
    let loaded = Loaded::new(args)?;
    let module = Module::open_same_version(&args.sysfs)?;
    let mut keeper = Keeper::start(module, Host::at(&args.proc), config, TRIES)?;
    notify::tell("READY=1");
    while keep(args, &mut keeper, &signals) {}
    if keeper.has_module() {
        notify::tell("STOPPING=1");
        keeper.stop();
    } else {
        say!("the module was unloaded: nothing left to do");
    }
    drop(loaded);
    Ok(())
}

/// Waits and handles the next event; false at the end.
fn keep(args: &Args, keeper: &mut Keeper, signals: &Receiver<i32>) -> bool {
    let due = match signals.recv_timeout(Duration::from_millis(args.every_ms)) {
        Ok(SIGHUP) => reload(args, keeper),
        Ok(_) | Err(RecvTimeoutError::Disconnected) => return false,
        Err(RecvTimeoutError::Timeout) => keeper.look(),
    };
    if !keeper.has_module() {
        return false;
    }
    if let Err(e) = due {
        say!("{}", said(&e));
    }
    true
}

fn reload(args: &Args, keeper: &mut Keeper) -> anyhow::Result<()> {
    Config::read(&args.config)
        .and_then(|config| keeper.change(config))
        .context("the settings are unchanged")?;
    say!("reloaded {}; VMs: {}", args.config.display(), keeper.count());
    Ok(())
}

/// The loaded module. Dropping it unloads the module if this process loaded it.
struct Loaded<'a>(&'a Args);

impl Loaded<'_> {
    fn new(args: &Args) -> anyhow::Result<Loaded<'_>> {
        if !args.sysfs.is_dir() {
            let note = args.note();
            fs::write(&note, "").with_context(|| format!("cannot write {}", note.display()))?;
            // From here on any error unloads the module and removes the note.
            let loaded = Loaded(args);
            host::insert(None)?;
            say!("loaded the module");
            return Ok(loaded);
        }
        // The note means that a killed process loaded it.
        Ok(Loaded(args))
    }
}

impl Drop for Loaded<'_> {
    fn drop(&mut self) {
        self.0.take_out();
    }
}

impl Args {
    fn note(&self) -> PathBuf {
        self.run_dir.join("loaded")
    }

    /// Unloads the module if this service loaded it.
    fn take_out(&self) {
        let note = self.note();
        if note.exists() && self.sysfs.is_dir() {
            match host::remove() {
                Ok(()) => say!("unloaded the module"),
                Err(e) => say!("the module stays loaded, in mode off: {}", said(&e)),
            }
        }
        let _ = fs::remove_file(note);
    }
}

fn stop(args: &Args) -> anyhow::Result<()> {
    let off = match Module::open(&args.sysfs) {
        // `off` works with any version of the module.
        Ok(module) => module.set(None, &[("mode", "off")]),
        Err(_) => Ok(()),
    };
    args.take_out();
    off
}
