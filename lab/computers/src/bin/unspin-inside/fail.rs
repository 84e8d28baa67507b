// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repeats system calls, and lets another one of their allocations fail each time, until all have
//! failed. So every error path behind an allocation runs once. The kernel must be built with fault
//! injection (Documentation/fault-injection, "fail-nth").

use kvm_ioctls::Kvm;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, Result as IoResult, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Writing N makes the Nth allocation of this thread from now on fail; reads 0 once it has.
const NTH: &str = "/proc/thread-self/fail-nth";
const FAILSLAB: &str = "/sys/kernel/debug/failslab";
/// Let allocations that may sleep fail too, for the chosen caches, and do not fill the log with
/// failures.
const SETTINGS: &[(&str, &str)] =
    &[("ignore-gfp-wait", "N"), ("cache-filter", "Y"), ("verbose", "0")];
const CACHES: &str = "/sys/kernel/slab";
/// Allocations of the kernel's own checks must not fail, because the checks would turn themselves
/// off. The caches that may fail are chosen at boot (slub_debug=A), which is the only way in 6.1.
const SPARED: &[&str] = &["kmemleak_object", "kmemleak_scan_area", "debug_objects_cache"];
/// More allocations than any of the calls makes.
const NTH_MAX: u32 = 5000;
const NTH_FAR: u32 = 1_000_000;
/// Attempts between two progress records.
const SAID_EVERY: u32 = 25;

/// Loads a module, and unloads it if it loads although an allocation failed. Allocations before the
/// module's own code runs do not fail, because tracing warns of them by itself. Their number is
/// that of a load with `refused`, options that the module refuses at once.
pub fn load(file: &str, options: &str, refused: &str) -> Result<String, String> {
    let name = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".ko");
    let module = File::open(file).map_err(|e| format!("{file}: {e}"))?;
    let [options, refused, name] =
        [options, refused, name].map(|text| CString::new(text).unwrap_or_default());
    // SAFETY: plain system calls, whose arguments outlive them.
    let load = |options: &CString| unsafe {
        done(libc::syscall(libc::SYS_finit_module, module.as_raw_fd(), options.as_ptr(), 0))
    };
    let unload = || unsafe { done(libc::syscall(libc::SYS_delete_module, name.as_ptr(), 0)) };
    prepare()?;
    let mut nth = Nth::open()?;
    nth.set(NTH_FAR)?;
    let answer = load(&refused);
    let left = nth.left()?;
    nth.set(0)?;
    if answer.is_ok() {
        return Err(format!("{file} loads with {refused:?}"));
    }
    each(NTH_FAR - left, || load(&options), unload)
}

/// Writes a value to a file, and then the former value if the write succeeded although an
/// allocation failed. At the end the file has its former value.
pub fn write(file: &str, value: &str) -> Result<String, String> {
    let before = fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let target = OpenOptions::new().write(true).open(file).map_err(|e| format!("{file}: {e}"))?;
    let put = |text: &str| target.write_all_at(text.as_bytes(), 0);
    prepare()?;
    each(0, || put(value), || put(&before))
}

/// Makes a VM with one vCPU, and ends it.
pub fn vm() -> Result<String, String> {
    let kvm = Kvm::new().map_err(|e| format!("/dev/kvm: {e}"))?;
    let failed = |e: kvm_ioctls::Error| Error::from_raw_os_error(e.errno());
    let make = || {
        let vm = kvm.create_vm().map_err(failed)?;
        vm.create_vcpu(0).map(drop).map_err(failed)
    };
    prepare()?;
    each(0, make, || Ok(()))
}

/// Enables failing allocations for this thread. An error if the kernel was not booted for it.
fn prepare() -> Result<(), String> {
    for (name, value) in SETTINGS {
        let file = format!("{FAILSLAB}/{name}");
        fs::write(&file, value)
            .map_err(|e| format!("{file}: {e}; is the kernel built with fault injection?"))?;
    }
    for cache in fs::read_dir(CACHES).map_err(|e| format!("{CACHES}: {e}"))?.flatten() {
        let file = cache.path().join("failslab");
        let fails = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let spared = SPARED.iter().any(|spared| cache.file_name() == *spared);
        if (fails.trim() == "1") == spared {
            return Err(format!(
                "{}: {fails}; wanted: a kernel booted with slub_debug=A;-,{}",
                file.display(),
                SPARED.join(",")
            ));
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

/// This thread's `fail-nth`.
struct Nth(File);

impl Nth {
    fn open() -> Result<Nth, String> {
        let file = OpenOptions::new().read(true).write(true).open(NTH);
        Ok(Nth(file.map_err(|e| format!("{NTH}: {e}"))?))
    }

    /// Selects the allocation that fails; 0: none.
    fn set(&mut self, n: u32) -> Result<(), String> {
        self.0.write_all(n.to_string().as_bytes()).map_err(|e| format!("{NTH}: {e}"))
    }

    /// Number of allocations until the one that fails; 0 if it has failed.
    fn left(&self) -> Result<u32, String> {
        let mut text = [0u8; 16];
        let length = self.0.read_at(&mut text, 0).map_err(|e| format!("{NTH}: {e}"))?;
        let text = String::from_utf8_lossy(&text[..length]);
        text.trim().parse().map_err(|_| format!("{NTH}: {text} is no number"))
    }
}

/// Runs `call` once for each of its allocations after the first `spared`, with that one failing.
/// Runs `undo` after each call that succeeded.
fn each(
    spared: u32,
    mut call: impl FnMut() -> IoResult<()>,
    mut undo: impl FnMut() -> IoResult<()>,
) -> Result<String, String> {
    let mut nth = Nth::open()?;
    let mut refused = 0;
    for n in spared + 1..=NTH_MAX {
        if n % SAID_EVERY == 0 {
            unspin_agent::say_main(&[format!("allocation {n} fails")]);
        }
        nth.set(n)?;
        let result = call();
        let left = nth.left();
        nth.set(0)?;
        let failed = left? == 0;
        match result {
            Ok(()) => undo().map_err(|e| format!("undoing after allocation {n}: {e}"))?,
            Err(error) if !failed => return Err(format!("with no allocation failing: {error}")),
            Err(_) => refused += 1,
        }
        if !failed {
            return match n - 1 - spared {
                0 => Err(format!("it makes no allocations beyond {spared}")),
                made => Ok(format!(
                    "{made} allocations failed after {spared} spared, {refused} times the call with them"
                )),
            };
        }
    }
    Err(format!("more than {NTH_MAX} allocations"))
}
