// SPDX-License-Identifier: MIT OR Apache-2.0
//! The boots of a bench and their files. `NAME.jsonl` holds the records of a complete boot, with
//! its End; `NAME.jsonl.part` holds those of a boot that runs. NAME depends on machine, kernel,
//! plan and the code that ran, so --resume does not reuse records of other code.

use anyhow::Context;
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use unspin_report::read_files;
use unspin_scenario::plan::Plan;
use unspin_scenario::result::{Record, Shard, World};
use unspin_text::{read_file, shown, write_atomic, ReadError, RESULTS_MAX};

/// Number of digits of a SHA-256 in a name.
const PLAN_DIGITS: usize = 12;
const IMAGE_DIGITS: usize = 8;

/// One boot: a share of a plan on one kernel.
pub struct Boot {
    pub plan: Plan,
    pub kernel: String,
    /// Scenario, machine, kernel and share, for people.
    pub title: String,
    /// Its share of the whole plan, if that was divided.
    pub shard: Option<Shard>,
    /// The boot's world, if unknown values of the scenario were drawn.
    pub world: Option<World>,
    /// Why this world is impossible, if it is: none of its runs is made.
    pub refusal: Option<String>,
    /// SHA-256 of the code that runs, in hex.
    pub image: String,
    /// The file of the complete records.
    pub file: PathBuf,
    /// Directory of the machine's own files.
    pub dir: PathBuf,
}

impl Boot {
    /// The boot of `plan` on a machine's `kernel` with the code whose hash is `image`; its files go
    /// to `dir`.
    pub fn new(machine: &str, kernel: &str, plan: &Plan, image: &str, dir: &Path) -> Boot {
        let print = plan.fingerprint();
        let name = format!("{machine}-{kernel}-{:.PLAN_DIGITS$}-{image:.IMAGE_DIGITS$}", print);
        Boot {
            plan: plan.clone(),
            kernel: kernel.to_string(),
            title: format!("{} on {machine} {kernel}", plan.scenario),
            shard: None,
            world: None,
            refusal: None,
            image: image.to_string(),
            file: dir.join(format!("{name}.jsonl")),
            dir: dir.join(name),
        }
    }

    pub fn part(&self) -> PathBuf {
        self.file.with_extension("jsonl.part")
    }

    /// Whether all its records exist and it is not to be repeated.
    pub fn is_complete(&self) -> bool {
        !self.part().exists() && self.is_whole()
    }

    /// Whether its file has a record of each of its runs, and the End. A file may have been cut or
    /// changed since it was written.
    pub fn is_whole(&self) -> bool {
        let Ok(input) = read_files(std::slice::from_ref(&self.file)) else { return false };
        let streams = || input.streams.iter();
        let mut made: HashSet<u32> = streams().flat_map(|s| &s.runs).map(|r| r.run.id).collect();
        made.extend(streams().flat_map(|s| &s.failed).map(|(id, _)| *id));
        let is_ended = streams().next_back().is_some_and(|s| s.ended);
        is_ended && self.plan.runs.iter().all(|run| made.contains(&run.id))
    }

    /// Turns an incomplete file of records into the partial file of a boot that is to be run.
    pub fn reopen(&self) -> anyhow::Result<()> {
        if self.file.exists() && !self.part().exists() && !self.is_whole() {
            say!("{}: records of it are missing or broken; they are made again", shown(&self.file));
            fs::rename(&self.file, self.part())
                .with_context(|| format!("cannot rename {}", shown(&self.file)))?;
        }
        Ok(())
    }

    /// Marks the boot to be run again. Its present records stay until the new ones are complete.
    pub fn renew(&self) -> anyhow::Result<()> {
        let part = self.part();
        File::create(&part).map(|_| ()).with_context(|| format!("cannot make {}", shown(&part)))
    }

    /// Its records so far.
    pub fn records(&self) -> anyhow::Result<Vec<u8>> {
        for file in [self.file.clone(), self.part()] {
            match read_file(&file, RESULTS_MAX) {
                Ok(mut bytes) => {
                    if !bytes.is_empty() && !bytes.ends_with(b"\n") {
                        bytes.push(b'\n');
                    }
                    return Ok(bytes);
                }
                Err(ReadError::Missing(_)) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Vec::new())
    }

    /// Opens the file for its records while it runs: empty, or with the present records if `go_on`.
    pub fn open(&self, go_on: bool) -> anyhow::Result<File> {
        let part = self.part();
        let mut options = OpenOptions::new();
        // Opening a FIFO would wait for a reader.
        options.create(true).custom_flags(libc::O_NONBLOCK);
        if go_on {
            options.append(true);
        } else {
            options.write(true).truncate(true);
        }
        let mut file =
            options.open(&part).with_context(|| format!("cannot open {}", shown(&part)))?;
        if go_on {
            end_cut_line(&part, &mut file)?;
        }
        Ok(file)
    }

    /// The plan without the runs that already have records.
    pub fn remaining(&self) -> Plan {
        let have = read_files(&[self.part()]).unwrap_or_default();
        let made: Vec<u32> = have.streams.iter().flat_map(|s| &s.runs).map(|r| r.run.id).collect();
        let mut plan = self.plan.clone();
        plan.runs.retain(|r| !made.contains(&r.id));
        plan
    }

    /// Marks `file` as complete. It replaces older records, also those of other code.
    pub fn complete(&self, file: &File) -> anyhow::Result<()> {
        let part = self.part();
        file.sync_all().with_context(|| format!("cannot write {}", shown(&part)))?;
        if let Some(one) = as_one(&read_file(&part, RESULTS_MAX)?) {
            write_atomic(&part, &one)?;
        }
        fs::rename(&part, &self.file).with_context(|| format!("cannot rename {}", shown(&part)))?;
        self.remove_others()
    }

    fn remove_others(&self) -> anyhow::Result<()> {
        let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
        let own = name(&self.file).unwrap_or_default();
        let (Some(dir), Some((any_code, _))) = (self.file.parent(), own.rsplit_once('-')) else {
            return Ok(());
        };
        let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", shown(dir)))?;
        for path in entries.flatten().map(|e| e.path()).filter(|path| path.is_file()) {
            let other = name(&path).unwrap_or_default();
            if other != own && other.starts_with(any_code) {
                fs::remove_file(&path)
                    .with_context(|| format!("cannot remove {}", shown(&path)))?;
            }
        }
        Ok(())
    }
}

/// The records of a continued boot in the form of an uninterrupted one: one Begin, one End, and no
/// incomplete or broken records. Records before the first Begin are dropped, because their origin is
/// unknown. `None` if nothing has to change, or if the parts are from different machines or code.
fn as_one(bytes: &[u8]) -> Option<Vec<u8>> {
    let (mut begin, mut end, mut out) = (None, None, Vec::new());
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    for line in lines {
        let kept = match Record::from_json(line) {
            Err(_) => continue,
            Ok(Record::Begin(b)) => match &begin {
                None => {
                    begin = Some(b);
                    true
                }
                Some(first) if *first == b => false,
                Some(_) => return None,
            },
            Ok(Record::End { .. }) => {
                end = Some(line);
                false
            }
            Ok(_) => begin.is_some(),
        };
        if kept {
            out.extend(line);
        }
    }
    out.extend(end?);
    (out != bytes).then_some(out)
}

/// Ends a record that was cut off, so that it does not run into the next one.
fn end_cut_line(path: &Path, file: &mut File) -> anyhow::Result<()> {
    let text = read_file(path, RESULTS_MAX)?;
    if !text.is_empty() && !text.ends_with(b"\n") {
        file.write_all(b"\n").with_context(|| format!("cannot write {}", shown(path)))?;
    }
    Ok(())
}

/// Appends a record.
pub fn write_record(file: &mut File, record: &Record) -> anyhow::Result<()> {
    let line = record.to_json() + "\n";
    Ok(file.write_all(line.as_bytes())?)
}
