// SPDX-License-Identifier: MIT OR Apache-2.0
//! cgroups v2 of a run's VMs, as libvirt lays them out: one a VM, and in it one a vCPU, threaded.

use std::fs;
use std::path::{Path, PathBuf};

use unspin_scenario::plan::CgroupLayout;

use crate::Error;

const ROOT: &str = "/sys/fs/cgroup";

/// Whether the cpu controller of cgroup v2 can be used.
pub(crate) fn available() -> Result<(), Error> {
    let path = Path::new(ROOT).join("cgroup.controllers");
    let controllers = fs::read_to_string(&path)
        .map_err(|e| Error::NoCgroup(format!("{}: {e}", path.display())))?;
    if controllers.split_whitespace().any(|c| c == "cpu") {
        Ok(())
    } else {
        Err(Error::NoCgroup(format!("it has `{}`", controllers.trim())))
    }
}

/// The cgroups of one VM; dropped, they are removed (the VM's process must be gone by then).
pub(crate) struct VmCgroup {
    dirs: Vec<PathBuf>,
}

impl VmCgroup {
    /// Moves a VM's process, and with [`CgroupLayout::Vcpu`] each thread, into cgroups of its own.
    pub(crate) fn new(
        vm: u32,
        layout: CgroupLayout,
        weight: Option<u32>,
        pid: u32,
        tids: &[i32],
    ) -> Result<Option<VmCgroup>, Error> {
        if layout == CgroupLayout::Flat {
            return Ok(None);
        }
        available()?;
        write(&Path::new(ROOT).join("cgroup.subtree_control"), "+cpu")?;
        let mut cgroup = VmCgroup { dirs: Vec::new() };
        let scope = cgroup.create(Path::new(ROOT).join(format!("machine-unspin-{vm}.scope")))?;
        if let Some(weight) = weight {
            write(&scope.join("cpu.weight"), &weight.to_string())?;
        }
        write(&scope.join("cgroup.procs"), &pid.to_string())?;
        if layout == CgroupLayout::Vcpu {
            for (vcpu, tid) in tids.iter().enumerate() {
                let dir = cgroup.create_threaded(scope.join(format!("vcpu{vcpu}")))?;
                if vcpu == 0 {
                    write(&scope.join("cgroup.subtree_control"), "+cpu")?;
                }
                write(&dir.join("cgroup.threads"), &tid.to_string())?;
            }
            let emulator = cgroup.create_threaded(scope.join("emulator"))?;
            write(&emulator.join("cgroup.threads"), &pid.to_string())?;
        }
        Ok(Some(cgroup))
    }

    fn create(&mut self, dir: PathBuf) -> Result<PathBuf, Error> {
        // Left over from a run that was killed: empty, so it may be used.
        match fs::create_dir(&dir) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Error::io(&dir, e))
            }
            _ => {}
        }
        self.dirs.push(dir.clone());
        Ok(dir)
    }

    fn create_threaded(&mut self, dir: PathBuf) -> Result<PathBuf, Error> {
        let dir = self.create(dir)?;
        write(&dir.join("cgroup.type"), "threaded")?;
        Ok(dir)
    }
}

impl Drop for VmCgroup {
    fn drop(&mut self) {
        for dir in self.dirs.iter().rev() {
            if let Err(error) = fs::remove_dir(dir) {
                eprintln!("agent: {} stays: {error}", dir.display());
            }
        }
    }
}

fn write(path: &Path, value: &str) -> Result<(), Error> {
    fs::write(path, value).map_err(|e| Error::io(path, e))
}
