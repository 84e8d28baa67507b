// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of a plan's Linux guests: kernels and an initramfs, which the lab stores.

use super::lab::{explain, series};
use super::Refusal;
use crate::exit::Usage;
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use unspin_computers::{Go, GuestModules, KernelPackage, Lab, Series};
use unspin_diagnosis::spinners::{symbol_of, Symbols};
use unspin_scenario::plan::{LinuxVm, Plan, Run, LOCKS_KERNEL};
use unspin_scenario::result::{Record, RunResult};

pub struct Parts {
    /// Kernels by series.
    pub kernels: BTreeMap<String, PathBuf>,
    pub about: About,
    pub initramfs: PathBuf,
}

/// Facts about Linux guests that the agent does not know, for records.
#[derive(Default)]
pub struct About {
    /// The version of QEMU that runs them.
    qemu: Option<String>,
    /// Symbols of their kernels, by series.
    symbols: BTreeMap<String, Symbols>,
}

impl About {
    /// A kernel whose symbols cannot be read fails no run; its addresses stay numbers.
    fn of(kernels: &BTreeMap<String, PathBuf>, say: &mut dyn FnMut(&str)) -> About {
        let mut symbols = BTreeMap::new();
        for (series, file) in kernels {
            let listed = unspin_computers::kernel_symbols(file).map_err(anyhow::Error::from);
            match listed.and_then(|listed| Ok(Symbols::parse(&listed, file)?)) {
                Ok(of_kernel) => drop(symbols.insert(series.clone(), of_kernel)),
                Err(error) => say(&format!("addresses where guests spin have no names: {error}")),
            }
        }
        About { qemu: None, symbols }
    }

    pub fn with_qemu(self, qemu: Option<String>) -> About {
        About { qemu, ..self }
    }

    pub fn tell(&self, record: &mut Record) {
        match (record, &self.qemu) {
            (Record::Begin(begin), Some(qemu)) => {
                begin.settings.insert("qemu".to_string(), qemu.clone());
            }
            (Record::Run(run), _) => self.name(run),
            _ => {}
        }
    }

    /// Translates the addresses where the guests of a run spun, if all have the same kernel.
    fn name(&self, run: &mut RunResult) {
        let mut kernels: Vec<&str> =
            of(&run.run).map(|linux| linux.guest.kernel.as_str()).collect();
        kernels.dedup();
        let [kernel] = kernels[..] else { return };
        let (Some(symbols), Some(spinners)) = (self.symbols.get(kernel), &mut run.spinners) else {
            return;
        };
        let places = spinners.pause.iter_mut().chain(&mut spinners.interrupted);
        for place in places.filter(|place| place.symbol.is_none()) {
            place.symbol = symbol_of(place.address, symbols);
        }
    }
}

/// The version of this host's QEMU; `None` if it prints none, which the agent will report.
pub fn qemu_version(program: &str) -> Option<String> {
    let said = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    version_in(&String::from_utf8_lossy(&said.stdout))
}

/// Extracts `9.2.1 (Debian …)` from the line `QEMU emulator version 9.2.1 (Debian …)`.
fn version_in(said: &str) -> Option<String> {
    let line = said.lines().next()?;
    let version = line.split_once("version ").map_or(line, |(_, version)| version).trim();
    (!version.is_empty()).then(|| version.to_string())
}

/// The Linux guests of a run.
pub fn of(run: &Run) -> impl Iterator<Item = &LinuxVm> {
    run.vms.iter().filter_map(|vm| vm.linux.as_ref())
}

/// Checks that the lab has the kernels of a plan's guests. The error has the scenario's key that
/// needs another kernel.
pub fn check_kernels(plan: &Plan) -> Result<(), (&'static str, Refusal)> {
    let mut kernels = plan.runs.iter().flat_map(of).map(|linux| linux.guest.kernel.as_str());
    let is_unknown = |name: &&str| *name != LOCKS_KERNEL && series(name).is_err();
    let Some(unknown) = kernels.find(is_unknown) else { return Ok(()) };
    let refusal = Refusal {
        message: format!("Linux guests cannot run kernel {unknown:?}"),
        allowed: Series::ALL.map(Series::name).join(", "),
    };
    Err(("vm", refusal))
}

/// Fetches and builds missing files.
pub fn parts(lab: &Lab, plan: &Plan, go: &mut Go) -> anyhow::Result<Parts> {
    let mut kernels = BTreeMap::new();
    let mut programs = BTreeMap::new();
    let mut modules = GuestModules::new();
    let mut with_module = BTreeSet::new();
    for linux in plan.runs.iter().flat_map(of) {
        programs.insert(linux.program.name.clone(), linux.program.clone());
        let name = &linux.guest.kernel;
        if !kernels.contains_key(name) {
            let file = match name == LOCKS_KERNEL {
                true => lab.locks_kernel(),
                false => lab.guest_kernel(series(name).map_err(Usage::from)?.into(), go),
            };
            kernels.insert(name.clone(), file.map_err(explain)?);
        }
        if linux.guest.module && with_module.insert(name) {
            let package: KernelPackage = series(name).map_err(Usage::from)?.into();
            let (release, module) = lab.guest_module(package, go).map_err(explain)?;
            modules.insert(release, module);
        }
    }
    let programs: Vec<_> = programs.into_values().collect();
    let initramfs = lab.guest_image(&programs, &modules, go).map_err(explain)?;
    let image = fs::metadata(&initramfs).with_context(|| initramfs.display().to_string())?;
    for linux in plan.runs.iter().flat_map(of) {
        check_memory(linux.guest.memory_mib, image.len(), programs.len())?;
    }
    let about = About::of(&kernels, go.say);
    Ok(Parts { kernels, about, initramfs })
}

/// Memory that a guest's kernel takes before it unpacks the image: 50 MiB with Debian's 6.12, rounded up.
const GUEST_KERNEL_MIB: u64 = 52;

/// Checks that a guest can unpack the image: it keeps the archive until all is unpacked, and files may
/// take half of what is left.
fn check_memory(memory_mib: u32, image_bytes: u64, programs: usize) -> Result<(), Usage> {
    let image_mib = image_bytes.div_ceil(1 << 20);
    let needed_mib = 3 * image_mib + GUEST_KERNEL_MIB;
    if u64::from(memory_mib) >= needed_mib {
        return Ok(());
    }
    Err(Usage(format!(
        "the image of the guests' {programs} programs is {image_mib} MiB, too large for memory_mib = {memory_mib}; \
         use memory_mib = {needed_mib} or more, or fewer programs in a boot (--profile, boots)"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Measured with Debian's 6.12: an image of 62.6 MiB is unpacked with 256 MiB, and not with 192.
    #[test]
    fn an_image_that_a_guest_cannot_unpack_is_refused() {
        let image_bytes = 65_632_744;
        assert!(check_memory(256, image_bytes, 13).is_ok());
        let error = check_memory(192, image_bytes, 13).unwrap_err().to_string();
        assert!(error.contains("63 MiB") && error.contains("memory_mib = 241"), "{error}");
        assert!(check_memory(192, 39_025_356, 12).is_ok());
    }

    #[test]
    fn a_qemu_is_known_by_what_it_says_of_itself() {
        let debian = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright (c) 2003\n";
        assert_eq!(version_in(debian).as_deref(), Some("7.2.22 (Debian 1:7.2+dfsg-7)"));
        assert_eq!(version_in("a build of ours\n").as_deref(), Some("a build of ours"));
        assert_eq!(version_in("\n"), None);
        assert_eq!(qemu_version("/nonexistent"), None);
    }
}
