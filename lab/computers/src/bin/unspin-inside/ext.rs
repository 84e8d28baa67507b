// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads of SCHED_EXT: a shell that is one, and VMs that start threads or processes while they run.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use unspin_host::policy;

/// How often the VM starts a process.
const PROCESSES_EVERY: Duration = Duration::from_secs(1);
/// How often it starts a thread.
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

/// Starts processes that are there until a file is, and processes of those, one after the other.
pub fn start_processes(until: &str) {
    let line = format!("until [ -e {until} ]; do sleep 1; done");
    std::thread::spawn(move || loop {
        let line = line.clone();
        // It waits for the process.
        std::thread::spawn(move || Command::new("sh").arg("-c").arg(line).status());
        std::thread::sleep(PROCESSES_EVERY);
    });
}

/// Starts threads that sleep, one after the other, until the process ends.
pub fn start_threads() {
    std::thread::spawn(|| loop {
        std::thread::spawn(|| std::thread::sleep(STAYS));
        std::thread::sleep(EVERY);
    });
}
