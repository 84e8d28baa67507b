// SPDX-License-Identifier: MIT OR Apache-2.0
//! What several tables of the file say together, and the module cannot do.

use super::{Config, Settings};
use std::collections::{BTreeMap, BTreeSet};
use unspin_cli::bounds::{STEPS, WINDOW_PAIRS};
use unspin_host::is_explicit;
use unspin_text::{Table, Value};
use unspin_uapi::Number;

/// Reports values that contradict those of other tables.
pub fn check(top: &Table, config: &Config) {
    let across = Across::new(top, config);
    let found = top.get("default").and_then(|default| default.table(""));
    if let Some(default) = found {
        let value = |key: &str| default.get(key);
        across.steps(&config.default, across.default_max, value);
    }
    for (name, settings) in &config.names {
        across.of_vm("vm", name, settings);
    }
    for (pid, settings) in &config.pids {
        across.of_vm("pid", &pid.to_string(), settings);
    }
    across.doubles(config);
}

struct Across<'a, 'r, 't> {
    top: &'a Table<'r, 't>,
    default: &'a Settings,
    /// The keys of the tables [vm.…] and [pid.…].
    of_vms: BTreeSet<&'a str>,
    /// The largest window that follows from [default].
    default_max: u32,
    /// The largest window that a VM may have by any of the tables that apply to it.
    max: u32,
}

fn number(settings: &Settings, number: Number) -> Option<u32> {
    settings.get(number.file())?.parse().ok()
}

/// The upper bound of the window after these settings were written over `before`.
fn max_after(settings: &Settings, before: u32) -> u32 {
    let lower = [Number::WINDOW_MIN, Number::WINDOW_INIT].map(|low| number(settings, low));
    let moved = lower.into_iter().flatten().fold(before, u32::max);
    number(settings, Number::WINDOW_MAX).unwrap_or(moved)
}

impl<'a, 'r, 't> Across<'a, 'r, 't> {
    fn new(top: &'a Table<'r, 't>, config: &'a Config) -> Across<'a, 'r, 't> {
        let names = config.names.iter().map(|(_, settings)| settings);
        let of_vms: Vec<&Settings> =
            names.chain(config.pids.iter().map(|(_, settings)| settings)).collect();
        let keys = of_vms.iter().flat_map(|settings| settings.keys()).map(String::as_str);
        let keys: BTreeSet<&str> = keys.collect();
        let default_max = max_after(&config.default, Number::WINDOW_MAX.default());
        let max = of_vms.iter().map(|settings| max_after(settings, default_max));
        let max = max.fold(default_max, u32::max);
        Across { top, default: &config.default, of_vms: keys, default_max, max }
    }

    fn value(&self, kind: &str, name: &str, key: &str) -> Option<Value<'r, 't>> {
        self.top.get(kind)?.table("")?.get(name)?.table("")?.get(key)
    }

    fn of_vm(&self, kind: &str, name: &str, settings: &Settings) {
        let value = |key: &str| self.value(kind, name, key);
        self.steps(settings, self.max, value);
        let has = |bound: Number| settings.contains_key(bound.file());
        // Then the module moves only the initial window of [default] between them.
        if has(Number::WINDOW_MIN) && has(Number::WINDOW_MAX) {
            return;
        }
        for (low, high) in WINDOW_PAIRS {
            let (own, other) = match (has(low), has(high)) {
                (true, false) => (low, high),
                (false, true) => (high, low),
                _ => continue,
            };
            // A VM may be in several tables, one of which may have the other bound.
            if self.of_vms.contains(other.file()) {
                continue;
            }
            let (Some(is), Some(bound)) = (number(settings, own), number(self.default, other))
            else {
                continue;
            };
            let (is_wrong, word, allowed) = match own == low {
                true => (is > bound, "above", "up to"),
                false => (is < bound, "below", "from"),
            };
            if let Some(value) = is_wrong.then(|| value(own.file())).flatten() {
                let other = other.file();
                value.problem(
                    format!("{is} is {word} {other} = {bound} of [default]"),
                    format!("{allowed} {bound}; or set {other} in this table, too"),
                );
            }
        }
    }

    /// Reports steps above `max`, which the module refuses. A table with `window_max_cycles` was checked when
    /// it was read.
    fn steps(&self, settings: &Settings, max: u32, value: impl Fn(&str) -> Option<Value<'r, 't>>) {
        let bound = Number::WINDOW_MAX.file();
        if settings.contains_key(bound) {
            return;
        }
        for step in STEPS {
            let is_above = |is: &u32| *is > max;
            let Some(is) = number(settings, step).filter(is_above) else { continue };
            if let Some(value) = value(step.file()) {
                value.problem(
                    format!("{is} is above {bound}, which is {max}"),
                    format!("up to {max}; or set {bound} in this table, too"),
                );
            }
        }
    }

    /// Reports a key that is set differently for a name with its kind and without.
    fn doubles(&self, config: &Config) {
        let plain: BTreeMap<&str, &Settings> =
            config.names.iter().map(|(name, settings)| (name.as_str(), settings)).collect();
        let pids: BTreeMap<String, &Settings> =
            config.pids.iter().map(|(pid, settings)| (pid.to_string(), settings)).collect();
        let explicit = config.names.iter().filter(|(name, _)| is_explicit(name.as_bytes()));
        for (name, settings) in explicit {
            let Some((kind, rest)) = name.split_once(':') else { continue };
            let (same, other) = match kind {
                "pid" => (format!("[pid.{rest}]"), pids.get(rest).copied()),
                _ if is_explicit(rest.as_bytes()) => continue,
                _ => (format!("[vm.{rest:?}]"), plain.get(rest).copied()),
            };
            let Some(other) = other else { continue };
            for (key, value) in settings {
                let Some(is) = other.get(key).filter(|is| *is != value) else { continue };
                if let Some(place) = self.value("vm", name, key) {
                    place.problem(
                        format!("{same} sets {key}={is} for the same VM"),
                        format!("{key} in one of these tables"),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn values_of_several_tables_that_contradict_each_other_are_named() {
        for (text, words) in [
            (
                "[default]\nwindow_max_cycles = 100\n[vm.a]\nwindow_min_cycles = 200",
                "x.toml:4:21: `vm.a.window_min_cycles`: 200 is above window_max_cycles = 100 of \
                 [default]\n    allowed: up to 100; or set window_max_cycles in this table, too",
            ),
            (
                "[default]\nwindow_min_cycles = 200\n[pid.7]\nwindow_max_cycles = 100",
                "`pid.7.window_max_cycles`: 100 is below window_min_cycles = 200 of [default]",
            ),
            (
                "[vm.a]\ndelta_cycles = 100_000",
                "x.toml:2:16: `vm.a.delta_cycles`: 100000 is above window_max_cycles, which is 32768",
            ),
            ("[default]\ndelta_max_cycles = 32769", "`default.delta_max_cycles`: 32769 is above"),
            (
                "[default]\nwindow_max_cycles = 100\n[vm.a]\ndelta_cycles = 101",
                "`vm.a.delta_cycles`: 101 is above window_max_cycles, which is 100",
            ),
            (
                "[vm.web]\nmode = \"hvs\"\n[vm.\"name:web\"]\nmode = \"off\"",
                "`vm.name:web.mode`: [vm.\"web\"] sets mode=hvs for the same VM",
            ),
            (
                "[pid.7]\nturn_us = 5000\n[vm.\"pid:7\"]\nturn_us = 6000",
                "[pid.7] sets turn_us=5000 for the same VM",
            ),
        ] {
            let said = Config::parse("x.toml", text).unwrap_err().to_string();
            assert!(said.contains(words), "{text}: {said}");
        }
    }

    #[test]
    fn what_the_module_does_as_written_is_right() {
        for text in [
            "[default]\nwindow_max_cycles = 100\n[vm.a]\nwindow_min_cycles = 200\n\
             window_max_cycles = 300",
            "[default]\nwindow_init_cycles = 64\n[vm.a]\nwindow_min_cycles = 200\n\
             window_max_cycles = 300",
            "[default]\nwindow_max_cycles = 200_000\n[vm.a]\ndelta_cycles = 100_000",
            "[vm.a]\nwindow_min_cycles = 200_000\ndelta_cycles = 100_000",
            // A VM may be in both tables.
            "[vm.a]\nwindow_max_cycles = 200_000\n[pid.7]\ndelta_cycles = 100_000",
            "[default]\nwindow_max_cycles = 100\n[vm.a]\nwindow_min_cycles = 200\n\
             [pid.7]\nwindow_max_cycles = 300",
            // Inherited steps are limited to the window.
            "[default]\ndelta_cycles = 5000\n[vm.a]\nwindow_max_cycles = 4000\n\
             window_min_cycles = 64",
            "[vm.web]\nmode = \"hvs\"\n[vm.\"name:web\"]\nmode = \"hvs\"\nturn_us = 5000",
            "[vm.\"vmid:104\"]\nmode = \"hvs\"\n[vm.\"name:vmid:104\"]\nmode = \"off\"",
        ] {
            Config::parse("x.toml", text).unwrap_or_else(|e| panic!("{text}: {e}"));
        }
    }
}
