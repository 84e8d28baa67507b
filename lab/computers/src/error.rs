// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong when an emulated computer is built or booted.

use std::path::PathBuf;
use unspin_text::lock::LockError;

#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("{tool} is not installed; install it with: apt-get install {package}")]
    MissingTool { tool: String, package: String },
    #[error("cannot start {program}: {source}; install its package again, or remove it")]
    CannotStart { program: PathBuf, source: std::io::Error },
    #[error(
        "{name} cannot be built in {path}: its configure accepts no space or colon in a path; use \
             another directory (--lab-dir)"
    )]
    PathRefused { name: &'static str, path: PathBuf },
    #[error(
        "no package of kernel series {series} (searched: {looked}): run apt-get update, or see \
             docs/lab.md for other distributions"
    )]
    NoKernelPackage { series: String, looked: String },
    #[error("cannot download {package}: {detail}; check the network, and run apt-get update")]
    Download { package: String, detail: String },
    #[error(
        "the signature of Debian 13's package lists cannot be checked; update the keys with: \
             apt-get install --only-upgrade debian-archive-keyring\n{detail}"
    )]
    Signature { detail: String },
    #[error(
        "the package sources of this computer have no Debian mirror, which the lab needs for \
             Debian 13's packages; run apt-get update, or see docs/lab.md for other distributions"
    )]
    NoMirror,
    #[error(
        "cannot enter {root}, where the module for Debian 13's kernels is built: {detail}; run \
             as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)"
    )]
    CannotEnter { root: PathBuf, detail: String },
    #[error(
        "{headers} has no headers of kernel {release}: apt-get install linux-headers-{release}"
    )]
    NoHeaders { release: String, headers: PathBuf },
    #[error(
        "the headers in {headers} belong to kernel {found}, not to {release}, and a module \
             built with them would not load: install linux-headers-{release}"
    )]
    OtherHeaders { found: String, release: String, headers: PathBuf },
    #[error("{what} failed ({status}); its output is in {log}\n{tail}")]
    Step { what: String, status: String, log: PathBuf, tail: String },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error(
        "{path}: no space left on the device; `unspin-lab lab clean` removes the files of the lab"
    )]
    NoSpace { path: PathBuf },
    #[error(
        "kernel {release} cannot run the module: it is built without {option} ({why}); use a \
             Debian kernel"
    )]
    Unsuitable { release: String, option: String, why: &'static str },
    #[error("the package of kernel {release} has no module {module}; use a Debian kernel")]
    NoModule { release: String, module: String },
    #[error("the kernel configuration {config} has no {option}, which {file} requires")]
    OptionRefused { option: String, config: PathBuf, file: &'static str },
    #[error(
        "the guests' kernel with the locks of core/locks is not built, or not from the present \
             sources; run: make guest-kernel"
    )]
    NoLocksKernel,
    #[error(
        "the sources of the module are not in {root}: install unspin-dkms, or set UNSPIN_ROOT \
             to a checkout of the project"
    )]
    NoSources { root: PathBuf },
    #[error("{path} is not built; run: cargo build --release")]
    NotBuilt { path: PathBuf },
    #[error(
        "Bochs {version} delays host interrupts while a guest has RFLAGS.IF = 0, and cannot be \
             patched: {why}; the lab supports Debian's Bochs 2.7 and 3.0 (apt-get install \
             --reinstall bochs), for others see lab/computers/c/bochs_vm_entry.c"
    )]
    Unmended { version: String, why: String },
    #[error(
        "{program} --help has not ended after {after_s} s; remove this program, or install Debian's \
             again: apt-get install --reinstall bochs"
    )]
    HelpHangs { program: PathBuf, after_s: u64 },
    #[error("UNSPIN_EMULATOR={name:?} is not an emulator; allowed: {allowed}")]
    NoEmulator { name: String, allowed: String },
    #[error("the lab's own Bochs is not built; run: unspin-lab lab emulator")]
    NoOwnBochs,
    #[error("the lab's own QEMU is not built; run: unspin-lab lab emulator qemu-amd")]
    NoOwnQemu,
    #[error(
        "the source of {package} in Debian 13's archive is not {wanted}, the only version that \
             the lab's patches fit"
    )]
    OtherSource { package: String, wanted: String },
    #[error("the emulated computer has been silent for {after_s} s ({cpu_s} s of the emulator's CPU time) after {last}; the console ended with:\n{console}\nboot archived in {archive}")]
    Hang { after_s: u64, cpu_s: u64, last: String, console: String, archive: PathBuf },
    #[error(
        "the emulated computer stopped before the end of its plan ({last}); the console ended \
             with:\n{console}\nboot archived in {archive}"
    )]
    Died { last: String, console: String, archive: PathBuf },
    #[error(
        "a record of the emulated computer was damaged ({detail}); boot archived in {archive}"
    )]
    Channel { detail: String, archive: PathBuf },
    #[error("cannot unpack {path}: {detail}; the lab unpacks x86 kernels in the format of Debian")]
    NotAKernel { path: PathBuf, detail: String },
    #[error(
        "kernel {release} cannot run in a guest: it has no PVH entry point (CONFIG_PVH), which \
             QEMU needs; Debian's kernels of series 6.1, 6.12 and 7.3 have it"
    )]
    NoPvh { release: String },
    #[error("cannot copy program {name} into a guest: {detail}")]
    GuestProgram { name: String, detail: String },
    #[error(
        "{file} needs {library}, which is not in the packages {packages} or their dependencies"
    )]
    MissingLibrary { file: String, library: String, packages: String },
    #[error("{package} has no {path}, which the lab needs; use the package of Debian 12")]
    NotInPackage { package: String, path: String },
    #[error(
        "{path} is not an uncompressed kernel with symbols (CONFIG_KALLSYMS), or its version \
             is not supported; in the guest, as root: cat /proc/kallsyms"
    )]
    NoSymbols { path: PathBuf },
    #[error("interrupted; nothing keeps running. Repeat the command, a bench with --resume")]
    Interrupted,
    #[error(
        "another unspin (process {pid}) uses {path}; wait for it, or use another directory \
             (--lab-dir, --out)"
    )]
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
