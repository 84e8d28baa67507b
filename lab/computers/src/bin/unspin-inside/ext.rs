// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads of SCHED_EXT: a shell that is one, and VMs that start threads or processes while they run, or have a worker
//! of vhost.

use crate::machine::pin;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use unspin_host::policy;

/// How often the VM starts a thread, or looks whether it is to start a process.
const EVERY: Duration = Duration::from_millis(200);
/// The thread is there for longer than a look of `unspin schedule`, so that some are seen and some are not.
const STAYS: Duration = Duration::from_secs(3);

const VHOST: &str = "/dev/vhost-vsock";
/// Of linux/vhost.h: from Linux 6.4 on, the first starts a worker, a thread of the process that calls it; after the
/// second, the kernel waits until the worker has done all of its work.
const VHOST_SET_OWNER: libc::Ioctl = 0xaf01;
const VHOST_SET_LOG_FD: libc::Ioctl = 0x4004_af07;

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

/// Makes this process the owner of a device of vhost, and starts a thread on CPU 0 that has the device's worker run again
/// and again.
pub fn start_vhost() -> Result<(), String> {
    let device = OpenOptions::new().read(true).write(true).open(VHOST);
    let device = device.map_err(|e| format!("{VHOST}: {e}"))?;
    call(&device, VHOST_SET_OWNER).map_err(|e| format!("VHOST_SET_OWNER: {e}"))?;
    std::thread::spawn(move || -> Result<(), String> {
        pin(0)?;
        loop {
            call(&device, VHOST_SET_LOG_FD).map_err(|e| format!("VHOST_SET_LOG_FD: {e}"))?;
        }
    });
    Ok(())
}

fn call(device: &File, request: libc::Ioctl) -> io::Result<()> {
    let no_fd: libc::c_int = -1;
    // SAFETY: the descriptor is open, and either request reads at most this number.
    match unsafe { libc::ioctl(device.as_raw_fd(), request, &raw const no_fd) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
