// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `unspin shape` and `unspin schedule` do, for other commands: they write it to a file, which `unspin status`,
//! `unspin top` and `unspin export` read.

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use unspin_host::Host;
use unspin_text::read_kernel;

/// Paths of the files. /run is empty after a boot.
pub const SHAPED: &str = "/run/unspin/shape.json";
pub const SCHEDULED: &str = "/run/unspin/schedule.json";

/// What a process wrote last.
#[derive(Debug, Serialize, Deserialize)]
pub struct Written<D> {
    /// The process id, and the start of the process in clock ticks since boot, which distinguishes it from
    /// a later process with the same id.
    pub process: u32,
    started: u64,
    #[serde(flatten)]
    pub document: D,
}

/// The file. It is removed when this is dropped.
pub struct Writer {
    path: PathBuf,
    process: u32,
    started: u64,
}

impl Writer {
    /// Writes to a file beside the journal, with the name of that path.
    pub fn beside(journal: &Path, name: &str) -> Writer {
        let process = std::process::id();
        let started = Host::default().start_time(process).unwrap_or_default();
        let name = Path::new(name).file_name().unwrap_or_default();
        Writer { path: journal.with_file_name(name), process, started }
    }

    /// Writes atomically: a reader gets the old or the new file.
    pub fn write<D: Serialize>(&self, document: D) -> anyhow::Result<()> {
        let Writer { process, started, .. } = *self;
        let text = serde_json::to_string(&Written { process, started, document })?;
        let part = self.path.with_extension("json.part");
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, &self.path))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// What a process does now; `None` if none has written the file, or it has ended.
pub fn read<D: DeserializeOwned>(path: &Path) -> Option<Written<D>> {
    let written: Written<D> = serde_json::from_slice(&read_kernel(path).ok()?).ok()?;
    let host = Host::default();
    (host.start_time(written.process) == Some(written.started)).then_some(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Words {
        said: u32,
    }

    #[test]
    fn it_is_read_while_its_process_is_there() {
        let dir = unspin_scratch::Scratch::new();
        let writer = Writer::beside(&dir.join("journal"), SHAPED);
        let read = |path: &Path| super::read::<Words>(path);
        let path = dir.join("shape.json");
        assert!(read(&path).is_none());
        writer.write(Words { said: 5 }).unwrap();
        let found = read(&path).unwrap();
        assert_eq!((found.process, found.document.said), (std::process::id(), 5));
        let later = Writer { started: writer.started + 1, path: path.clone(), ..writer };
        later.write(Words { said: 6 }).unwrap();
        assert!(read(&path).is_none(), "another process of the same id");
        fs::write(&path, "{\"process\":").unwrap();
        assert!(read(&path).is_none());
        drop(later);
        assert!(!path.exists());
    }
}
