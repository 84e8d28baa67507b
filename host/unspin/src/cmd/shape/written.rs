// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decisions of `unspin shape`, for other commands: it writes them to a file, which `unspin status`
//! and `unspin top` read.

use super::document::Document;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use unspin_host::Host;
use unspin_text::read_kernel;

/// Path of the file. /run is empty after a boot.
pub const SHAPED: &str = "/run/unspin/shape.json";

/// The last decisions of a shaping process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Written {
    /// The process id, and the start of the process in clock ticks since boot, which distinguishes it from
    /// a later process with the same id.
    pub process: u32,
    started: u64,
    #[serde(flatten)]
    pub document: Document,
}

/// The file. It is removed when this is dropped.
pub struct Writer {
    path: PathBuf,
    process: u32,
    started: u64,
}

impl Writer {
    /// Writes to a file beside the journal.
    pub fn beside(journal: &Path) -> Writer {
        let process = std::process::id();
        let started = Host::default().start_time(process).unwrap_or_default();
        Writer { path: journal.with_file_name("shape.json"), process, started }
    }

    /// Writes atomically: a reader gets the old or the new file.
    pub fn write(&self, document: Document) -> anyhow::Result<()> {
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

/// What is shaped now; `None` if no process has written the file, or that process has ended.
pub fn read(path: &Path) -> Option<Written> {
    let written: Written = serde_json::from_slice(&read_kernel(path).ok()?).ok()?;
    let host = Host::default();
    (host.start_time(written.process) == Some(written.started)).then_some(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_while_its_process_is_there() {
        let dir = unspin_scratch::Scratch::new();
        let writer = Writer::beside(&dir.join("journal"));
        let path = dir.join("shape.json");
        assert!(read(&path).is_none());
        writer.write(Document::new([], &[])).unwrap();
        assert_eq!(read(&path).unwrap().process, std::process::id());
        let later = Writer { started: writer.started + 1, path: path.clone(), ..writer };
        later.write(Document::new([], &[])).unwrap();
        assert!(read(&path).is_none(), "another process of the same id");
        fs::write(&path, "{\"process\":").unwrap();
        assert!(read(&path).is_none());
        drop(later);
        assert!(!path.exists());
    }
}
