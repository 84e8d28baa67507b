// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module, through its directory in sysfs.

use std::path::Path;
use std::time::Duration;

use unspin_host::module::{self, Files, Refused, Whose};
use unspin_scenario::module::{sets_window, ModuleSettings};
use unspin_scenario::plan::{Arm, Run, Vm, Window, YieldTo};
use unspin_uapi::{setting_files, Mode, ModuleValue};

use crate::Error;

/// A window that is never exceeded, so that there are no pause-loop exits.
const PLE_OFF_CYCLES: u32 = 1 << 24;

/// Limit of the time in which the module creates a new VM's directory.
const NAMING_PATIENCE: Duration = Duration::from_secs(2);

/// The loaded module. Dropping this restores its defaults.
pub(crate) struct Module {
    pub(crate) files: module::Module,
    /// What `default/` held before anything was changed.
    before: Files,
}

impl Module {
    /// `None` if it is not loaded.
    pub(crate) fn open() -> Result<Option<Module>, Error> {
        Module::open_at(&module::root())
    }

    fn open_at(root: &Path) -> Result<Option<Module>, Error> {
        let Some(files) = module::Module::open(root) else { return Ok(None) };
        let defaults = files.dir(Whose::Defaults);
        if !defaults.is_dir() {
            return Ok(None);
        }
        let value = |name: &'static str| {
            let value = files.file(Whose::Defaults, name);
            Ok((name.to_string(), value.map_err(|e| Error::io(defaults.join(name), e))?))
        };
        let before = setting_files().map(value).collect::<Result<Files, Error>>()?;
        Ok(Some(Module { files, before }))
    }

    pub(crate) fn version(&self) -> String {
        self.files.value("version").unwrap_or_else(|| "unknown".into())
    }

    /// `vmx`, `svm`, or `none: reason`.
    pub(crate) fn window_control(&self) -> String {
        let file = ModuleValue::WINDOW_CONTROL.file();
        self.files.value(file).unwrap_or_else(|| format!("none: no file {file}"))
    }

    /// Sets the defaults for VMs that start from now on: the settings of the run's first VM.
    pub(crate) fn set_defaults(&self, run: &Run) -> Result<(), Error> {
        self.check_can(run)?;
        self.write(Whose::Defaults, &settings_of(run, run.first()))
    }

    /// Sets the run's other VMs, of these processes, if they differ from the first.
    pub(crate) fn set_others(&self, run: &Run, pids: &[u32]) -> Result<(), Error> {
        let usual = settings_of(run, run.first());
        for (vm, &pid) in run.vms.iter().zip(pids) {
            let own = settings_of(run, vm);
            if own != usual {
                self.set_vm(pid, &own)?;
            }
        }
        Ok(())
    }

    /// Sets the running VM of process `pid`.
    pub(crate) fn set_vm(&self, pid: u32, settings: &ModuleSettings) -> Result<(), Error> {
        let id = self.id_soon(pid, NAMING_PATIENCE)?.ok_or(Error::UnknownVm { pid })?;
        self.write(Whose::Vm(&id), settings)
    }

    fn write(&self, whose: Whose, settings: &ModuleSettings) -> Result<(), Error> {
        let written = self.files.write(whose, &settings.files());
        written.map_err(|Refused { setting, value, source, changed, .. }| {
            changed
                .iter()
                .for_each(|stays| crate::error::complain(&format!("the module's {stays}")));
            Error::Module { setting, value, source }
        })
    }

    /// Checks that the module supports what the run's arm needs.
    pub(crate) fn check_can(&self, run: &Run) -> Result<(), Error> {
        let arm = run.arm.name.clone();
        let control = self.window_control();
        match control.strip_prefix("none: ").filter(|_| needs_window(run)) {
            Some(reason) => Err(Error::NoWindowControl { arm, reason: reason.to_string() }),
            None => Ok(()),
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        for stays in self.files.put_back(Whose::Defaults, &self.before) {
            crate::error::complain(&format!("the module's default {stays}"));
        }
    }
}

/// The settings that the first VM which starts under `run` has in the module at `root`: sets it as
/// for the run, reads its files back, and restores it.
///
/// # Errors
///
/// No module there, one that does not support the run, and files that cannot be read or written.
pub fn settings_for(root: &Path, run: &Run) -> Result<ModuleSettings, Error> {
    let wrong = |why: &str| {
        let path = root.join("default");
        Error::io(&path, std::io::Error::other(why))
    };
    let module = Module::open_at(root)?.ok_or_else(|| wrong("no such module"))?;
    module.set_defaults(run)?;
    let settings = ModuleSettings::read(|name| module.files.file(Whose::Defaults, name).ok());
    settings.ok_or_else(|| wrong("its settings cannot be read"))
}

/// Whether the run needs the module.
pub(crate) fn needed(run: &Run) -> bool {
    needs_window(run) || run.arm.yield_to != YieldTo::Stock
}

/// Whether the module sets windows in this run. It also does to keep Linux guests from pause-loop
/// exits, by a window longer than any spin.
fn needs_window(run: &Run) -> bool {
    let is_linux = || run.vms.iter().any(|vm| vm.linux.is_some());
    sets_window(&run.arm) || (run.arm.window == Window::Off && is_linux())
}

/// The settings of a VM of a run.
fn settings_of(run: &Run, vm: &Vm) -> ModuleSettings {
    ModuleSettings::of(run, &run.arm_of(vm))
}

/// The settings of VM number `vm` of a run of Linux guests; the defaults for a VM that the run does
/// not use. QEMU's own switch for pause-loop exits also disables the exits of HLT, and needs a new
/// guest. So the window is set longer than any spin instead.
pub(crate) fn settings_of_linux(run: &Run, vm: usize) -> ModuleSettings {
    let mut arm = run.vms.get(vm).map_or_else(Arm::default, |vm| run.arm_of(vm));
    if arm.window == Window::Off {
        arm.window = Window::Fixed { cycles: PLE_OFF_CYCLES };
    }
    ModuleSettings::of(run, &arm)
}

/// Whether the module counts anything in this run.
pub(crate) fn counts(run: &Run) -> bool {
    ModuleSettings::of(run, &run.arm).mode != Mode::OFF
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;
    use unspin_scenario::plan::{Coscheduling, LinuxVm};
    use unspin_scenario::result::ModuleStats;
    use unspin_scratch::Scratch;
    use unspin_uapi::Variant;

    fn run(window: Window, yield_to: YieldTo) -> Run {
        Run {
            arm: Arm { window, yield_to, observe: true, ..Arm::default() },
            epoch_ple_exits: Some(50),
            ..Run::new(vec![], 1, 1)
        }
    }

    /// All files that are read at both ends of the measuring time.
    pub(crate) fn counters() -> Vec<&'static str> {
        let mut files = Vec::new();
        let read = ModuleStats::read(|file| {
            files.push(file);
            Ok::<_, ()>(0)
        });
        assert!(read.is_ok());
        files
    }

    /// The directory of a module that knows these VMs, each with one value in all its counters.
    pub(crate) fn root_with_vms(vms: &[(&str, &str)]) -> Scratch {
        let root = Scratch::new();
        for (vm, value) in vms {
            for counter in counters() {
                root.write(format!("vms/{vm}/{counter}"), value);
            }
        }
        root
    }

    /// A module at `root` that has not been changed.
    pub(crate) fn at(root: &Path) -> Module {
        Module { files: module::Module::open(root).unwrap(), before: Files::new() }
    }

    #[test]
    fn defaults_are_set_and_put_back() {
        let root = Scratch::with(&[("window_control", "vmx\n")]);
        for name in setting_files() {
            root.write(format!("default/{name}"), "before\n");
        }
        let read = |name: &str| root.read(format!("default/{name}"));
        let module = Module::open_at(&root).unwrap().unwrap();
        let displaced = YieldTo::Module(Variant::DISPLACED);
        module.set_defaults(&run(Window::Stock, displaced)).unwrap();
        assert_eq!((read("mode"), read("epoch_ple_exits")), ("hvs".into(), "50".into()));
        assert_eq!(read("hvs_variant"), "hvs-displaced");
        root.write("window_control", "none: no BTF\n");
        let error = module.set_defaults(&run(Window::Fixed { cycles: 1 }, YieldTo::HVS));
        assert!(error.unwrap_err().to_string().contains("no BTF"));
        drop(module);
        assert!(setting_files().all(|name| read(name) == "before"));
    }

    #[test]
    fn static_coscheduling_is_for_those_that_gang() {
        let vms = [("4-0", "0"), ("5-0", "0"), ("6-0", "0")];
        let root = root_with_vms(&vms);
        let module = at(&root);
        root.dir("default");
        root.write("window_control", "vmx\n");
        let read = |dir: &str| fs::read_to_string(root.join(dir).join("coscheduling"));
        let mut run = run(Window::Stock, YieldTo::HVS);
        run.arm.coscheduling = Coscheduling::Con;
        run.vms = vec![Vm::new(vec![], 1); 3];
        for (spins, set) in [(false, "none"), (true, "con")] {
            run = run.with(|vm| vm.spin_intensive = spins);
            module.set_defaults(&run).unwrap();
            module.set_others(&run, &[4, 5, 6]).unwrap();
            assert_eq!(read("default").unwrap(), set);
            assert!(vms.iter().all(|(vm, _)| read(&format!("vms/{vm}")).is_err()));
        }
        run.vms[1].gang = Some(false);
        run.vms[2].spin_intensive = false;
        module.set_defaults(&run).unwrap();
        module.set_others(&run, &[4, 5, 6]).unwrap();
        assert_eq!(read("default").unwrap(), "con");
        assert!(read("vms/4-0").is_err());
        assert!(["vms/5-0", "vms/6-0"].iter().all(|vm| read(vm).unwrap() == "none"));
    }

    #[test]
    fn a_vm_whose_mode_is_off_is_off_beside_one_that_has_turns() {
        let root = root_with_vms(&[("4-0", "0"), ("5-0", "0")]);
        let module = at(&root);
        root.dir("default");
        root.write("window_control", "vmx\n");
        let read = |dir: &str, file: &str| fs::read_to_string(root.join(dir).join(file));
        let mut run = run(Window::Stock, YieldTo::HVS);
        run.arm.coscheduling = Coscheduling::Con;
        run.vms = vec![Vm::new(vec![], 1); 2];
        run.vms[0].mode_off = true;
        run.vms[1].gang = Some(true);
        module.set_defaults(&run).unwrap();
        module.set_others(&run, &[4, 5]).unwrap();
        let off = ("off".to_string(), "none".to_string());
        let of = |dir| (read(dir, "mode").unwrap(), read(dir, "coscheduling").unwrap());
        assert_eq!(of("default"), off);
        assert!(read("vms/4-0", "mode").is_err(), "made off, it is left alone");
        assert_eq!(of("vms/5-0"), ("hvs".to_string(), "con".to_string()));
    }

    #[test]
    fn linux_guests_without_pause_loop_exits_need_the_modules_window() {
        let root = Scratch::with(&[("window_control", "none: no BTF\n")]);
        let module = at(&root);
        let mut off = run(Window::Off, YieldTo::Stock);
        assert!(!needed(&off));
        module.check_can(&off).unwrap();
        off.vms[0].linux = Some(linux());
        assert!(needed(&off));
        let error = module.check_can(&off).unwrap_err().to_string();
        assert!(error.contains("no BTF"), "{error}");
        root.write("window_control", "vmx\n");
        module.check_can(&off).unwrap();
        let stock = Run { vms: off.vms, ..run(Window::Stock, YieldTo::Stock) };
        assert!(!needed(&stock));
    }

    fn linux() -> LinuxVm {
        let guest = serde_json::json!({
            "kernel": "6.12", "lock": "pv", "memory_mib": 192, "idle": "halt"
        });
        let program = serde_json::json!({
            "name": "x", "title": "Does x", "command": "x", "unit": "a call", "from": "here"
        });
        let vm = serde_json::json!({ "guest": guest, "program": program });
        serde_json::from_value(vm).unwrap()
    }
}
