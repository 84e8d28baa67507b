// SPDX-License-Identifier: MIT OR Apache-2.0
//! /etc/unspin/unspin.toml: the settings of VMs.

mod across;

use crate::exit::{said, Usage};
use crate::sysfs;
use crate::vms::{called, Vm};
use std::collections::BTreeMap;
use std::path::Path;
use unspin_cli::bounds;
use unspin_host::{is_explicit, Kind};
use unspin_text::names::{distance, nearest};
use unspin_text::{read_text, Problems, Reader, Table, Value};
use unspin_uapi::setting_files;

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
            let top = Table::top(&reader, &doc);
            let config = config(&top);
            if reader.is_clean() {
                across::check(&top, &config);
            }
            config
        };
        reader.finish(Some(config))
    }

    /// The settings of each of these VMs in addition to the defaults, in the order of `vms`.
    pub fn of(&self, vms: &[&Vm]) -> Asked<'_> {
        let mut asked = Asked {
            settings: vec![Settings::new(); vms.len()],
            several: Vec::new(),
            twice: Vec::new(),
        };
        let mut tables: Vec<BTreeMap<&str, &str>> = vec![BTreeMap::new(); vms.len()];
        for (name, settings) in &self.names {
            let found: Vec<&Vm> = called(vms, name);
            if found.len() > 1 && !is_explicit(name.as_bytes()) {
                let ids = found.iter().map(|vm| vm.id.clone()).collect();
                asked.several.push((name.as_str(), ids));
                continue;
            }
            for (at, vm) in vms.iter().enumerate() {
                if found.iter().any(|of| of.id == vm.id) {
                    asked.add(at, &vm.id, (name.as_str(), settings), &mut tables[at]);
                }
            }
        }
        for (pid, settings) in &self.pids {
            for (vm, of) in vms.iter().zip(&mut asked.settings) {
                if vm.has_pid(*pid) {
                    of.extend(settings.clone());
                    asked
                        .twice
                        .retain(|twice| twice.id != vm.id || !settings.contains_key(&twice.key));
                }
            }
        }
        asked
    }
}

pub struct Asked<'a> {
    pub settings: Vec<Settings>,
    /// Names without a kind that match several VMs, with the ids of these VMs. They set nothing.
    pub several: Vec<(&'a str, Vec<String>)>,
    pub twice: Vec<Twice>,
}

/// A setting to which two tables [vm.…] give different values for one VM.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Twice {
    pub id: String,
    pub key: String,
    /// The table that does not count, and its value.
    pub idle: (String, String),
    /// The table that counts, and its value.
    pub counts: (String, String),
}

impl std::fmt::Display for Twice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Twice { key, idle: (idle, other), counts: (counts, value), .. } = self;
        write!(
            f,
            "[vm.{idle:?}] sets {key}={other}, and [vm.{counts:?}] sets {key}={value}; the latter \
             counts: set {key} in one of them only"
        )
    }
}

impl<'a> Asked<'a> {
    /// Adds the settings of a table to those of a VM. `tables`: the tables that set the VM's keys.
    fn add(
        &mut self,
        at: usize,
        id: &str,
        (name, more): (&'a str, &'a Settings),
        tables: &mut BTreeMap<&'a str, &'a str>,
    ) {
        for (key, value) in more {
            self.twice.retain(|twice| twice.id != id || twice.key != *key);
            let before = self.settings[at].insert(key.clone(), value.clone());
            let other = tables.insert(key, name);
            if let (Some(before), Some(other)) = (before.filter(|was| was != value), other) {
                self.twice.push(Twice {
                    id: id.to_string(),
                    key: key.clone(),
                    idle: (other.to_string(), before),
                    counts: (name.to_string(), value.clone()),
                });
            }
        }
    }
}

fn config(top: &Table) -> Config {
    top.only(&["default", "vm", "pid"]);
    let default = top.get("default").and_then(|v| v.table("a table of settings"));
    let names = tables(top, "vm", "tables of settings, such as [vm.\"web1\"]", name);
    let pids = tables(top, "pid", "tables of settings, such as [pid.4242]", |text| {
        pid(text).ok_or_else(|| {
            (format!("{text:?} is not a process id"), "[pid.4242], [vm.\"NAME\"]".into())
        })
    });
    Config { default: default.map(|t| settings(&t)).unwrap_or_default(), names, pids }
}

/// A process id as the kernel writes it: without zeros before it, and without a sign.
fn pid(text: &str) -> Option<u32> {
    text.parse::<u32>().ok().filter(|pid| *pid > 0 && pid.to_string() == text)
}

/// The name of a table [vm."NAME"], or what is wrong with it and what is allowed.
fn name(text: &str) -> Result<String, (String, String)> {
    let by_name = "[vm.\"NAME\"], [vm.\"KIND:NAME\"]";
    if text.is_empty() {
        return Err(("a name is missing".into(), by_name.into()));
    }
    let Some((kind, rest)) = text.split_once(':') else { return Ok(text.into()) };
    // A title may follow in parentheses.
    let number = rest.split(" (").next().unwrap_or_default();
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_pid = || match number.split_once('-') {
        Some((maker, n)) => pid(maker).is_some() && !n.is_empty() && is_number(n),
        None => pid(number).is_some(),
    };
    let kinds = || Kind::ALL.into_iter().map(Kind::key).chain(["pid"]);
    let allowed = match kind {
        _ if rest.is_empty() && kinds().any(|key| key == kind) => by_name,
        "vmid" if !is_number(number) => "[vm.\"vmid:104\"]",
        "pid" if !is_pid() => "[vm.\"pid:4242\"], [vm.\"pid:4242-0\"]",
        _ if kinds().any(|key| key == kind) => return Ok(text.into()),
        _ => {
            // Names may have colons, too.
            let meant = |key: &&str| distance(&kind.to_lowercase(), key) <= 1;
            return match nearest(kind, kinds()).filter(meant) {
                Some(key) => Err((
                    format!("{kind:?} is no kind of name; did you mean \"{key}:{rest}\"?"),
                    format!("[vm.\"{key}:NAME\"], or [vm.\"name:NAME\"] for a name with a colon"),
                )),
                None => Ok(text.into()),
            };
        }
    };
    Err((format!("{text:?} names no VM"), allowed.into()))
}

/// The tables inside the table `key`, by what `of` makes of their names.
fn tables<T>(
    top: &Table,
    key: &str,
    example: &str,
    of: impl Fn(&str) -> Result<T, (String, String)>,
) -> Vec<(T, Settings)> {
    let Some(all) = top.get(key).and_then(|v| v.table(example)) else { return Vec::new() };
    let one = |name: &str| {
        let value = all.get(name)?;
        let table = value.table(example)?;
        if let Some(inner) = inner(&table).filter(|_| key == "vm") {
            let whole = inner.path.split_once('.').map_or("", |(_, name)| name);
            inner.problem(
                "a table is not allowed here",
                format!("names with dots in quotes: [vm.{whole:?}]"),
            );
            return None;
        }
        let settings = settings(&table);
        match of(name) {
            Ok(of) => Some((of, settings)),
            Err((why, allowed)) => {
                value.problem(why, allowed);
                None
            }
        }
    };
    all.keys().into_iter().filter_map(one).collect()
}

/// The innermost of tables within a table that stand for no setting: [vm.web.1] is such a table.
fn inner<'r, 't>(table: &Table<'r, 't>) -> Option<Value<'r, 't>> {
    let is_setting = |key: &str| setting_files().any(|name| name == key);
    let others = table.keys().into_iter().filter(|key| !is_setting(key));
    let found = others.filter_map(|key| table.get(key)).find(Value::is_table)?;
    found.table("").and_then(|table| inner(&table)).or(Some(found))
}

fn settings(table: &Table) -> Settings {
    let names: Vec<&str> = setting_files().collect();
    table.only(&names);
    let mut settings = Settings::new();
    for name in names {
        let Some(value) = table.get(name) else { continue };
        let allowed = match value.is_integer() {
            true => "a decimal whole number",
            false => "a word in quotes or a whole number",
        };
        let Some(text) = value.setting(allowed) else { continue };
        match sysfs::allowed_instead(name, &text) {
            Some(allowed) => value.problem(format!("{text:?} is not allowed"), allowed),
            None => drop(settings.insert(name.to_string(), as_shown(text))),
        }
    }
    contradictions(table, &settings);
    settings
}

/// The value as the module shows it: numbers without a sign and without zeros before them.
fn as_shown(text: String) -> String {
    text.parse::<u32>().map_or(text, |number| number.to_string())
}

/// Reports bounds that contradict each other: the module would change one of them.
fn contradictions(table: &Table, settings: &Settings) {
    for wrong in bounds::contradictions(|name| settings.get(name)?.parse().ok()) {
        if let Some(value) = table.get(wrong.low) {
            value.problem(wrong.to_string(), format!("up to {}", wrong.high));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
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
            ("[pid.041]", "x.toml:1:1: `pid.041`: \"041\" is not a process id"),
            ("[pid.\"+7\"]", "\"+7\" is not a process id"),
            ("[vm.\"\"]", "x.toml:1:1: `vm.`: a name is missing"),
            ("[vm.\"vmid:\"]", "\"vmid:\" names no VM"),
            ("[vm.\"vmid:abc\"]", "\"vmid:abc\" names no VM\n    allowed: [vm.\"vmid:104\"]"),
            ("[vm.\"pid:abc\"]", "\"pid:abc\" names no VM\n    allowed: [vm.\"pid:4242\"]"),
            ("[vm.\"pid:41-\"]", "names no VM"),
            ("[vm.\"vmdi:104\"]", "\"vmdi\" is no kind of name; did you mean \"vmid:104\"?"),
            ("[vm.\"VMID:104\"]", "\"VMID\" is no kind of name; did you mean \"vmid:104\"?"),
            ("[vm.web.1]", "`vm.web.1`: a table is not allowed here\n    allowed: names with dots"),
            ("[vm.web.example.com]", "in quotes: [vm.\"web.example.com\"]"),
            ("[default]\nturn_us = 0x1770", "allowed: a decimal whole number"),
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
    fn names_of_all_forms_are_right() {
        for name in
            ["vmid:104", "pid:41", "pid:41-0", "pid:41-0 (web)", "a:b", "node:1", "name:a:b"]
        {
            let config = Config::parse("x.toml", &format!("[vm.{name:?}]\nmode = \"hvs\"\n"));
            assert_eq!(config.unwrap().names[0].0, name);
        }
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
    fn numbers_are_as_the_module_shows_them() {
        let text = "[default]\nturn_us = \"+6000\"\nepoch_ple_exits = \"01000\"\n\
                    epoch_min_us = +1_0\nwait_for_turns = \"00\"\nmode = \"hvs\"\n";
        let config = Config::parse("x.toml", text).unwrap();
        let values: Vec<&str> = config.default.values().map(String::as_str).collect();
        assert_eq!(values, ["10", "1000", "hvs", "6000", "0"]);
    }

    #[test]
    fn a_key_that_two_tables_set_for_a_vm_is_named() {
        let text = "[vm.\"name:web\"]\nmode = \"hvs\"\nturn_us = 5000\n\
                    [vm.\"41-0\"]\nmode = \"aple\"\nturn_us = 5000\n\
                    [vm.db]\nmode = \"off\"\n[vm.\"pid:42\"]\nmode = \"hvs\"\n";
        let fake = Fake::new();
        fake.vm("41-0", "web");
        fake.vm("42-0", "db");
        let vms = crate::vms::all(&fake.module(), &fake.host()).unwrap();
        let vms: Vec<&Vm> = vms.iter().collect();
        let twice = |text: &str| {
            let config = Config::parse("x.toml", text).unwrap();
            let twice = config.of(&vms).twice;
            twice.iter().map(ToString::to_string).collect::<BTreeSet<_>>()
        };
        let of_web = "[vm.\"41-0\"] sets mode=aple, and [vm.\"name:web\"] sets mode=hvs; the \
                      latter counts: set mode in one of them only";
        let of_db = "[vm.\"db\"] sets mode=off, and [vm.\"pid:42\"] sets mode=hvs; the latter \
                     counts: set mode in one of them only";
        assert_eq!(twice(text), [of_db, of_web].map(String::from).into());
        // A table [pid.…] overrides both.
        assert_eq!(
            twice(&format!("{text}[pid.41]\nmode = \"observe\"\n")),
            [of_db.to_string()].into()
        );
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
