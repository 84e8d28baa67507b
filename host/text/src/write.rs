// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a file atomically.

use crate::show::shown;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {}", shown(.path), explain(.error))]
pub struct FileError {
    pub path: PathBuf,
    #[source]
    pub error: io::Error,
}

fn explain(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("{e}; nothing there was changed, free some space and run it again")
        }
        _ => e.to_string(),
    }
}

/// Replaces the contents of `path` by `bytes`: readers see the old file or the whole new one.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let at = |error| FileError { path: path.to_path_buf(), error };
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("file");
    let temp = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let written = File::create(&temp).and_then(|mut f| {
        f.write_all(bytes)?;
        f.sync_all()
    });
    let done = written.and_then(|()| fs::rename(&temp, path));
    if done.is_err() {
        // Report the first error; a remaining temporary file is harmless.
        let _ = fs::remove_file(&temp);
    }
    done.map_err(at)
}

/// Removes from `dir` the temporary files of [`write_atomic`] whose writers were killed. Ignores
/// errors, because such a file is harmless.
pub fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let writer = name.to_str().and_then(writer_of);
        let is_gone = |pid: u32| !Path::new("/proc").join(pid.to_string()).exists();
        if writer.is_some_and(is_gone) && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The process that writes a temporary file with this name: `.NAME.PID.tmp`.
fn writer_of(name: &str) -> Option<u32> {
    let (_, pid) = name.strip_prefix('.')?.strip_suffix(".tmp")?.rsplit_once('.')?;
    pid.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scratch::Scratch;

    #[test]
    fn replaces_whole_or_not_at_all() {
        let dir = Scratch::new();
        let path = dir.join("a.txt");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn files_of_killed_writers_are_swept() {
        let dir = Scratch::new();
        // No process id is above 2^22.
        let own = format!(".a.{}.tmp", std::process::id());
        for name in [".summary.json.99999999.tmp", &own, ".notes.tmp", "a.99999999.tmp", ".a.x.tmp"]
        {
            dir.write(name, "");
        }
        sweep(&dir);
        assert!(!dir.join(".summary.json.99999999.tmp").exists());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 4, "others stay");
    }

    #[test]
    fn a_full_disk_is_named_and_nothing_is_lost() {
        let e = write_atomic(Path::new("/dev/full/x"), b"x").unwrap_err();
        assert!(e.to_string().contains("/dev/full/x"), "{e}");
        let full = FileError {
            path: "out/report.html".into(),
            error: io::Error::from(io::ErrorKind::StorageFull),
        };
        assert!(full.to_string().contains("free some space"), "{full}");
    }
}
