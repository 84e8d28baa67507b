// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory that is locked by one unspin process at a time, so that two commands do not write
//! the same files. The kernel releases the lock when its holder ends, in every case.

use crate::show::shown;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{}: {source}", shown(.path))]
    Io { path: PathBuf, source: std::io::Error },
    #[error(
        "another unspin (process {pid}) uses {}; wait for it, or use another directory \
             (--lab-dir, --out)",
        shown(.path)
    )]
    Busy { path: PathBuf, pid: String },
    #[error("interrupted")]
    Interrupted,
}

type Result<T> = std::result::Result<T, LockError>;

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> LockError + '_ {
    move |source| LockError::Io { path: path.to_path_buf(), source }
}

/// Interval between attempts to take the lock.
const TRY_EVERY: Duration = Duration::from_millis(100);

/// The locked file in the directory; it contains the holder's process id.
const FILE: &str = "lock";

/// A directory that this process has locked. Dropping it releases the lock.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Locks `dir`, which is created if missing. If it is locked, returns its holder
    /// ([`LockError::Busy`]).
    pub fn take(dir: &Path) -> Result<Lock> {
        let path = dir.join(FILE);
        loop {
            fs::create_dir_all(dir).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                    let why = "a file stands in place of this directory or of one above it: use \
                               another directory (--lab-dir, --out)";
                    io(dir)(std::io::Error::other(why))
                }
                _ => io(dir)(error),
            })?;
            let mut options = OpenOptions::new();
            // A user who can write to the directory must not be able to redirect the write to
            // another file.
            let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
            options.create(true).truncate(false).read(true).write(true).custom_flags(flags);
            let not_ours = || {
                let why = "a link or no regular file stands in place of the lock: remove it";
                io(&path)(std::io::Error::other(why))
            };
            let mut file = options.open(&path).map_err(|error| match error.raw_os_error() {
                Some(libc::ELOOP) => not_ours(),
                _ => io(&path)(error),
            })?;
            if !file.metadata().map_err(io(&path))?.is_file() {
                return Err(not_ours());
            }
            // SAFETY: flock on a descriptor this function owns.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::WouldBlock {
                    return Err(io(&path)(error));
                }
                let pid = fs::read_to_string(&path).unwrap_or_default();
                return Err(LockError::Busy { path: PathBuf::from(dir), pid: holder(&pid) });
            }
            // The previous holder may have removed the directory; then this file has no name.
            let here = fs::metadata(&path).map(|m| m.ino()).ok();
            if here == file.metadata().map(|m| m.ino()).ok() {
                file.set_len(0).map_err(io(&path))?;
                file.write_all(std::process::id().to_string().as_bytes()).map_err(io(&path))?;
                return Ok(Lock { _file: file });
            }
        }
    }

    /// Waits until `dir` is free, and locks it; reports a long wait. Ends when `stop` is set.
    pub fn wait(dir: &Path, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Lock> {
        let mut said = false;
        loop {
            match Lock::take(dir) {
                Err(LockError::Busy { path, pid }) if !said => {
                    said = true;
                    // Boots of one command run side by side, and prepare one after the other.
                    let who = match pid == std::process::id().to_string() {
                        true => "another boot of this command".to_string(),
                        false => format!("unspin (process {pid})"),
                    };
                    say(&format!("waiting for {who}, which uses {}", path.display()));
                }
                Err(LockError::Busy { .. }) => {}
                other => return other,
            }
            if stop.load(Ordering::Relaxed) {
                return Err(LockError::Interrupted);
            }
            std::thread::sleep(TRY_EVERY);
        }
    }
}

/// If the holder has not written its id yet, it is unknown.
fn holder(text: &str) -> String {
    if text.is_empty() { "unknown" } else { text }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scratch::Scratch;

    #[test]
    fn a_held_directory_names_its_holder() {
        let dir = Scratch::new();
        let held = Lock::take(&dir).unwrap();
        let error = Lock::take(&dir).unwrap_err();
        let words = error.to_string();
        assert!(words.contains(&std::process::id().to_string()), "{words}");
        assert!(words.contains(dir.to_str().unwrap()), "{words}");
        drop(held);
        Lock::take(&dir).unwrap();
    }

    #[test]
    fn a_file_in_place_of_the_directory_is_named() {
        let dir = Scratch::new();
        let file = dir.write("file", "mine");
        for path in [&file, &file.join("boots")] {
            let error = Lock::take(path).unwrap_err().to_string();
            assert!(error.starts_with(path.to_str().unwrap()), "{error}");
            assert!(error.contains("a file stands") && error.contains("--out"), "{error}");
        }
    }

    #[test]
    fn what_a_link_leads_to_is_not_written() {
        let dir = Scratch::new();
        let target = dir.write("target", "mine");
        std::os::unix::fs::symlink(&target, dir.join(FILE)).unwrap();
        let error = Lock::take(&dir).unwrap_err().to_string();
        assert!(error.contains("a link or no regular file"), "{error}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "mine");
    }

    #[test]
    fn waiting_is_said_once_and_ends_on_stop_or_release() {
        let dir = Scratch::new();
        let held = Lock::take(&dir).unwrap();
        let stop = AtomicBool::new(false);
        let mut said = Vec::new();
        let outcome = std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(5 * TRY_EVERY);
                stop.store(true, Ordering::Relaxed);
            });
            Lock::wait(&dir, &stop, &mut |text| said.push(text.to_string()))
        });
        assert!(matches!(outcome, Err(LockError::Interrupted)), "{outcome:?}");
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("waiting for"), "{said:?}");
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(2 * TRY_EVERY);
                drop(held);
            });
            Lock::wait(&dir, &AtomicBool::new(false), &mut |_| {}).unwrap();
        });
    }
}
