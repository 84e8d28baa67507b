// SPDX-License-Identifier: MIT OR Apache-2.0
//! The boots of a bench and the files they leave: `NAME.jsonl` holds a boot's records once its End
//! is among them, `NAME.jsonl.part` while it is made. NAME says machine, kernel, plan and the code
//! that ran, so that --resume takes nothing for made that other code made.

use anyhow::Context;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use unspin_report::read_files;
use unspin_scenario::plan::Plan;
use unspin_scenario::result::{Record, Shard, World};

/// Digits of a SHA-256 in a name.
const PLAN_DIGITS: usize = 12;
const IMAGE_DIGITS: usize = 8;

/// One boot to make: a share of a plan on one kernel.
pub struct Boot {
    pub plan: Plan,
    pub kernel: String,
    /// For people: scenario, machine, kernel and which share.
    pub title: String,
    /// Share of the whole plan it is of, where that was shared out.
    pub shard: Option<Shard>,
    /// World it is, where values that the scenario does not know were drawn.
    pub world: Option<World>,
    /// Why there can be no such world: none of its runs is made.
    pub refusal: Option<String>,
    /// SHA-256 of the code that runs, in hex.
    pub image: String,
    /// Records, complete.
    pub file: PathBuf,
    /// Files of the machine's own.
    pub dir: PathBuf,
}

impl Boot {
    /// Of `plan` on a machine's `kernel` with the code whose hash is `image`; its files go to `dir`.
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

    /// All its records are there, and it is not being made again.
    pub fn is_complete(&self) -> bool {
        self.file.is_file() && !self.part().is_file()
    }

    /// It is to be made again. Until it is, the records there are stay.
    pub fn renew(&self) -> anyhow::Result<()> {
        let part = self.part();
        File::create(&part).map(|_| ()).with_context(|| format!("cannot make {}", part.display()))
    }

    /// Its records, as far as there are any.
    pub fn records(&self) -> anyhow::Result<Vec<u8>> {
        for file in [self.file.clone(), self.part()] {
            match fs::read(&file) {
                Ok(mut bytes) => {
                    if !bytes.is_empty() && !bytes.ends_with(b"\n") {
                        bytes.push(b'\n');
                    }
                    return Ok(bytes);
                }
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e).with_context(|| format!("cannot read {}", file.display())),
            }
        }
        Ok(Vec::new())
    }

    /// The file for its records while it is made: empty, or `go_on` after those that are there.
    pub fn open(&self, go_on: bool) -> anyhow::Result<File> {
        let part = self.part();
        let mut options = OpenOptions::new();
        options.create(true);
        if go_on {
            options.append(true);
        } else {
            options.write(true).truncate(true);
        }
        let mut file =
            options.open(&part).with_context(|| format!("cannot open {}", part.display()))?;
        if go_on {
            end_cut_line(&part, &mut file)?;
        }
        Ok(file)
    }

    /// The plan without the runs whose records are there.
    pub fn remaining(&self) -> Plan {
        let have = read_files(&[self.part()]).unwrap_or_default();
        let made: Vec<u32> = have.streams.iter().flat_map(|s| &s.runs).map(|r| r.run.id).collect();
        let mut plan = self.plan.clone();
        plan.runs.retain(|r| !made.contains(&r.id));
        plan
    }

    /// All records were written to `file`: they replace those made before, by whatever code.
    pub fn complete(&self, file: &File) -> anyhow::Result<()> {
        let part = self.part();
        file.sync_all().with_context(|| format!("cannot write {}", part.display()))?;
        fs::rename(&part, &self.file)
            .with_context(|| format!("cannot rename {}", part.display()))?;
        self.remove_others()
    }

    fn remove_others(&self) -> anyhow::Result<()> {
        let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
        let own = name(&self.file).unwrap_or_default();
        let (Some(dir), Some((any_code, _))) = (self.file.parent(), own.rsplit_once('-')) else {
            return Ok(());
        };
        let entries =
            fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
        for path in entries.flatten().map(|e| e.path()).filter(|path| path.is_file()) {
            let other = name(&path).unwrap_or_default();
            if other != own && other.starts_with(any_code) {
                fs::remove_file(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// A record that was cut off must not run into the next.
fn end_cut_line(path: &Path, file: &mut File) -> anyhow::Result<()> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !text.is_empty() && !text.ends_with(b"\n") {
        file.write_all(b"\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Adds a record.
pub fn write_record(file: &mut File, record: &Record) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    Ok(file.write_all(&line)?)
}
