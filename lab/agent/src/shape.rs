// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `unspin shape` on VMs whose vCPUs an arm makes asymmetric.

use unspin_scenario::plan::{Asym, Run};

use crate::beside::Beside;
use crate::Error;

const PROGRAM: &str = "unspin";
/// The command's own period, if the arm has none.
const PERIOD_MS: u32 = 80;

/// The running command. Dropping this ends it, and it restores what it changed.
pub(crate) struct Shaping(Beside);

impl Shaping {
    /// Starts `unspin shape` for those of these VMs that the arm shapes; `None` if it shapes none.
    pub(crate) fn start(run: &Run, pids: &[u32]) -> Result<Option<Shaping>, Error> {
        let arguments = arguments(run, pids);
        if arguments.is_empty() {
            return Ok(None);
        }
        Beside::start(PROGRAM, &arguments).map(|beside| Some(Shaping(beside))).map_err(failed)
    }

    /// Ends it, and returns its last output.
    pub(crate) fn end(self) -> Result<String, Error> {
        self.0.end().map_err(failed)
    }
}

/// `None` if there is nothing to shape.
fn arguments(run: &Run, pids: &[u32]) -> Vec<String> {
    let Asym { time, weight, latency, resolver, uncorrected, .. } = run.arm.asym;
    let parts = [(time, "time"), (weight, "weight"), (latency, "latency"), (resolver, "resolver")];
    let parts: Vec<&str> = parts.iter().filter(|(on, _)| *on).map(|(_, part)| *part).collect();
    let shaped = run.vms.iter().zip(pids).filter(|(vm, _)| run.is_shaped(vm));
    let shaped: Vec<String> = shaped.map(|(_, pid)| pid.to_string()).collect();
    if parts.is_empty() || shaped.is_empty() {
        return Vec::new();
    }
    let period_ms = run.arm.asym.period_ms.unwrap_or(PERIOD_MS).to_string();
    let options = ["shape", "--beside", "--parts", &parts.join(","), "--period-ms", &period_ms];
    // The scenario pinned them, and its arm moves them.
    let pinned = (resolver && run.is_pinned()).then_some("--pinned");
    let uncorrected = uncorrected.then_some("--uncorrected");
    let options = options.into_iter().chain(pinned).chain(uncorrected);
    options.map(ToString::to_string).chain(shaped).collect()
}

fn failed(what: String) -> Error {
    Error::NoShape { what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scenario::plan::Role;

    #[test]
    fn those_are_shaped_that_the_arm_is_for() {
        let mut run = Run::new(Vec::new(), 2, 4);
        assert!(arguments(&run, &[10, 20]).is_empty(), "no arm asks for it");
        run.arm.asym = Asym { latency: true, ..Asym::default() };
        let words = arguments(&run, &[10, 20]).join(" ");
        assert_eq!(words, "shape --beside --parts latency --period-ms 80 10 20");
        run.arm.asym = Asym { weight: true, ..Asym::default() };
        let words = arguments(&run, &[10]).join(" ");
        assert_eq!(words, "shape --beside --parts weight --period-ms 80 10");
        let (latency, resolver) = (true, true);
        run.arm.asym =
            Asym { time: true, latency, resolver, period_ms: Some(40), ..Asym::default() };
        run.vms[0].role = Role::Hog;
        let words = arguments(&run, &[10, 20]).join(" ");
        assert_eq!(words, "shape --beside --parts time,latency,resolver --period-ms 40 20");
        run.arm.asym.uncorrected = true;
        let words = arguments(&run, &[10, 20]).join(" ");
        let parts = "time,latency,resolver --period-ms 40 --uncorrected";
        assert_eq!(words, format!("shape --beside --parts {parts} 20"));
    }
}
