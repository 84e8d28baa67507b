// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module, through its directory in sysfs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use unspin_scenario::module::{sets_window, ModuleSettings};
use unspin_scenario::plan::{Arm, Run, Vm, Window, YieldTo};
use unspin_uapi::{Mode, ModuleValue};

use crate::known_vms::KnownVms;
use crate::Error;

/// A window that means no pause-loop exits.
const PLE_OFF_CYCLES: u32 = 1 << 24;

const ROOT: &str = "/sys/module/unspin";

/// The module names a new VM within this.
const NAMING_PATIENCE: Duration = Duration::from_secs(2);

/// The loaded module; dropped, its defaults are as they were.
pub(crate) struct Module {
    root: PathBuf,
    pub(crate) vms: KnownVms,
    /// What `default/` held before anything was changed.
    before: Vec<(&'static str, String)>,
}

impl Module {
    /// `None` if it is not loaded.
    pub(crate) fn open() -> Result<Option<Module>, Error> {
        Module::open_at(Path::new(ROOT))
    }

    fn open_at(root: &Path) -> Result<Option<Module>, Error> {
        let defaults = root.join("default");
        if !defaults.is_dir() {
            return Ok(None);
        }
        let read = |(name, _): (&'static str, String)| {
            let path = defaults.join(name);
            let text = fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
            Ok((name, text.trim().to_string()))
        };
        let nothing = Run::new(vec![], 1, 1);
        let settings = ModuleSettings::of(&nothing, &nothing.arm).files();
        let before = settings.into_iter().map(read).collect::<Result<_, Error>>()?;
        Ok(Some(Module { root: root.into(), vms: KnownVms::of_module(root), before }))
    }

    pub(crate) fn version(&self) -> String {
        let version = fs::read_to_string(self.root.join("version"));
        version.map_or_else(|_| "unknown".into(), |text| text.trim().into())
    }

    /// `vmx`, `svm`, or `none: reason`.
    pub(crate) fn window_control(&self) -> String {
        self.control(ModuleValue::WINDOW_CONTROL)
    }

    fn control(&self, of: ModuleValue) -> String {
        let control = fs::read_to_string(self.root.join(of.file()));
        control.map_or_else(|e| format!("none: {e}"), |text| text.trim().into())
    }

    /// Sets the defaults for VMs that start from now on: the settings of the run's first VM.
    pub(crate) fn set_defaults(&self, run: &Run) -> Result<(), Error> {
        self.check_can(run)?;
        write_all(&self.root.join("default"), &settings_of(run, run.first()).files())
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
        let dir = self.vms.of_soon(pid, NAMING_PATIENCE)?;
        write_all(&dir.ok_or(Error::UnknownVm { pid })?, &settings.files())
    }

    /// Whether the module supports what the run's arm needs.
    pub(crate) fn check_can(&self, run: &Run) -> Result<(), Error> {
        let arm = run.arm.name.clone();
        let control = self.control(ModuleValue::WINDOW_CONTROL);
        match control.strip_prefix("none: ").filter(|_| needs_window(run)) {
            Some(reason) => Err(Error::NoWindowControl { arm, reason: reason.to_string() }),
            None => Ok(()),
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Err(error) = write_all(&self.root.join("default"), &self.before) {
            crate::error::complain(&format!("the module's defaults stay changed: {error}"));
        }
    }
}

fn write_all(dir: &Path, settings: &[(&'static str, String)]) -> Result<(), Error> {
    for (setting, value) in settings {
        let setting = *setting;
        fs::write(dir.join(setting), value).map_err(|source| Error::Module {
            setting,
            value: value.clone(),
            source,
        })?;
    }
    Ok(())
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
    let of = |name: &str| fs::read_to_string(root.join("default").join(name)).ok();
    let settings = ModuleSettings::read(|name| Some(of(name)?.trim().to_string()));
    settings.ok_or_else(|| wrong("its settings cannot be read"))
}

/// Whether the run needs the module.
pub(crate) fn needed(run: &Run) -> bool {
    needs_window(run) || run.arm.yield_to != YieldTo::Stock
}

/// Whether the module sets windows in it: also where a window beyond all spinning keeps Linux guests
/// from pause-loop exits.
fn needs_window(run: &Run) -> bool {
    let is_linux = || run.vms.iter().any(|vm| vm.linux.is_some());
    sets_window(&run.arm) || (run.arm.window == Window::Off && is_linux())
}

/// What a VM of a run has.
fn settings_of(run: &Run, vm: &Vm) -> ModuleSettings {
    ModuleSettings::of(run, &run.arm_of(vm))
}

/// The settings of VM number `vm` of a run of Linux guests; none for a VM that the run does not
/// use. QEMU's own switch for pause-loop exits also disables the exits of HLT, and needs a new
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
mod tests {
    use super::*;
    use crate::known_vms::tests::root_with_vms;
    use unspin_scenario::plan::{Coscheduling, LinuxVm};
    use unspin_uapi::Variant;

    fn run(window: Window, yield_to: YieldTo) -> Run {
        Run {
            arm: Arm { window, yield_to, observe: true, ..Arm::default() },
            epoch_ple_exits: Some(50),
            ..Run::new(vec![], 1, 1)
        }
    }

    /// A module there that nothing was changed of.
    fn at(root: &Path) -> Module {
        Module { root: root.into(), vms: KnownVms::of_module(root), before: vec![] }
    }

    /// All files of settings.
    fn files() -> Vec<&'static str> {
        let nothing = Run::new(vec![], 1, 1);
        let settings = ModuleSettings::of(&nothing, &nothing.arm).files();
        settings.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn defaults_are_set_and_put_back() {
        let root = std::env::temp_dir().join(format!("unspin-module-{}", std::process::id()));
        let defaults = root.join("default");
        fs::create_dir_all(&defaults).unwrap();
        for name in files() {
            fs::write(defaults.join(name), "before\n").unwrap();
        }
        fs::write(root.join("window_control"), "vmx\n").unwrap();
        let read = |name: &str| fs::read_to_string(defaults.join(name)).unwrap();
        let module = Module::open_at(&root).unwrap().unwrap();
        let displaced = YieldTo::Module(Variant::DISPLACED);
        module.set_defaults(&run(Window::Stock, displaced)).unwrap();
        assert_eq!((read("mode"), read("epoch_ple_exits")), ("hvs".into(), "50".into()));
        assert_eq!(read("hvs_variant"), "hvs-displaced");
        fs::write(root.join("window_control"), "none: no BTF\n").unwrap();
        let error = module.set_defaults(&run(Window::Fixed { cycles: 1 }, YieldTo::HVS));
        assert!(error.unwrap_err().to_string().contains("no BTF"));
        drop(module);
        assert!(files().iter().all(|name| read(name) == "before"));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn static_coscheduling_is_for_those_that_gang() {
        let vms = [("4-0", "0"), ("5-0", "0"), ("6-0", "0")];
        let module = at(&root_with_vms("gangs", &vms));
        fs::create_dir_all(module.root.join("default")).unwrap();
        fs::write(module.root.join("window_control"), "vmx\n").unwrap();
        let read = |dir: &str| fs::read_to_string(module.root.join(dir).join("coscheduling"));
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
        fs::remove_dir_all(&module.root).unwrap();
    }

    #[test]
    fn a_vm_whose_mode_is_off_is_off_beside_one_that_has_turns() {
        let module = at(&root_with_vms("one", &[("4-0", "0"), ("5-0", "0")]));
        fs::create_dir_all(module.root.join("default")).unwrap();
        fs::write(module.root.join("window_control"), "vmx\n").unwrap();
        let read = |dir: &str, file: &str| fs::read_to_string(module.root.join(dir).join(file));
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
        fs::remove_dir_all(&module.root).unwrap();
    }

    #[test]
    fn linux_guests_without_pause_loop_exits_need_the_modules_window() {
        let root = std::env::temp_dir().join(format!("unspin-off-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let module = at(&root);
        fs::write(root.join("window_control"), "none: no BTF\n").unwrap();
        let mut off = run(Window::Off, YieldTo::Stock);
        assert!(!needed(&off));
        module.check_can(&off).unwrap();
        off.vms[0].linux = Some(linux());
        assert!(needed(&off));
        let error = module.check_can(&off).unwrap_err().to_string();
        assert!(error.contains("no BTF"), "{error}");
        fs::write(root.join("window_control"), "vmx\n").unwrap();
        module.check_can(&off).unwrap();
        let stock = Run { vms: off.vms, ..run(Window::Stock, YieldTo::Stock) };
        assert!(!needed(&stock));
        fs::remove_dir_all(root).unwrap();
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
