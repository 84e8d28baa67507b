// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module, through its directory in sysfs.

use std::fs;
use std::io;
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
    "epoch_ple_exits",
    "hvs_variant",
];
/// The module may refuse a value that does not go with those still to be written.
const WRITE_PASSES: u32 = 3;

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
        for pass in 1..=WRITE_PASSES {
            let mut refused = None;
            for (setting, value) in settings {
                if let Err(source) = self.write(setting, value) {
                    if pass == WRITE_PASSES || source.raw_os_error() != Some(libc::EINVAL) {
                        let (setting, value) = (setting.clone(), value.clone());
                        return Err(Error::Module { setting, value, source });
                    }
                    refused = Some(());
                }
            }
            if refused.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, setting: &str, value: &str) -> io::Result<()> {
        fs::write(self.root.join("default").join(setting), value)
    }

    /// Counters of the first VM that process `pid` made; `None` if the module does not know it
    /// (mode `off`).
    pub(crate) fn stats(&self, pid: u32) -> Option<ModuleStats> {
        let dir = self.root.join("vms").join(format!("{pid}-0"));
        if !dir.is_dir() {
            return None;
        }
        let get = |name: &str| {
            let text = fs::read_to_string(dir.join(name)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let count = |name: &str| get(name).unwrap_or(0);
        Some(ModuleStats {
            ple_exits: count("ple_exits"),
            wasteful_spin_cycles: count("wasteful_spin_cycles"),
            wasteful_switch_cycles: count("wasteful_switch_cycles"),
            cpu_cycles: count("cpu_cycles"),
            inefficiency_last_ppm: count("inefficiency_last_ppm"),
            window_cycles: count("window_cycles"),
            epochs: count("epochs"),
            rounds_total: count("rounds"),
            yields_resource_waiter: count("yields_resource_waiter"),
            yields_lock_waiter: count("yields_lock_waiter"),
            yields_yielded: count("yields_yielded"),
            yields_none: count("yields_none"),
            yields_failed: count("yields_failed"),
            picks_ran_next: count("picks_ran_next"),
            hypercalls_kick: count("hypercalls_kick"),
            hypercalls_sched_yield: count("hypercalls_sched_yield"),
            fail_open_events: count("fail_open_events"),
        })
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

/// What happened between two readings. Last values stay the second's.
pub(crate) fn difference(first: &ModuleStats, second: &ModuleStats) -> ModuleStats {
    let since = |a: u64, b: u64| b.saturating_sub(a);
    ModuleStats {
        ple_exits: since(first.ple_exits, second.ple_exits),
        wasteful_spin_cycles: since(first.wasteful_spin_cycles, second.wasteful_spin_cycles),
        wasteful_switch_cycles: since(first.wasteful_switch_cycles, second.wasteful_switch_cycles),
        cpu_cycles: since(first.cpu_cycles, second.cpu_cycles),
        inefficiency_last_ppm: second.inefficiency_last_ppm,
        window_cycles: second.window_cycles,
        epochs: since(first.epochs, second.epochs),
        rounds_total: second.rounds_total,
        yields_resource_waiter: since(first.yields_resource_waiter, second.yields_resource_waiter),
        yields_lock_waiter: since(first.yields_lock_waiter, second.yields_lock_waiter),
        yields_yielded: since(first.yields_yielded, second.yields_yielded),
        yields_none: since(first.yields_none, second.yields_none),
        yields_failed: since(first.yields_failed, second.yields_failed),
        picks_ran_next: since(first.picks_ran_next, second.picks_ran_next),
        hypercalls_kick: since(first.hypercalls_kick, second.hypercalls_kick),
        hypercalls_sched_yield: since(first.hypercalls_sched_yield, second.hypercalls_sched_yield),
        fail_open_events: since(first.fail_open_events, second.fail_open_events),
    }
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

/// Every setting a run has, so that nothing of the run before is left.
fn settings(run: &Run) -> Vec<(String, String)> {
    let params = match run.arm.window {
        Window::Aple(params) => params,
        Window::Fixed { cycles } => ApleParams {
            window_init_cycles: cycles,
            window_min_cycles: cycles,
            window_max_cycles: cycles,
            delta_cycles: 0,
            ..epoch_of(run)
        },
        Window::Stock | Window::Off => epoch_of(run),
    };
    let variant = match run.arm.yield_to {
        YieldTo::Stock | YieldTo::Hvs => "hvs",
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
        set("epoch_ple_exits", &params.epoch_ple_exits),
        set("hvs_variant", &variant),
        set("mode", &mode(&run.arm)),
    ]
}

fn epoch_of(run: &Run) -> ApleParams {
    let default = ApleParams::default();
    let epoch_ple_exits = run.epoch_ple_exits.unwrap_or(default.epoch_ple_exits);
    ApleParams { epoch_ple_exits, ..default }
}
