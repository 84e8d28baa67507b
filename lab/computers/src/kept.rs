// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a kept program is whole, and the removal of what is not.

use crate::elf;
use crate::error::{io, Result};
use crate::tool;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// Number of further attempts to remove a directory, and their interval.
const REMOVALS: u32 = 50;
const REMOVE_EVERY: Duration = Duration::from_millis(100);

/// Whether a program can be started and its file is complete. Its table of sections is at the end.
pub(crate) fn is_whole(program: &Path) -> bool {
    tool::is_program(program) && fs::read(program).is_ok_and(|bytes| elf::is_complete(&bytes))
}

/// Removes a directory, or a file in its place. A tool of a build that was killed may still write
/// there until it has ended too.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let mut tries = 0;
    loop {
        let removed = match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty && tries < REMOVALS => {
                tries += 1;
                std::thread::sleep(REMOVE_EVERY);
            }
            Err(error) => return Err(io(path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scratch::Scratch;

    #[test]
    fn a_damaged_program_is_not_taken() {
        let dir = Scratch::new();
        let program = dir.join("program");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        assert!(is_whole(&program));
        let mode = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(&program, mode).unwrap();
        };
        mode(0o644);
        assert!(!is_whole(&program));
        mode(0o755);
        let size = fs::metadata(&program).unwrap().len();
        for size in [size - 1, size / 2, 100, 0] {
            fs::OpenOptions::new().write(true).open(&program).unwrap().set_len(size).unwrap();
            assert!(!is_whole(&program), "{size} bytes");
        }
        assert!(!is_whole(&dir), "a directory");
    }

    #[test]
    fn what_stands_in_the_way_is_removed() {
        let dir = Scratch::new();
        let link = dir.join("link");
        std::os::unix::fs::symlink("link", &link).unwrap();
        for path in [dir.write("file", ""), dir.dir("full/dir"), link, dir.join("none")] {
            remove(&path).unwrap();
            assert!(fs::symlink_metadata(&path).is_err(), "{}", path.display());
        }
    }
}
