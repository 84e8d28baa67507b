// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `unspin shape` on VMs whose vCPUs an arm makes asymmetric.

use unspin_scenario::plan::{Asym, Run};

use crate::beside::Helper;
use crate::Error;

const PROGRAM: &str = "unspin";
/// The command's own period, if the arm has none.
const PERIOD_MS: u32 = 80;

/// Starts `unspin shape` for those of these VMs that the arm shapes; `None` if it shapes none. When
/// it ends, it restores what it changed.
pub(crate) fn start(run: &Run, pids: &[u32]) -> Result<Option<Helper>, Error> {
    Helper::start(PROGRAM, arguments(run, pids), |what| Error::NoShape { what })
}

/// `None` if there is nothing to shape.
fn arguments(run: &Run, pids: &[u32]) -> Option<Vec<String>> {
    let Asym { time, weight, latency, resolver, uncorrected, .. } = run.arm.asym;
    let parts = [(time, "time"), (weight, "weight"), (latency, "latency"), (resolver, "resolver")];
    let parts: Vec<&str> = parts.iter().filter(|(on, _)| *on).map(|(_, part)| *part).collect();
    let shaped = run.vms.iter().zip(pids).filter(|(vm, _)| run.is_shaped(vm));
    let shaped: Vec<String> = shaped.map(|(_, pid)| pid.to_string()).collect();
    if parts.is_empty() || shaped.is_empty() {
        return None;
    }
    let period_ms = run.arm.asym.period_ms.unwrap_or(PERIOD_MS).to_string();
    let options = ["shape", "--beside", "--parts", &parts.join(","), "--period-ms", &period_ms];
    // The scenario pinned them, and its arm moves them.
    let pinned = (resolver && run.is_pinned()).then_some("--pinned");
    let uncorrected = uncorrected.then_some("--uncorrected");
    let options = options.into_iter().chain(pinned).chain(uncorrected);
    Some(options.map(ToString::to_string).chain(shaped).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_scenario::plan::Role;

    #[test]
    fn those_are_shaped_that_the_arm_is_for() {
        let mut run = Run::new(Vec::new(), 2, 4);
        assert!(arguments(&run, &[10, 20]).is_none(), "no arm asks for it");
        run.arm.asym = Asym { latency: true, ..Asym::default() };
        let words = arguments(&run, &[10, 20]).unwrap().join(" ");
        assert_eq!(words, "shape --beside --parts latency --period-ms 80 10 20");
        run.arm.asym = Asym { weight: true, ..Asym::default() };
        let words = arguments(&run, &[10]).unwrap().join(" ");
        assert_eq!(words, "shape --beside --parts weight --period-ms 80 10");
        let (latency, resolver) = (true, true);
        run.arm.asym =
            Asym { time: true, latency, resolver, period_ms: Some(40), ..Asym::default() };
        run.vms[0].role = Role::Hog;
        let words = arguments(&run, &[10, 20]).unwrap().join(" ");
        assert_eq!(words, "shape --beside --parts time,latency,resolver --period-ms 40 20");
        run.arm.asym.uncorrected = true;
        let words = arguments(&run, &[10, 20]).unwrap().join(" ");
        let parts = "time,latency,resolver --period-ms 40 --uncorrected";
        assert_eq!(words, format!("shape --beside --parts {parts} 20"));
    }
}
