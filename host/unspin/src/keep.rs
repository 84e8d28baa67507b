// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applies a configuration to the VMs of the module, including VMs that start later.

use crate::config::{Config, Settings};
use crate::exit::said;
use crate::sysfs::Module;
use crate::vms::{ambiguous, with_ids, Vm};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use unspin_host::Host;

const MODE: &str = "mode";

/// Attempts to set a VM: a new VM's files appear a moment after its directory.
const TRIES: u32 = 3;

/// Settings that were applied, and the values before.
pub struct Keeper {
    module: Module,
    host: Host,
    config: Config,
    default: Changed,
    vms: BTreeMap<String, (Vm, Changed)>,
    /// Tables whose names match several VMs, with the ids of these VMs.
    several: BTreeMap<String, Vec<String>>,
}

/// Settings of a VM or of the defaults.
struct Changed {
    before: Settings,
    /// Values written by this process and not restored since.
    ours: Settings,
    /// Number of consecutive refusals by the module.
    refused: u32,
}

impl Changed {
    fn new(before: Settings) -> Changed {
        Changed { before, ours: Settings::new(), refused: 0 }
    }

    /// The values to write so that the settings become `wanted`. Values of ours that are no longer
    /// wanted become as in `otherwise`. Values of ours that are right already are not written
    /// again.
    fn towards(&self, wanted: &Settings, otherwise: &Settings, now: &Settings) -> Settings {
        let released = self.ours.keys().filter(|key| !wanted.contains_key(*key));
        let released = released.filter_map(|key| Some((key.clone(), otherwise.get(key)?.clone())));
        let mut to_write: Settings = wanted.clone();
        to_write.extend(released);
        to_write
            .retain(|key, value| now.get(key) != Some(value) || self.ours.get(key) != Some(value));
        to_write
    }
}

impl Keeper {
    /// Sets the defaults and all present VMs. If the module refuses the defaults, it returns an error
    /// and changes nothing.
    pub fn start(module: Module, host: Host, config: Config) -> anyhow::Result<Keeper> {
        let default = Changed::new(module.defaults());
        let (vms, several) = (BTreeMap::new(), BTreeMap::new());
        let mut keeper = Keeper { module, host, config: Config::default(), default, vms, several };
        keeper.set_default(&config)?;
        keeper.config = config;
        keeper.look()?;
        Ok(keeper)
    }

    /// Whether the module is still there.
    pub fn has_module(&self) -> bool {
        self.module.is_loaded()
    }

    /// Number of VMs that the module tracks.
    pub fn count(&self) -> usize {
        self.vms.len()
    }

    /// Whether a table sets no VM because several VMs have its name.
    pub fn is_ambiguous(&self) -> bool {
        !self.several.is_empty()
    }

    /// Sets new VMs, and forgets those that ended. A VM that shared its name is set when the others with
    /// that name have ended.
    pub fn look(&mut self) -> anyhow::Result<()> {
        let ids = self.module.ids()?;
        self.vms.retain(|id, _| ids.contains(id));
        let mut due: BTreeSet<String> = BTreeSet::new();
        for id in ids {
            let is_new = |(_, changed): &(Vm, Changed)| (1..TRIES).contains(&changed.refused);
            if self.vms.get(&id).is_none_or(is_new) {
                self.vms.entry(id.clone()).or_insert_with(|| {
                    (Vm::new(&self.host, id.clone()), Changed::new(Settings::new()))
                });
                due.insert(id);
            }
        }
        let is_gone = |id: &String| !self.vms.contains_key(id);
        let freed = self.several.values().filter(|ids| ids.iter().any(is_gone));
        due.extend(freed.flatten().filter(|id| !is_gone(id)).cloned());
        self.several.retain(|_, ids| ids.iter().any(|id| self.vms.contains_key(id)));
        self.set_vms(&due);
        Ok(())
    }

    /// Switches to another configuration. If the module refuses its defaults, returns an error and
    /// keeps the old one.
    pub fn change(&mut self, config: Config) -> anyhow::Result<()> {
        self.set_default(&config)?;
        self.config = config;
        let ids: BTreeSet<String> = self.vms.keys().cloned().collect();
        self.vms.values_mut().for_each(|(_, changed)| changed.refused = 0);
        self.several.clear();
        self.set_vms(&ids);
        self.look()
    }

    /// Sets every VM to mode off, and restores all other values. Reports failures.
    pub fn stop(self) {
        let off = [(MODE, "off")];
        if let Err(e) = self.module.set(None, &off) {
            say!("the modes of the VMs are unchanged: {}", said(&e));
        }
        let put_back = |vm: Option<&str>, changed: &Changed, now: Settings| {
            let back = changed.towards(&Settings::new(), &changed.before, &now);
            let back: Vec<(&str, &str)> =
                pairs(&back).into_iter().filter(|(key, _)| *key != MODE).collect();
            if let (false, Err(e)) = (back.is_empty(), self.module.set(vm, &back)) {
                if vm.is_none_or(|id| !self.module.vm(id).is_empty()) {
                    say!("{} stay changed: {}", vm.unwrap_or("the defaults"), said(&e));
                }
            }
        };
        for (id, (_, changed)) in &self.vms {
            put_back(Some(id), changed, self.module.vm(id));
        }
        put_back(None, &self.default, self.module.defaults());
    }

    fn set_default(&mut self, config: &Config) -> anyhow::Result<()> {
        let before = &self.default.before;
        let now = self.module.defaults();
        let mut to_write = self.default.towards(&config.default, before, &now);
        // Writing `off` again would turn off VMs with a mode of their own.
        to_write.retain(|key, value| now.get(key) != Some(value));
        if !to_write.is_empty() {
            self.module.set(None, &pairs(&to_write))?;
            say!("default: {}", written(&to_write));
        }
        self.default.ours = config.default.clone();
        Ok(())
    }

    /// Applies the configuration to these VMs. Reports tables whose names match several VMs.
    fn set_vms(&mut self, ids: &BTreeSet<String>) {
        if ids.is_empty() {
            return;
        }
        // Their titles tell them apart: a title that another VM is called by, too, means both.
        let all = with_ids(self.vms.keys().cloned().collect(), &self.host);
        let asked = self.config.of(&all.iter().collect::<Vec<_>>());
        let several: BTreeMap<String, Vec<String>> =
            asked.several.into_iter().map(|(name, ids)| (name.to_string(), ids)).collect();
        for (name, ids) in several.iter().filter(|(name, ids)| self.several.get(*name) != Some(ids))
        {
            let found: Vec<&Vm> = all.iter().filter(|vm| ids.contains(&vm.id)).collect();
            say!("no VM is set by [vm.{name:?}]: {}", ambiguous(OsStr::new(name), &found));
        }
        let wanted: Vec<(String, Settings)> =
            all.iter().map(|vm| vm.id.clone()).zip(asked.settings).collect();
        self.several = several;
        for (id, wanted) in wanted.into_iter().filter(|(id, _)| ids.contains(id)) {
            self.set_vm(&id, &wanted);
        }
    }

    /// Sets a VM, and reports changes and failures.
    fn set_vm(&mut self, id: &str, wanted: &Settings) {
        let Some((vm, changed)) = self.vms.get_mut(id) else { return };
        let now = self.module.vm(id);
        let to_write = changed.towards(wanted, &self.module.defaults(), &now);
        if to_write.is_empty() {
            return;
        }
        if changed.ours.is_empty() {
            changed.before = now;
        }
        match self.module.set(Some(id), &pairs(&to_write)) {
            Ok(()) => {
                say!("VM {vm}: {}", written(&to_write));
                changed.refused = 0;
                // Includes values released to the default: these also are our doing.
                changed.ours.extend(to_write);
            }
            Err(e) => {
                changed.refused += 1;
                // The VM may have ended meanwhile.
                if changed.refused == TRIES && !self.module.vm(id).is_empty() {
                    say!("VM {vm} is unchanged: {}", said(&e));
                }
            }
        }
    }
}

fn pairs(settings: &Settings) -> Vec<(&str, &str)> {
    settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

fn written(settings: &Settings) -> String {
    settings.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_cli::fake::Fake;

    fn config(text: &str) -> Config {
        Config::parse("x.toml", text).unwrap()
    }

    fn keeper(fake: &Fake, text: &str) -> Keeper {
        Keeper::start(fake.module(), fake.host(), config(text)).unwrap()
    }

    const WEB: &str = "[default]\nmode = \"observe\"\n\
                       [vm.\"name:web\"]\nmode = \"apples\"\nwindow_max_cycles = 16384\n";

    #[test]
    fn vms_are_set_and_later_ones_too() {
        let fake = Fake::new();
        fake.vm("41-0", "web");
        fake.vm("42-0", "db");
        let mut keeper = keeper(&fake, WEB);
        assert_eq!(fake.read("sys/default/mode"), "observe");
        assert_eq!(fake.read("sys/vms/41-0/mode"), "apples");
        assert_eq!(fake.read("sys/vms/41-0/window_max_cycles"), "16384");
        assert_eq!(fake.read("sys/vms/42-0/mode"), "off", "the module's own affair");
        fake.vm("50-0", "web");
        keeper.look().unwrap();
        assert_eq!(fake.read("sys/vms/50-0/mode"), "apples");
        // A value set by hand stays.
        fake.write("sys/vms/41-0/mode", "hvs");
        keeper.look().unwrap();
        assert_eq!(fake.read("sys/vms/41-0/mode"), "hvs");
        std::fs::remove_dir_all(fake.path("sys/vms/42-0")).unwrap();
        keeper.look().unwrap();
        assert_eq!(keeper.count(), 2);
    }

    /// While several VMs share a name, the table sets none of them. A VM that was set before keeps its
    /// values.
    #[test]
    fn a_name_of_several_vms_sets_none() {
        let fake = Fake::new();
        fake.vm("41-0", "web");
        let mut keeper = keeper(&fake, "[vm.web]\nmode = \"hvs\"\n");
        fake.vm("42-0", "web");
        keeper.look().unwrap();
        let mode = |vm: &str| fake.read(&format!("sys/vms/{vm}/mode"));
        assert_eq!((mode("41-0"), mode("42-0")), ("hvs".into(), "off".into()));
        assert!(keeper.is_ambiguous());
        std::fs::remove_dir_all(fake.path("sys/vms/41-0")).unwrap();
        keeper.look().unwrap();
        assert_eq!((mode("42-0"), keeper.is_ambiguous()), ("hvs".into(), false));
    }

    /// The name of one VM is the VMID of another: the VM with that name gets no settings of the other.
    #[test]
    fn a_name_that_is_an_id_of_another_vm_sets_none() {
        let fake = Fake::new();
        fake.vm("41-0", "104");
        fake.vm("42-0", "db");
        fake.write("proc/42/cgroup", "0::/qemu.slice/104.scope");
        let keeper = keeper(&fake, "[vm.104]\nmode = \"hvs\"\n");
        let mode = |vm: &str| fake.read(&format!("sys/vms/{vm}/mode"));
        assert_eq!((mode("41-0"), mode("42-0")), ("off".into(), "off".into()));
        assert!(keeper.is_ambiguous());
    }

    #[test]
    fn another_configuration_takes_back_what_it_does_not_say() {
        let fake = Fake::new();
        fake.vm("41-0", "web");
        fake.vm("42-0", "db");
        let mut keeper = keeper(&fake, WEB);
        keeper.change(config("[vm.db]\nmode = \"hvs\"\n")).unwrap();
        assert_eq!(fake.read("sys/default/mode"), "off", "as before");
        assert_eq!(fake.read("sys/vms/41-0/mode"), "off");
        assert_eq!(fake.read("sys/vms/41-0/window_max_cycles"), "32768");
        assert_eq!(fake.read("sys/vms/42-0/mode"), "hvs");
        keeper.change(config("[default]\nmode = \"aple\"\n")).unwrap();
        for vm in ["41-0", "42-0"] {
            assert_eq!(fake.read(&format!("sys/vms/{vm}/mode")), "aple", "{vm} follows again");
        }
    }

    #[test]
    fn defaults_that_are_refused_change_nothing() {
        let fake = Fake::new();
        fake.vm("41-0", "web");
        let mut keeper = keeper(&fake, WEB);
        // Even root cannot write this.
        std::fs::create_dir(fake.path("sys/default/delta_cycles")).unwrap();
        let other = "[default]\nmode = \"hvs\"\ndelta_cycles = 5\nwindow_min_cycles = 64\n\
                     [vm.web]\nmode = \"off\"\n";
        keeper.change(config(other)).unwrap_err();
        assert_eq!(fake.read("sys/default/mode"), "observe");
        assert_eq!(fake.read("sys/default/window_min_cycles"), "4096");
        assert_eq!(fake.read("sys/vms/41-0/mode"), "apples");
        std::fs::remove_dir(fake.path("sys/default/delta_cycles")).unwrap();
        fake.vm("42-0", "web");
        keeper.look().unwrap();
        assert_eq!(fake.read("sys/vms/42-0/mode"), "apples", "the old one is in force");
    }

    #[test]
    fn a_vm_that_is_refused_does_not_keep_others_from_theirs() {
        let fake = Fake::new();
        fake.vm("41-0", "web");
        fake.vm("42-0", "web");
        let mode = fake.path("sys/vms/41-0/mode");
        std::fs::remove_file(&mode).unwrap();
        std::fs::create_dir(&mode).unwrap();
        let mut keeper = keeper(&fake, WEB);
        assert_eq!(fake.read("sys/vms/41-0/window_max_cycles"), "32768", "put back");
        assert_eq!(fake.read("sys/vms/42-0/mode"), "apples");
        std::fs::remove_dir(&mode).unwrap();
        fake.write("sys/vms/41-0/mode", "off");
        keeper.look().unwrap();
        assert_eq!(fake.read("sys/vms/41-0/mode"), "apples", "its files were not there yet");
    }

    #[test]
    fn at_the_end_all_is_off_and_else_as_before() {
        let fake = Fake::new();
        fake.vm("41-0", "web");
        fake.write("sys/default/mode", "hvs");
        let keeper = keeper(&fake, &WEB.replace("observe\"", "observe\"\nwindow_min_cycles=64"));
        assert_eq!(fake.read("sys/default/window_min_cycles"), "64");
        keeper.stop();
        assert_eq!(fake.read("sys/default/mode"), "off");
        assert_eq!(fake.read("sys/default/window_min_cycles"), "4096");
        assert_eq!(fake.read("sys/vms/41-0/window_max_cycles"), "32768");
    }
}
