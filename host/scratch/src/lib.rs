// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories that tests make files in: of a host, of a kernel module, of whatever a command reads.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};

/// An empty directory of its own, removed when it is dropped with all that is in it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("unspin-test-{}-{number}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            match fs::create_dir(&dir) {
                Ok(()) => return Scratch(dir),
                // Left by a process that had the same id and was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", dir.display()),
            }
        }
    }

    /// With these files, each a path and its contents.
    pub fn with<T: AsRef<[u8]>>(files: &[(&str, T)]) -> Scratch {
        let scratch = Scratch::new();
        for (path, contents) in files {
            scratch.write(path, contents);
        }
        scratch
    }

    /// Makes a directory, and those above it.
    #[track_caller]
    pub fn dir(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = self.join(path);
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// Writes a file, and makes the directories above it.
    #[track_caller]
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(path);
        self.dir(path.parent().unwrap_or(self));
        fs::write(&path, contents).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// As [`Scratch::write`], with a newline at the end.
    #[track_caller]
    pub fn line(&self, path: impl AsRef<Path>, text: &str) -> PathBuf {
        self.write(path, format!("{text}\n"))
    }

    /// The text of a file, without white space at its ends.
    #[track_caller]
    pub fn read(&self, path: impl AsRef<Path>) -> String {
        let path = self.join(path);
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        text.trim().to_string()
    }

    /// A path in it, for a command line.
    pub fn text(&self, path: &str) -> String {
        self.join(path).to_str().expect("the name of a temporary directory is text").to_string()
    }

    /// As [`Scratch::write`]. Returns the file's path for a command line.
    #[track_caller]
    pub fn file(&self, path: &str, contents: impl AsRef<[u8]>) -> String {
        self.write(path, contents);
        self.text(path)
    }

    /// A process in `proc/` that was started with these arguments and holds a VM.
    #[track_caller]
    pub fn vm(&self, pid: u32, args: &[&str]) {
        self.write(format!("proc/{pid}/cmdline"), args.join("\0") + "\0");
        self.line(format!("proc/{pid}/status"), &format!("Name:\tx\nTgid:\t{pid}"));
        self.link(format!("proc/{pid}/fd/7"), "anon_inode:kvm-vm");
    }

    /// A symbolic link, for which the directories above it are made.
    #[track_caller]
    pub fn link(&self, path: impl AsRef<Path>, target: &str) {
        let path = self.join(path);
        self.dir(path.parent().unwrap_or(self));
        symlink(target, &path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl AsRef<OsStr> for Scratch {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed when it is dropped.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
