// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computers anyone can boot: stock kernels on emulated hardware, with the module and the agent in
//! them, and their results brought back.

mod boot;
mod channel;
mod emulator;
mod error;
mod image;
mod kernel;
mod tool;

pub use boot::Patience;
pub use channel::Decoder;
pub use emulator::{Computer, Emulator};
pub use error::{LabError, Result};
pub use image::Payload;
pub use kernel::{Kernel, Series};
pub use tool::missing_tools;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use unspin_scenario::plan::Plan;
use unspin_scenario::result::Record;

/// Tools a timed boot needs.
pub const BOCHS_TOOLS: &[&str] =
    &["apt-get", "apt-cache", "dpkg-deb", "xz", "make", "gcc", "busybox", "xorriso", "bochs", "ldd"];

/// A directory the lab keeps kernels and boots in.
#[derive(Debug, Clone)]
pub struct Lab {
    /// The source tree the module is built from.
    root: PathBuf,
    dir: PathBuf,
    /// The agent's program.
    agent: PathBuf,
}

impl Lab {
    /// Open (and make) the lab in `dir`, or in `out/lab` of the source tree. `agent` is the program
    /// that runs plans inside.
    pub fn open(dir: Option<PathBuf>, agent: PathBuf) -> Result<Lab> {
        let root = source_tree();
        let dir = dir.unwrap_or_else(|| root.join("out/lab"));
        fs::create_dir_all(&dir).map_err(error::io(&dir))?;
        Ok(Lab { root, dir, agent })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Fetch and build what booting `series` takes; does only what is not done yet.
    pub fn build(&self, series: Series, say: &mut dyn FnMut(&str)) -> Result<Kernel> {
        let _lock = self.lock()?;
        kernel::prepare(&self.root, &self.dir, series, say)
    }

    /// Boot `kernel` on `computer`, run `plan` there and pass on every record. `name` is the boot's
    /// directory below `boots/`, where console, configuration and raw records stay.
    pub fn boot_plan(
        &self,
        kernel: &Kernel,
        computer: &Computer,
        plan: &Plan,
        name: &str,
        stop: &AtomicBool,
        sink: &mut dyn FnMut(Record),
    ) -> Result<()> {
        let json = serde_json::to_vec(plan).expect("a plan is plain data");
        let payload = Payload {
            script: "insmod /modules/unspin.ko || echo 'lab: unspin did not load'\n\
                     unspin-agent agent /plan.json --out port-e9 || echo \"lab: agent ended with $?\"\n\
                     poweroff -f\n"
                .into(),
            files: vec![("plan.json".into(), json)],
            programs: vec![self.agent.clone()],
        };
        self.boot(kernel, computer, &payload, "", name, Patience::default(), stop, sink)
    }

    /// Boot with a payload of the caller's (tests, probes).
    #[allow(clippy::too_many_arguments)]
    pub fn boot(
        &self,
        kernel: &Kernel,
        computer: &Computer,
        payload: &Payload,
        extra_cmdline: &str,
        name: &str,
        patience: Patience,
        stop: &AtomicBool,
        sink: &mut dyn FnMut(Record),
    ) -> Result<()> {
        let dir = self.dir.join("boots").join(name);
        boot::watch(computer, kernel, payload, extra_cmdline, &dir, patience, stop, sink)
    }

    /// Where the boot called `name` keeps its console and configuration.
    pub fn boot_dir(&self, name: &str) -> PathBuf {
        self.dir.join("boots").join(name)
    }

    /// Remove everything the lab keeps.
    pub fn clean(&self) -> Result<()> {
        let _lock = self.lock()?;
        for part in ["kernels", "boots"] {
            let path = self.dir.join(part);
            if path.exists() {
                fs::remove_dir_all(&path).map_err(error::io(&path))?;
            }
        }
        Ok(())
    }

    fn lock(&self) -> Result<Lock> {
        Lock::take(self.dir.join("lock"))
    }
}

/// The checkout this program was built from, or `UNSPIN_ROOT`.
pub fn source_tree() -> PathBuf {
    match std::env::var_os("UNSPIN_ROOT") {
        Some(root) => PathBuf::from(root),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
    }
}

/// Held while kernels are fetched and built, so that two commands do not write the same files.
struct Lock {
    _file: fs::File,
}

impl Lock {
    fn take(path: PathBuf) -> Result<Lock> {
        use std::os::fd::AsRawFd;
        let file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(error::io(&path))?;
        // SAFETY: flock on a descriptor this function owns.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            let pid = fs::read_to_string(&path).unwrap_or_default();
            return Err(LabError::Busy { path, pid });
        }
        let _ = fs::write(&path, std::process::id().to_string());
        Ok(Lock { _file: file })
    }
}
