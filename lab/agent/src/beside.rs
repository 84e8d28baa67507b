// SPDX-License-Identifier: MIT OR Apache-2.0
//! A helper program that does what needs libbpf. It prints `ready` when it has started, answers each
//! line with a line, and ends when its standard input is closed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::Error;

/// Its first line of output.
const READY: &str = "ready";

/// The running program. Dropping this ends it. Errors contain its last output.
pub(crate) struct Beside {
    /// The package that builds it.
    package: &'static str,
    child: Child,
    words: BufReader<ChildStdout>,
}

impl Beside {
    pub(crate) fn start(package: &'static str, arguments: &[String]) -> Result<Beside, String> {
        let this = std::env::current_exe().map_err(|e| format!("where this program is: {e}"))?;
        // In a build both are in one directory. An installed command is in the PATH.
        let beside = this.with_file_name(package);
        let mut command = Command::new(if beside.is_file() { beside } else { package.into() });
        command.args(arguments);
        Beside::of(package, command)
    }

    pub(crate) fn of(package: &'static str, mut command: Command) -> Result<Beside, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => format!(
                "{program} is not there; make build makes it (cargo build --release -p {package})"
            ),
            _ => format!("{program}: {e}"),
        })?;
        let words = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut beside = Beside { package, child, words };
        match beside.answer()?.as_str() {
            READY => Ok(beside),
            _ => Err(beside.why()),
        }
    }

    /// Sends a line; [`Beside::answer`] waits for the reply.
    pub(crate) fn tell(&mut self, line: &str) -> Result<(), String> {
        let told = match &mut self.child.stdin {
            Some(stdin) => writeln!(stdin, "{line}").and_then(|()| stdin.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        told.map_err(|_| self.why())
    }

    /// Its next line.
    pub(crate) fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.words.read_line(&mut line) {
            Ok(1..) => Ok(line.trim_end().to_string()),
            _ => Err(self.why()),
        }
    }

    /// Ends the program and returns the rest of its output. An error if it failed.
    pub(crate) fn end(mut self) -> Result<String, String> {
        drop(self.child.stdin.take());
        let mut said = String::new();
        let read = self.words.read_to_string(&mut said);
        match (read, self.child.wait()) {
            (Ok(_), Ok(status)) if status.success() => Ok(said.trim_end().to_string()),
            _ => Err(self.why()),
        }
    }

    /// Its last output, after it has ended.
    fn why(&mut self) -> String {
        drop(self.child.stdin.take());
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut text);
        }
        let status = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
        match text.trim_end() {
            "" => format!("{} said nothing and ended: {status}", self.package),
            text => text.to_string(),
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A helper that an arm adds to the host, and the error that names it. Dropping this ends it.
pub(crate) struct Helper {
    beside: Beside,
    failed: fn(String) -> Error,
}

impl Helper {
    /// Starts it with these arguments; `None` if the arm does not ask for it.
    pub(crate) fn start(
        package: &'static str,
        arguments: Option<Vec<String>>,
        failed: fn(String) -> Error,
    ) -> Result<Option<Helper>, Error> {
        let Some(arguments) = arguments else { return Ok(None) };
        let beside = Beside::start(package, &arguments).map_err(failed)?;
        Ok(Some(Helper { beside, failed }))
    }

    /// Ends it, and returns its last output. Fails if it had ended before.
    pub(crate) fn end(self) -> Result<String, Error> {
        self.beside.end().map_err(self.failed)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn shell(script: &str) -> Result<Beside, String> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Beside::of("unspin-scx", command)
    }

    #[test]
    fn it_runs_until_it_is_told_to_end() {
        assert_eq!(shell("echo ready; cat; echo did much").unwrap().end().unwrap(), "did much");
        drop(shell("echo ready; cat").unwrap());
    }

    #[test]
    fn each_line_has_an_answer() {
        let mut echo = shell("echo ready; while read -r line; do echo \"<$line>\"; done").unwrap();
        for line in ["one", "two"] {
            echo.tell(line).unwrap();
            assert_eq!(echo.answer().unwrap(), format!("<{line}>"));
        }
        assert_eq!(echo.end().unwrap(), "");
    }

    #[test]
    fn what_it_says_of_a_failure_is_said() {
        let refused = shell("echo 'no sched_ext here' >&2; exit 1").err().unwrap();
        assert!(refused.contains("no sched_ext here"), "{refused}");
        let silent = shell("exit 3").err().unwrap();
        assert!(silent.contains("exit status: 3"), "{silent}");
        let ejected = shell("echo ready; cat; echo 'a task stalled' >&2; exit 1").unwrap().end();
        assert!(ejected.unwrap_err().contains("a task stalled"));
        let mut gone = shell("echo ready; read -r line; echo 'no such VM' >&2; exit 1").unwrap();
        gone.tell("a window").unwrap();
        assert!(gone.answer().unwrap_err().contains("no such VM"));
        let missing = Beside::of("unspin-scx", Command::new("/nowhere/unspin-scx")).err().unwrap();
        assert!(
            missing.contains("/nowhere/unspin-scx") && missing.contains("-p unspin-scx"),
            "{missing}"
        );
    }
}
