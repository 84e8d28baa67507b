// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--work COMMAND`: a command reports the progress of the VM's work.

use anyhow::{bail, Context};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

pub const LIMIT: Duration = Duration::from_secs(5);

const OUTPUT_BYTES_MAX: u64 = 4096;

/// Its output must be closed within this time after its end.
const CLOSES_WITHIN: Duration = Duration::from_secs(1);

const LOOK: Duration = Duration::from_millis(2);

/// An amount of work at a point in time.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub number: f64,
    pub at: Instant,
}

impl Done {
    /// Work per second since `before`; an error if the number fell.
    pub fn rate_since(&self, before: &Done) -> anyhow::Result<f64> {
        if self.number < before.number {
            bail!(
                "the number of --work fell from {} to {}: it must grow with the work",
                before.number,
                self.number
            );
        }
        Ok((self.number - before.number) / (self.at - before.at).as_secs_f64())
    }
}

/// Runs the command in a shell, and parses the number that it prints.
pub fn ask(command: &str, stop: &AtomicBool) -> anyhow::Result<Done> {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = shell.spawn().context("cannot run /bin/sh for --work")?;
    let output = child.stdout.take().map(read);
    let ended = wait(&mut child, stop);
    // A process that the command left running would keep the output open. SAFETY: the group is that of
    // our child, which was not waited for unless it ended just now.
    unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
    let at = Instant::now();
    let _ = child.wait();
    let ended = ended?;
    let text = match output.map(|output| output.recv_timeout(CLOSES_WITHIN)) {
        _ if ended.is_none() => String::new(),
        Some(Err(_)) => bail!(
            "--work {command:?} ended, and a process that it started keeps its output open: close \
             it there (>&-)"
        ),
        Some(Ok(bytes)) if bytes.len() as u64 > OUTPUT_BYTES_MAX => {
            bail!(
                "--work {command:?} printed more than {OUTPUT_BYTES_MAX} bytes, which is not a \
                   number"
            )
        }
        Some(Ok(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        None => String::new(),
    };
    match ended {
        None => bail!("--work {command:?} did not end within {} s", LIMIT.as_secs()),
        Some(status) if !status.success() => bail!("--work {command:?} failed: {status}"),
        Some(_) => {}
    }
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let number = number
        .with_context(|| format!("--work {command:?} printed {text:?}, which is not a number"))?;
    Ok(Done { number, at })
}

/// Reads the output of a command, up to 1 byte more than allowed. Nothing reads further output.
fn read(out: ChildStdout) -> Receiver<Vec<u8>> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = out.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut bytes);
        let _ = tell.send(bytes);
    });
    told
}

fn wait(child: &mut Child, stop: &AtomicBool) -> anyhow::Result<Option<std::process::ExitStatus>> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        if let Some(status) = child.try_wait().context("cannot wait for --work")? {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(command: &str) -> Result<f64, String> {
        let done = ask(command, &AtomicBool::new(false));
        done.map(|done| done.number).map_err(|e| e.to_string())
    }

    #[test]
    fn a_command_says_a_number_or_what_is_wrong() {
        assert_eq!(number("echo 12.5"), Ok(12.5));
        assert_eq!(number("sleep 60 & echo 3"), Ok(3.0), "what it leaves running does not count");
        for (command, words) in [
            ("exit 3", "failed: exit status: 3"),
            ("echo many", "printed \"many\\n\", which is not a number"),
            ("echo inf", "is not a number"),
            ("true", "printed \"\""),
            ("cat /dev/zero | tr '\\0' 7", "printed more than 4096 bytes"),
            ("setsid sh -c 'sleep 3 &'; echo 3", "keeps its output open"),
        ] {
            assert!(number(command).unwrap_err().contains(words), "{command}");
        }
        let stopped = ask("sleep 60", &AtomicBool::new(true)).unwrap_err();
        assert_eq!(stopped.to_string(), "interrupted");
    }

    #[test]
    fn work_is_per_second_and_does_not_fall() {
        let at = Instant::now();
        let before = Done { number: 10.0, at };
        let after = |number| Done { number, at: at + Duration::from_secs(2) };
        assert_eq!(after(16.0).rate_since(&before).unwrap(), 3.0);
        assert!(after(9.0)
            .rate_since(&before)
            .unwrap_err()
            .to_string()
            .contains("fell from 10 to 9"));
    }
}
