// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs one boot of an emulated computer, from its start to its last record.

use crate::channel::Decoder;
use crate::emulator::{self, Computer, Running};
use crate::error::{io, LabError, Result};
use crate::image::Payload;
use crate::kernel::Kernel;
use crate::program::Program;
use crate::silence::{Patience, Silence};
use crate::tool;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use unspin_scenario::result::Record;

/// What to boot, and how to watch it.
#[derive(Debug, Clone, Copy)]
pub struct Boot<'a> {
    pub kernel: &'a Kernel,
    pub computer: &'a Computer,
    pub payload: &'a Payload,
    /// Kernel parameters beyond those every boot has.
    pub cmdline: &'a str,
    pub patience: Patience,
    /// Once set, the boot is ended.
    pub stop: &'a AtomicBool,
}

impl<'a> Boot<'a> {
    /// With no further kernel parameters, and the usual patience.
    pub fn new(
        kernel: &'a Kernel,
        computer: &'a Computer,
        payload: &'a Payload,
        stop: &'a AtomicBool,
    ) -> Self {
        Boot { kernel, computer, payload, cmdline: "", patience: Patience::default(), stop }
    }
}

/// Boot and pass every record on until the last one (`End`). The directory keeps the console, the
/// emulator's log and configuration; the boot medium is removed.
pub fn watch(
    boot: &Boot,
    program: &Program,
    dir: &Path,
    sink: &mut dyn FnMut(Record),
) -> Result<()> {
    let Boot { computer, kernel, payload, cmdline, stop, .. } = *boot;
    let mut running = emulator::start(computer, program, kernel, payload, cmdline, dir, stop)?;
    let outcome = listen(&mut running, dir, boot, sink);
    running.kill();
    for name in ["boot.iso", "initrd.img"] {
        let _ = fs::remove_file(dir.join(name));
    }
    outcome
}

fn listen(
    running: &mut Running,
    dir: &Path,
    boot: &Boot,
    sink: &mut dyn FnMut(Record),
) -> Result<()> {
    let (sender, receiver) = mpsc::channel::<Vec<u8>>();
    let mut stdout = running.child.stdout.take().expect("the emulator's stdout is a pipe");
    let raw_path = dir.join("records.raw");
    let mut raw = fs::File::create(&raw_path).map_err(io(&raw_path))?;
    std::thread::spawn(move || {
        let mut buffer = [0u8; 65536];
        while let Ok(count) = stdout.read(&mut buffer) {
            if count == 0 || sender.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    let mut decoder = Decoder::default();
    let mut last = String::from("power-on");
    let mut silence = Silence::of(running.child.id(), &dir.join("console.txt"));
    let mut limit = boot.patience.boot;
    let archive: PathBuf = dir.to_path_buf();
    let console = || {
        let console = tool::tail(&archive.join("console.txt"), 10);
        if console.is_empty() {
            return format!("    (nothing)\n{}", tool::tail(&archive.join("emulator.err"), 5));
        }
        console
    };
    loop {
        if boot.stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        match receiver.recv_timeout(Duration::from_millis(200)) {
            Ok(bytes) => {
                std::io::Write::write_all(&mut raw, &bytes).map_err(io(&raw_path))?;
                for record in decoder.feed(&bytes) {
                    let record = record
                        .map_err(|detail| LabError::Channel { detail, archive: archive.clone() })?;
                    silence.end();
                    limit = boot.patience.record;
                    last = describe(&record);
                    let ended = matches!(record, Record::End { .. });
                    sink(record);
                    if ended {
                        return Ok(());
                    }
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                // An emulator that cannot write its console or log only reports that it has ended.
                if tool::is_full(&archive) {
                    return Err(LabError::NoSpace { path: archive });
                }
                return Err(LabError::Died { last, console: console(), archive });
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(silent) = silence.look(limit, boot.patience.wall) {
            return Err(LabError::Hang {
                after_s: silent.real.as_secs(),
                cpu_s: silent.cpu.as_secs(),
                last,
                console: console(),
                archive,
            });
        }
    }
}

fn describe(record: &Record) -> String {
    match record {
        Record::Begin(_) => "the agent's start".into(),
        Record::Run(result) => format!("the end of run {}", result.run.id),
        Record::Progress(progress) => {
            format!("the start of run {} ({})", progress.id, progress.text)
        }
        Record::Log { text } => format!("the log line {text:?}"),
        Record::Failed { id, .. } => format!("the failure of run {id}"),
        Record::End { .. } => "the end".into(),
    }
}
