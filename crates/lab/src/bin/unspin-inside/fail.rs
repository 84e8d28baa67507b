// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls made again and again, each time with another of their allocations failing, until
//! there is none left to fail: every error path behind an allocation is taken once. The kernel does
//! it where it is built with fault injection (Documentation/fault-injection, "fail-nth").

use kvm_ioctls::Kvm;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, Result as IoResult, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// The Nth allocation of this thread from now on fails; reads 0 once it has.
const NTH: &str = "/proc/thread-self/fail-nth";
const FAILSLAB: &str = "/sys/kernel/debug/failslab";
/// Allocations that may sleep fail too, of the caches chosen, and the log is not filled with it.
const SETTINGS: &[(&str, &str)] =
    &[("ignore-gfp-wait", "N"), ("cache-filter", "Y"), ("verbose", "0")];
const CACHES: &str = "/sys/kernel/slab";
/// What the kernel's own checks allocate must not fail: they would switch themselves off.
const SPARED: &[&str] = &["kmemleak_object", "kmemleak_scan_area", "debug_objects_cache"];
/// More allocations than any of the calls makes.
const NTH_MAX: u32 = 5000;
/// So often a record says that it goes on.
const SAID_EVERY: u32 = 25;

/// Loads a module, and unloads it where it loads although an allocation failed.
pub fn load(file: &str, options: &str) -> Result<String, String> {
    let name = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".ko");
    let module = File::open(file).map_err(|e| format!("{file}: {e}"))?;
    let [options, name] = [options, name].map(|text| CString::new(text).unwrap_or_default());
    // SAFETY: plain system calls, whose arguments outlive them.
    let load = || unsafe {
        libc::syscall(libc::SYS_finit_module, module.as_raw_fd(), options.as_ptr(), 0)
    };
    let unload = || unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), 0) };
    each(|| done(load()), || done(unload()))
}

/// Writes a value to a file, and what it held before where it is taken although an allocation
/// failed. In the end the file holds what it did before.
pub fn write(file: &str, value: &str) -> Result<String, String> {
    let before = fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let target = OpenOptions::new().write(true).open(file).map_err(|e| format!("{file}: {e}"))?;
    let put = |text: &str| target.write_all_at(text.as_bytes(), 0);
    each(|| put(value), || put(&before))
}

/// Makes a VM with one vCPU, and ends it.
pub fn vm() -> Result<String, String> {
    let kvm = Kvm::new().map_err(|e| format!("/dev/kvm: {e}"))?;
    let failed = |e: kvm_ioctls::Error| Error::from_raw_os_error(e.errno());
    let make = || {
        let vm = kvm.create_vm().map_err(failed)?;
        vm.create_vcpu(0).map(drop).map_err(failed)
    };
    each(make, || Ok(()))
}

fn prepare() -> Result<(), String> {
    for (name, value) in SETTINGS {
        let file = format!("{FAILSLAB}/{name}");
        fs::write(&file, value)
            .map_err(|e| format!("{file}: {e}; is the kernel built with fault injection?"))?;
    }
    for cache in fs::read_dir(CACHES).map_err(|e| format!("{CACHES}: {e}"))?.flatten() {
        if !SPARED.iter().any(|spared| cache.file_name() == *spared) {
            let file = cache.path().join("failslab");
            fs::write(&file, "1").map_err(|e| format!("{}: {e}", file.display()))?;
        }
    }
    Ok(())
}

fn done(returned: libc::c_long) -> IoResult<()> {
    if returned == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}

/// Makes `call` with its first allocation failing, its second, and so on; `undo` after each that
/// succeeded.
fn each(
    mut call: impl FnMut() -> IoResult<()>,
    mut undo: impl FnMut() -> IoResult<()>,
) -> Result<String, String> {
    prepare()?;
    let mut nth =
        OpenOptions::new().read(true).write(true).open(NTH).map_err(|e| format!("{NTH}: {e}"))?;
    let mut refused = 0;
    for n in 1..=NTH_MAX {
        if n % SAID_EVERY == 0 {
            unspin_agent::say_main(&[format!("allocation {n} fails")]);
        }
        nth.write_all(n.to_string().as_bytes()).map_err(|e| format!("{NTH}: {e}"))?;
        let result = call();
        let mut left = [0u8; 1];
        let read = nth.read_at(&mut left, 0);
        nth.write_all(b"0").map_err(|e| format!("{NTH}: {e}"))?;
        read.map_err(|e| format!("{NTH}: {e}"))?;
        let failed = left == *b"0";
        match result {
            Ok(()) => undo().map_err(|e| format!("undoing after allocation {n}: {e}"))?,
            Err(error) if !failed => return Err(format!("with no allocation failing: {error}")),
            Err(_) => refused += 1,
        }
        if !failed {
            return match n - 1 {
                0 => Err("it allocates nothing".into()),
                made => Ok(format!("{made} allocations failed, {refused} of them the call")),
            };
        }
    }
    Err(format!("more than {NTH_MAX} allocations"))
}
