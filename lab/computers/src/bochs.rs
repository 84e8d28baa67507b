// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the Bochs for boots: the lab's own, or Debian's if that is not available.

use crate::error::{LabError, Result};
use crate::go::Go;
use crate::own_emulator::OwnEmulator;
use crate::recipe::BOCHS;
use crate::vm_entry;
use std::path::Path;
use std::process::Command;

/// Environment variable that selects the emulator for timed runs.
const CHOICE: &str = "UNSPIN_EMULATOR";
const OWN: &str = "bochs";
const DEBIAN: &str = "debian-bochs";

/// A Bochs that can boot computers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bochs {
    /// Built by the lab.
    Own(OwnEmulator),
    /// Debian's, patched when it is started.
    Debian,
}

/// How to start a Bochs, and what it needs.
pub(crate) struct Started {
    pub command: Command,
    /// A line of the configuration that only this Bochs needs.
    pub display: &'static str,
    pub plugins: &'static str,
    /// Whether its debugger must be told to run.
    pub debugger: bool,
}

/// The request in the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// The lab's own, or Debian's if that is not available.
    Any,
    Own,
    Debian,
}

impl Wish {
    fn here() -> Result<Wish> {
        Wish::of(&std::env::var_os(CHOICE).unwrap_or_default().to_string_lossy())
    }

    fn of(name: &str) -> Result<Wish> {
        match name {
            "" => Ok(Wish::Any),
            OWN => Ok(Wish::Own),
            DEBIAN => Ok(Wish::Debian),
            _ => {
                Err(LabError::NoEmulator { name: name.into(), allowed: format!("{OWN}, {DEBIAN}") })
            }
        }
    }
}

impl Bochs {
    /// The Bochs to boot with, built if necessary. If it cannot be built, the reason is said,
    /// and Debian's is used if it is installed and the environment does not forbid it.
    pub(crate) fn make(lab: &Path, go: &mut Go) -> Result<Bochs> {
        let bochs = match Wish::here()? {
            Wish::Debian => Bochs::Debian,
            wish => or_debian(wish, OwnEmulator::make(&BOCHS, lab, go), go.say)?,
        };
        if bochs == Bochs::Debian {
            vm_entry::check_installed()?;
        }
        Ok(bochs)
    }

    /// The Bochs to boot with, of those that exist.
    pub(crate) fn find(lab: &Path) -> Result<Bochs> {
        match (Wish::here()?, OwnEmulator::find(&BOCHS, lab)) {
            (Wish::Any | Wish::Own, Some(own)) => Ok(Bochs::Own(own)),
            (Wish::Own, None) => Err(LabError::NoOwnBochs),
            (Wish::Any | Wish::Debian, _) => Ok(Bochs::Debian),
        }
    }

    /// A text that distinguishes its boots from those of another Bochs.
    pub(crate) fn mark(&self) -> &str {
        match self {
            Bochs::Own(own) => &own.build,
            Bochs::Debian => vm_entry::SOURCE,
        }
    }

    /// The name in provenances.
    pub fn name(&self) -> String {
        match self {
            Bochs::Own(own) => own.name(),
            Bochs::Debian => match vm_entry::installed_version() {
                Ok(version) => format!("Bochs {version} of Debian, mended"),
                Err(_) => "Bochs of Debian, mended".into(),
            },
        }
    }

    /// As it is to be started in `dir`.
    pub(crate) fn started_in(&self, dir: &Path) -> Result<Started> {
        match self {
            Bochs::Own(own) => {
                let mut command = Command::new(&own.program);
                command.current_dir(dir);
                Ok(Started { command, display: "nogui", plugins: "", debugger: false })
            }
            Bochs::Debian => {
                let vm_entry::Mended { mut command, version } = vm_entry::mended(dir)?;
                // Virtual time passes at the configured rate if CPUs run as under the debugger, which
                // is the only way in 2.7.
                if version != "2.7" {
                    command.arg("-debugger");
                }
                let display = "rfb, options=\"timeout=0\"";
                Ok(Started {
                    command,
                    display,
                    plugins: "plugin_ctrl: speaker=0\n",
                    debugger: true,
                })
            }
        }
    }
}

/// The result of the build, or Debian's Bochs after reporting the reason in one line.
fn or_debian(wish: Wish, made: Result<OwnEmulator>, say: &mut dyn FnMut(&str)) -> Result<Bochs> {
    match made {
        Ok(own) => Ok(Bochs::Own(own)),
        Err(error @ LabError::Interrupted) => Err(error),
        Err(error) if wish == Wish::Own => Err(error),
        Err(error) => {
            let why = error.to_string();
            let why = why.lines().next().unwrap_or_default();
            say(&format!("Debian's Bochs boots, at a third of the speed of the lab's own: {why}"));
            Ok(Bochs::Debian)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn what_is_asked_for_is_known_or_refused() {
        for (name, wish) in [("", Wish::Any), ("bochs", Wish::Own), ("debian-bochs", Wish::Debian)]
        {
            assert_eq!(Wish::of(name).unwrap(), wish);
        }
        let error = Wish::of("qemu").unwrap_err().to_string();
        assert!(error.contains("\"qemu\"") && error.contains("debian-bochs"), "{error}");
    }

    #[test]
    fn what_cannot_be_built_is_told_in_one_line_and_debians_boots() {
        let failed = || {
            Err(LabError::Step {
                what: "applying a patch".into(),
                status: "exit status: 1".into(),
                log: "/lab/build.log".into(),
                tail: "    1 out of 1 hunk FAILED\n".into(),
            })
        };
        let mut said = Vec::new();
        let found = or_debian(Wish::Any, failed(), &mut |text| said.push(text.to_string()));
        assert_eq!(found.unwrap(), Bochs::Debian);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("applying a patch failed") && !said[0].contains('\n'), "{said:?}");
        for error in [
            LabError::NoSpace { path: "/lab".into() },
            LabError::NoMirror,
            LabError::MissingTool { tool: "g++".into(), package: "g++".into() },
        ] {
            let found = or_debian(Wish::Any, Err(error), &mut |text| said.push(text.to_string()));
            assert_eq!(found.unwrap(), Bochs::Debian);
        }
        assert_eq!(said.len(), 4);
        let mut never = |text: &str| panic!("{text}");
        assert!(matches!(or_debian(Wish::Own, failed(), &mut never), Err(LabError::Step { .. })));
        let stopped = or_debian(Wish::Any, Err(LabError::Interrupted), &mut never);
        assert!(matches!(stopped, Err(LabError::Interrupted)));
    }

    #[test]
    fn boots_of_two_emulators_have_different_marks_and_names() {
        let own = |build: &str| {
            let program = PathBuf::from("/lab/bochs");
            Bochs::Own(OwnEmulator::of(&BOCHS, program, build.repeat(64)))
        };
        assert_ne!(own("a").mark(), own("b").mark());
        assert_ne!(own("a").mark(), Bochs::Debian.mark());
        assert_eq!(own("a").name(), "Bochs 3.0 of unspin, build aaaaaaaaaaaa");
        assert!(Bochs::Debian.name().contains("of Debian"));
    }
}
