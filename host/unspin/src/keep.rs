// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applies a configuration to the VMs of the module, including VMs that start later.

use crate::config::{Config, Settings, Twice};
use crate::exit::said;
use crate::sysfs::Module;
use crate::vms::{ambiguous, with_ids, Vm};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use unspin_cli::bounds;
use unspin_host::Host;
use unspin_uapi::MODE;

/// Attempts to set a VM, for those who look again: a new VM's files appear a moment after its directory.
pub const TRIES: u32 = 3;

/// Settings that were applied, and the values before.
pub struct Keeper {
    module: Module,
    host: Host,
    config: Config,
    default: Changed,
    vms: BTreeMap<String, (Vm, Changed)>,
    /// Tables whose names match several VMs, with the ids of these VMs.
    several: BTreeMap<String, Vec<String>>,
    /// Settings that several tables give to one VM.
    twice: Vec<Twice>,
    /// A VM that is refused this often is reported.
    tries: u32,
}

struct Changed {
    before: Settings,
    /// Values written by this process and not restored since, and those that the module moved with
    /// them.
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
        let mut to_write: Settings = otherwise.clone();
        // Other bounds would move those that are wanted.
        to_write.extend(bounds::settled(otherwise, wanted));
        to_write.retain(|key, _| self.ours.contains_key(key));
        to_write.extend(wanted.clone());
        to_write
            .retain(|key, value| now.get(key) != Some(value) || self.ours.get(key) != Some(value));
        to_write
    }
}

impl Keeper {
    /// Sets the defaults and all present VMs. If the module refuses the defaults, it returns an error
    /// and changes nothing. `tries`: a VM is reported when the module has refused its settings this often.
    pub fn start(module: Module, host: Host, config: Config, tries: u32) -> anyhow::Result<Keeper> {
        let default = Changed::new(module.defaults());
        let mut keeper = Keeper {
            module,
            host,
            config: Config::default(),
            default,
            vms: BTreeMap::new(),
            several: BTreeMap::new(),
            twice: Vec::new(),
            tries,
        };
        keeper.set_default(&config)?;
        keeper.config = config;
        keeper.look()?;
        Ok(keeper)
    }

    pub fn has_module(&self) -> bool {
        self.module.is_loaded()
    }

    pub fn count(&self) -> usize {
        self.vms.len()
    }

    /// Whether a table sets no VM because several VMs have its name.
    pub fn is_ambiguous(&self) -> bool {
        !self.several.is_empty()
    }

    /// Whether the module refuses the settings of a VM that still runs.
    pub fn is_refused(&self) -> bool {
        let is_there = |id: &str| !self.module.vm(id).is_empty();
        self.vms.iter().any(|(id, (_, of))| of.refused >= self.tries && is_there(id))
    }

    /// Sets new VMs, and forgets those that ended. A VM that shared its name is set when the others with
    /// that name have ended.
    pub fn look(&mut self) -> anyhow::Result<()> {
        let ids = self.module.ids()?;
        self.vms.retain(|id, _| ids.contains(id));
        let mut due: BTreeSet<String> = BTreeSet::new();
        for id in ids {
            let is_new = |(_, changed): &(Vm, Changed)| (1..self.tries).contains(&changed.refused);
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
        self.twice.clear();
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
        let target = self.default.towards(&config.default, before, &now);
        let mut to_write = target.clone();
        // Writing `off` again would turn off VMs with a mode of their own.
        to_write.retain(|key, value| now.get(key) != Some(value));
        if !to_write.is_empty() {
            self.module.set(None, &pairs(&to_write))?;
            say!("default: {}", written(&to_write));
        }
        let ours = &mut self.default.ours;
        ours.extend(bounds::moved(&now, &to_write));
        ours.extend(target);
        ours.retain(|key, value| before.get(key) != Some(value));
        ours.extend(config.default.clone());
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
        for twice in asked.twice.iter().filter(|twice| !self.twice.contains(twice)) {
            if let Some(vm) = all.iter().find(|vm| vm.id == twice.id) {
                say!("VM {vm}: {twice}");
            }
        }
        let wanted: Vec<(String, Settings)> =
            all.iter().map(|vm| vm.id.clone()).zip(asked.settings).collect();
        self.several = several;
        self.twice = asked.twice;
        for (id, wanted) in wanted.into_iter().filter(|(id, _)| ids.contains(id)) {
            self.set_vm(&id, &wanted);
        }
    }

    fn set_vm(&mut self, id: &str, wanted: &Settings) {
        let Some((vm, changed)) = self.vms.get_mut(id) else { return };
        let now = self.module.vm(id);
        let defaults = self.module.defaults();
        let to_write = changed.towards(wanted, &defaults, &now);
        if to_write.is_empty() {
            return;
        }
        if changed.ours.is_empty() {
            changed.before = before(&now, &defaults, &self.default.before);
        }
        match self.module.set(Some(id), &pairs(&to_write)) {
            Ok(()) => {
                say!("VM {vm}: {}", written(&to_write));
                changed.refused = 0;
                changed.ours.extend(bounds::moved(&now, &to_write));
                // Includes values released to the default: these also are our doing.
                changed.ours.extend(to_write);
            }
            Err(e) => {
                changed.refused += 1;
                // The VM may have ended meanwhile.
                if changed.refused == self.tries && !self.module.vm(id).is_empty() {
                    say!("VM {vm} is unchanged: {}", said(&e));
                }
            }
        }
    }
}

/// The settings of a VM before the service: those that follow the defaults have the defaults' values of
/// then. The bounds of the window follow together.
fn before(now: &Settings, defaults: &Settings, defaults_before: &Settings) -> Settings {
    let follows = |key: &str| now.get(key) == defaults.get(key);
    let follow = bounds::WINDOW.iter().all(|bound| follows(bound.file()));
    let is_window = |key: &str| bounds::WINDOW.iter().any(|bound| bound.file() == key);
    let was = |(key, value): (&String, &String)| {
        let inherits = if is_window(key) { follow } else { follows(key) };
        let was = defaults_before.get(key).filter(|_| inherits).unwrap_or(value);
        (key.clone(), was.clone())
    };
    now.iter().map(was).collect()
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
        Keeper::start(fake.module(), fake.host(), config(text), TRIES).unwrap()
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

    /// What the module of [`Fake`] does not do: it moves bounds that contradict one that was written.
    fn move_bounds(fake: &Fake, of: &str, bounds: [&str; 3]) {
        for (name, value) in ["min", "init", "max"].iter().zip(bounds) {
            fake.write(&format!("sys/{of}/window_{name}_cycles"), value);
        }
    }

    fn bounds_of(fake: &Fake, of: &str) -> [String; 3] {
        ["min", "init", "max"].map(|name| fake.read(&format!("sys/{of}/window_{name}_cycles")))
    }

    /// The module moves the other bounds, also those of VMs that follow the defaults.
    #[test]
    fn bounds_that_the_module_moved_are_put_back() {
        let text = "[default]\nwindow_max_cycles = 100\n\
                    [vm.web]\nwindow_min_cycles = 200\nwindow_max_cycles = 300\n";
        let before = ["4096", "8192", "32768"];
        let start = || {
            let fake = Fake::new();
            fake.vm("41-0", "web");
            let keeper = keeper(&fake, text);
            assert_eq!(bounds_of(&fake, "vms/41-0"), ["200", "8192", "300"]);
            move_bounds(&fake, "default", ["100", "100", "100"]);
            move_bounds(&fake, "vms/41-0", ["200", "300", "300"]);
            (fake, keeper)
        };
        let (fake, keeper) = start();
        keeper.stop();
        assert_eq!(bounds_of(&fake, "default"), before);
        assert_eq!(bounds_of(&fake, "vms/41-0"), before);
        let (fake, mut keeper) = start();
        keeper.change(config("[default]\nwindow_max_cycles = 5000\n")).unwrap();
        assert_eq!(bounds_of(&fake, "default"), ["4096", "5000", "5000"]);
        assert_eq!(bounds_of(&fake, "vms/41-0"), ["4096", "5000", "5000"], "as the defaults");
        keeper.change(config("")).unwrap();
        assert_eq!(bounds_of(&fake, "default"), before);
        assert_eq!(bounds_of(&fake, "vms/41-0"), before);
    }

    #[test]
    fn a_vm_that_followed_the_defaults_has_their_values_of_then() {
        let of = |bounds: [&str; 3], mode: &str| -> Settings {
            let names = ["window_min_cycles", "window_init_cycles", "window_max_cycles"];
            let bounds = names.iter().zip(bounds).chain([(&MODE, mode)]);
            bounds.map(|(key, value)| (key.to_string(), value.to_string())).collect()
        };
        let (then, defaults) = (of(["1", "2", "3"], "off"), of(["1", "2", "9"], "hvs"));
        assert_eq!(before(&defaults, &defaults, &then), then);
        let own = of(["1", "2", "4"], "hvs");
        assert_eq!(before(&own, &defaults, &then), of(["1", "2", "4"], "off"));
    }

    #[test]
    fn a_single_look_tells_at_once_who_is_refused() {
        let fake = Fake::new();
        fake.vm("41-0", "web");
        let once = || Keeper::start(fake.module(), fake.host(), config(WEB), 1).unwrap();
        assert!(!once().is_refused());
        // Even root cannot write this.
        let mode = fake.path("sys/vms/41-0/mode");
        std::fs::remove_file(&mode).unwrap();
        std::fs::create_dir(&mode).unwrap();
        assert!(once().is_refused());
        let mut stays = keeper(&fake, WEB);
        assert!(!stays.is_refused());
        stays.look().unwrap();
        stays.look().unwrap();
        assert!(stays.is_refused());
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
