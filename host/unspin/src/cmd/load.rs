// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin load`: loads the module, and says whether this host can have it.

use crate::exit::{Cannot, Told, Usage, CANNOT};
use crate::fit::terminal_width;
use crate::sysfs::{self, Module};
use crate::{host, out};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use unspin_cli::verdict::{note, From, Judgement};
use unspin_host::place::under;
use unspin_probe::{Extent, Plan};

const HELP: &str = "\
--check --json prints {\"schema\":1,\"verdict\":...,\"reasons\":[...],\"monitors\":...}. The verdict is can, \
can_with or cannot. can_with: something has to be done first, or part of the module does not work, or the \
kernel is untested. Each reason has an id, its own verdict, and a text. The decisive reason comes first. \
The field monitors says whether top, diagnose and export work on this kernel, and if not, why, and what \
they cannot measure. The exit code is 77 if the verdict is cannot, else 0.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Load this file instead of the module installed for this kernel (DKMS, `make -C core/kmod
    /// install`).
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Build the module for the running kernel from the source tree, and load it.
    #[arg(long, conflicts_with = "module")]
    build: bool,
    /// Print whether this host can have the module, and why; load nothing.
    #[arg(long)]
    check: bool,
    /// With --check: print JSON.
    #[arg(long, requires = "check")]
    json: bool,
    /// With --check: the host's files, for tests.
    #[arg(long, hide = true, default_value = "/", requires = "check")]
    root: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(file) = &args.module {
        check_file(file)?;
    }
    let release = match host::release(&args.root) {
        Err(why) if args.check => return check(args, &Judgement::of_unknown(format!("{why:#}"))),
        release => release?,
    };
    let from = match (args.build, &args.module) {
        (true, _) => From::Build,
        (_, Some(_)) => From::File,
        _ => From::Installed,
    };
    let judgement = || Judgement::of(&args.root, &release, from);
    match args.check {
        true => check(args, &judgement()),
        false if !cfg!(feature = "module") => Err(Cannot(
            "this build has only the commands that watch VMs: `unspin load --check` says whether \
             this host can have the module, and the packages unspin and unspin-dkms load it"
                .into(),
        )
        .into()),
        false if sysfs::root().is_dir() => {
            say!("the module is already loaded");
            Module::open_same_version(&sysfs::root()).map(drop)
        }
        false => load(args, &release, &judgement()),
    }
}

fn check_file(file: &Path) -> Result<(), Usage> {
    match file.metadata() {
        Ok(is) if is.is_file() => Ok(()),
        Ok(_) => Err(Usage(format!("--module {}: not a regular file", file.display()))),
        Err(e) => Err(Usage(format!("--module {}: {e}", file.display()))),
    }
}

fn check(args: &Args, judgement: &Judgement) -> anyhow::Result<()> {
    let monitors = Monitors::of(&args.root);
    let shown = match args.json {
        true => out::json(&Checked { module: judgement, monitors }),
        false => {
            let width = terminal_width();
            out::print(&(judgement.text(width) + &monitors.text(width)))
        }
    };
    // The exit code is the verdict, whether anybody reads the output or not.
    match judgement.obstacle() {
        Some(_) => Err(Told(CANNOT).into()),
        None => shown,
    }
}

fn load(args: &Args, release: &str, judgement: &Judgement) -> anyhow::Result<()> {
    if let Some(why) = judgement.obstacle() {
        return Err(Cannot(why.text.clone()).into());
    }
    let blocked = args.build.then(|| host::obstacle(Path::new("/"), release, host::is_root()));
    if let Some(why) = blocked.flatten() {
        return Err(Cannot(why).into());
    }
    if !host::is_root() {
        return Err(Cannot("only root may load the module: sudo unspin load".into()).into());
    }
    // modprobe itself reports that there is no module.
    for reason in judgement.reasons.iter().filter(|reason| reason.id != "not-installed") {
        say!("note: {}", reason.text);
    }
    let built = match args.build {
        true => Some(host::build(release, &AtomicBool::new(false), &|text| say!("{text}"))?),
        false => None,
    };
    host::insert(built.as_deref().or(args.module.as_deref()))?;
    Module::open_same_version(&sysfs::root()).inspect_err(|_| {
        if let Err(e) = host::remove() {
            say!("the module stays loaded: {e:#}");
        }
    })?;
    say!(
        "loaded; every VM is in mode off. `unspin set mode=observe` counts for all VMs; `unspin \
         set --vm NAME mode=hvs` turns on HVS for 1 VM"
    );
    Ok(())
}

/// What commands that need no module can do on this kernel.
#[derive(Serialize)]
struct Monitors {
    fit: bool,
    /// Why they cannot watch VMs, or what they cannot measure.
    why: Vec<String>,
}

impl Monitors {
    fn of(root: &Path) -> Monitors {
        match Plan::of(&under(root, "proc"), &under(root, "sys"), Extent::Whole) {
            Ok(plan) => Monitors { fit: true, why: plan.unknown().map(String::from).collect() },
            Err(why) => Monitors { fit: false, why: vec![why.to_string()] },
        }
    }

    fn text(&self, width: usize) -> String {
        let can = if self.fit { "fit this kernel" } else { "cannot watch VMs here" };
        let why = self.why.iter().map(|why| format!(": {why}"));
        let why: String = why.collect();
        note(&format!("`unspin top`, `diagnose` and `export` {can}{why}"), width)
    }
}

#[derive(Serialize)]
struct Checked<'a> {
    #[serde(flatten)]
    module: &'a Judgement,
    monitors: Monitors,
}
