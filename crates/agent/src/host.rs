// SPDX-License-Identifier: MIT OR Apache-2.0
//! What computer this is, and the settings of it that matter for the figures.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};

use unspin_scenario::plan::{Plan, SCHEMA};
use unspin_scenario::result::Begin;

use crate::{module, Error};

/// Files to report as they are: name of the setting, path.
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

/// Words of the kernel's command line to report.
const KERNEL_OPTIONS: &[&str] = &["mitigations", "idle", "skew_tick", "preempt", "nohz_full"];

/// Where kernels keep the length of a slice, ns: 6.6 and later, and before.
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
        schema: SCHEMA,
        scenario: plan.scenario.clone(),
        scenario_hash: plan.scenario_hash.clone(),
        kernel: kernel_release(),
        cpu_model: cpu_model(),
        pcpus: online_cpus().unwrap_or(0),
        tsc_khz: unspin_vmm::host_tsc_khz().ok().map(u64::from),
        module: module.as_ref().map(|m| m.version()),
        window_control: module.as_ref().map(|m| m.window_control()),
        settings,
        machine: String::new(),
        title: plan.title.clone(),
        commit: None,
        version: Some(env!("CARGO_PKG_VERSION").into()),
        image: None,
        shard: None,
        world: None,
    }
}

pub(crate) fn online_cpus() -> Result<u32, Error> {
    // SAFETY: no memory involved.
    match unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } {
        count if count > 0 => Ok(count as u32),
        _ => Err(Error::io("number of CPUs", std::io::Error::last_os_error())),
    }
}

/// The scheduler's slice, changed; dropped, it is put back.
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

fn kernel_release() -> String {
    // SAFETY: uname fills the structure it is given with terminated strings.
    unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&mut name);
        CStr::from_ptr(name.release.as_ptr()).to_string_lossy().into_owned()
    }
}

fn cpu_model() -> String {
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown".into(), |(_, model)| model.trim().into())
}
