// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that check themselves (lock order, memory, leaks, illegal sleeping), for tests of the
//! module: the series' current sources from the distribution's package, with the options of
//! debug.config. Nothing is installed. An interrupted build is continued.

use crate::error::{io, Result};
use crate::go::Go;
use crate::kernel::{self, Kernel};
use crate::kernel_build::{self, Options, Stamp};
use crate::module_build::{build_module, Against, HOSTS, HOSTS_FOR_TESTS};
use crate::packages;
use crate::series::Series;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

const OPTIONS: Options =
    Options { text: include_str!("debug.config"), file: "lab/computers/src/debug.config" };

/// Fetches the series' sources, and builds a kernel with all checks (some 15 minutes on two CPUs) and the
/// module for it. Existing results are reused.
pub fn prepare(root: &Path, lab: &Path, series: Series, go: &mut Go) -> Result<Kernel> {
    let kept = format!("debug-{}", series.name());
    let stamp = Stamp { file: "unpacked", text: &kept };
    let dir = kernel_build::sources(lab, series.name(), "debug", &stamp, go, |_, _| Ok(()))?;
    let objects = dir.join("objects");
    let built = dir.join("built");
    if fs::read_to_string(&built).ok().as_deref() != Some(OPTIONS.text) {
        kernel_build::configure(&dir, &OPTIONS, go.stop)?;
        go.say(&format!(
            "building kernel {kept}, its output is in {}",
            dir.join("kernel.log").display()
        ));
        build(&dir, go.stop)?;
        fs::write(&built, OPTIONS.text).map_err(io(&built))?;
    }
    let named = objects.join("include/config/kernel.release");
    let release = fs::read_to_string(&named).map_err(io(&named))?.trim().to_string();
    kernel::check_config(&objects.join(".config"), &release)?;
    go.say(&format!("building the module for {release}"));
    let against = Against { release: &release, headers: &objects, toolchain: None };
    let module = build_module(&HOSTS, root, &dir, &against, go.stop)?;
    let test_module = build_module(&HOSTS_FOR_TESTS, root, &dir, &against, go.stop)?;
    let vmlinuz = objects.join("arch/x86/boot/bzImage");
    let modules = packages::modules_in(&dir);
    let (name, headers) = (kept, objects);
    Ok(Kernel { series, name, release, vmlinuz, modules, headers, module, test_module })
}

fn build(dir: &Path, stop: &AtomicBool) -> Result<()> {
    kernel_build::build(dir, &["bzImage", "modules"], stop, &mut |_| {})?;
    // The debugging data stays with the objects; the type data, which the module reads, stays in
    // the module.
    for (sub, name) in packages::MODULES {
        let (built, target) = (format!("{sub}/{name}.ko"), dir.join(format!("{name}.ko")));
        kernel_build::strip(dir, &built, &target, stop)?;
    }
    Ok(())
}
