// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host tasks, one per pCPU, that wake up periodically, and their lateness: the latency that VMs
//! cause for host tasks.

use std::sync::mpsc::{channel, Sender};
use std::thread::JoinHandle;

use unspin_host::cpus::set_affinity;
use unspin_scenario::result::Wakeups;
use unspin_vmm::process::{now_ns, sleep_until};

const NS_PER_S: u64 = 1_000_000_000;
/// By default a thread's timers expire up to 50 us late, to combine wake-ups.
const TIMER_SLACK_NS: libc::c_ulong = 1;

/// Fair tasks that sleep until the measuring time is set, and run in it. Dropping this earlier ends
/// them.
pub(crate) struct Tasks {
    each: Vec<JoinHandle<Vec<u64>>>,
    windows: Vec<Sender<[u64; 2]>>,
}

impl Tasks {
    /// One task per pCPU, with `hz` wake-ups per second. They inherit the scheduling class of the
    /// caller, so call it as a fair task.
    pub(crate) fn start(pcpus: u32, hz: u32) -> Tasks {
        let period_ns = NS_PER_S / u64::from(hz.max(1));
        let mut tasks = Tasks { each: Vec::new(), windows: Vec::new() };
        for cpu in 0..pcpus {
            let (window, told) = channel();
            // The tasks of different pCPUs wake up at different times.
            let offset_ns = period_ns * u64::from(cpu) / u64::from(pcpus);
            tasks.windows.push(window);
            tasks.each.push(std::thread::spawn(move || {
                stay_on(cpu);
                let Ok([begin_ns, end_ns]) = told.recv() else { return Vec::new() };
                lateness(begin_ns + offset_ns, period_ns, end_ns)
            }));
        }
        tasks
    }

    /// Sets the times, in the future, between which they wake up. Then they end.
    pub(crate) fn wake_in(&self, window: [u64; 2]) {
        for told in &self.windows {
            // This fails only for a task that panicked, which is reported at its end.
            let _ = told.send(window);
        }
    }

    /// Waits for their end. `None` if none of them ran.
    pub(crate) fn result(self) -> Option<Wakeups> {
        // If a task panicked, the others' figures would be of a different host, so there are none.
        let late: Result<Vec<_>, _> = self.each.into_iter().map(JoinHandle::join).collect();
        summary(late.ok()?.concat())
    }
}

/// The lateness of each wake-up of the calling thread. If it is later than the next due time, it
/// replaces the next wake-up, so that one delay does not count twice.
fn lateness(first_ns: u64, period_ns: u64, end_ns: u64) -> Vec<u64> {
    let mut late = Vec::new();
    let mut due_ns = first_ns;
    while due_ns < end_ns {
        sleep_until(due_ns);
        let late_ns = now_ns().saturating_sub(due_ns);
        late.push(late_ns);
        due_ns += period_ns * (1 + late_ns / period_ns);
    }
    late
}

fn summary(mut late_ns: Vec<u64>) -> Option<Wakeups> {
    late_ns.sort_unstable();
    let last = late_ns.len().checked_sub(1)?;
    // The smallest value that this fraction (in thousandths) of all values does not exceed.
    let at = |thousandths: usize| late_ns[(late_ns.len() * thousandths).div_ceil(1000).max(1) - 1];
    Some(Wakeups {
        count: late_ns.len() as u64,
        p50_ns: at(500),
        p99_ns: at(990),
        max_ns: late_ns[last],
    })
}

/// If pinning fails, it runs on any CPU.
fn stay_on(cpu: u32) {
    let _ = set_affinity(0, &[cpu].into());
    // SAFETY: it changes a number of the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NS) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn percentiles_are_of_the_values(late in prop::collection::vec(0..1000u64, 1..500)) {
            let made = summary(late.clone()).unwrap();
            let up_to = |value| late.iter().filter(|&&v| v <= value).count();
            prop_assert_eq!(made.count, late.len() as u64);
            prop_assert_eq!(made.max_ns, *late.iter().max().unwrap());
            for (value, share) in [(made.p50_ns, 0.5), (made.p99_ns, 0.99)] {
                prop_assert!(late.contains(&value));
                prop_assert!(up_to(value) as f64 >= share * late.len() as f64);
                prop_assert!(value == 0 || (up_to(value - 1) as f64) < share * late.len() as f64);
            }
        }
    }

    #[test]
    fn tasks_wake_as_often_as_asked_and_end() {
        let made = |pcpus, window| {
            let tasks = Tasks::start(pcpus, 1000);
            tasks.wake_in(window);
            tasks.result()
        };
        let begin_ns = now_ns() + 10_000_000;
        let told = made(2, [begin_ns, begin_ns + 100_000_000]).unwrap();
        // Late wake-ups replace others, and a busy computer makes many late.
        assert!((1..=200).contains(&told.count), "{told:?}");
        assert!(told.p50_ns <= told.p99_ns && told.p99_ns <= told.max_ns, "{told:?}");
        assert!(made(0, [0, 0]).is_none());
        assert!(made(1, [5, 5]).is_none(), "a window without a wake-up");
        drop(Tasks::start(1, 1000));
    }
}
