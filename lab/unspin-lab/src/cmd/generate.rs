// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab generate`: draws scenarios from a space with a seed, and writes them.

use crate::exit::{unread, Usage};
use crate::out;
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};
use unspin_scenario::parse_scenario;
use unspin_scenario::space::{self, seed_of_release, Drawn, DrawnVm, Space, COUNT_MAX};
use unspin_text::{read_text, shown, sweep, write_atomic};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// File of a space to draw scenarios from, such as spaces/held-out.toml.
    #[arg(value_name = "SPACE")]
    space: PathBuf,
    /// Seed of the draws [default: derived from the version of unspin].
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(0..=i64::MAX as u64))]
    seed: Option<u64>,
    /// Number of scenarios to draw. A larger number extends the same list.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(COUNT_MAX)))]
    count: u32,
    /// Directory for the scenarios, one file each.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let seed = args.seed.unwrap_or_else(|| seed_of_release(env!("CARGO_PKG_VERSION")));
    let scenarios = draw(&args.space, seed, args.count)?;
    fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", shown(&args.out)))?;
    no_others(&args.out, &scenarios)?;
    sweep(&args.out);
    let mut list = String::new();
    for (name, drawn) in &scenarios {
        write_atomic(&args.out.join(name), drawn.text.as_bytes())?;
        list += &line(name, drawn);
    }
    say!("{} scenarios of seed {seed} in {}", scenarios.len(), shown(&args.out));
    out::print(&list)
}

/// Draws `count` scenarios, each with the name of its file.
fn draw(file: &Path, seed: u64, count: u32) -> anyhow::Result<Vec<(String, Drawn)>> {
    let shown = shown(file);
    let text = read_text(file).map_err(unread)?;
    let read = Space::parse(&shown, &text).map_err(|e| Usage(e.to_string()))?;
    let kind = file.file_stem().and_then(|s| s.to_str()).unwrap_or("drawn");
    let one = |index| {
        let drawn = space::draw(&read, seed, index).map_err(|e| Usage(format!("{shown}: {e}")))?;
        let name = format!("{kind}-{:02}.toml", index + 1);
        let what = format!("what {shown} gives as {name}");
        parse_scenario(&what, kind, &drawn.text).map_err(|e| Usage(e.to_string()))?;
        Ok((name, drawn))
    };
    (0..count).map(one).collect()
}

/// Refuses a directory with other scenarios, because a bench would run them along with these.
fn no_others(dir: &Path, scenarios: &[(String, Drawn)]) -> anyhow::Result<()> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", shown(dir)))?;
    for name in entries.flatten().filter_map(|e| e.file_name().into_string().ok()) {
        if name.ends_with(".toml") && !scenarios.iter().any(|(own, _)| *own == name) {
            let why =
                format!("--out {}: its file {name} is not one of these scenarios", shown(dir));
            return Err(Usage(format!("{why}; use an empty directory")).into());
        }
    }
    Ok(())
}

/// The drawn values, for people.
fn line(name: &str, d: &Drawn) -> String {
    let vm = |vm: &DrawnVm| {
        format!("{}x{}@{}", vm.vcpus, vm.lock.to_string().trim_matches('"'), vm.weight)
    };
    let vms: Vec<String> = d.vms.iter().map(vm).collect();
    format!(
        "{name}  {:4}  {:13} {:12} {:4}  {:24}  {}\n",
        d.kernel,
        d.profile,
        d.pin,
        d.cgroups,
        d.arms.join(" "),
        vms.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{self, Select};
    use crate::machine::lab::series;
    use unspin_sim::{check, Host, Kernel};

    #[test]
    fn both_machines_take_what_is_drawn() {
        let root = unspin_computers::source_tree();
        let dir = unspin_scratch::Scratch::new();
        for (name, drawn) in draw(&root.join("spaces/held-out.toml"), 3, 60).unwrap() {
            let file = dir.write(&name, &drawn.text);
            let loaded = load::scenario(&file, Some(&root.join("profiles"))).unwrap();
            let plan = loaded.plan(&Select::default()).unwrap();
            assert_eq!(plan.runs.len(), 6, "{}", drawn.text);
            assert!(series(&drawn.kernel).is_ok(), "{}", drawn.text);
            let host = Host::of_plan(&plan, Kernel::parse(&drawn.kernel).unwrap());
            for run in &plan.runs {
                assert!(check(&host, run).is_ok(), "{}", drawn.text);
            }
        }
    }
}
