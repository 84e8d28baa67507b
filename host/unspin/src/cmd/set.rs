// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin set`: writes settings of the module.

use crate::exit::Usage;
use crate::sysfs::{check_settings, keys, root, settings_help, Module};
use crate::vms;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use unspin_host::{place, Host};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The VM: any of its names, its UUID or VMID, or PID-N from `unspin status`. KIND:NAME selects
    /// the kind of name, as in vmid:104, pid:4242 or name:web1. Without --vm the module's defaults change,
    /// which apply to each VM without a value of its own; mode=off then sets every VM to mode off.
    #[arg(long, value_name = "VM")]
    vm: Option<OsString>,
    // The list of settings comes from the module's description.
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = AnySetting,
          hide_possible_values = true, help = help())]
    settings: Vec<String>,
    #[arg(long, hide = true, default_value_os_t = root())]
    sysfs: PathBuf,
    #[arg(long, hide = true, default_value_os_t = place::proc())]
    proc: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut pairs = Vec::new();
    for s in &args.settings {
        match s.split_once('=') {
            Some((k, v)) if !k.is_empty() && !v.is_empty() => pairs.push((k, v)),
            _ => return Err(Usage(format!("{s:?} is not KEY=VALUE")).into()),
        }
    }
    // Report usage errors first, even without the module.
    check_settings(args.vm.is_some(), &pairs)?;
    let module = Module::open_same_version(&args.sysfs)?;
    let host = Host::at(&args.proc);
    let vm = args.vm.as_ref().map(|given| vms::find(&module, &host, given)).transpose()?;
    module.set(vm.as_deref(), &pairs)
}

/// Accepts any text, which is checked later. Offers the keys to shells for completion.
#[derive(Clone)]
struct AnySetting;

impl TypedValueParser for AnySetting {
    type Value = String;

    fn parse_ref(&self, _: &Command, _: Option<&Arg>, text: &OsStr) -> Result<String, Error> {
        Ok(text.to_string_lossy().into_owned())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        // clap needs words that live as long as the program.
        let word = |key| &*Box::leak(format!("{key}=").into_boxed_str());
        Some(Box::new(keys().map(move |key| PossibleValue::new(word(key)))))
    }
}

fn help() -> String {
    format!("Settings to change; if one is refused, none is changed:{}", settings_help())
}
