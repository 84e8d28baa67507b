// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fake /proc in files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

pub const VM: &str = "anon_inode:kvm-vm";

pub struct Fake(pub PathBuf);

impl Fake {
    pub fn new(name: &str) -> Fake {
        let dir = std::env::temp_dir().join(format!("unspin-proc-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("sys")).unwrap();
        Fake(dir)
    }

    pub fn process(&self, pid: u32, args: &[&[u8]], descriptor: &str, threads: &[(u32, &str)]) {
        let mut line = args.join(&0);
        line.push(0);
        self.write(&format!("{pid}/cmdline"), &line);
        self.descriptor(pid, 0, "/dev/null");
        self.descriptor(pid, 9, descriptor);
        for (tid, comm) in threads {
            self.thread(pid, *tid, comm);
        }
    }

    pub fn thread(&self, pid: u32, tid: u32, comm: &str) {
        self.comm(pid, tid, comm);
        let status = format!("Name:\t{comm}\nTgid:\t{pid}\nPid:\t{tid}\n");
        self.write(&format!("{tid}/status"), status.as_bytes());
    }

    /// A thread that is visible only as a thread of its process.
    pub fn comm(&self, pid: u32, tid: u32, comm: &str) {
        self.write(&format!("{pid}/task/{tid}/comm"), format!("{comm}\n").as_bytes());
    }

    pub fn descriptor(&self, pid: u32, number: u32, link: &str) {
        let dir = self.0.join(format!("{pid}/fd"));
        fs::create_dir_all(&dir).unwrap();
        symlink(link, dir.join(number.to_string())).unwrap();
    }

    pub fn write(&self, path: &str, contents: &[u8]) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
