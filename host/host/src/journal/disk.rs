// SPDX-License-Identifier: MIT OR Apache-2.0
//! The journal's file: locked by one process at a time, and synced before each change.

use super::error::Error;
use crate::owner;
use crate::slice::result;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use unspin_text::read_kernel_text;

/// Mode bits that let users other than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// The storage of a journal.
pub trait Disk {
    fn path(&self) -> &Path;

    fn read(&mut self) -> io::Result<Vec<u8>>;

    /// Appends. On return the bytes are on the disk.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Truncates to `length` bytes. On return this is on the disk.
    fn cut(&mut self, length: u64) -> io::Result<()>;

    /// Replaces all bytes at once: whoever reads finds the old or the new ones.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// A file that this process has locked. The kernel releases the lock when the process ends, in
/// every case.
pub struct Held {
    path: PathBuf,
    file: File,
}

impl Held {
    /// Opens the file with mode 0600. Creates it, and its directory with mode 0700, if missing.
    /// [`Error::Busy`] if another process has locked it.
    pub fn open(path: &Path) -> Result<Held, Error> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(Error::io("make", dir))?;
        is_ours(dir, &fs::metadata(dir).map_err(Error::io("look at", dir))?)?;
        let file = options().create(true).open(path).map_err(Error::io("open", path))?;
        let is = file.metadata().map_err(Error::io("look at", path))?;
        is_ours(path, &is)?;
        let busy = || Error::Busy { path: path.into(), pid: holder(is.ino()) };
        match lock(&file) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(busy()),
            other => other.map_err(Error::io("lock", path))?,
        }
        // Another process has replaced it since it was opened here.
        if !fs::symlink_metadata(path).is_ok_and(|now| now.ino() == is.ino()) {
            return Err(busy());
        }
        // A new file is lost unless its directory entry is on the disk.
        let entry = File::open(dir).and_then(|dir| dir.sync_all());
        entry.map_err(Error::io("write", dir))?;
        Ok(Held { path: path.into(), file })
    }
}

impl Drop for Held {
    /// Unlocks the file even if a child of this process, which has not executed its program yet, still has
    /// the descriptor.
    fn drop(&mut self) {
        // SAFETY: flock on a descriptor that this value owns.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

fn lock(file: &File) -> io::Result<()> {
    // SAFETY: flock on a descriptor that the file owns.
    result(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) })
}

/// Settings are restored from this file, so other users must not be able to write it.
fn is_ours(path: &Path, is: &fs::Metadata) -> Result<(), Error> {
    match owner::is_ours(is.uid()) && is.mode() & OTHERS_WRITE == 0 {
        true => Ok(()),
        false => Err(Error::Open { path: path.into() }),
    }
}

/// The process that has locked the file with this inode, if the kernel shows it:
/// `1: FLOCK ADVISORY WRITE 4242 00:1a:99 0 EOF`.
fn holder(inode: u64) -> String {
    let locks = read_kernel_text("/proc/locks").unwrap_or_default();
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "FLOCK")?;
        let is_it = words.get(at + 4)?.rsplit(':').next()?.parse() == Ok(inode);
        words.get(at + 3).filter(|_| is_it).map(|pid| pid.to_string())
    };
    locks.lines().find_map(of).unwrap_or_else(|| "unknown".into())
}

impl Disk for Held {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&self.file).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_all()
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.file.sync_all()
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let part = self.path.with_extension("part");
        let written = write_locked(&part, bytes);
        let named = written.and_then(|file| fs::rename(&part, &self.path).map(|()| file));
        if named.is_err() {
            // On a full disk the journal's next line needs its room.
            let _ = fs::remove_file(&part);
        }
        // Whoever waits for the old file's lock finds that it is no longer the journal.
        self.file = named?;
        Ok(())
    }
}

/// A new file, which is locked before it can have the journal's name.
fn write_locked(path: &Path, bytes: &[u8]) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = options().create_new(true).open(path)?;
    lock(&file)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scratch::Scratch;

    #[test]
    fn what_cannot_replace_the_file_leaves_nothing() {
        let dir = Scratch::new();
        let path = dir.join("run/journal");
        let mut held = Held::open(&path).unwrap();
        held.append(b"old").unwrap();
        // No file can get the name of a directory.
        fs::rename(&path, dir.join("moved")).unwrap();
        fs::create_dir(&path).unwrap();
        held.replace(b"new").unwrap_err();
        assert!(!path.with_extension("part").exists());
        held.append(b", and more").unwrap();
        assert_eq!(dir.read("moved"), "old, and more");
    }
}
