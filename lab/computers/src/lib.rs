// SPDX-License-Identifier: MIT OR Apache-2.0
//! Emulated computers that boot stock kernels with the module and the agent, and return their
//! results.

mod apt;
mod archive;
mod bochs;
mod boot;
mod build_root;
mod channel;
mod debug;
mod elf;
mod emulator;
mod error;
mod go;
mod guest_image;
mod guest_kernel;
mod guests;
mod hash;
mod image;
mod kept;
mod kernel;
mod kernel_build;
mod kernel_symbols;
mod module_build;
mod own_emulator;
mod packages;
mod program;
mod programs;
mod recipe;
mod series;
mod silence;
mod slices;
mod tool;
mod unpacked;
mod vm_entry;
mod vmlinux;

pub use bochs::Bochs;
pub use boot::Boot;
pub use channel::Decoder;
pub use emulator::{Computer, Emulator, Processor, Topology};
pub use error::{LabError, Result};
pub use go::Go;
pub use guest_image::GuestModules;
pub use guests::Qemu;
pub use hash::sha256;
pub use image::Payload;
pub use kernel::Kernel;
pub use kernel_symbols::kernel_symbols;
pub use module_build::ModuleBuild;
pub use program::Program;
pub use series::{Debian, Flavour, KernelPackage, Series};
pub use silence::Patience;
pub use slices::Slices;
pub use tool::missing_tools;
pub use unspin_host::source::source_tree;

use own_emulator::OwnEmulator;
use unspin_host::source::work_dir;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::OnceLock;
use unspin_scenario::plan::{Asym, CoschedulingMechanism, Plan, Run};
use unspin_scenario::result::Record;
use unspin_text::Lock;

/// A plan, and additional files for the computer.
#[derive(Debug, Clone)]
pub struct Work {
    pub plan: Plan,
    /// Files for its Linux guests: the path in the computer, without the leading slash, and the
    /// file here.
    pub copies: Vec<(String, PathBuf)>,
}

impl From<Plan> for Work {
    /// The work of a plan without Linux guests.
    fn from(plan: Plan) -> Work {
        Work { plan, copies: Vec::new() }
    }
}

/// Tools that any boot needs, and the emulator.
macro_rules! tools_with {
    ($($emulator:literal),+) => {
        &[
            "apt-get", "apt-cache", "dpkg-deb", "unshare", "mount", "chroot", "xz", "make", "gcc",
            "strip", "busybox", $($emulator,)+ "ldd",
        ]
    };
}

/// Tools that a timed boot needs.
pub const BOCHS_TOOLS: &[&str] = tools_with!("xorriso", "bochs");

/// Tools that a boot for functional tests needs.
pub const QEMU_TOOLS: &[&str] = tools_with!("qemu-system-x86_64");

/// Tools that building a kernel needs, besides those of a boot for functional tests.
pub const DEBUG_TOOLS: &[&str] = &["tar", "flex", "bison", "bc", "pahole"];

/// Tools that building the guests' kernel with the locks of core/locks needs.
pub const GUEST_KERNEL_TOOLS: &[&str] =
    &["apt-get", "apt-cache", "dpkg-deb", "tar", "patch", "make", "gcc", "flex", "bison", "bc"];

/// Names of the programs of papers/crates/scx and lab/watch.
const SCHEDULER: &str = "unspin-scx";
const WATCHER: &str = "unspin-watch";
/// Name of the command that shapes and schedules VMs.
const COMMAND: &str = "unspin";

/// Loads the module; `$options` are its parameters.
const LOAD: &str = "insmod /modules/unspin.ko $options";

/// A directory in which the lab stores kernels and boots.
#[derive(Debug, Clone)]
pub struct Lab {
    /// The source tree from which the module is built.
    root: PathBuf,
    dir: PathBuf,
    /// The agent's program.
    agent: PathBuf,
    /// The Bochs that boots, once it is chosen.
    bochs: OnceLock<Bochs>,
    qemu_amd: OnceLock<OwnEmulator>,
}

impl Lab {
    /// The lab in `dir`, or in `lab` beside the other build output. The directory is created when
    /// something is stored in it. `agent` is the program that runs plans inside the computer.
    pub fn open(dir: Option<PathBuf>, agent: PathBuf) -> Result<Lab> {
        let root = source_tree();
        if !root.join("core/kmod/Kbuild").is_file() {
            return Err(LabError::NoSources { root });
        }
        let dir = dir.unwrap_or_else(|| work_dir().join("lab"));
        // Emulators are started in their boot's directory, so the path must not be relative.
        let dir = std::path::absolute(&dir).map_err(error::io(&dir))?;
        Ok(Lab { root, dir, agent, bochs: OnceLock::new(), qemu_amd: OnceLock::new() })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Fetches and builds what booting a kernel needs (for a series: the series' own package),
    /// unless it exists.
    pub fn build(&self, package: impl Into<KernelPackage>, go: &mut Go) -> Result<Kernel> {
        let _lock = Lock::wait(&self.dir, go.stop, go.say)?;
        kernel::prepare(&self.root, &self.dir, package.into(), go)
    }

    /// A module of a kernel that [`Lab::build`] returned, uncompressed: `name` in the directory `sub` of the kernel's
    /// modules.
    ///
    /// # Errors
    /// The kernel's package does not have it.
    pub fn kernel_module(&self, kernel: &Kernel, sub: &str, name: &str) -> Result<Vec<u8>> {
        let release = &kernel.release;
        let tree = self.dir.join("kernels").join(release).join("tree");
        packages::module_of(&tree, release, sub, name)?.ok_or_else(|| LabError::NoModule {
            release: release.clone(),
            module: format!("{sub}/{name}.ko"),
        })
    }

    /// Builds the module for a kernel of which only the headers are fetched. Returns the kernel's
    /// release.
    pub fn build_module(&self, package: impl Into<KernelPackage>, go: &mut Go) -> Result<String> {
        let _lock = Lock::wait(&self.dir, go.stop, go.say)?;
        let (root, dir) = (&self.root, &self.dir);
        Ok(kernel::prepare_module(&module_build::HOSTS, root, dir, package.into(), go)?.0)
    }

    /// Builds the module that Linux guests of a kernel load. Returns the kernel's release, and the
    /// module.
    pub fn guest_module(
        &self,
        package: impl Into<KernelPackage>,
        go: &mut Go,
    ) -> Result<(String, PathBuf)> {
        let _lock = Lock::wait(&self.dir, go.stop, go.say)?;
        kernel::prepare_module(&module_build::GUESTS, &self.root, &self.dir, package.into(), go)
    }

    /// As [`Lab::build`], for a kernel of the series that checks itself (lockdep, KASAN, kmemleak), built
    /// from its sources. The first build takes a quarter of an hour.
    pub fn build_debug(&self, series: Series, go: &mut Go) -> Result<Kernel> {
        let _lock = Lock::wait(&self.dir, go.stop, go.say)?;
        debug::prepare(&self.root, &self.dir, series, go)
    }

    /// A kernel that extends time slices, and the C library for programs on it. The first build takes some minutes.
    pub fn build_slices(&self, go: &mut Go) -> Result<Slices> {
        let _lock = Lock::wait(&self.dir, go.stop, go.say)?;
        slices::prepare(&self.dir, go)
    }

    /// The Bochs for all boots of this lab from now on. It is built if necessary (minutes, the
    /// first time). If that fails, Debian's is used, and `go` receives the reason.
    pub fn bochs(&self, go: &mut Go) -> Result<Bochs> {
        if let Some(bochs) = self.bochs.get() {
            return Ok(bochs.clone());
        }
        let made = Bochs::make(&self.dir, go)?;
        Ok(self.bochs.get_or_init(|| made).clone())
    }

    /// Boots `kernel` on `computer`, runs `plan` there and passes on every record. `name` is the
    /// boot's directory below `boots/`, which keeps console, configuration and raw records.
    pub fn boot_plan(
        &self,
        kernel: &Kernel,
        computer: &Computer,
        work: &Work,
        name: &str,
        stop: &AtomicBool,
        sink: &mut dyn FnMut(Record),
    ) -> Result<()> {
        let json = work.plan.to_json().into_bytes();
        let agent = self.agent.file_name().unwrap_or_default().to_string_lossy();
        let mut programs = vec![self.agent.clone()];
        programs.extend(self.beside(&work.plan)?);
        // The module pauses for longer than the measuring time. So it samples a watched run without
        // pause.
        let (options, module) = match work.plan.runs.iter().any(|run| run.states) {
            true => (" look_always=1", ModuleBuild::ForTests),
            false => ("", ModuleBuild::Production),
        };
        let load = match computer.module {
            true => {
                format!("insmod /modules/unspin.ko{options} || echo 'lab: unspin did not load'")
            }
            false => String::new(),
        };
        let payload = Payload {
            script: format!(
                "{load}\n\
                 {agent} agent /plan.json --out port-e9 || echo \"lab: agent ended with $?\"\n\
                 poweroff -f\n"
            ),
            files: vec![("plan.json".into(), json)],
            copies: work.copies.clone(),
            programs,
            module,
        };
        self.boot(&Boot::new(kernel, computer, &payload, stop), name, sink)
    }

    /// The programs beside the agent that the plan's runs need: one gives vCPUs to a scheduler of
    /// sched_ext, one watches vCPUs, one shapes or schedules VMs.
    fn beside(&self, plan: &Plan) -> Result<Vec<PathBuf>> {
        let by_scheduler =
            |run: &Run| run.arm.coscheduling_mechanism == CoschedulingMechanism::SchedExt;
        let mut programs = Vec::new();
        if plan.runs.iter().any(by_scheduler) {
            programs.push(self.agent.with_file_name(SCHEDULER));
        }
        if plan.runs.iter().any(|run| run.states) {
            programs.push(self.agent.with_file_name(WATCHER));
        }
        let by_command = |run: &Run| {
            run.arm.asym != Asym::default()
                || run.arm.coscheduling_mechanism == CoschedulingMechanism::Scheduler
        };
        if plan.runs.iter().any(by_command) {
            programs.push(self.agent.with_file_name(COMMAND));
        }
        match programs.iter().find(|path| !path.is_file()) {
            Some(path) => Err(LabError::NotBuilt { path: path.clone() }),
            None => Ok(programs),
        }
    }

    /// Boots with a payload of the caller (tests, probes).
    pub fn boot(&self, boot: &Boot, name: &str, sink: &mut dyn FnMut(Record)) -> Result<()> {
        let dir = self.boot_dir(name);
        let _lock = Lock::take(&dir)?;
        boot::watch(boot, &self.program_here(boot.computer.emulator)?, &dir, sink)
    }

    /// Boots `kernel` on `computer`, and checks whether KVM and the module work there. `sink`
    /// receives the results line by line. Returns whether all checks passed.
    pub fn check(
        &self,
        kernel: &Kernel,
        computer: &Computer,
        stop: &AtomicBool,
        sink: &mut dyn FnMut(&str),
    ) -> Result<bool> {
        let payload = self.hand(computer, include_str!("check.sh"));
        let boot = Boot::new(kernel, computer, &payload, stop);
        let mut failures = None;
        let name = format!("check-{}", kernel.name);
        self.boot(&boot, &name, &mut |record| match record {
            Record::Log { text } => sink(&text),
            Record::End { failed, .. } => failures = Some(failed),
            _ => {}
        })?;
        Ok(failures == Some(0))
    }

    /// Boots `kernel` under QEMU with the module loaded and a shell on this terminal. Returns when
    /// the computer is switched off.
    pub fn shell(&self, kernel: &Kernel) -> Result<()> {
        let computer = Computer::qemu(4);
        let payload = self.hand(&computer, include_str!("shell.sh"));
        let dir = self.boot_dir("shell");
        let _lock = Lock::take(&dir)?;
        let status = emulator::sit(&computer, kernel, &payload, &dir)?;
        let _ = fs::remove_file(dir.join("initrd.img"));
        if status.success() {
            return Ok(());
        }
        Err(LabError::Died {
            last: format!("the shell, with {status}"),
            console: tool::tail(&dir.join("emulator.err"), 5),
            archive: dir,
        })
    }

    /// A payload for the lab's own scripts, which load the module by `$load`.
    fn hand(&self, computer: &Computer, script: &str) -> Payload {
        let (options, module) = match computer.module_options() {
            "" => ("", ModuleBuild::Production),
            options => (options, ModuleBuild::ForTests),
        };
        Payload {
            script: format!("options='{options}'\nload() {{ {LOAD}; }}\n{script}"),
            programs: vec![self.agent.clone()],
            module,
            ..Payload::default()
        }
    }

    /// SHA-256, in hex, of everything of this project in a computer that runs plans: the sources of
    /// module and policies, the agent with the bench guest in it, the parts of Linux guests, and
    /// the lab's additions, including `emulator`.
    pub fn image_hash(&self, emulator: Emulator) -> Result<String> {
        let mut parts = module_build::module_sources(&module_build::HOSTS, &self.root)?;
        parts.push(fs::read(&self.agent).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => LabError::NotBuilt { path: self.agent.clone() },
            _ => error::io(&self.agent)(error),
        })?);
        // Programs that are not built are not in any plan.
        let beside =
            [SCHEDULER, WATCHER, COMMAND].map(|name| fs::read(self.agent.with_file_name(name)));
        parts.extend(beside.into_iter().flatten());
        parts.extend(guest_image::own_parts(&self.root)?);
        parts.push(image::INIT.as_bytes().to_vec());
        parts.push(emulator::CMDLINE.as_bytes().to_vec());
        parts.push(self.program_here(emulator)?.mark().as_bytes().to_vec());
        Ok(sha256(&parts))
    }

    /// The directory with console and configuration of the boot `name`.
    pub fn boot_dir(&self, name: &str) -> PathBuf {
        self.dir.join("boots").join(name)
    }

    /// Removes everything that the lab stores. Removes nothing while a boot is running or an
    /// emulator is being built.
    pub fn clean(&self, go: &mut Go) -> Result<()> {
        if !self.dir.exists() {
            return Ok(());
        }
        let _lock = Lock::wait(&self.dir, go.stop, go.say)?;
        let boots = self.dir.join("boots");
        let names: Vec<PathBuf> = fs::read_dir(&boots)
            .map(|d| d.flatten().map(|e| e.path()).collect())
            .unwrap_or_default();
        let dirs: Vec<&PathBuf> = names.iter().filter(|path| path.is_dir()).collect();
        let _held = dirs.iter().map(|dir| Ok(Lock::take(dir)?)).collect::<Result<Vec<Lock>>>()?;
        // A build of an emulator has its own lock.
        let emulators = self.dir.join(own_emulator::EMULATORS);
        let _building = emulators.is_dir().then(|| Lock::take(&emulators)).transpose()?;
        let kept = ["kernels", unpacked::GUESTS, kernel::TRIXIE, own_emulator::EMULATORS]
            .map(|name| self.dir.join(name));
        for path in dirs.into_iter().chain(kept.iter().filter(|path| path.exists())) {
            fs::remove_dir_all(path).map_err(error::io(path))?;
        }
        Ok(())
    }
}

/// SHA-256, in hex, of everything of this project in Linux guests, for use without a lab.
pub fn guests_hash() -> Result<String> {
    guests_hash_of(&source_tree())
}

/// A tree without these parts runs no Linux guests.
fn guests_hash_of(root: &Path) -> Result<String> {
    let parts = match root.join(guest_image::SOURCES).is_dir() {
        true => guest_image::own_parts(root)?,
        false => Vec::new(),
    };
    Ok(sha256(&parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One file of each folder from which the module is built, and of the programs beside it.
    const SOURCES: [&str; 10] = [
        "core/kmod/main.c",
        "core/kmod/Kbuild",
        "core/kmod/compat/kvm.h",
        "core/policy/hvs.c",
        "core/uapi/unspin.h",
        "core/guest-module/main.c",
        "lab/guest/linux/runner.c",
        "lab/guest/linux/units.h",
        "lab/guest/kernel/guest.config",
        "agent",
    ];

    #[test]
    fn the_image_is_another_with_each_thing_in_it_and_only_then() {
        let dir = unspin_scratch::Scratch::new();
        let write = |path: &str, text: &str| dir.write(path, text);
        for path in SOURCES {
            write(path, "before");
        }
        for header in guest_kernel::LOCK_HEADERS {
            write(&format!("core/locks/{header}"), "before");
        }
        let lab = Lab {
            root: dir.to_path_buf(),
            dir: dir.join("lab"),
            agent: dir.join("agent"),
            bochs: Bochs::Debian.into(),
            qemu_amd: OnceLock::new(),
        };
        let hash = || lab.image_hash(Emulator::Bochs);
        let first = hash().unwrap();
        // Output of a build or a test must not affect the hash.
        for path in [
            "core/kmod/main.o",
            "core/kmod/.main.o.cmd",
            "core/kmod/unspin.mod.c",
            "core/kmod/test/run.c",
        ] {
            write(path, "made");
            assert_eq!(hash().unwrap(), first, "{path}");
        }
        for path in SOURCES {
            write(path, "after");
            assert_ne!(hash().unwrap(), first, "{path}");
            write(path, "before");
        }
        write("core/kmod/new.h", "");
        assert_ne!(hash().unwrap(), first, "a new file");
        write("lab/guest/linux/new.c", "");
        let guests = guests_hash_of(&dir).unwrap();
        write("lab/guest/linux/new.c", "after");
        assert_ne!(guests_hash_of(&dir).unwrap(), guests);
        fs::remove_file(dir.join("agent")).unwrap();
        assert!(matches!(hash(), Err(LabError::NotBuilt { .. })));
        fs::remove_dir_all(&dir).unwrap();
        assert_ne!(guests_hash_of(&dir).unwrap(), guests, "no sources at all");
    }
}
