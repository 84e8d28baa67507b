// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file written whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {}", explain(.error))]
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

/// Replaces `path` by `bytes`: readers see the old file or the whole new one.
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
        // The first error is the one to report; a temporary file that stays is only untidy.
        let _ = fs::remove_file(&temp);
    }
    done.map_err(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_whole_or_not_at_all() {
        let dir = std::env::temp_dir().join(format!("unspin-file-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("a.txt");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "no temporary file is left");
        fs::remove_dir_all(&dir).unwrap();
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
