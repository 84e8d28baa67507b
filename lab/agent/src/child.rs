// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's view of a VM's process.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use unspin_vmm::process::{
    now_ns, timespec, Command, Moments, Reply, Sample, Schedule, STOP_TIMEOUT,
};
use unspin_vmm::{VmConfig, VM_PROCESS_COMMAND};

use crate::{interrupt, Error};

/// Limit of the time in which a VM starts; many at once share the CPUs.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit of the time from the end of the measuring time to the counts.
const SAMPLES_TIMEOUT: Duration = Duration::from_secs(20);
/// Longer than the limit that the VMM gives its vCPUs.
const STOPPED_TIMEOUT: Duration = Duration::from_secs(STOP_TIMEOUT.as_secs() + 5);

/// A running VM process. Dropping it kills the process.
pub(crate) struct VmProcess {
    vm: u32,
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    received: Vec<u8>,
    /// Threads of its vCPUs, known once it is ready.
    pub(crate) tids: Vec<i32>,
}

impl VmProcess {
    /// Starts VM number `vm`; [`VmProcess::wait_ready`] waits for its vCPU threads.
    pub(crate) fn spawn(vm: u32, config: &VmConfig) -> Result<VmProcess, Error> {
        let executable = "/proc/self/exe";
        let child = std::process::Command::new(executable)
            .arg(VM_PROCESS_COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The terminal's ^C does not reach it: the agent ends its VMs.
            .process_group(0)
            .spawn()
            .map_err(|e| Error::io(executable, e))?;
        let mut process = VmProcess::of(vm, child);
        process.send(&Command::Config(config.clone()))?;
        Ok(process)
    }

    /// The process of VM number `vm`, whose standard input and output are pipes.
    fn of(vm: u32, mut child: Child) -> VmProcess {
        let stdin = child.stdin.take().expect("piped");
        let stdout = child.stdout.take().expect("piped");
        VmProcess { vm, child, stdin, stdout, received: Vec::new(), tids: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn wait_ready(&mut self) -> Result<(), Error> {
        match self.reply("start", READY_TIMEOUT)? {
            Reply::Ready { tids } => {
                self.tids = tids;
                Ok(())
            }
            other => Err(self.unexpected(&other)),
        }
    }

    pub(crate) fn schedule(&mut self, schedule: Schedule) -> Result<(), Error> {
        self.send(&Command::Run(schedule))
    }

    /// Waits until it has done some work while all VMs run.
    pub(crate) fn works(&mut self, timeout: Duration) -> Result<(), Error> {
        match self.reply("do a unit of work", timeout)? {
            Reply::Works => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Sends the times at which to read its counts; [`VmProcess::samples`] waits for them.
    pub(crate) fn sample_at(&mut self, at_ns: [u64; 2]) -> Result<(), Error> {
        self.send(&Command::Sample(Moments { at_ns }))
    }

    pub(crate) fn samples(&mut self) -> Result<[Sample; 2], Error> {
        match self.reply("report its counts", SAMPLES_TIMEOUT)? {
            Reply::Samples(samples) => samples.try_into().map_err(|_| Error::Vm {
                vm: self.vm,
                error: "reported other than two samples".into(),
            }),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Tells the VM to end; [`VmProcess::stopped`] waits for it.
    pub(crate) fn stop(&mut self) -> Result<(), Error> {
        self.send(&Command::Stop)
    }

    /// The fault that the VM found at its end, if any.
    pub(crate) fn stopped(&mut self) -> Result<Option<String>, Error> {
        match self.reply("stop", STOPPED_TIMEOUT) {
            Ok(Reply::Stopped) => {
                // The process only has to exit now.
                let _ = self.child.wait();
                Ok(None)
            }
            Ok(other) => Err(self.unexpected(&other)),
            Err(Error::Vm { error, .. }) => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    /// Readable if the VM has sent something. Before the end of the measuring time that means a
    /// failure.
    pub(crate) fn fd(&self) -> i32 {
        self.stdout.as_raw_fd()
    }

    fn send(&mut self, command: &Command) -> Result<(), Error> {
        let mut line = serde_json::to_string(command).expect("commands are plain data");
        line.push('\n');
        match self.stdin.write_all(line.as_bytes()) {
            Ok(()) => Ok(()),
            // Its last output says more than the broken pipe.
            Err(e) => match self.reply("start", READY_TIMEOUT) {
                Err(error) => Err(error),
                Ok(_) => Err(Error::Vm { vm: self.vm, error: e.to_string() }),
            },
        }
    }

    /// The next line. A failure reported by the VM is an error.
    fn reply(&mut self, what: &'static str, timeout: Duration) -> Result<Reply, Error> {
        let deadline = now_ns() + timeout.as_nanos() as u64;
        loop {
            if let Some(end) = self.received.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                let reply = serde_json::from_slice(&line).map_err(|e| Error::Vm {
                    vm: self.vm,
                    error: format!("unreadable answer: {e}"),
                })?;
                return match reply {
                    Reply::Failed(error) => Err(Error::Vm { vm: self.vm, error }),
                    reply => Ok(reply),
                };
            }
            if !readable_until(&[self.fd()], deadline)? {
                return Err(Error::Timeout { vm: self.vm, what, seconds: timeout.as_secs() });
            }
            let mut chunk = [0; 16 << 10];
            match self.stdout.read(&mut chunk) {
                Ok(0) => return Err(self.gone()),
                Ok(length) => self.received.extend_from_slice(&chunk[..length]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::Vm { vm: self.vm, error: e.to_string() }),
            }
        }
    }

    fn gone(&mut self) -> Error {
        let error = match self.child.wait() {
            Ok(status) => format!("its process ended unexpectedly: {status}"),
            Err(error) => error.to_string(),
        };
        Error::Vm { vm: self.vm, error }
    }

    fn unexpected(&self, reply: &Reply) -> Error {
        Error::Vm { vm: self.vm, error: format!("unexpected answer {reply:?}") }
    }
}

impl Drop for VmProcess {
    fn drop(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until one of `fds` is readable (true) or CLOCK_MONOTONIC is `deadline_ns` (false).
pub(crate) fn readable_until(fds: &[i32], deadline_ns: u64) -> Result<bool, Error> {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    loop {
        interrupt::check()?;
        let Some(left) = deadline_ns.checked_sub(now_ns()) else { return Ok(false) };
        let timeout = timespec(left);
        // SAFETY: the array and the timeout outlive the call.
        let ready = unsafe {
            libc::ppoll(
                polled.as_mut_ptr(),
                polled.len() as libc::nfds_t,
                &timeout,
                std::ptr::null(),
            )
        };
        if ready > 0 {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that prints these words, and then waits until its input ends.
    fn vm(words: &str) -> VmProcess {
        let child = std::process::Command::new("/bin/sh")
            .args(["-c", &format!("echo '{words}'; cat > /dev/null")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        VmProcess::of(1, child.unwrap())
    }

    #[test]
    fn a_vm_that_works_says_so_and_one_that_never_does_is_named() {
        let long = Duration::from_secs(60);
        vm("\"works\"").works(long).unwrap();
        let failed = vm("{\"failed\":\"a fault\"}").works(long).unwrap_err().to_string();
        assert_eq!(failed, "VM 1: a fault");
        let other = vm("\"stopped\"").works(long).unwrap_err().to_string();
        assert!(other.contains("unexpected answer"), "{other}");
        let mut silent = vm("{\"ready\":{\"tids\":[7]}}");
        silent.wait_ready().unwrap();
        let never = silent.works(Duration::ZERO).unwrap_err().to_string();
        assert_eq!(never, "VM 1 did not do a unit of work within 0 s and was killed");
    }
}
