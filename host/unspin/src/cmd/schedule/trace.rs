// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of --trace.

use anyhow::{bail, Context};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use unspin_schedule::Error;
use unspin_text::shown;
use unspin_uapi::schedule_trace::{Begin, Line, Vm};

pub struct Tracer<W: Write = File> {
    path: PathBuf,
    file: BufWriter<W>,
    /// The VMs by number, as last written.
    vms: BTreeMap<u32, Vm>,
    decisions: u64,
    lost: u64,
}

/// An empty file. Only a regular file: a FIFO or a terminal could block the command.
pub fn create(path: &Path) -> anyhow::Result<File> {
    if path.exists() && !path.is_file() {
        bail!("cannot write {}: it is not a regular file; name one", shown(path));
    }
    File::create(path).with_context(|| format!("cannot write {}", shown(path)))
}

impl<W: Write> Tracer<W> {
    pub fn begin(path: &Path, file: W, begin: &Begin) -> anyhow::Result<Tracer<W>> {
        let (path, file, vms) = (path.to_path_buf(), BufWriter::new(file), BTreeMap::new());
        let mut tracer = Tracer { path, file, vms, decisions: 0, lost: 0 };
        tracer.write(begin)?;
        Ok(tracer)
    }

    /// Writes each VM that is new, or differs from what was last written of its number.
    pub fn vms(&mut self, taken: impl Iterator<Item = Vm>) -> anyhow::Result<()> {
        for vm in taken {
            if self.vms.get(&vm.number) != Some(&vm) {
                self.write(&Line::Vm(vm.clone()))?;
                self.vms.insert(vm.number, vm);
            }
        }
        Ok(())
    }

    /// Writes what [`Trace::take`](unspin_schedule::Trace::take) returned.
    pub fn follow(&mut self, taken: Result<(Vec<Line>, u64), Error>) -> anyhow::Result<()> {
        let (lines, lost) = taken?;
        self.decisions += lines.len() as u64;
        lines.iter().try_for_each(|line| self.write(line))?;
        // They found no room behind those that were just written.
        if lost > self.lost {
            self.write(&Line::Lost(lost - self.lost))?;
            self.lost = lost;
        }
        self.flush()
    }

    /// Writes the last line. Returns a summary for the user.
    pub fn end(mut self) -> anyhow::Result<String> {
        let (decisions, lost) = (self.decisions, self.lost);
        self.write(&Line::End { decisions, lost })?;
        self.flush()?;
        let of = format!("{}: {decisions} decisions", shown(&self.path));
        Ok(match lost {
            0 => of,
            _ => {
                format!("{of}; {lost} are missing, because they came faster than they were written")
            }
        })
    }

    fn write(&mut self, line: &impl Serialize) -> anyhow::Result<()> {
        let written = serde_json::to_writer(&mut self.file, line).map_err(std::io::Error::from);
        let written = written.and_then(|()| self.file.write_all(b"\n"));
        written.with_context(|| format!("cannot write {}", shown(&self.path)))
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.file.flush().with_context(|| format!("cannot write {}", shown(&self.path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_uapi::schedule_trace::{SCHEMA, TRACE};

    fn begin() -> Begin {
        let [version, kernel, cpus] = ["0.1.0", "7.3.1", "2-3"].map(String::from);
        Begin { trace: TRACE.into(), schema: SCHEMA, version, kernel, cpus, turn_us: 6000 }
    }

    fn vm(share: f64) -> Vm {
        let (name, gang) = ("web1".into(), "auto".into());
        Vm { number: 1, process: 41, name, vcpus: 2, share, gang }
    }

    #[test]
    fn each_line_is_written_once_and_what_is_lost_is_told() {
        let mut text = Vec::new();
        let mut tracer = Tracer::begin(Path::new("t"), &mut text, &begin()).unwrap();
        let turn = r#"{"turn":{"at_ns":5,"left":2,"of":[{"vm":1,"vt":9}],"is":1,"needs":2,"then":"begins"}}"#;
        let line: Line = serde_json::from_str(turn).unwrap();
        for share in [50.0, 50.0, 40.0] {
            tracer.vms([vm(share)].into_iter()).unwrap();
            tracer.follow(Ok((vec![line.clone()], if share < 50.0 { 7 } else { 0 }))).unwrap();
        }
        let said = tracer.end().unwrap();
        assert!(said.starts_with("t: 3 decisions; 7 are missing"), "{said}");
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let vm = |share: &str| {
            format!(
                r#"{{"vm":{{"number":1,"process":41,"name":"web1","vcpus":2,"share":{share},"gang":"auto"}}}}"#
            )
        };
        let end = r#"{"end":{"decisions":3,"lost":7}}"#;
        let wanted = [&vm("50.0"), turn, turn, &vm("40.0"), turn, r#"{"lost":7}"#, end];
        assert_eq!(lines[1..], wanted);
        assert_eq!(serde_json::from_str::<Begin>(lines[0]).unwrap(), begin());
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut tracer = Tracer::begin(Path::new("t"), full, &begin()).unwrap();
        let why = format!("{:#}", tracer.follow(Ok((Vec::new(), 0))).unwrap_err());
        assert!(why.starts_with("cannot write t: No space left"), "{why}");
        let why = format!("{:#}", create(Path::new("/dev/full")).unwrap_err());
        assert!(why.starts_with("cannot write /dev/full: it is not a regular file"), "{why}");
        let why = format!("{:#}", create(Path::new("/nowhere/t")).unwrap_err());
        assert!(why.starts_with("cannot write /nowhere/t: No such file"), "{why}");
    }
}
