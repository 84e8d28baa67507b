// SPDX-License-Identifier: MIT OR Apache-2.0
//! Archives of initial file systems, in the format that the kernel unpacks.

use crate::error::{io, Result};
use cpio::newc::Builder;
use std::collections::BTreeSet;

#[derive(Default)]
pub(crate) struct Archive {
    out: Vec<u8>,
    inode: u32,
    dirs: BTreeSet<String>,
}

impl Archive {
    /// An entry whose directory is there. The mode includes the type.
    pub(crate) fn add(&mut self, path: &str, mode: u32, contents: &[u8]) -> Result<()> {
        self.inode += 1;
        let too_long =
            |_| std::io::Error::other("a file in an initramfs must be shorter than 4 GiB");
        let length = u32::try_from(contents.len()).map_err(too_long).map_err(io(path))?;
        let builder = Builder::new(path).ino(self.inode).mode(mode).nlink(1);
        let mut writer = builder.write(&mut self.out, length);
        std::io::Write::write_all(&mut writer, contents).map_err(io(path))?;
        writer.finish().map_err(io(path)).map(|_| ())
    }

    pub(crate) fn add_dir(&mut self, path: &str) -> Result<()> {
        match self.dirs.insert(path.to_string()) {
            true => self.add(path, 0o040_755, &[]),
            false => Ok(()),
        }
    }

    /// A file after the directories it lies in.
    pub(crate) fn add_file(&mut self, path: &str, mode: u32, contents: &[u8]) -> Result<()> {
        for (at, _) in path.match_indices('/') {
            self.add_dir(&path[..at])?;
        }
        self.add(path, 0o100_000 | mode, contents)
    }

    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        cpio::newc::trailer(self.out).map_err(io("the end of an initramfs"))
    }
}
