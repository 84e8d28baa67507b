// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a plan's Linux guests are made of: kernels and a first file system, kept by the lab.

use super::lab::{explain, series};
use crate::exit::Usage;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use unspin_lab::Lab;
use unspin_scenario::plan::{LinuxVm, Plan, Run};

pub struct Parts {
    /// By series.
    pub kernels: BTreeMap<String, PathBuf>,
    pub initramfs: PathBuf,
}

/// The Linux guests of a run.
pub fn of(run: &Run) -> impl Iterator<Item = &LinuxVm> {
    (0..run.vms).filter_map(|vm| run.linux_of(vm))
}

/// Fetches and makes what is not there yet; `say` is told what takes time.
pub fn parts(
    lab: &Lab,
    plan: &Plan,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<Parts> {
    let mut kernels = BTreeMap::new();
    let mut programs = BTreeMap::new();
    for linux in plan.runs.iter().flat_map(of) {
        programs.insert(linux.program.name.clone(), linux.program.clone());
        let name = &linux.guest.kernel;
        if !kernels.contains_key(name) {
            let package = series(name).map_err(Usage::from)?.into();
            let file = lab.guest_kernel(package, stop, say).map_err(explain)?;
            kernels.insert(name.clone(), file);
        }
    }
    let programs: Vec<_> = programs.into_values().collect();
    let initramfs = lab.guest_image(&programs, stop, say).map_err(explain)?;
    Ok(Parts { kernels, initramfs })
}
