// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns by SCHED_FIFO, for comparison with the module's turns: one VM after the other, a VM's vCPU
//! threads are real-time for a while, and then ordinary until its next turn. Do not use this on a
//! host with other work.
//!
//! One thread switches them. It is real-time itself, with a higher priority, so that a turn ends
//! for any behaviour of the guests.

use std::io;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use unspin_scenario::plan::{Coscheduling, CoschedulingMechanism, Run, Vm};
use unspin_uapi::Number;
use unspin_vmm::process::now_ns;
use unspin_vmm::{set_fifo, set_normal, SWITCH_PRIORITY, TURN_PRIORITY};

use crate::Error;

/// Turns end this long after the measuring time, if nothing ends them earlier.
const LATEST_NS: u64 = 100_000_000;

/// Turns of a run's VMs. Dropping this ends them, and every vCPU's thread is an ordinary one again.
pub(crate) struct Turns {
    /// Closing it wakes the thread up.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Turns {
    /// Starts the turns of the run's arm; `None` if it has none. `vms`: the vCPU threads of each
    /// VM. After a failure all of them are ordinary threads.
    pub(crate) fn start(
        run: &Run,
        vms: Vec<Vec<i32>>,
        end_ns: u64,
    ) -> Result<Option<Turns>, Error> {
        if !wanted(run) {
            return Ok(None);
        }
        let turn_us = run.arm.turn_us.unwrap_or(Number::TURN.default());
        let turn = Duration::from_micros(turn_us.into());
        Turns::of(vms, turn, end_ns + LATEST_NS).map(Some)
    }

    fn of(vms: Vec<Vec<i32>>, turn: Duration, latest_ns: u64) -> Result<Turns, Error> {
        let (stop, stopped) = channel();
        let (begun, begins) = channel();
        let thread = std::thread::Builder::new().name("turns".into()).spawn(move || {
            let vms = Vms(vms);
            // First of all: no thread may become real-time unless this thread can switch it back.
            let ready = set_fifo(0, SWITCH_PRIORITY)
                .map_err(|e| failed("thread that makes them", e))
                .and_then(|()| vms.begin(0));
            let is_ready = ready.is_ok();
            if begun.send(ready).is_ok() && is_ready {
                vms.take_turns(turn, latest_ns, &stopped);
            }
        });
        let thread = thread.map_err(|e| failed("thread that makes them", e))?;
        // From here on a failure drops `turns`, which waits for the thread.
        let turns = Turns { stop: Some(stop), thread: Some(thread) };
        match begins.recv() {
            Ok(begun) => begun.map(|()| turns),
            Err(_) => Err(Error::Run("the thread that makes turns has ended".into())),
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic has been printed, and dropping `Vms` has restored the threads.
            let _ = thread.join();
        }
    }
}

/// Whether the arm uses this kind of turns, and there are VMs for them.
fn wanted(run: &Run) -> bool {
    let asked = run.arm.coscheduling == Coscheduling::Con
        && run.arm.coscheduling_mechanism == CoschedulingMechanism::Fifo;
    asked && run.vms.len() > 1 && run.vms.iter().any(Vm::gangs)
}

/// The vCPU threads of each VM. Dropping this makes them ordinary threads again.
struct Vms(Vec<Vec<i32>>);

impl Vms {
    /// Gives each VM a turn, cyclically, until the other end of `stopped` is closed. VMs that are
    /// not gangs have turns, too; with holes alone they would starve.
    fn take_turns(&self, turn: Duration, latest_ns: u64, stopped: &Receiver<()>) {
        let mut owner = 0;
        while stopped.recv_timeout(turn) == Err(RecvTimeoutError::Timeout) && now_ns() < latest_ns {
            let next = (owner + 1) % self.0.len();
            // Begin the next VM first, so that a pCPU goes directly from one VM to the other. If a
            // thread can no longer be made real-time, its VM is ending and reports the reason.
            let _ = self.begin(next);
            self.end(owner);
            owner = next;
        }
    }

    fn begin(&self, vm: usize) -> Result<(), Error> {
        self.0[vm].iter().try_for_each(|&tid| match set_fifo(tid, TURN_PRIORITY) {
            Err(e) if e.raw_os_error() != Some(libc::ESRCH) => Err(failed("thread of a vCPU", e)),
            // Nothing to do for a thread that has ended.
            _ => Ok(()),
        })
    }

    fn end(&self, vm: usize) {
        for &tid in &self.0[vm] {
            // This fails only for a thread that has ended: a process that may set this class may
            // also clear it.
            let _ = set_normal(tid);
        }
    }
}

impl Drop for Vms {
    fn drop(&mut self) {
        (0..self.0.len()).for_each(|vm| self.end(vm));
    }
}

fn failed(what: &str, source: io::Error) -> Error {
    Error::NoFifo { what: what.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::Arc;
    use std::time::Instant;

    const TURN: Duration = Duration::from_millis(2);
    const PATIENCE: Duration = Duration::from_secs(30);

    /// A thread in place of a vCPU. It sleeps nearly always, so that no mistake here takes a CPU
    /// for long.
    struct StandIn {
        tid: i32,
        end: Arc<AtomicBool>,
        thread: Option<JoinHandle<()>>,
    }

    impl StandIn {
        fn new() -> StandIn {
            let (told, tid) = channel();
            let end = Arc::new(AtomicBool::new(false));
            let ended = end.clone();
            let thread = std::thread::spawn(move || {
                // SAFETY: no memory involved.
                told.send(unsafe { libc::gettid() }).unwrap();
                while !ended.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            StandIn { tid: tid.recv().unwrap(), end, thread: Some(thread) }
        }

        /// Its class and real-time priority.
        fn class(&self) -> (i32, i32) {
            let mut param = libc::sched_param { sched_priority: 0 };
            // SAFETY: `param` outlives the calls.
            unsafe {
                libc::sched_getparam(self.tid, &mut param);
                (libc::sched_getscheduler(self.tid), param.sched_priority)
            }
        }

        fn is_fifo(&self) -> bool {
            self.class() == (libc::SCHED_FIFO, TURN_PRIORITY)
        }

        fn end(&mut self) {
            self.end.store(true, Ordering::Relaxed);
            self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
        }
    }

    impl Drop for StandIn {
        fn drop(&mut self) {
            self.end();
        }
    }

    /// VMs of two vCPUs each.
    fn vms(count: usize) -> Vec<[StandIn; 2]> {
        (0..count).map(|_| [StandIn::new(), StandIn::new()]).collect()
    }

    fn tids(vms: &[[StandIn; 2]]) -> Vec<Vec<i32>> {
        vms.iter().map(|vm| vm.iter().map(|vcpu| vcpu.tid).collect()).collect()
    }

    fn all_are_normal(vms: &[[StandIn; 2]]) -> bool {
        vms.iter().flatten().all(|vcpu| vcpu.class() == (libc::SCHED_OTHER, 0))
    }

    /// Waits until the condition holds; a busy computer is slow.
    fn becomes(so: impl Fn() -> bool) {
        let start = Instant::now();
        while !so() {
            assert!(start.elapsed() < PATIENCE, "it never was so");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Whether this test may make threads real-time; prints the reason if not.
    fn may() -> bool {
        let made = std::thread::spawn(|| set_fifo(0, SWITCH_PRIORITY)).join().unwrap();
        if let Err(e) = &made {
            println!("SKIP: SCHED_FIFO: {e}");
        }
        made.is_ok()
    }

    fn later() -> u64 {
        now_ns() + PATIENCE.as_nanos() as u64
    }

    #[test]
    fn every_vm_has_its_turn_and_is_what_it_was_afterwards() {
        if !may() {
            return;
        }
        let vms = vms(3);
        let turns = Turns::of(tids(&vms), TURN, later()).unwrap();
        for _ in 0..2 {
            for vm in &vms {
                becomes(|| vm.iter().all(StandIn::is_fifo));
                becomes(|| !vm.iter().any(StandIn::is_fifo));
            }
        }
        drop(turns);
        assert!(all_are_normal(&vms));
    }

    #[test]
    fn turns_that_nobody_ends_end_by_themselves() {
        if !may() {
            return;
        }
        let vms = vms(2);
        let turns = Turns::of(tids(&vms), TURN, now_ns() + 20_000_000).unwrap();
        becomes(|| turns.thread.as_ref().unwrap().is_finished());
        assert!(all_are_normal(&vms));
    }

    #[test]
    fn a_panic_ends_turns_and_so_does_the_end_of_a_long_one() {
        if !may() {
            return;
        }
        let vms = vms(2);
        let of = tids(&vms);
        let start = Instant::now();
        let panicked = std::thread::spawn(|| {
            let _turns = Turns::of(of, 2 * PATIENCE, later()).unwrap();
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert!(start.elapsed() < PATIENCE);
        assert!(all_are_normal(&vms));
    }

    #[test]
    fn a_vcpu_that_has_ended_is_no_hindrance() {
        if !may() {
            return;
        }
        let mut vms = vms(2);
        vms[0][1].end();
        let turns = Turns::of(tids(&vms), TURN, later()).unwrap();
        vms[1][0].end();
        for vm in [&vms[0][0], &vms[1][1], &vms[0][0]] {
            becomes(|| vm.is_fifo());
        }
        drop(turns);
        assert!([&vms[0][0], &vms[1][1]].iter().all(|vcpu| vcpu.class().0 == libc::SCHED_OTHER));
    }

    #[test]
    fn turns_are_for_arms_that_ask_where_a_vm_gangs_and_has_rivals() {
        let mut run = Run::new(vec![], 2, 1).with(|vm| vm.spin_intensive = true);
        run.arm.coscheduling = Coscheduling::Con;
        assert!(!wanted(&run));
        run.arm.coscheduling_mechanism = CoschedulingMechanism::Fifo;
        assert!(wanted(&run));
        assert!(!wanted(&Run { vms: run.vms[..1].to_vec(), ..run.clone() }));
        assert!(!wanted(&run.clone().with(|vm| vm.spin_intensive = false)));
        run.arm.coscheduling = Coscheduling::None;
        assert!(!wanted(&run));
    }
}
