// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of host settings that are restored in every case.

use crate::exit::Cannot;
use crate::host::is_root;
use anyhow::{bail, Context};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use unspin_host::journal::{Back, Change, Error, Hands, Journal, Target};
use unspin_host::{Host, Starters};

/// Sent to the guard while the command runs.
pub const GOES_ON: u8 = b'.';
/// Sent when the command ends without an error.
const DONE: u8 = b'd';

/// Why root cannot use the journal's file, if the kernel denies it.
const DENIED: &str = "root is denied a file: remove its attributes (chattr -i -a), or allow it to unspin in SELinux or \
                      AppArmor";

/// A command without a message for this long is considered hung.
pub const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The journal of this host, locked.
pub struct Undo {
    journal: Journal,
    host: Host,
    /// The changes that an earlier command had left, and what became of each, in words.
    pub left: Vec<String>,
}

impl Undo {
    /// Locks the journal. First restores what an earlier command left changed, and prints a line about
    /// it.
    pub fn open(path: &Path, proc: &Path) -> anyhow::Result<Undo> {
        let journal = Journal::open(path, proc).map_err(explain)?;
        let mut undo = Undo { journal, host: Host::at(proc), left: Vec::new() };
        let left: Vec<String> =
            undo.put_back()?.iter().filter_map(|(change, back)| told(change, back)).collect();
        if !left.is_empty() {
            say!("restored changes of an earlier unspin: {}", left.join("; "));
        }
        undo.left = left;
        Ok(undo)
    }

    /// Sets these values, and records each in the journal first.
    pub fn change(&mut self, wanted: &[(Target, String)]) -> anyhow::Result<()> {
        self.journal.change(&self.host, wanted).map_err(explain)
    }

    /// Sets each value if it still has the first of its two values. Otherwise returns one that differs, and
    /// its present value.
    pub fn exchange(
        &mut self,
        wanted: &[(Target, String, String)],
    ) -> anyhow::Result<Option<(Target, String)>> {
        self.journal.exchange(&self.host, wanted).map_err(explain)
    }

    /// Records values that targets have already, because a change of another target set them, too: target, the value
    /// that it would have otherwise, and the present one. Then as [`Undo::change`]: either all is recorded, or nothing
    /// is set. What is no longer there is left out.
    pub fn adopt(
        &mut self,
        had: &[(Target, String, String)],
        wanted: &[(Target, String)],
    ) -> anyhow::Result<()> {
        self.journal.adopt(&self.host, had, wanted).map_err(explain)
    }

    /// Restores all changes. Fails if one could not be restored.
    pub fn put_back(&mut self) -> anyhow::Result<Vec<(Change, Back)>> {
        let all = self.journal.put_back(&self.host).map_err(explain)?;
        match failure(&all) {
            Some(why) => bail!("{why}; try again: unspin diagnose --put-back"),
            None => Ok(all),
        }
    }

    /// Restores what can be of these threads. Fails if one could not be restored, or if it cannot be recorded that they
    /// were: it can be tried again.
    pub fn put_back_threads(&mut self, is_one: impl Fn(u32) -> bool) -> anyhow::Result<()> {
        let is_of = |target: &Target| target.thread().is_some_and(&is_one);
        let all = self.journal.put_back_those(&self.host, &is_of).map_err(explain)?;
        failure(&all).map_or(Ok(()), |why| Err(anyhow::Error::msg(why)))
    }

    /// The threads of a process from which others may have inherited what was changed.
    pub fn starters(&self, pid: u32) -> Starters<'_> {
        self.host.starters(self.journal.changes(), pid)
    }

    pub fn read(&self, target: &Target) -> anyhow::Result<String> {
        self.host.read(target).with_context(|| format!("cannot read {target}"))
    }
}

/// The first of these changes that could not be restored, and why, in words.
fn failure(all: &[(Change, Back)]) -> Option<String> {
    all.iter().find_map(|(change, back)| {
        let Back::Failed(e) = back else { return None };
        let Change { target, was, set, .. } = change;
        Some(format!("cannot restore {target} from {set:?} to {was:?}: {e}"))
    })
}

/// The result of a restored change, in words; `None` if the value had not changed.
pub fn told(change: &Change, back: &Back) -> Option<String> {
    let target = &change.target;
    match back {
        Back::Restored => Some(format!("{target} is {} again", change.was)),
        Back::Nearly(is) => {
            Some(format!("{target} is {is}: the kernel accepts only this part of {}", change.was))
        }
        Back::Theirs(is) => Some(format!("{target} stays {is}, set by another program")),
        Back::Gone => Some(format!("{target} is gone")),
        Back::AsBefore | Back::Failed(_) => None,
    }
}

fn explain(e: Error) -> anyhow::Error {
    explain_to(is_root(), e)
}

/// To root, or to another user.
fn explain_to(is_root: bool, e: Error) -> anyhow::Error {
    let only_root = "only root may change settings of this host: use sudo";
    let is_denied = |source: &io::Error| source.kind() == ErrorKind::PermissionDenied;
    match &e {
        Error::File { source, .. } if is_root && is_denied(source) => {
            anyhow::Error::from(e).context(DENIED)
        }
        Error::Io { source, .. } | Error::File { source, .. } if is_denied(source) => {
            let why = if is_root { "this kernel does not allow the change" } else { only_root };
            Cannot(format!("{e}: {why}")).into()
        }
        Error::Open { .. } if !is_root => Cannot(only_root.into()).into(),
        _ => e.into(),
    }
}

/// A process that restores the changes if this one is killed or hangs.
pub struct Guard(Option<Child>);

impl Guard {
    /// Starts the guard. From then on call [`Guard::go_on`] more often than every [`SILENCE_MAX`].
    pub fn start(journal: &Path, proc: &Path) -> anyhow::Result<Guard> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.arg("guard").arg("--journal").arg(journal).arg("--proc").arg(proc);
        command.arg("--silence-ms").arg(SILENCE_MAX.as_millis().to_string());
        command.arg("--of").arg(std::process::id().to_string());
        // Keep the terminal's signals from the guard.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Ok(Guard(Some(child.context("cannot start the guard process, which restores settings")?)))
    }

    /// Tells the guard that this process is alive; an error if the guard has ended and cannot restore.
    pub fn go_on(&mut self) -> anyhow::Result<()> {
        let ended = match self.0.as_mut().map(Child::try_wait) {
            Some(Ok(Some(status))) => status.to_string(),
            _ => match self.say(GOES_ON) {
                Err(e) => e.to_string(),
                Ok(()) => return Ok(()),
            },
        };
        bail!("the guard process, which restores settings, has ended: {ended}")
    }

    fn say(&mut self, word: u8) -> io::Result<()> {
        let pipe = self.0.as_mut().and_then(|child| child.stdin.as_mut());
        pipe.map_or(Ok(()), |pipe| pipe.write_all(&[word]))
    }

    /// Ends the guard after all changes are restored.
    pub fn done(mut self) {
        // If it has ended, the message is not needed.
        let _ = self.say(DONE);
        if let Some(mut child) = self.0.take() {
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_host::journal::JOURNAL;

    #[test]
    fn what_is_denied_is_named() {
        for code in [libc::EPERM, libc::EACCES] {
            let denied = || io::Error::from_raw_os_error(code);
            let of_journal = || Error::io("write", Path::new(JOURNAL))(denied());
            let of_thread = || Error::of("set", &Target::Policy { tid: 41 })(denied());
            let e = explain_to(true, of_journal());
            assert!(e.downcast_ref::<Error>().is_some_and(Error::is_of_journal), "{e:#}");
            for (e, words) in [
                (e, format!("in SELinux or AppArmor: cannot write {JOURNAL}: ")),
                (explain_to(false, of_journal()), format!("cannot write {JOURNAL}: only root")),
                (explain_to(true, of_thread()), "policy of thread 41: this kernel does not".into()),
                (explain_to(false, of_thread()), "policy of thread 41: only root".into()),
            ] {
                let text = format!("{e:#}");
                assert!(text.contains(&words), "{text}, without {words}");
            }
        }
    }
}
