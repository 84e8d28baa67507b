// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong when an emulated computer is built or booted.

use std::path::PathBuf;
use unspin_text::lock::LockError;

#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("{tool} is not installed; install it with: apt-get install {package}")]
    MissingTool { tool: String, package: String },
    #[error("no package for kernel series {series}: looked for {looked}; run apt-get update, or see docs/lab.md for other distributions")]
    NoKernelPackage { series: String, looked: String },
    #[error("cannot download {package}: {detail}; is the network up and are the package lists current (apt-get update)?")]
    Download { package: String, detail: String },
    #[error("the signature of Debian 13's package lists cannot be checked; bring the keys up to date with: apt-get install --only-upgrade debian-archive-keyring\n{detail}")]
    Signature { detail: String },
    #[error("the package sources of this computer name no mirror of Debian, where Debian 13's packages would be; run apt-get update, or see docs/lab.md for other distributions")]
    NoMirror,
    #[error("cannot enter {root}, where the module for Debian 13's kernels is built: {detail}; run this as root, or let users have namespaces of their own (sysctl kernel.unprivileged_userns_clone=1)")]
    CannotEnter { root: PathBuf, detail: String },
    #[error("no headers of kernel {release} in {headers}; install them with: apt-get install linux-headers-{release}")]
    NoHeaders { release: String, headers: PathBuf },
    #[error("the headers in {headers} are of kernel {found}, not of {release}: a module built against them would not load; install linux-headers-{release}")]
    OtherHeaders { found: String, release: String, headers: PathBuf },
    #[error("{what} failed ({status}); its output is in {log}\n{tail}")]
    Step { what: String, status: String, log: PathBuf, tail: String },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error(
        "{path}: no space left on the device; `unspin-lab lab clean` frees what the lab keeps"
    )]
    NoSpace { path: PathBuf },
    #[error("kernel {release} cannot run the module: it is built without {option} ({why}); Debian's kernels have it")]
    Unsuitable { release: String, option: String, why: &'static str },
    #[error("the kernel's configuration has no {option}, which crates/computers/src/debug.config asks for; what it has is in {config}")]
    OptionRefused { option: String, config: PathBuf },
    #[error("the module's sources are not in {root}: install unspin-dkms, or name a checkout of the project with UNSPIN_ROOT")]
    NoSources { root: PathBuf },
    #[error("{path} is not built; run: cargo build --release")]
    NotBuilt { path: PathBuf },
    #[error("Bochs {version} would hold the host's interrupts back from guests with RFLAGS.IF = 0, and cannot be mended here: {why}; the lab knows Debian's Bochs 2.7 and 3.0 (apt-get install --reinstall bochs), for another one see crates/computers/c/bochs_vm_entry.c")]
    Unmended { version: String, why: String },
    #[error("UNSPIN_EMULATOR asks for emulator {name:?}; it may be one of {allowed}")]
    NoEmulator { name: String, allowed: String },
    #[error("the lab's own Bochs is not built; run: unspin-lab lab emulator")]
    NoOwnBochs,
    #[error("the lab's own QEMU is not built; run: unspin-lab lab emulator qemu-amd")]
    NoOwnQemu,
    #[error("the source of {package} in Debian 13's archive is not {wanted} as the lab knows it, and the lab's patches are for no other")]
    OtherSource { package: String, wanted: String },
    #[error("the emulated computer has been silent for {after_s} s ({cpu_s} s of the emulator's CPU time) after {last}; the console ended with:\n{console}\nboot archived in {archive}")]
    Hang { after_s: u64, cpu_s: u64, last: String, console: String, archive: PathBuf },
    #[error("the emulated computer ended before its plan did ({last}); the console ended with:\n{console}\nboot archived in {archive}")]
    Died { last: String, console: String, archive: PathBuf },
    #[error(
        "a record of the emulated computer was damaged ({detail}); boot archived in {archive}"
    )]
    Channel { detail: String, archive: PathBuf },
    #[error("{path} cannot be unpacked: {detail}; the lab unpacks Linux kernels for x86 as Debian packs them")]
    NotAKernel { path: PathBuf, detail: String },
    #[error("kernel {release} cannot be a guest's: it has no entry point for PVH (CONFIG_PVH), where QEMU starts it; Debian's kernels of the series 6.1, 6.12 and 7.3 have one")]
    NoPvh { release: String },
    #[error("program {name} cannot be put into a guest: {detail}")]
    GuestProgram { name: String, detail: String },
    #[error("{file} needs {library}, which none of the packages {packages} brings, nor any they depend on")]
    MissingLibrary { file: String, library: String, packages: String },
    #[error(
        "{package} has no {path}, which the lab takes from it; it is not the package of Debian 12"
    )]
    NotInPackage { package: String, path: String },
    #[error("{path} is no uncompressed kernel with symbols in it (CONFIG_KALLSYMS), or one of a version whose tables are not known; in the guest, as root: cat /proc/kallsyms")]
    NoSymbols { path: PathBuf },
    #[error("interrupted; nothing is left running, and the boot will be made again when the command is repeated with --resume")]
    Interrupted,
    #[error("another unspin (process {pid}) uses {path}; wait for it, or give another directory (--lab-dir, --out)")]
    Busy { path: PathBuf, pid: String },
}

impl From<LockError> for LabError {
    fn from(error: LockError) -> LabError {
        match error {
            LockError::Io { path, source } => io(path)(source),
            LockError::Busy { path, pid } => LabError::Busy { path, pid },
            LockError::Interrupted => LabError::Interrupted,
        }
    }
}

pub type Result<T> = std::result::Result<T, LabError>;

/// Attach the path to an I/O error; a full disk gets its own message.
pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> LabError {
    let path = path.into();
    move |source| match source.raw_os_error() {
        Some(libc::ENOSPC) => LabError::NoSpace { path },
        _ => LabError::Io { path, source },
    }
}
