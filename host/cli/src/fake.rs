// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts in files of a temporary directory, for tests.

use crate::sysfs::Module;
use std::fs;
use std::path::PathBuf;
use unspin_host::Host;
use unspin_scratch::Scratch;

/// A module and processes, as files.
pub struct Fake(pub Scratch);

impl Fake {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Fake {
        let fake = Fake(Scratch::new());
        fake.0.dir("proc");
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
        self.0.line(path, text);
    }

    pub fn read(&self, path: &str) -> String {
        self.0.read(path)
    }

    /// A VM that follows the defaults, in a QEMU process with this `-name`.
    pub fn vm(&self, id: &str, name: &str) {
        let (pid, _) = id.split_once('-').unwrap();
        for file in fs::read_dir(self.0.join("sys/default")).unwrap().flatten() {
            let name = file.file_name().into_string().unwrap();
            let value = self.read(&format!("sys/default/{name}"));
            self.write(&format!("sys/vms/{id}/{name}"), &value);
        }
        if self.0.join("proc").join(pid).exists() {
            return;
        }
        let uuid = format!("00000000-0000-0000-0000-{pid:0>12}");
        let args = ["/usr/bin/qemu-system-x86_64", "-name", name, "-uuid", &uuid];
        self.0.vm(pid.parse().unwrap(), &args);
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
