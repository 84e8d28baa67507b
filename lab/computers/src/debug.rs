// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that check themselves (lock order, memory, leaks, illegal sleeping), for tests of the
//! module: the series' current sources from the distribution's package, with the options of
//! debug.config. Nothing is installed. An interrupted build is continued.

use crate::error::Result;
use crate::go::Go;
use crate::kernel::{self, Kernel};
use crate::kernel_build::{self, Options, Recipe};
use crate::module_build::{build_module, Against, HOSTS, HOSTS_FOR_TESTS};
use crate::packages;
use crate::series::Series;
use std::path::Path;
use std::sync::atomic::AtomicBool;

const OPTIONS: Options =
    Options { text: include_str!("debug.config"), file: "lab/computers/src/debug.config" };

/// Fetches the series' sources, and builds a kernel with all checks (some 15 minutes on two CPUs) and the
/// module for it. Existing results are reused.
pub fn prepare(root: &Path, lab: &Path, series: Series, go: &mut Go) -> Result<Kernel> {
    let kind = "debug";
    let recipe = Recipe { series, kind, options: OPTIONS, targets: &["bzImage", "modules"] };
    let dir = kernel_build::prepare(&recipe, lab, go, strip_modules)?;
    let headers = dir.join("objects");
    let release = kernel_build::release(&dir)?;
    kernel::check_config(&headers.join(".config"), &release)?;
    go.say(&format!("building the module for {release}"));
    let against = Against { release: &release, headers: &headers, toolchain: None };
    let module = build_module(&HOSTS, root, &dir, &against, go.stop)?;
    let test_module = build_module(&HOSTS_FOR_TESTS, root, &dir, &against, go.stop)?;
    let (vmlinuz, modules) = (kernel_build::vmlinuz(&dir), packages::modules_in(&dir));
    let name = format!("{kind}-{}", series.name());
    Ok(Kernel { series, name, release, vmlinuz, modules, headers, module, test_module })
}

/// The debugging data stays with the objects; the type data, which the module reads, stays in the module.
fn strip_modules(dir: &Path, stop: &AtomicBool) -> Result<()> {
    for (sub, name) in packages::MODULES {
        let (built, target) = (format!("{sub}/{name}.ko"), dir.join(format!("{name}.ko")));
        kernel_build::strip(dir, &built, &target, stop)?;
    }
    Ok(())
}
