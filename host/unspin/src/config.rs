// SPDX-License-Identifier: MIT OR Apache-2.0
//! /etc/unspin/unspin.toml: the settings of VMs.

use crate::exit::{said, Usage};
use crate::sysfs;
use crate::vms::{called, Vm};
use std::collections::BTreeMap;
use std::path::Path;
use unspin_host::is_explicit;
use unspin_text::{read_text, Problems, Reader, Table};

pub const FILE: &str = "/etc/unspin/unspin.toml";

pub const HELP: &str = "\
The file may have these tables. Each takes the settings that `unspin set --help` lists; those of several
tables for one VM are combined:
  [default]             all VMs without a setting of their own
  [vm.\"NAME\"]           the VM of this name, of any kind; if several have it, none is set
  [vm.\"KIND:NAME\"]      every VM that has this name of this kind, as in \"unit:runner\"
  [pid.N]               VMs of process N; overrides the tables by name";

/// Values by the names of their settings.
pub type Settings = BTreeMap<String, String>;

/// The contents of the file. The module accepts every setting and value in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Config {
    pub default: Settings,
    names: Vec<(String, Settings)>,
    pids: Vec<(u32, Settings)>,
}

impl Config {
    pub fn read(path: &Path) -> anyhow::Result<Config> {
        let text = read_text(path).map_err(|e| Usage(said(&e.into())))?;
        Config::parse(&path.display().to_string(), &text).map_err(|e| Usage(e.to_string()).into())
    }

    pub fn parse(file: &str, text: &str) -> Result<Config, Problems> {
        let reader = Reader::new(file, text);
        let config = {
            let doc = reader.parse();
            config(&Table::top(&reader, &doc))
        };
        reader.finish(Some(config))
    }

    /// The settings of each of these VMs in addition to the defaults, in the order of `vms`.
    pub fn of(&self, vms: &[&Vm]) -> Asked<'_> {
        let mut asked = Asked { settings: vec![Settings::new(); vms.len()], several: Vec::new() };
        for (name, settings) in &self.names {
            let found: Vec<&Vm> = called(vms, name);
            if found.len() > 1 && !is_explicit(name.as_bytes()) {
                let ids = found.iter().map(|vm| vm.id.clone()).collect();
                asked.several.push((name.as_str(), ids));
                continue;
            }
            let is_it = |vm: &Vm| found.iter().any(|of| of.id == vm.id);
            asked.add(vms, settings, is_it);
        }
        for (pid, settings) in &self.pids {
            asked.add(vms, settings, |vm| vm.has_pid(*pid));
        }
        asked
    }
}

/// The settings that a file requests.
pub struct Asked<'a> {
    pub settings: Vec<Settings>,
    /// Names without a kind that match several VMs, with the ids of these VMs. They set nothing.
    pub several: Vec<(&'a str, Vec<String>)>,
}

impl Asked<'_> {
    fn add(&mut self, vms: &[&Vm], more: &Settings, is_it: impl Fn(&Vm) -> bool) {
        for (vm, settings) in vms.iter().zip(&mut self.settings) {
            if is_it(vm) {
                settings.extend(more.clone());
            }
        }
    }
}

fn config(top: &Table) -> Config {
    top.only(&["default", "vm", "pid"]);
    let default = top.get("default").and_then(|v| v.table("a table of settings"));
    let mut config =
        Config { default: default.map(|t| settings(&t)).unwrap_or_default(), ..Config::default() };
    for (name, settings) in tables(top, "vm", "tables of settings, such as [vm.\"web1\"]") {
        config.names.push((name.to_string(), settings));
    }
    let example = "tables of settings, such as [pid.4242]";
    for (pid, settings) in tables(top, "pid", example) {
        match pid.parse::<u32>() {
            Ok(pid) if pid > 0 => config.pids.push((pid, settings)),
            _ => {
                let table = top.get("pid").and_then(|v| v.table(example)?.get(pid));
                if let Some(table) = table {
                    table.problem(
                        format!("{pid:?} is not a process id"),
                        "[pid.4242], [vm.\"NAME\"]",
                    );
                }
            }
        }
    }
    config
}

/// The tables inside the table `key`, by name.
fn tables<'r>(top: &Table<'r, '_>, key: &str, example: &str) -> Vec<(&'r str, Settings)> {
    let Some(all) = top.get(key).and_then(|v| v.table(example)) else { return Vec::new() };
    let one = |name: &'r str| {
        let table = all.get(name)?.table(example)?;
        Some((name, settings(&table)))
    };
    all.keys().into_iter().filter_map(one).collect()
}

fn settings(table: &Table) -> Settings {
    let names: Vec<&str> = sysfs::names().collect();
    table.only(&names);
    let mut settings = Settings::new();
    for name in names {
        let Some(value) = table.get(name) else { continue };
        let Some(text) = value.setting("a word in quotes or a whole number") else { continue };
        match sysfs::allowed_instead(name, &text) {
            Some(allowed) => value.problem(format!("{text:?} is not allowed"), allowed),
            None => drop(settings.insert(name.to_string(), text)),
        }
    }
    contradictions(table, &settings);
    settings
}

/// Reports bounds that contradict each other: the module would change one of them.
fn contradictions(table: &Table, settings: &Settings) {
    let number = |name: &str| settings.get(name)?.parse::<u64>().ok();
    for (low, high) in [
        ("window_min_cycles", "window_init_cycles"),
        ("window_min_cycles", "window_max_cycles"),
        ("window_init_cycles", "window_max_cycles"),
        ("delta_cycles", "window_max_cycles"),
        ("delta_max_cycles", "window_max_cycles"),
    ] {
        if let (Some(a), Some(b), Some(value)) = (number(low), number(high), table.get(low)) {
            if a > b {
                value.problem(format!("{a} is above {high} = {b}"), format!("up to {high}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_cli::fake::Fake;

    fn problems(text: &str) -> String {
        Config::parse("x.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_named_with_file_line_and_what_is_allowed() {
        for (text, words) in [
            ("[defaults]", "x.toml:1:2: `defaults`: unknown key\n    allowed: default, vm, pid"),
            ("\n[vm.a]\nmood = 1", "x.toml:3:1: `vm.a.mood`: unknown key"),
            ("[vm.a]\nmood = 1", "did you mean `mode`?"),
            ("[vm.a]\nreset = 1", "`vm.a.reset`: unknown key"),
            ("[default]\nmode = \"on\"", "x.toml:2:8: `default.mode`: \"on\" is not allowed"),
            ("[default]\nmode = \"on\"", "allowed: off, observe, aple, hvs, apples"),
            ("[default]\nmode = true", "a word in quotes or a whole number"),
            ("[pid.1]\nepoch_min_us = 1_000_001", "allowed: 0 to 1000000 microseconds"),
            ("[pid.x]", "\"x\" is not a process id"),
            ("[pid.0]", "\"0\" is not a process id"),
            ("pid = 3", "the integer 3 is not allowed here"),
            ("[vm]\nweb1 = \"apples\"", "allowed: tables of settings, such as [vm.\"web1\"]"),
            ("default = 1", "a table of settings"),
            ("[vm.a]\n[vm.a]", "x.toml:2:"),
            ("mode = ", "x.toml:1:"),
            ("[vm.\"a\\nb\\u001b[31m\"]\nmood = 1", "`vm.a b\u{fffd}[31m.mood`: unknown key"),
            (
                "[vm.a]\nwindow_max_cycles = 100\nwindow_min_cycles = 200",
                "x.toml:3:21: `vm.a.window_min_cycles`: 200 is above window_max_cycles = 100",
            ),
        ] {
            assert!(problems(text).contains(words), "{text}: {}", problems(text));
        }
        let e = Config::read("/nonexistent/x.toml".as_ref()).unwrap_err();
        assert!(e.downcast_ref::<Usage>().is_some() && e.to_string().contains("/nonexistent/x"));
    }

    #[test]
    fn a_vm_has_what_its_names_and_its_process_say() {
        let text = "[default]\nmode = \"observe\"\n\
                    [vm.\"web,1\"]\nmode = \"hvs\"\nwindow_max_cycles = 16_384\n\
                    [vm.\"00000000-0000-0000-0000-000000000042\"]\nmode = \"aple\"\n\
                    [pid.41]\nmode = \"apples\"\n";
        let config = Config::parse("x.toml", text).unwrap();
        assert_eq!(config.default["mode"], "observe");
        let fake = Fake::new();
        let of = |id: &str, name: &str| {
            fake.vm(id, name);
            config.of(&[&Vm::new(&fake.host(), id.to_string())]).settings.remove(0)
        };
        let both = of("41-0", "web,,1");
        assert_eq!(
            (both["mode"].as_str(), both["window_max_cycles"].as_str()),
            ("apples", "16384")
        );
        assert_eq!(of("42-0", "db")["mode"], "aple");
        assert!(of("43-0", "db").is_empty());
        assert_eq!(Config::parse("x.toml", "").unwrap(), Config::default());
    }

    #[test]
    fn a_name_of_several_vms_sets_none_and_a_kind_all_that_have_it() {
        let text = "[vm.web]\nmode = \"hvs\"\n[vm.\"name:web\"]\nwindow_max_cycles = 16_384\n\
                    [vm.104]\nmode = \"aple\"\n[vm.\"name:104\"]\nwindow_min_cycles = 64\n";
        let config = Config::parse("x.toml", text).unwrap();
        let fake = Fake::new();
        for (id, name) in [("41-0", "web"), ("42-0", "web"), ("43-0", "104"), ("44-0", "db")] {
            fake.vm(id, name);
        }
        fake.write("proc/44/cgroup", "0::/qemu.slice/104.scope");
        let vms = crate::vms::all(&fake.module(), &fake.host()).unwrap();
        let asked = config.of(&vms.iter().collect::<Vec<_>>());
        let several = |name, ids: [&str; 2]| (name, ids.map(String::from).to_vec());
        let expected = [several("web", ["41-0", "42-0"]), several("104", ["43-0", "44-0"])];
        assert_eq!(
            asked.several.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            expected.into()
        );
        let keys: Vec<Vec<&str>> =
            asked.settings.iter().map(|of| of.keys().map(String::as_str).collect()).collect();
        let wide = vec!["window_max_cycles"];
        assert_eq!(keys, [wide.clone(), wide, vec!["window_min_cycles"], vec![]]);
    }

    #[test]
    fn the_packaged_file_is_right_and_sets_nothing() {
        let text = include_str!("../../../debian/unspin.toml");
        assert_eq!(Config::parse("unspin.toml", text).unwrap(), Config::default());
        // The commented examples are valid if a user removes the comment marks.
        let uncommented: String = text.lines().map(|l| l.strip_prefix('#').unwrap_or(l)).fold(
            String::new(),
            |all, line| if line.starts_with(' ') { all } else { all + line + "\n" },
        );
        let config = Config::parse("unspin.toml", &uncommented).unwrap();
        assert!(!config.default.is_empty() && config.names.len() == 1 && config.pids.len() == 1);
    }
}
