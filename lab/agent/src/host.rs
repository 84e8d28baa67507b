// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes this computer, and its settings that matter for the figures.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use unspin_scenario::plan::Plan;
use unspin_scenario::result::Begin;
use unspin_vmm::process::now_ns;

use crate::{module, Error};

/// Files whose contents are reported: name of the setting, path.
const SETTINGS: &[(&str, &str)] = &[
    ("halt_poll_ns", "/sys/module/kvm/parameters/halt_poll_ns"),
    ("ple_gap", "/sys/module/kvm_intel/parameters/ple_gap"),
    ("ple_window", "/sys/module/kvm_intel/parameters/ple_window"),
    ("ple_window_grow", "/sys/module/kvm_intel/parameters/ple_window_grow"),
    ("ple_window_shrink", "/sys/module/kvm_intel/parameters/ple_window_shrink"),
    ("ple_window_max", "/sys/module/kvm_intel/parameters/ple_window_max"),
    ("pause_filter_thresh", "/sys/module/kvm_amd/parameters/pause_filter_thresh"),
    ("pause_filter_count", "/sys/module/kvm_amd/parameters/pause_filter_count"),
    ("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("sched_features", "/sys/kernel/debug/sched/features"),
    ("sched_preempt", "/sys/kernel/debug/sched/preempt"),
];

/// Kernel parameters that are reported.
const KERNEL_OPTIONS: &[&str] = &["mitigations", "idle", "skew_tick", "preempt", "nohz_full"];

/// The files with the length of a slice, ns: from 6.6 on, and before.
const SLICE_FILES: &[&str] =
    &["/sys/kernel/debug/sched/base_slice_ns", "/sys/kernel/debug/sched/min_granularity_ns"];

pub(crate) fn begin(plan: &Plan) -> Begin {
    let mut settings: BTreeMap<String, String> =
        SETTINGS.iter().filter_map(|&(name, path)| Some((name.to_string(), read(path)?))).collect();
    if let Some((path, slice)) = slice_file().and_then(|path| Some((path, read(path)?))) {
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        settings.insert(name, slice);
    }
    let options = read("/proc/cmdline").unwrap_or_default();
    for (name, value) in options.split_whitespace().filter_map(|word| word.split_once('=')) {
        if KERNEL_OPTIONS.contains(&name) {
            settings.insert(name.into(), value.into());
        }
    }
    let cgroup = if crate::cgroup::available().is_ok() { "v2 with cpu" } else { "none usable" };
    settings.insert("cgroup".into(), cgroup.into());
    let module = module::Module::open().ok().flatten();
    Begin {
        kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
        cpu_model: cpu_model(),
        pcpus: online_cpus().unwrap_or(0),
        tsc_khz: unspin_host::tsc_khz().map(u64::from),
        module: module.as_ref().map(|m| m.version()),
        window_control: module.as_ref().map(|m| m.window_control()),
        settings,
        version: Some(env!("CARGO_PKG_VERSION").into()),
        ..Begin::of(plan)
    }
}

/// The number of CPUs that are online.
///
/// # Errors
///
/// The system does not say.
pub fn online_cpus() -> Result<u32, Error> {
    // SAFETY: no memory involved.
    match unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } {
        count if count > 0 => Ok(count as u32),
        _ => Err(Error::io("number of CPUs", std::io::Error::last_os_error())),
    }
}

/// Idle time of all online CPUs until now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Idle {
    at_ns: u64,
    idle_ns: u64,
    cpus: u64,
}

impl Idle {
    /// `None` if the kernel does not show it.
    pub(crate) fn now() -> Option<Idle> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        // SAFETY: no memory involved.
        let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        let tick_ns = 1_000_000_000u64.checked_div(ticks_per_s.try_into().ok()?)?;
        Idle::of(&stat, tick_ns, now_ns())
    }

    /// Parses /proc/stat, whose times are in ticks.
    fn of(stat: &str, tick_ns: u64, at_ns: u64) -> Option<Idle> {
        let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user, nice, system, idle, iowait
        let ticks: Option<Vec<u64>> =
            all.split_whitespace().skip(3).take(2).map(|ticks| ticks.parse().ok()).collect();
        let idle_ns = ticks?.iter().sum::<u64>() * tick_ns;
        let is_cpu = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
        Some(Idle { at_ns, idle_ns, cpus: stat.lines().filter(is_cpu).count() as u64 })
    }

    /// The share of the CPU time since `first` that was idle; `None` if CPUs went online or offline
    /// meanwhile.
    pub(crate) fn share_since(&self, first: &Idle) -> Option<f64> {
        let all_ns = self.cpus * self.at_ns.checked_sub(first.at_ns)?;
        let idle_ns = self.idle_ns.checked_sub(first.idle_ns)?;
        let is_known = self.cpus == first.cpus && all_ns > 0;
        is_known.then(|| (idle_ns as f64 / all_ns as f64).min(1.0))
    }
}

/// The scheduler's slice, changed. Dropping this restores it.
pub(crate) struct Slice {
    path: PathBuf,
    before: String,
}

impl Slice {
    pub(crate) fn set(slice_ns: u64) -> Result<Slice, Error> {
        let path = PathBuf::from(slice_file().ok_or(Error::NoSlice)?);
        let before = fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
        let slice = Slice { path, before };
        slice.write(&slice_ns.to_string())?;
        Ok(slice)
    }

    fn write(&self, value: &str) -> Result<(), Error> {
        fs::write(&self.path, value).map_err(|e| Error::io(&self.path, e))
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        if let Err(error) = self.write(self.before.trim()) {
            crate::error::complain(&format!("the slice stays changed: {error}"));
        }
    }
}

fn slice_file() -> Option<&'static str> {
    SLICE_FILES.iter().copied().find(|path| Path::new(path).exists())
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

/// The name of the processor; `unknown` if the kernel does not show it.
pub fn cpu_model() -> String {
    read("/proc/cpuinfo").and_then(|text| model(&text)).unwrap_or("unknown".into())
}

fn model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(idle: u64, iowait: u64, cpus: u32) -> String {
        let each: String =
            (0..cpus).map(|cpu| format!("cpu{cpu} 1 2 3 4 5 6 7 8 9 10\n")).collect();
        format!("cpu  70 80 90 {idle} {iowait} 6 7 8 9 10\n{each}intr 1 2 3\nctxt 9\n")
    }

    #[test]
    fn the_cpu_says_its_model() {
        assert_eq!(model("processor\t: 0\nmodel name\t: A B\n").as_deref(), Some("A B"));
        assert_eq!(model("processor\t: 0\n"), None);
    }

    #[test]
    fn idle_is_waiting_for_nothing_or_for_a_disk() {
        let at = |idle, iowait, cpus, at_ms: u64| {
            Idle::of(&stat(idle, iowait, cpus), 10_000_000, at_ms * 1_000_000).unwrap()
        };
        let first = at(100, 10, 4, 500);
        // 2 s of four CPUs are 800 ticks.
        assert_eq!(at(180, 10, 4, 2500).share_since(&first), Some(0.1));
        assert_eq!(at(180, 90, 4, 2500).share_since(&first), Some(0.2));
        assert_eq!(at(2000, 10, 4, 2500).share_since(&first), Some(1.0), "ticks are coarse");
        assert_eq!(at(180, 10, 3, 2500).share_since(&first), None, "a CPU went offline");
        assert_eq!(at(100, 10, 4, 500).share_since(&first), None, "no time passed");
        assert_eq!(Idle::of("intr 1\n", 1, 1), None);
        assert!(Idle::now().is_some());
    }
}
