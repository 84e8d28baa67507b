// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module, through its directory in sysfs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use unspin_scenario::module::{sets_window, turns_refused, ModuleSettings, TURNS_REFUSED};
use unspin_scenario::plan::{Arm, Run, Window, YieldTo};
use unspin_scenario::result::{ModuleStats, WentBack};
use unspin_uapi::{Mode, ModuleValue};

use crate::Error;

/// A window that stands for no pause-loop exits.
const PLE_OFF_CYCLES: u32 = 1 << 24;

const ROOT: &str = "/sys/module/unspin";

/// The module names a new VM within this.
const NAMING_PATIENCE: Duration = Duration::from_secs(2);

/// The loaded module; dropped, its defaults are as they were.
pub(crate) struct Module {
    root: PathBuf,
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
        Ok(Some(Module { root: root.into(), before }))
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

    /// An error naming the VMs the module knows beside those of processes `own`. One whose process has
    /// ended is only waiting to be forgotten.
    pub(crate) fn check_alone(&self, own: &[u32]) -> Result<(), Error> {
        let mut others: Vec<String> = fs::read_dir(self.root.join("vms"))
            .map(|vms| vms.flatten().filter_map(|vm| vm.file_name().into_string().ok()).collect())
            .unwrap_or_default();
        let is_other = |vm: &str| {
            let pid = vm.split('-').next().unwrap_or(vm);
            let is_own = own.iter().any(|own| own.to_string() == pid);
            !is_own && Path::new("/proc").join(pid).exists()
        };
        others.retain(|vm| is_other(vm));
        others.sort();
        match others.is_empty() {
            true => Ok(()),
            false => Err(Error::OtherVms { vms: others.join(", ") }),
        }
    }

    /// Sets what VMs started from now on will have: what the run's first VM is to.
    pub(crate) fn set_defaults(&self, run: &Run) -> Result<(), Error> {
        self.check_can(run)?;
        write_all(&self.root.join("default"), &settings_of(run, 0).files())
    }

    /// Sets what the run's VMs have, of these processes, where it is not what the first has.
    pub(crate) fn set_others(&self, run: &Run, pids: &[u32]) -> Result<(), Error> {
        let usual = settings_of(run, 0);
        for (vm, &pid) in (0..).zip(pids) {
            let own = settings_of(run, vm);
            if own != usual {
                self.set_vm(pid, &own)?;
            }
        }
        Ok(())
    }

    /// Sets what the VM of process `pid`, which runs, has from now on.
    pub(crate) fn set_vm(&self, pid: u32, settings: &ModuleSettings) -> Result<(), Error> {
        let dir = self.vm_dir_soon(pid, NAMING_PATIENCE)?;
        write_all(&dir.ok_or(Error::UnknownVm { pid })?, &settings.files())
    }

    /// The same as [`Module::vm_dir`] for a VM that may have been made just now: the module names it
    /// when one of the kernel's workers comes to it.
    fn vm_dir_soon(&self, pid: u32, patience: Duration) -> Result<Option<PathBuf>, Error> {
        let start = Instant::now();
        loop {
            let dir = self.vm_dir(pid)?;
            if dir.is_some() || start.elapsed() >= patience {
                return Ok(dir);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the module can do what the run's arm asks for.
    pub(crate) fn check_can(&self, run: &Run) -> Result<(), Error> {
        let arm = run.arm.name.clone();
        if run.arm.ipi_aware && run.arm.yield_to == YieldTo::Stock {
            return Err(Error::IpiAwareStock { arm });
        }
        let missing = |needed: bool, of| {
            let control = self.control(of);
            let reason = control.strip_prefix("none: ").filter(|_| needed);
            reason.map(str::to_string)
        };
        if let Some(reason) = missing(needs_window(run), ModuleValue::WINDOW_CONTROL) {
            return Err(Error::NoWindowControl { arm, reason });
        }
        if let Some(reason) = missing(run.arm.ipi_aware, ModuleValue::IPI_CONTROL) {
            return Err(Error::NoIpiControl { arm, reason });
        }
        Ok(())
    }

    /// The directory of the VM that process `pid` made last: one a process, but a process id that
    /// was used before counts on. `None` if the module knows no VM of it.
    fn vm_dir(&self, pid: u32) -> Result<Option<PathBuf>, Error> {
        let dir = self.root.join("vms");
        let vms = match fs::read_dir(&dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| Error::io(&dir, e))?,
        };
        let number = |name: &str| name.strip_prefix(&format!("{pid}-"))?.parse::<u32>().ok();
        let newest = vms
            .flatten()
            .filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path())))
            .max();
        Ok(newest.map(|(_, path)| path))
    }

    /// Counters of the VM that process `pid` made; `None` if the module does not know it. An error
    /// where one of them cannot be read: what is unknown is not 0.
    pub(crate) fn stats(&self, pid: u32) -> Result<Option<ModuleStats>, Error> {
        let Some(dir) = self.vm_dir(pid)? else {
            return Ok(None);
        };
        let count = |name: &str| {
            let path = dir.join(name);
            let text = fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
            let text = text.trim();
            text.parse::<u64>().map_err(|_| Error::Counter {
                path: path.display().to_string(),
                text: text.chars().take(40).collect(),
            })
        };
        ModuleStats::read(count).map(Some)
    }

    /// Why the VM that process `pid` made has no turns; `None` where it may have them, and where the module
    /// has no file that says so.
    pub(crate) fn turns_refused(&self, pid: u32) -> Result<Option<String>, Error> {
        let Some(dir) = self.vm_dir(pid)? else { return Ok(None) };
        let path = dir.join(TURNS_REFUSED);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(turns_refused(&text).map(str::to_string)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(&path, e)),
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

/// What the first VM that starts under `run` has of the module whose directory is `root`: it is set as for the
/// run, its files are read again, and it is put back.
///
/// # Errors
/// No module there, one that cannot do what the run asks for, and files that cannot be read or written.
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

/// Whether the run cannot be made without the module.
pub(crate) fn needed(run: &Run) -> bool {
    needs_window(run) || run.arm.yield_to != YieldTo::Stock || run.arm.ipi_aware
}

/// Whether the module sets windows in it: also where a window beyond all spinning keeps Linux guests
/// from pause-loop exits.
fn needs_window(run: &Run) -> bool {
    let is_linux = || (0..run.vms).any(|vm| run.linux_of(vm).is_some());
    sets_window(&run.arm) || (run.arm.window == Window::Off && is_linux())
}

/// What happened between two readings.
pub(crate) fn difference(first: &ModuleStats, second: &ModuleStats) -> Result<ModuleStats, Error> {
    let lost = |WentBack { counter, from, to }| Error::WentBack { counter, from, to };
    second.since(first).map_err(lost)
}

/// What VM number `vm` of a run has.
fn settings_of(run: &Run, vm: u32) -> ModuleSettings {
    ModuleSettings::of(run, &run.arm_of(vm))
}

/// What VM number `vm` of a run of Linux guests has; a VM the run does not use has nothing. QEMU's own
/// switch for pause-loop exits takes the exits of HLT with it, and only a new guest takes it: instead
/// the window is longer than anybody spins.
pub(crate) fn settings_of_linux(run: &Run, vm: u32) -> ModuleSettings {
    let mut arm = match vm < run.vms {
        true => run.arm_of(vm),
        false => Arm::default(),
    };
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
    use unspin_scenario::plan::{Coscheduling, LinuxVm};
    use unspin_uapi::Variant;

    fn run(window: Window, yield_to: YieldTo) -> Run {
        Run {
            arm: Arm { window, yield_to, observe: true, ..Arm::default() },
            epoch_ple_exits: Some(50),
            ..Run::new(vec![], 1, 1)
        }
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
        assert_eq!((read("hvs_variant"), read("ipi_aware")), ("hvs-displaced".into(), "0".into()));
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
        let module = with_vms("gangs", &vms);
        fs::create_dir_all(module.root.join("default")).unwrap();
        fs::write(module.root.join("window_control"), "vmx\n").unwrap();
        let read = |dir: &str| fs::read_to_string(module.root.join(dir).join("coscheduling"));
        let mut run = run(Window::Stock, YieldTo::HVS);
        run.arm.coscheduling = Coscheduling::Con;
        run.vms = 3;
        for (spins, set) in [(false, "none"), (true, "con")] {
            run.spin_intensive = spins;
            module.set_defaults(&run).unwrap();
            module.set_others(&run, &[4, 5, 6]).unwrap();
            assert_eq!(read("default").unwrap(), set);
            assert!(vms.iter().all(|(vm, _)| read(&format!("vms/{vm}")).is_err()));
        }
        run.each = vec![run.vm(0), run.vm(1), run.vm(2)];
        run.each[1].gang = Some(false);
        run.each[2].spin_intensive = false;
        module.set_defaults(&run).unwrap();
        module.set_others(&run, &[4, 5, 6]).unwrap();
        assert_eq!(read("default").unwrap(), "con");
        assert!(read("vms/4-0").is_err());
        assert!(["vms/5-0", "vms/6-0"].iter().all(|vm| read(vm).unwrap() == "none"));
        fs::remove_dir_all(&module.root).unwrap();
    }

    #[test]
    fn a_vm_whose_mode_is_off_is_off_beside_one_that_has_turns() {
        let module = with_vms("one", &[("4-0", "0"), ("5-0", "0")]);
        fs::create_dir_all(module.root.join("default")).unwrap();
        fs::write(module.root.join("window_control"), "vmx\n").unwrap();
        let read = |dir: &str, file: &str| fs::read_to_string(module.root.join(dir).join(file));
        let mut run = run(Window::Stock, YieldTo::HVS);
        run.arm.coscheduling = Coscheduling::Con;
        run.vms = 2;
        run.each = vec![run.vm(0), run.vm(1)];
        run.each[0].mode_off = true;
        run.each[1].gang = Some(true);
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
        let module = Module { root: root.clone(), before: vec![] };
        fs::write(root.join("window_control"), "none: no BTF\n").unwrap();
        let mut off = run(Window::Off, YieldTo::Stock);
        assert!(!needed(&off));
        module.check_can(&off).unwrap();
        off.linux = Some(linux());
        assert!(needed(&off));
        let error = module.check_can(&off).unwrap_err().to_string();
        assert!(error.contains("no BTF"), "{error}");
        fs::write(root.join("window_control"), "vmx\n").unwrap();
        module.check_can(&off).unwrap();
        let stock = Run { linux: off.linux, ..run(Window::Stock, YieldTo::Stock) };
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

    #[test]
    fn who_owes_answers_is_asked_of_a_module_that_can_tell() {
        let root = std::env::temp_dir().join(format!("unspin-ipi-{}", std::process::id()));
        let defaults = root.join("default");
        fs::create_dir_all(&defaults).unwrap();
        let module = Module { root: root.clone(), before: vec![] };
        let aware = |yield_to| {
            let mut run = run(Window::Stock, yield_to);
            (run.arm.name, run.arm.ipi_aware) = ("ipi".into(), true);
            assert!(needed(&run));
            module.set_defaults(&run)
        };
        let refused = |yield_to| aware(yield_to).unwrap_err().to_string();
        let stock = refused(YieldTo::Stock);
        assert!(stock.contains("arm ipi") && stock.contains("yield_to"), "{stock}");
        fs::write(root.join("ipi_control"), "none: IPI virtualization hides them\n").unwrap();
        let hidden = refused(YieldTo::HVS);
        assert!(hidden.contains("arm ipi") && hidden.contains("hides them"), "{hidden}");
        fs::write(root.join("ipi_control"), "exits\n").unwrap();
        aware(YieldTo::HVS).unwrap();
        assert_eq!(fs::read_to_string(defaults.join("ipi_aware")).unwrap(), "1");
        fs::remove_dir_all(root).unwrap();
    }

    /// All files that are read at both ends of a window.
    fn counters() -> Vec<&'static str> {
        let mut files = Vec::new();
        let read = ModuleStats::read(|file| {
            files.push(file);
            Ok::<_, ()>(0)
        });
        assert!(read.is_ok());
        files
    }

    /// A module that knows these VMs, each with one value in all its counters.
    fn with_vms(name: &str, vms: &[(&str, &str)]) -> Module {
        let root = std::env::temp_dir().join(format!("unspin-{name}-{}", std::process::id()));
        for (vm, value) in vms {
            let dir = root.join("vms").join(vm);
            fs::create_dir_all(&dir).unwrap();
            for counter in counters() {
                fs::write(dir.join(counter), value).unwrap();
            }
        }
        Module { root, before: vec![] }
    }

    #[test]
    fn other_vms_are_refused_and_ended_ones_are_not() {
        let root = std::env::temp_dir().join(format!("unspin-others-{}", std::process::id()));
        let module = Module { root: root.clone(), before: vec![] };
        module.check_alone(&[]).unwrap();
        // No process has a number above the largest there can be.
        fs::create_dir_all(root.join("vms/4194305-0")).unwrap();
        module.check_alone(&[]).unwrap();
        let alive = format!("{}-0", std::process::id());
        fs::create_dir_all(root.join("vms").join(&alive)).unwrap();
        let error = module.check_alone(&[]).unwrap_err();
        assert!(error.to_string().contains(&format!("({alive})")), "{error}");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_vm_is_found_by_its_process() {
        let module = with_vms("vms", &[("41-0", "1"), ("4-0", "2"), ("4-1", "3\n")]);
        assert_eq!(module.stats(4).unwrap().unwrap().ple_exits, 3);
        assert_eq!(module.stats(41).unwrap().unwrap().ple_exits, 1);
        assert!(module.stats(1).unwrap().is_none());
        fs::remove_dir_all(&module.root).unwrap();
        assert!(module.stats(4).unwrap().is_none());
    }

    #[test]
    fn a_vm_without_turns_has_a_reason_and_an_older_module_says_nothing() {
        let module = with_vms("refused", &[("4-0", "1"), ("5-0", "1")]);
        assert_eq!(module.turns_refused(4).unwrap(), None, "no such file");
        assert_eq!(module.turns_refused(6).unwrap(), None, "no such VM");
        let write = |vm: &str, text: &str| {
            fs::write(module.root.join("vms").join(vm).join("turns_refused"), text).unwrap();
        };
        write("4-0", "none\n");
        write("5-0", "vCPUs of a real-time class\n");
        assert_eq!(module.turns_refused(4).unwrap(), None);
        let reason = module.turns_refused(5).unwrap();
        assert_eq!(reason.as_deref(), Some("vCPUs of a real-time class"));
        fs::remove_dir_all(&module.root).unwrap();
    }

    #[test]
    fn a_vm_that_was_made_just_now_is_waited_for() {
        let module = with_vms("soon", &[("4-0", "1")]);
        let later = module.root.join("vms/5-0");
        let made = std::thread::spawn({
            let later = later.clone();
            move || {
                std::thread::sleep(Duration::from_millis(20));
                fs::create_dir(later).unwrap();
            }
        });
        assert_eq!(module.vm_dir_soon(5, Duration::from_secs(60)).unwrap(), Some(later));
        made.join().unwrap();
        assert_eq!(module.vm_dir_soon(6, Duration::from_millis(5)).unwrap(), None);
        fs::remove_dir_all(&module.root).unwrap();
    }

    #[test]
    fn a_counter_that_cannot_be_read_is_not_0() {
        let module = with_vms("unread", &[("4-0", "2")]);
        for counter in counters() {
            let path = module.root.join("vms/4-0").join(counter);
            fs::write(&path, "many").unwrap();
            let error = module.stats(4).unwrap_err().to_string();
            assert!(error.contains(counter) && error.contains("many"), "{error}");
            fs::remove_file(&path).unwrap();
            assert!(module.stats(4).unwrap_err().to_string().contains(counter), "{counter}");
            fs::write(&path, "2").unwrap();
        }
        fs::remove_dir_all(&module.root).unwrap();
    }

    #[test]
    fn a_counter_that_goes_back_is_not_0() {
        let at = |ple_exits| ModuleStats { ple_exits, window_cycles: 7, ..Default::default() };
        assert_eq!(difference(&at(5), &at(9)).unwrap(), at(4));
        let error = difference(&at(9), &at(5)).unwrap_err().to_string();
        assert!(error.contains("ple_exits went from 9 back to 5"), "{error}");
    }
}
