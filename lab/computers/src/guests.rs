// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of Linux guests: QEMU, kernels, and an initramfs with the programs they run. All come
//! from packages and are stored in the lab's directory `guests`.

use crate::apt::Apt;
use crate::error::{io, LabError, Result};
use crate::go::Go;
use crate::guest_image::{self, GuestModules};
use crate::guest_kernel;
use crate::packages;
use crate::series::KernelPackage;
use crate::unpacked::{Files, Unpacked, GUESTS};
use crate::vmlinux;
use crate::{kernel, Lab};
use std::fs;
use std::path::{Path, PathBuf};
use unspin_scenario::plan::GuestProgram;
use unspin_text::Lock;

const QEMU_PACKAGE: &str = "qemu-system-x86";
const QEMU: &str = "usr/bin/qemu-system-x86_64";
/// Directory on the host in which QEMU searches its firmware (`-L`).
const FIRMWARE_DIR: &str = "usr/share/qemu";
/// Firmware of QEMU's x86 machines. The first directory that has a file is used.
const FIRMWARE: [&str; 9] = [
    "bios.bin",
    "bios-256k.bin",
    "bios-microvm.bin",
    "qboot.rom",
    "pvh.bin",
    "linuxboot.bin",
    "linuxboot_dma.bin",
    "multiboot_dma.bin",
    "kvmvapic.bin",
];
const FIRMWARE_FROM: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/share/qemu-efi"];

/// QEMU for hosts of guests.
#[derive(Debug)]
pub struct Qemu {
    /// The program, its libraries and its firmware: the path of each file on the host, without the
    /// leading slash, and its path here.
    pub files: Vec<(String, PathBuf)>,
    /// Version of its package.
    pub version: String,
}

impl Lab {
    /// QEMU, which must be started with `-L /usr/share/qemu`.
    pub fn qemu(&self, go: &mut Go) -> Result<Qemu> {
        let _lock = Lock::wait(self.dir(), go.stop, go.say)?;
        let unpacked = Unpacked::fetch(&self.dir().join(GUESTS), &[QEMU_PACKAGE.to_string()], go)?;
        let absent = |path: &str| LabError::NotInPackage {
            package: QEMU_PACKAGE.to_string(),
            path: format!("/{path}"),
        };
        let program = unpacked.find(QEMU).ok_or_else(|| absent(QEMU))?;
        let mut files = Files::from([(QEMU.to_string(), program)]);
        unpacked.add_needed(&mut files)?;
        for name in FIRMWARE {
            let mut places = FIRMWARE_FROM.iter().map(|dir| format!("{dir}/{name}"));
            let target = format!("{FIRMWARE_DIR}/{name}");
            let found = places.find_map(|path| unpacked.find(&path));
            files.insert(target.clone(), found.ok_or_else(|| absent(&target))?);
        }
        let version = unpacked.version_of(QEMU_PACKAGE).ok_or_else(|| absent(QEMU))?;
        Ok(Qemu { files: files.into_iter().collect(), version })
    }

    /// The kernel of a package in the form in which QEMU starts it in a guest: an uncompressed ELF
    /// file with an entry point for PVH.
    pub fn guest_kernel(&self, package: KernelPackage, go: &mut Go) -> Result<PathBuf> {
        let _lock = Lock::wait(self.dir(), go.stop, go.say)?;
        let kernels = self.dir().join(GUESTS).join("kernels");
        let (release, apt) = match kernel::current(self.dir(), package, go) {
            Ok(found) => found,
            Err(LabError::Interrupted) => return Err(LabError::Interrupted),
            Err(error) => {
                let kept = kernel::newest(&kernels, "package", &package.name());
                return kept.map(|release| kernels.join(release).join("vmlinux")).ok_or(error);
            }
        };
        let dir = kernels.join(&release);
        let (target, done) = (dir.join("vmlinux"), dir.join("package"));
        if done.exists() {
            return Ok(target);
        }
        let tree = self.vmlinuz_tree(&apt, &dir, &release, go)?;
        let vmlinuz = packages::vmlinuz_of(&tree, &release);
        go.say(&format!("uncompressing kernel {release}"));
        let packed = fs::read(&vmlinuz).map_err(io(&vmlinuz))?;
        let kernel = vmlinux::extract(&vmlinuz, &packed, &release)?;
        fs::write(&target, kernel).map_err(io(&target))?;
        fs::write(&done, package.name()).map_err(io(&done))?;
        let own = dir.join("tree");
        match own.is_dir() {
            true => fs::remove_dir_all(&own).map_err(io(&own)).map(|()| target),
            false => Ok(target),
        }
    }

    /// The kernel with the locks of core/locks, in the same form. It must have been built.
    pub fn locks_kernel(&self) -> Result<PathBuf> {
        guest_kernel::find(&self.root, self.dir())
    }

    /// Builds this kernel from the distribution's sources (`make guest-kernel`). Returns its path.
    pub fn build_locks_kernel(&self, go: &mut Go) -> Result<PathBuf> {
        let _lock = Lock::wait(self.dir(), go.stop, go.say)?;
        guest_kernel::prepare(&self.root, self.dir(), go)
    }

    /// A tree that contains the kernel's package: that of the same kernel for hosts, or `tree` in
    /// `dir`.
    fn vmlinuz_tree(&self, apt: &Apt, dir: &Path, release: &str, go: &mut Go) -> Result<PathBuf> {
        fs::create_dir_all(dir).map_err(io(dir))?;
        let host = self.dir().join("kernels").join(release);
        if host.join("unpacked").exists() {
            return Ok(host.join("tree"));
        }
        go.say(&format!("downloading kernel {release}"));
        packages::fetch_kernel(apt, dir, release, go.stop)?;
        for module in packages::modules_in(dir) {
            let _ = fs::remove_file(module);
        }
        Ok(dir.join("tree"))
    }

    /// An initramfs for guests that contains all of `programs` and `modules`.
    pub fn guest_image(
        &self,
        programs: &[GuestProgram],
        modules: &GuestModules,
        go: &mut Go,
    ) -> Result<PathBuf> {
        let _lock = Lock::wait(self.dir(), go.stop, go.say)?;
        guest_image::prepare(&self.root, &self.dir().join(GUESTS), programs, modules, go)
    }
}
