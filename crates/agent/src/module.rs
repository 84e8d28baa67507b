// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module, through its directory in sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use unspin_scenario::plan::{ApleParams, Arm, Run, Window, YieldTo};
use unspin_scenario::result::ModuleStats;

use crate::Error;

const ROOT: &str = "/sys/module/unspin";
/// In `default/`, and read before anything is changed.
const SETTINGS: &[&str] = &[
    "mode",
    "window_init_cycles",
    "window_min_cycles",
    "window_max_cycles",
    "delta_cycles",
    "delta_max_cycles",
    "epoch_ple_exits",
    "epoch_min_us",
    "hvs_variant",
];

/// The loaded module; dropped, its defaults are as they were.
pub(crate) struct Module {
    root: PathBuf,
    before: Vec<(String, String)>,
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
        let read = |name: &&str| {
            let path = defaults.join(name);
            let text = fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
            Ok((name.to_string(), text.trim().to_string()))
        };
        let before = SETTINGS.iter().map(read).collect::<Result<_, Error>>()?;
        Ok(Some(Module { root: root.into(), before }))
    }

    pub(crate) fn version(&self) -> String {
        let version = fs::read_to_string(self.root.join("version"));
        version.map_or_else(|_| "unknown".into(), |text| text.trim().into())
    }

    /// `vmx`, `svm`, or `none: reason`.
    pub(crate) fn window_control(&self) -> String {
        let control = fs::read_to_string(self.root.join("window_control"));
        control.map_or_else(|e| format!("none: {e}"), |text| text.trim().into())
    }

    /// An error naming the VMs the module knows: it is made for between runs, when none is ours. One
    /// whose process has ended is only waiting to be forgotten.
    pub(crate) fn check_alone(&self) -> Result<(), Error> {
        let mut others: Vec<String> = fs::read_dir(self.root.join("vms"))
            .map(|vms| vms.flatten().filter_map(|vm| vm.file_name().into_string().ok()).collect())
            .unwrap_or_default();
        let lives = |vm: &str| {
            vm.split('-').next().is_some_and(|pid| Path::new("/proc").join(pid).exists())
        };
        others.retain(|vm| lives(vm));
        others.sort();
        match others.is_empty() {
            true => Ok(()),
            false => Err(Error::OtherVms { vms: others.join(", ") }),
        }
    }

    /// Sets what VMs started from now on will have.
    pub(crate) fn set_defaults(&self, run: &Run) -> Result<(), Error> {
        let window_control = self.window_control();
        if let (true, Some(reason)) = (sets_window(&run.arm), window_control.strip_prefix("none: "))
        {
            let (arm, reason) = (run.arm.name.clone(), reason.into());
            return Err(Error::NoWindowControl { arm, reason });
        }
        self.write_all(&settings(run))
    }

    fn write_all(&self, settings: &[(String, String)]) -> Result<(), Error> {
        for (setting, value) in settings {
            fs::write(self.root.join("default").join(setting), value).map_err(|source| {
                Error::Module { setting: setting.clone(), value: value.clone(), source }
            })?;
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
        Ok(Some(ModuleStats {
            ple_exits: count("ple_exits")?,
            wasteful_spin_cycles: count("wasteful_spin_cycles")?,
            wasteful_switch_cycles: count("wasteful_switch_cycles")?,
            cpu_cycles: count("cpu_cycles")?,
            inefficiency_last_ppm: count("inefficiency_last_ppm")?,
            window_cycles: count("window_cycles")?,
            epochs: count("epochs")?,
            rounds_total: count("rounds")?,
            yields_resource_waiter: count("yields_resource_waiter")?,
            yields_lock_waiter: count("yields_lock_waiter")?,
            yields_yielded: count("yields_yielded")?,
            yields_none: count("yields_none")?,
            yields_gave_way: count("yields_gave_way")?,
            yields_failed: count("yields_failed")?,
            picks_ran_next: count("picks_ran_next")?,
            hypercalls_kick: count("hypercalls_kick")?,
            hypercalls_sched_yield: count("hypercalls_sched_yield")?,
            fail_open_events: count("fail_open_events")?,
        }))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Err(error) = self.write_all(&self.before) {
            eprintln!("agent: the module's defaults stay changed: {error}");
        }
    }
}

/// Whether the arm cannot be run without the module.
pub(crate) fn needed(arm: &Arm) -> bool {
    sets_window(arm) || arm.yield_to != YieldTo::Stock
}

/// What happened between two readings. Last values stay the second's. An error where a counter went
/// back: what was counted before that is lost.
pub(crate) fn difference(first: &ModuleStats, second: &ModuleStats) -> Result<ModuleStats, Error> {
    let since = |counter, a: u64, b: u64| {
        b.checked_sub(a).ok_or(Error::WentBack { counter, from: a, to: b })
    };
    macro_rules! since {
        ($counter:ident) => {
            since(stringify!($counter), first.$counter, second.$counter)?
        };
    }
    Ok(ModuleStats {
        ple_exits: since!(ple_exits),
        wasteful_spin_cycles: since!(wasteful_spin_cycles),
        wasteful_switch_cycles: since!(wasteful_switch_cycles),
        cpu_cycles: since!(cpu_cycles),
        inefficiency_last_ppm: second.inefficiency_last_ppm,
        window_cycles: second.window_cycles,
        epochs: since!(epochs),
        rounds_total: second.rounds_total,
        yields_resource_waiter: since!(yields_resource_waiter),
        yields_lock_waiter: since!(yields_lock_waiter),
        yields_yielded: since!(yields_yielded),
        yields_none: since!(yields_none),
        yields_gave_way: since!(yields_gave_way),
        yields_failed: since!(yields_failed),
        picks_ran_next: since!(picks_ran_next),
        hypercalls_kick: since!(hypercalls_kick),
        hypercalls_sched_yield: since!(hypercalls_sched_yield),
        fail_open_events: since!(fail_open_events),
    })
}

/// Whether the module counts anything in this arm.
pub(crate) fn counts(arm: &Arm) -> bool {
    mode(arm) != "off"
}

fn sets_window(arm: &Arm) -> bool {
    matches!(arm.window, Window::Fixed { .. } | Window::Aple(_))
}

fn mode(arm: &Arm) -> &'static str {
    match (sets_window(arm), arm.yield_to, arm.observe) {
        (true, YieldTo::Stock, _) => "aple",
        (true, _, _) => "apples",
        (false, YieldTo::Stock, true) => "observe",
        (false, YieldTo::Stock, false) => "off",
        (false, _, _) => "hvs",
    }
}

/// Every setting a run has, so that nothing of the run before is left. Bounds before what they
/// bound.
fn settings(run: &Run) -> Vec<(String, String)> {
    let params = match run.arm.window {
        Window::Aple(params) => params,
        Window::Fixed { cycles } => ApleParams {
            window_init_cycles: cycles,
            window_min_cycles: cycles,
            window_max_cycles: cycles,
            delta_cycles: 0,
            delta_max_cycles: 0,
            ..epoch_of(run)
        },
        Window::Stock | Window::Off => epoch_of(run),
    };
    let variant = match run.arm.yield_to {
        YieldTo::Stock | YieldTo::Hvs => "hvs",
        YieldTo::HvsPaper => "paper",
        YieldTo::CpthR => "cpth-r",
        YieldTo::CpthL => "cpth-l",
        YieldTo::Cch => "cch",
    };
    let set = |name: &str, value: &dyn ToString| (name.to_string(), value.to_string());
    vec![
        set("window_min_cycles", &params.window_min_cycles),
        set("window_max_cycles", &params.window_max_cycles),
        set("window_init_cycles", &params.window_init_cycles),
        set("delta_cycles", &params.delta_cycles),
        set("delta_max_cycles", &params.delta_max_cycles),
        set("epoch_ple_exits", &params.epoch_ple_exits),
        set("epoch_min_us", &params.epoch_min_us),
        set("hvs_variant", &variant),
        set("mode", &mode(&run.arm)),
    ]
}

fn epoch_of(run: &Run) -> ApleParams {
    let default = ApleParams::default();
    ApleParams {
        epoch_ple_exits: run.epoch_ple_exits.unwrap_or(default.epoch_ple_exits),
        epoch_min_us: run.epoch_min_us.unwrap_or(default.epoch_min_us),
        ..default
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(window: Window, yield_to: YieldTo, observe: bool) -> Run {
        Run {
            arm: Arm { window, yield_to, observe, ..Arm::default() },
            epoch_ple_exits: Some(50),
            epoch_min_us: Some(3000),
            ..Run::new(vec![], 1, 1)
        }
    }

    fn value(run: &Run, name: &str) -> String {
        settings(run).into_iter().find(|(n, _)| n == name).unwrap().1
    }

    #[test]
    fn arms_name_their_mode() {
        let aple = Window::Aple(ApleParams::default());
        for (window, yield_to, observe, mode) in [
            (Window::Stock, YieldTo::Stock, false, "off"),
            (Window::Stock, YieldTo::Stock, true, "observe"),
            (Window::Off, YieldTo::Stock, true, "observe"),
            (Window::Fixed { cycles: 1 }, YieldTo::Stock, true, "aple"),
            (aple.clone(), YieldTo::Stock, false, "aple"),
            (Window::Stock, YieldTo::CpthR, true, "hvs"),
            (aple, YieldTo::Hvs, true, "apples"),
        ] {
            assert_eq!(value(&run(window, yield_to, observe), "mode"), mode);
        }
        assert_eq!(value(&run(Window::Stock, YieldTo::Cch, true), "hvs_variant"), "cch");
    }

    #[test]
    fn a_fixed_window_is_aple_that_cannot_move() {
        let run = run(Window::Fixed { cycles: 2048 }, YieldTo::Stock, false);
        for name in ["window_init_cycles", "window_min_cycles", "window_max_cycles"] {
            assert_eq!(value(&run, name), "2048");
        }
        assert_eq!(value(&run, "delta_cycles"), "0");
        assert_eq!(value(&run, "epoch_ple_exits"), "50");
        assert_eq!(value(&run, "epoch_min_us"), "3000");
    }

    #[test]
    fn defaults_are_set_and_put_back() {
        let root = std::env::temp_dir().join(format!("unspin-module-{}", std::process::id()));
        let defaults = root.join("default");
        fs::create_dir_all(&defaults).unwrap();
        for name in SETTINGS {
            fs::write(defaults.join(name), "before\n").unwrap();
        }
        fs::write(root.join("window_control"), "vmx\n").unwrap();
        let read = |name: &str| fs::read_to_string(defaults.join(name)).unwrap();
        let module = Module::open_at(&root).unwrap().unwrap();
        module.set_defaults(&run(Window::Stock, YieldTo::Hvs, true)).unwrap();
        assert_eq!((read("mode"), read("epoch_ple_exits")), ("hvs".into(), "50".into()));
        fs::write(root.join("window_control"), "none: no BTF\n").unwrap();
        let error = module.set_defaults(&run(Window::Fixed { cycles: 1 }, YieldTo::Hvs, true));
        assert!(error.unwrap_err().to_string().contains("no BTF"));
        drop(module);
        assert!(SETTINGS.iter().all(|name| read(name) == "before"));
        fs::remove_dir_all(root).unwrap();
    }

    const COUNTERS: &[&str] = &[
        "ple_exits",
        "wasteful_spin_cycles",
        "wasteful_switch_cycles",
        "cpu_cycles",
        "inefficiency_last_ppm",
        "window_cycles",
        "epochs",
        "rounds",
        "yields_resource_waiter",
        "yields_lock_waiter",
        "yields_yielded",
        "yields_none",
        "yields_gave_way",
        "yields_failed",
        "picks_ran_next",
        "hypercalls_kick",
        "hypercalls_sched_yield",
        "fail_open_events",
    ];

    /// A module that knows these VMs, each with one value in all its counters.
    fn with_vms(name: &str, vms: &[(&str, &str)]) -> Module {
        let root = std::env::temp_dir().join(format!("unspin-{name}-{}", std::process::id()));
        for (vm, value) in vms {
            let dir = root.join("vms").join(vm);
            fs::create_dir_all(&dir).unwrap();
            for counter in COUNTERS {
                fs::write(dir.join(counter), value).unwrap();
            }
        }
        Module { root, before: vec![] }
    }

    #[test]
    fn other_vms_are_refused_and_ended_ones_are_not() {
        let root = std::env::temp_dir().join(format!("unspin-others-{}", std::process::id()));
        let module = Module { root: root.clone(), before: vec![] };
        module.check_alone().unwrap();
        // No process has a number above the largest there can be.
        fs::create_dir_all(root.join("vms/4194305-0")).unwrap();
        module.check_alone().unwrap();
        let alive = format!("{}-0", std::process::id());
        fs::create_dir_all(root.join("vms").join(&alive)).unwrap();
        let error = module.check_alone().unwrap_err();
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
    fn a_counter_that_cannot_be_read_is_not_0() {
        let module = with_vms("unread", &[("4-0", "2")]);
        for counter in COUNTERS {
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
