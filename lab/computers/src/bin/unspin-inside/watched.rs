// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asks unspin-watch, which reads from a pipe, to watch this process.

use std::fs;
use std::io::Write;
use std::time::Duration;
use unspin_vmm::process::now_ns;

/// The pipe to the watcher; if not set, there is no watcher.
const PIPE: &str = "UNSPIN_WATCH";
/// Time within which it has read the request.
const SOON: Duration = Duration::from_millis(100);

/// Asks for a watch of all threads of this process, for `time` and as long as it takes to begin.
pub fn begin(time: Duration) -> Result<(), String> {
    let Some(pipe) = std::env::var_os(PIPE) else { return Ok(()) };
    let threads = fs::read_dir("/proc/self/task").map_err(|e| e.to_string())?;
    let tids: Vec<String> =
        threads.flatten().map(|thread| thread.file_name().to_string_lossy().into_owned()).collect();
    let (begin, length) = (now_ns(), (time + SOON).as_nanos());
    let end = u128::from(begin) + length;
    let line = format!("{begin} {end} {}:{}\n", std::process::id(), tids.join(","));
    let mut to = fs::OpenOptions::new().write(true).open(&pipe).map_err(|e| e.to_string())?;
    to.write_all(line.as_bytes()).map_err(|e| e.to_string())?;
    std::thread::sleep(SOON);
    Ok(())
}
