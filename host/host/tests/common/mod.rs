// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fake /proc in files.

use unspin_scratch::Scratch;

pub const VM: &str = "anon_inode:kvm-vm";

pub struct Fake(pub Scratch);

impl Fake {
    pub fn new() -> Fake {
        let dir = Scratch::new();
        dir.dir("sys");
        Fake(dir)
    }

    pub fn process(&self, pid: u32, args: &[&[u8]], descriptor: &str, threads: &[(u32, &str)]) {
        let mut line = args.join(&0);
        line.push(0);
        self.write(&format!("{pid}/cmdline"), line);
        self.descriptor(pid, 0, "/dev/null");
        self.descriptor(pid, 9, descriptor);
        for (tid, comm) in threads {
            self.thread(pid, *tid, comm);
        }
    }

    pub fn thread(&self, pid: u32, tid: u32, comm: &str) {
        self.comm(pid, tid, comm);
        let status = format!("Name:\t{comm}\nTgid:\t{pid}\nPid:\t{tid}\n");
        self.write(&format!("{tid}/status"), status);
    }

    /// A thread that is visible only as a thread of its process.
    pub fn comm(&self, pid: u32, tid: u32, comm: &str) {
        self.write(&format!("{pid}/task/{tid}/comm"), format!("{comm}\n"));
    }

    pub fn descriptor(&self, pid: u32, number: u32, link: &str) {
        self.0.link(format!("{pid}/fd/{number}"), link);
    }

    pub fn write(&self, path: &str, contents: impl AsRef<[u8]>) {
        self.0.write(path, contents);
    }
}
