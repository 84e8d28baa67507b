// SPDX-License-Identifier: MIT OR Apache-2.0
//! The states of vCPUs in a run's measuring time, as in `unspin diagnose`. A program of its own
//! (lab/watch) counts.

use unspin_scenario::plan::Run;
use unspin_scenario::result::{VcpuStates, Watched};

use crate::beside::Beside;
use crate::Error;

const PROGRAM: &str = "unspin-watch";

/// Watches the runs of a plan that request it. From the first such run on its programs stay loaded,
/// because loading takes long.
#[derive(Default)]
pub(crate) struct Watcher(Option<Beside>);

impl Watcher {
    /// Starts the watcher if the run requests it.
    pub(crate) fn have(&mut self, run: &Run) -> Result<(), Error> {
        if run.states && self.0.is_none() {
            self.0 = Some(Beside::start(PROGRAM, &[]).map_err(failed)?);
        }
        Ok(())
    }

    /// Watches these VMs from now on. Their measuring time follows.
    pub(crate) fn begin(
        &mut self,
        run: &Run,
        vms: &[(u32, Vec<i32>)],
        window: [u64; 2],
    ) -> Result<(), Error> {
        let Some(beside) = self.0.as_mut().filter(|_| run.states) else { return Ok(()) };
        let told = beside.tell(&request(vms, window));
        self.or_without(told)
    }

    /// What each vCPU of each VM did in the measuring time, which is over; `None` if they were not
    /// watched.
    pub(crate) fn end(&mut self, run: &Run) -> Result<Option<Vec<Vec<VcpuStates>>>, Error> {
        let Some(beside) = self.0.as_mut().filter(|_| run.states) else { return Ok(None) };
        let answer = beside.answer();
        let line = self.or_without(answer)?;
        let watched: Watched = serde_json::from_str(&line).map_err(|e| failed(e.to_string()))?;
        Ok(Some(watched.vms))
    }

    /// A watcher that failed has ended. The next run starts another one.
    fn or_without<T>(&mut self, done: Result<T, String>) -> Result<T, Error> {
        done.map_err(|what| {
            self.0 = None;
            failed(what)
        })
    }
}

fn request(vms: &[(u32, Vec<i32>)], [begin_ns, end_ns]: [u64; 2]) -> String {
    let vms = vms.iter().map(|(pid, tids)| {
        let tids: Vec<String> = tids.iter().map(i32::to_string).collect();
        format!("{pid}:{}", tids.join(","))
    });
    let words: Vec<String> =
        [begin_ns.to_string(), end_ns.to_string()].into_iter().chain(vms).collect();
    words.join(" ")
}

fn failed(what: String) -> Error {
    Error::NoStates { what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beside::tests::shell;
    use unspin_diagnosis::State;

    fn watcher(script: &str) -> Watcher {
        Watcher(Some(shell(script).unwrap()))
    }

    fn watched() -> Run {
        Run { states: true, ..Run::new(vec![], 1, 1) }
    }

    #[test]
    fn a_window_is_asked_for_and_answered() {
        let states = r#"{"vms":[[{"ns":{"guest":7},"exits":{},"switches":1,"wakes":2}]]}"#;
        let vms = [(10, vec![11, 12]), (20, vec![21])];
        let script = format!(
            "echo ready; read -r line; [ \"$line\" = '5 9 10:11,12 20:21' ] && echo '{states}'; cat"
        );
        let mut watcher = watcher(&script);
        watcher.begin(&watched(), &vms, [5, 9]).unwrap();
        let found = watcher.end(&watched()).unwrap().unwrap();
        assert_eq!((found[0][0].ns[State::Guest], found[0][0].wakes), (7, 2));
        let run = Run::new(vec![], 1, 1);
        watcher.begin(&run, &vms, [5, 9]).unwrap();
        assert_eq!(watcher.end(&run).unwrap(), None, "a run that does not ask for it");
    }

    #[test]
    fn one_that_failed_is_not_asked_again() {
        let mut watcher = watcher("echo ready; read -r line; echo 'no BTF' >&2; exit 1");
        watcher.begin(&watched(), &[(10, vec![11])], [5, 9]).unwrap();
        let error = watcher.end(&watched()).unwrap_err().to_string();
        assert!(error.contains("states") && error.contains("no BTF"), "{error}");
        assert!(watcher.0.is_none());
    }
}
