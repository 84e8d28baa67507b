// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads of SCHED_EXT: a shell that is one, and VMs that start threads or processes while they run.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use unspin_host::policy;

/// How often the VM starts a thread, or looks whether it is to start a process.
const EVERY: Duration = Duration::from_millis(200);
/// The thread is there for longer than a look of `unspin schedule`, so that some are seen and some are not.
const STAYS: Duration = Duration::from_secs(3);

/// Becomes a shell with SCHED_EXT that runs a line.
pub fn shell(line: &str) -> Result<String, String> {
    policy::set(std::process::id(), policy::EXT).map_err(|e| format!("SCHED_EXT: {e}"))?;
    Err(Command::new("sh").arg("-c").arg(line).exec().to_string())
}

/// Gives a thread SCHED_BATCH.
pub fn be_batch(thread: u32) -> Result<String, String> {
    let done = policy::set(thread, libc::SCHED_BATCH).map(|()| String::new());
    done.map_err(|e| format!("SCHED_BATCH: {e}"))
}

/// Starts a process, and a process of that, whenever a file is there, which it removes.
pub fn start_processes(begin: &str) {
    let begin = PathBuf::from(begin);
    std::thread::spawn(move || loop {
        if std::fs::remove_file(&begin).is_ok() {
            // It waits for the process.
            std::thread::spawn(|| Command::new("sh").args(["-c", "sleep 1000 & wait"]).status());
        }
        std::thread::sleep(EVERY);
    });
}

/// Starts threads that sleep, one after the other, until the process ends.
pub fn start_threads() {
    std::thread::spawn(|| loop {
        std::thread::spawn(|| std::thread::sleep(STAYS));
        std::thread::sleep(EVERY);
    });
}
