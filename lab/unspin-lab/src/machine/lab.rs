// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lab of machine `emulated`, which also stores kernels and programs for other uses.

use super::Refusal;
use crate::exit::Cannot;
use anyhow::Context;
use std::path::{Path, PathBuf};
use unspin_computers::{Lab, LabError, Series, BOCHS_TOOLS};

/// The lab, if this computer has the tools that it needs.
pub fn open(dir: Option<&Path>) -> anyhow::Result<Lab> {
    missing(BOCHS_TOOLS).map_err(Cannot)?;
    lab(dir)
}

/// The lab for its stored files only; it boots nothing.
pub fn lab(dir: Option<&Path>) -> anyhow::Result<Lab> {
    Lab::open(dir.map(Path::to_path_buf), agent()?).map_err(explain)
}

/// An error that says what to install, unless all of `tools` exist.
pub fn missing(tools: &[&str]) -> Result<(), String> {
    let missing = unspin_computers::missing_tools(tools);
    if missing.is_empty() {
        return Ok(());
    }
    let tools: Vec<&str> = missing.iter().map(|(t, _)| t.as_str()).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, p)| p.as_str()).collect();
    packages.dedup();
    Err(format!(
        "machine emulated: {} not found; install with: apt-get install {}",
        tools.join(", "),
        packages.join(" ")
    ))
}

/// The agent's program, which is beside this one.
pub fn agent() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program")?;
    Ok(program.with_file_name("unspin-agent"))
}

/// Distinguishes what this computer lacks from other failures.
pub fn explain(e: LabError) -> anyhow::Error {
    match e {
        LabError::MissingTool { .. }
        | LabError::CannotStart { .. }
        | LabError::PathRefused { .. }
        | LabError::NoKernelPackage { .. }
        | LabError::Download { .. }
        | LabError::Signature { .. }
        | LabError::NoMirror
        | LabError::CannotEnter { .. }
        | LabError::Unsuitable { .. }
        | LabError::NoSources { .. }
        | LabError::NoHeaders { .. }
        | LabError::OtherHeaders { .. }
        | LabError::Unmended { .. }
        | LabError::HelpHangs { .. }
        | LabError::NoEmulator { .. }
        | LabError::NoLocksKernel
        | LabError::NoOwnBochs
        | LabError::NoOwnQemu
        | LabError::OtherSource { .. }
        | LabError::NotBuilt { .. } => Cannot(format!("machine emulated: {e}")).into(),
        other => other.into(),
    }
}

pub fn series(name: &str) -> Result<Series, Refusal> {
    Series::parse(name).ok_or_else(|| Refusal {
        message: format!("emulated computers cannot run kernel {name:?}"),
        allowed: Series::ALL.map(Series::name).join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tested_series_are_those_that_boot() {
        assert_eq!(Series::ALL.map(Series::name), unspin_cli::host::TESTED);
    }
}
