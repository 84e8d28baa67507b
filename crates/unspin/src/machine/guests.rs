// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a plan's Linux guests are made of: kernels and a first file system, kept by the lab.

use super::lab::{explain, series};
use crate::exit::Usage;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use unspin_lab::Lab;
use unspin_scenario::plan::{LinuxVm, Plan, Run};
use unspin_scenario::result::{Record, SpinPlace};
use unspin_spinners::{symbol_of, Symbols};

pub struct Parts {
    /// By series.
    pub kernels: BTreeMap<String, PathBuf>,
    pub symbols: SymbolsOfKernels,
    pub initramfs: PathBuf,
}

/// By series.
#[derive(Default)]
pub struct SymbolsOfKernels(BTreeMap<String, Symbols>);

impl SymbolsOfKernels {
    /// A kernel whose symbols cannot be read costs no run; its addresses stay numbers.
    fn read(kernels: &BTreeMap<String, PathBuf>, say: &mut dyn FnMut(&str)) -> SymbolsOfKernels {
        let mut all = BTreeMap::new();
        for (series, file) in kernels {
            match Symbols::of_kernel(file) {
                Ok(symbols) => drop(all.insert(series.clone(), symbols)),
                Err(error) => say(&format!("where guests spin is not named: {error}")),
            }
        }
        SymbolsOfKernels(all)
    }

    /// Names the places where the guests of a run spun, if all have the same kernel.
    pub fn name(&self, record: &mut Record) {
        let Record::Run(run) = record else { return };
        let mut kernels: Vec<&str> =
            of(&run.run).map(|linux| linux.guest.kernel.as_str()).collect();
        kernels.dedup();
        let [kernel] = kernels[..] else { return };
        let (Some(symbols), Some(spinners)) = (self.0.get(kernel), &mut run.spinners) else {
            return;
        };
        let name = |place: &mut SpinPlace| place.symbol = symbol_of(place.address, symbols);
        spinners.pause.iter_mut().chain(&mut spinners.interrupted).for_each(name);
    }
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
    let symbols = SymbolsOfKernels::read(&kernels, say);
    Ok(Parts { kernels, symbols, initramfs })
}
