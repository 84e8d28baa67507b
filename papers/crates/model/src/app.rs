// SPDX-License-Identifier: MIT OR Apache-2.0
//! An application's profile.
//!
//! ```toml
//! name = "matmul"
//! units = 16              # processing units: cores of the machine, vCPUs of the VM
//! share = 0.25            # of the CPU time that the VM gets
//! period_ms = 24          # allocation period
//! switch_us = 5           # switching a vCPU out and in again
//! blocks_per_s = 2000     # voluntary context switches a second of all threads together
//! sequential = "same"     # or "rotating": who does sequential work
//! [[phase]]               # repeated for ever
//! threads = 16
//! ms = 3.5                # on a machine of its own
//! ```

use serde::{Deserialize, Serialize};
use unspin_scenario::{fingerprint, Calibration, Ranges};
use unspin_text::{printable, toml_problems, Problems};

/// Most processing units and longest times, far above those of the chapter.
const UNITS_MAX: u32 = 4096;
const PHASES_MAX: usize = 4096;
const MS_MAX: f64 = 3_600_000.0;

/// An error in a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppError {
    #[error("{0}")]
    Toml(Problems),
    #[error("{file}: {key} = {value}; it is {allowed}")]
    Range { file: String, key: String, value: String, allowed: String },
}

/// A part of the run in which this many threads make progress.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    pub threads: u32,
    /// Length on a dedicated machine, ms.
    pub ms: f64,
}

/// Which threads work in phases in which not all do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sequential {
    /// The same in every phase.
    #[default]
    Same,
    /// Another one in each phase.
    Rotating,
}

/// An application, as profiled on a dedicated machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct App {
    pub name: String,
    pub units: u32,
    pub share: f64,
    #[serde(default = "period_ms")]
    pub period_ms: f64,
    #[serde(default = "switch_us")]
    pub switch_us: f64,
    #[serde(default)]
    pub blocks_per_s: f64,
    #[serde(default)]
    pub sequential: Sequential,
    /// Source of its numbers; it does not affect predictions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    #[serde(rename = "phase")]
    pub phases: Vec<Phase>,
}

/// KVM's (4.4.2).
fn period_ms() -> f64 {
    24.0
}

/// "A few microseconds" (2.4.1).
fn switch_us() -> f64 {
    5.0
}

impl App {
    /// An application whose threads never block, with KVM's allocation.
    pub(crate) fn new(name: &str, units: u32, share: f64, phases: Vec<Phase>) -> App {
        App {
            name: name.into(),
            units,
            share,
            period_ms: period_ms(),
            switch_us: switch_us(),
            blocks_per_s: 0.0,
            sequential: Sequential::Same,
            calibration: None,
            phases,
        }
    }

    /// Reads a profile, with the usual values of ranges. `file` is its name in errors.
    ///
    /// # Errors
    ///
    /// What is wrong in it, and what is allowed.
    pub fn parse(file: &str, text: &str) -> Result<App, AppError> {
        let usual = Ranges::read(file, text).map_err(AppError::Toml)?.usual();
        let read = toml::from_str(&usual);
        let app: App = read.map_err(|e| AppError::Toml(toml_problems(file, &usual, &e)))?;
        app.check(file)?;
        Ok(app)
    }

    /// A hash that is equal for profiles of the same application, regardless of their names and
    /// sources.
    pub fn fingerprint(&self) -> String {
        fingerprint(&App { name: String::new(), calibration: None, ..self.clone() })
    }

    /// Checks that all its numbers are possible. `file` is the file's name in errors.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self, file: &str) -> Result<(), AppError> {
        let range = |key: &str, value: f64, least: f64, most: f64| {
            if value.is_finite() && (least..=most).contains(&value) {
                return Ok(());
            }
            let allowed = format!("from {least} to {most}");
            let (file, key) = (printable(file), key.into());
            Err(AppError::Range { file, key, value: value.to_string(), allowed })
        };
        range("units", f64::from(self.units), 1.0, f64::from(UNITS_MAX))?;
        range("share", self.share, 0.001, 1.0)?;
        range("period_ms", self.period_ms, 0.001, MS_MAX)?;
        range("switch_us", self.switch_us, 0.0, 1e6)?;
        range("blocks_per_s", self.blocks_per_s, 0.0, 1e9)?;
        range("the number of [[phase]]", self.phases.len() as f64, 1.0, PHASES_MAX as f64)?;
        for (i, phase) in self.phases.iter().enumerate() {
            let threads = f64::from(phase.threads);
            range(&format!("phase[{i}].threads"), threads, 0.0, f64::from(self.units))?;
            range(&format!("phase[{i}].ms"), phase.ms, 1e-6, MS_MAX)?;
        }
        let works = self.phases.iter().any(|p| p.threads > 0);
        if !works {
            let (key, value) = ("phase.threads".into(), "0 in every phase".into());
            let (file, allowed) = (printable(file), "above 0 somewhere".into());
            return Err(AppError::Range { file, key, value, allowed });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"x\"\nunits = 4\nshare = 0.5\n[[phase]]\nthreads = 4\nms = 1.5\n";

    #[test]
    fn what_is_left_out_is_kvms() {
        let app = App::parse("x", GOOD).unwrap();
        assert_eq!((app.period_ms, app.switch_us, app.sequential), (24.0, 5.0, Sequential::Same));
    }

    #[test]
    fn the_fingerprint_is_the_applications() {
        let of = |text: &str| App::parse("x", text).unwrap().fingerprint();
        let record = "[calibration]\ndate = \"1\"\nentries = []\nhow = \"h\"\nsha256 = \"0\"\n";
        let other =
            GOOD.replace("\"x\"", "\"y\"").replace("[[phase]]", &format!("{record}[[phase]]"));
        assert!(App::parse("x", &other).unwrap().calibration.is_some());
        assert_eq!(of(GOOD), of(&other));
        assert_ne!(of(GOOD), of(&GOOD.replace("1.5", "1.6")));
    }

    #[test]
    fn bad_profiles_are_refused() {
        let refused = |from: &str, to: &str, why: &str| {
            assert!(GOOD.contains(from));
            let error = App::parse("x", &GOOD.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refused("units = 4", "units = 0", "units = 0; it is from 1");
        refused("share = 0.5", "share = 1.5", "share = 1.5; it is from 0.001 to 1");
        refused("share = 0.5", "share = nan", "share = NaN");
        refused("threads = 4", "threads = 5", "phase[0].threads = 5; it is from 0 to 4");
        refused("threads = 4", "threads = 0", "0 in every phase");
        refused("ms = 1.5", "ms = 0", "phase[0].ms");
        let text = "x:6:6: `phase[0].ms`: the string \"1.5\" is not allowed here";
        refused("ms = 1.5", "ms = \"1.5\"", text);
        refused("units = 4", "units = {}", "allowed: an integer from 0 to 4294967295");
        refused("name = \"x\"", "nam = \"x\"", "did you mean `name`?");
        refused("[[phase]]\nthreads = 4\nms = 1.5\n", "", "phase");
        refused("[[phase]]\nthreads = 4\nms = 1.5\n", "phase = []\n", "number of [[phase]]");
    }
}
