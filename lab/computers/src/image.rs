// SPDX-License-Identifier: MIT OR Apache-2.0
//! The boot media of an emulated computer: an initramfs with the agent, the modules and the plan;
//! for Bochs also an ISO and a CMOS image.

use crate::archive::Archive;
use crate::error::{io, LabError, Result};
use crate::kernel::Kernel;
use crate::module_build::ModuleBuild;
use crate::tool;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

pub(crate) const INIT: &str = include_str!("init.sh");

/// Applets that the init and the tests use.
const APPLETS: &[&str] = &[
    "sh", "mount", "umount", "insmod", "rmmod", "lsmod", "cat", "echo", "ls", "sleep", "poweroff",
    "mkdir", "rmdir", "dmesg", "grep", "uname", "kill", "ps", "seq", "tail", "head", "true",
    "test", "sync", "sed", "wc", "rm", "date", "cut", "tr", "sort", "find", "taskset", "stty",
    "vi", "more", "setsid", "cttyhack", "clear", "less", "env", "hostname", "free", "top",
    "killall", "comm", "touch", "mkfifo",
];

/// Additional content of the initramfs, besides the tools and the kernel's modules.
#[derive(Debug, Clone, Default)]
pub struct Payload {
    /// Script that the init sources once KVM is loaded. It must end by powering off.
    pub script: String,
    /// Name in the initramfs (absolute, no leading slash) and contents.
    pub files: Vec<(String, Vec<u8>)>,
    /// Name in the initramfs and the file that is copied there.
    pub copies: Vec<(String, PathBuf)>,
    /// Programs copied to /bin with the shared libraries they need.
    pub programs: Vec<PathBuf>,
    /// The build of the module at `/modules/unspin.ko`.
    pub module: ModuleBuild,
}

/// Write the initramfs of `kernel` with `payload` to `target`.
pub fn initramfs(kernel: &Kernel, payload: &Payload, target: &Path) -> Result<()> {
    let mut archive = Archive::default();
    for dir in ["bin", "lib", "lib64", "modules", "proc", "sys", "dev", "tmp", "root", "etc"] {
        archive.add_dir(dir)?;
    }
    let busybox = tool::which("busybox").ok_or_else(|| tool::absent("busybox"))?;
    copy(&mut archive, "bin/busybox", &busybox)?;
    for applet in APPLETS {
        archive.add(&format!("bin/{applet}"), 0o120777, b"busybox")?;
    }
    for module in &kernel.modules {
        let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();
        copy(&mut archive, &format!("modules/{name}"), module)?;
    }
    // A kernel without KVM has no module of unspin.
    if !kernel.modules.is_empty() {
        copy(&mut archive, "modules/unspin.ko", kernel.module_of(payload.module))?;
    }
    let mut libraries: Vec<PathBuf> = Vec::new();
    for program in &payload.programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        copy(&mut archive, &format!("bin/{name}"), program)?;
        libraries.extend(shared_libraries(program));
    }
    libraries.sort();
    libraries.dedup();
    for library in libraries {
        copy(&mut archive, library.to_string_lossy().trim_start_matches('/'), &library)?;
    }
    archive.add_file("init", 0o755, INIT.as_bytes())?;
    archive.add_file("lab-init", 0o644, payload.script.as_bytes())?;
    for (name, source) in &payload.copies {
        copy(&mut archive, name, source)?;
    }
    for (name, contents) in &payload.files {
        archive.add_file(name, 0o644, contents)?;
    }
    fs::write(target, archive.finish()?).map_err(io(target))
}

/// Adds a program or a module under this name.
fn copy(archive: &mut Archive, name: &str, source: &Path) -> Result<()> {
    let contents = fs::read(source).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => LabError::NotBuilt { path: source.to_path_buf() },
        _ => io(source)(error),
    })?;
    archive.add_file(name, 0o755, &contents)
}

/// The shared libraries that a program loads, as the dynamic linker names them.
fn shared_libraries(program: &Path) -> Vec<PathBuf> {
    let text = tool::output(Command::new("ldd").arg(program)).unwrap_or_default();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// Pack kernel and initramfs into a bootable ISO at `target`.
pub fn iso(
    dir: &Path,
    kernel: &Kernel,
    initramfs: &Path,
    cmdline: &str,
    target: &Path,
    stop: &AtomicBool,
) -> Result<()> {
    let tree = dir.join("iso");
    let boot = tree.join("isolinux");
    fs::create_dir_all(&boot).map_err(io(&boot))?;
    let copies = [
        (kernel.vmlinuz.as_path(), tree.join("vmlinuz")),
        (initramfs, tree.join("initrd.img")),
        (Path::new("/usr/lib/ISOLINUX/isolinux.bin"), boot.join("isolinux.bin")),
        (Path::new("/usr/lib/syslinux/modules/bios/ldlinux.c32"), boot.join("ldlinux.c32")),
    ];
    for (from, to) in copies {
        fs::copy(from, &to).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => LabError::MissingTool {
                tool: from.display().to_string(),
                package: "isolinux syslinux-common".into(),
            },
            _ => io(&to)(error),
        })?;
    }
    let config = format!(
        "default lab\nprompt 0\ntimeout 0\nlabel lab\n kernel /vmlinuz\n append initrd=/initrd.img {cmdline}\n"
    );
    let config_path = boot.join("isolinux.cfg");
    fs::write(&config_path, config).map_err(io(&config_path))?;
    let mut pack = Command::new("xorriso");
    pack.env("SOURCE_DATE_EPOCH", "1767225600") // the dates in it: the same every time
        .args(["-as", "mkisofs", "-quiet", "-o"])
        .arg(target)
        .args(["-b", "isolinux/isolinux.bin", "-c", "isolinux/boot.cat"])
        .args(["-no-emul-boot", "-boot-load-size", "4", "-boot-info-table"])
        .arg(&tree);
    tool::run("packing the boot medium", &mut pack, &dir.join("image.log"), stop)?;
    fs::remove_dir_all(&tree).map_err(io(&tree))
}

/// CMOS memory as Bochs would set it, with the CD as the first boot device, and without the BIOS's
/// wait for a boot-menu key. That wait costs more emulated time than the rest of the BIOS.
pub fn cmos(memory_mib: u32) -> [u8; 128] {
    let mut cmos = [0u8; 128];
    let above_16mib = ((memory_mib - 16) * 16).to_le_bytes();
    let bytes: &[(usize, u8)] = &[
        (0x06, 5), // day of the week, day, month, year of a constant date
        (0x07, 1),
        (0x08, 1),
        (0x09, 0x26),
        (0x0a, 0x26), // divider of the real-time clock
        (0x0b, 0x02), // 24-hour mode
        (0x0d, 0x80), // battery is good
        (0x10, 0x40), // one floppy drive
        (0x14, 0x07), // equipment
        (0x15, 0x80), // 640 KiB of base memory
        (0x16, 0x02),
        (0x18, 0xfc), // 63 MiB above the first, the most these fields can say
        (0x31, 0xfc),
        (0x32, 0x20), // century
        (0x37, 0x20),
        (0x34, above_16mib[0]), // memory above 16 MiB, in 64 KiB
        (0x35, above_16mib[1]),
        (0x3d, 0x03), // boot from the CD
        (0x3f, 0x01), // no boot menu
    ];
    for &(at, value) in bytes {
        cmos[at] = value;
    }
    let sum: u16 = cmos[0x10..0x2e].iter().map(|&byte| u16::from(byte)).sum();
    cmos[0x2e..0x30].copy_from_slice(&sum.to_be_bytes());
    cmos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cmos_holds_memory_size_and_a_valid_checksum() {
        let image = cmos(1024);
        assert_eq!(u16::from_le_bytes([image[0x34], image[0x35]]), (1024 - 16) * 16);
        assert_eq!(u16::from_be_bytes([image[0x2e], image[0x2f]]), 0x1c5);
    }
}
