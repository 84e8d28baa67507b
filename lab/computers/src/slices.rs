// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel that extends the time slices of lock holders, which Debian's do not, and a C library that registers
//! an area for it: that of Debian 13, unpacked. The kernel has no KVM.

use crate::error::{io, Result};
use crate::go::Go;
use crate::kernel::{self, Kernel};
use crate::kernel_build::{self, Options, Recipe};
use crate::packages;
use crate::series::{Debian, Series};
use std::fs;
use std::path::{Path, PathBuf};

const RECIPE: Recipe = Recipe {
    series: Series::V7_3,
    kind: "slices",
    options: Options {
        text: include_str!("slices.config"),
        file: "lab/computers/src/slices.config",
    },
    targets: &["bzImage"],
};
const LIBRARY: &str = "libc6";
const DYNAMIC_LINKER: &str = "ld-linux-x86-64.so.2";

/// What programs with extended time slices need.
#[derive(Debug, Clone)]
pub struct Slices {
    pub kernel: Kernel,
    /// The dynamic linker of the C library, which runs a program; the library is beside it.
    pub dynamic_linker: PathBuf,
}

/// Fetches and builds both. Existing results are reused.
pub fn prepare(lab: &Path, go: &mut Go) -> Result<Slices> {
    let dir = kernel_build::prepare(&RECIPE, lab, go, |_, _| Ok(()))?;
    let (series, name) = (RECIPE.series, RECIPE.kind.to_string());
    let (release, vmlinuz) = (kernel_build::release(&dir)?, kernel_build::vmlinuz(&dir));
    let none = PathBuf::new;
    let kernel = Kernel {
        series,
        name,
        release,
        vmlinuz,
        modules: Vec::new(),
        headers: dir.join("objects"),
        module: none(),
        test_module: none(),
    };
    Ok(Slices { kernel, dynamic_linker: library(lab, &dir, go)?.join(DYNAMIC_LINKER) })
}

/// The C library's directory.
fn library(lab: &Path, dir: &Path, go: &mut Go) -> Result<PathBuf> {
    let (tree, fetched) = (dir.join("libc"), dir.join("libc-fetched"));
    if !fetched.exists() {
        let apt = kernel::apt_of(lab, Debian::Trixie, go)?;
        let log = dir.join("fetch.log");
        go.say("downloading the C library of Debian 13");
        apt.download(dir, &[LIBRARY], &log, go.stop)?;
        packages::unpack(dir, &tree, &log, go.stop)?;
        fs::write(&fetched, "").map_err(io(&fetched))?;
    }
    Ok(tree.join("usr/lib/x86_64-linux-gnu"))
}
