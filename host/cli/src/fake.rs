// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts in files of a temporary directory, for tests.

use crate::sysfs::Module;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use unspin_host::Host;

/// A module and processes, as files.
pub struct Fake(pub PathBuf);

impl Fake {
    pub fn new(name: &str) -> Fake {
        let dir = std::env::temp_dir().join(format!("unspin-vms-{name}-{}", std::process::id()));
        let fake = Fake(dir);
        fs::create_dir_all(fake.0.join("proc")).unwrap();
        for (name, value) in [
            ("mode", "off"),
            ("window_min_cycles", "4096"),
            ("window_init_cycles", "8192"),
            ("window_max_cycles", "32768"),
        ] {
            fake.write(&format!("sys/default/{name}"), value);
        }
        fake.write("sys/version", env!("CARGO_PKG_VERSION"));
        fake
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap().trim().to_string()
    }

    /// A VM that follows the defaults, in a QEMU process with this `-name`.
    pub fn vm(&self, id: &str, name: &str) {
        let (pid, _) = id.split_once('-').unwrap();
        for file in fs::read_dir(self.0.join("sys/default")).unwrap().flatten() {
            let name = file.file_name().into_string().unwrap();
            let value = self.read(&format!("sys/default/{name}"));
            self.write(&format!("sys/vms/{id}/{name}"), &value);
        }
        let proc = self.0.join("proc").join(pid);
        if proc.exists() {
            return;
        }
        fs::create_dir_all(proc.join("fd")).unwrap();
        symlink("anon_inode:kvm-vm", proc.join("fd/7")).unwrap();
        self.write(&format!("proc/{pid}/status"), &format!("Tgid:\t{pid}"));
        let uuid = format!("00000000-0000-0000-0000-{pid:0>12}");
        let line = format!("/usr/bin/qemu-system-x86_64\0-name\0{name}\0-uuid\0{uuid}\0");
        fs::write(proc.join("cmdline"), line).unwrap();
    }

    pub fn module(&self) -> Module {
        Module::open(&self.0.join("sys")).unwrap()
    }

    pub fn host(&self) -> Host {
        Host::at(&self.0.join("proc"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
