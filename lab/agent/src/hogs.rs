// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks of the host that compute all the time beside the VMs, and the CPU time that they get.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use unspin_host::cpus::set_affinity;
use unspin_vmm::clock_ns;
use unspin_vmm::process::now_ns;

/// CPU time of the calling thread.
const CPU_TIME: libc::clockid_t = libc::CLOCK_THREAD_CPUTIME_ID;

/// Fair tasks that compute from now until the end of a measuring time that is set later. Dropping
/// this ends them.
pub(crate) struct Hogs {
    each: Vec<JoinHandle<u64>>,
    window: Arc<[AtomicU64; 2]>,
}

impl Hogs {
    /// Starts `hogs` tasks on consecutive pCPUs. They inherit the scheduling class of the caller,
    /// so call it as a fair task.
    pub(crate) fn start(pcpus: u32, hogs: u32) -> Hogs {
        let window = Arc::new([const { AtomicU64::new(u64::MAX) }; 2]);
        let hog = |number: u32| {
            let window = window.clone();
            std::thread::spawn(move || {
                // If pinning fails, it runs on any CPU.
                let _ = set_affinity(0, &[number % pcpus.max(1)].into());
                compute_until(&window[0]);
                let before_ns = clock_ns(CPU_TIME);
                compute_until(&window[1]);
                clock_ns(CPU_TIME) - before_ns
            })
        };
        Hogs { each: (0..hogs).map(hog).collect(), window }
    }

    /// Sets the times, in the future, between which their CPU time is counted. Then they end.
    pub(crate) fn count_in(&self, [begin_ns, end_ns]: [u64; 2]) {
        self.window[1].store(end_ns, Ordering::Relaxed);
        self.window[0].store(begin_ns, Ordering::Relaxed);
    }

    /// Waits for their end, and returns the CPU time of each, in ns.
    pub(crate) fn cpu_ns(mut self) -> Vec<u64> {
        // If one panicked, the others' figures would be of a different load, so there are none.
        let each = std::mem::take(&mut self.each).into_iter();
        let each: Result<Vec<u64>, _> = each.map(JoinHandle::join).collect();
        each.unwrap_or_default()
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.count_in([0, 0]);
    }
}

fn compute_until(at_ns: &AtomicU64) {
    while now_ns() < at_ns.load(Ordering::Relaxed) {
        std::hint::black_box(at_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hog_tells_what_it_got_of_the_window() {
        let hogs = Hogs::start(1, 2);
        let begin_ns = now_ns() + 5_000_000;
        hogs.count_in([begin_ns, begin_ns + 50_000_000]);
        let got = hogs.cpu_ns();
        assert_eq!(got.len(), 2);
        assert!(got.iter().all(|ns| *ns <= 60_000_000), "{got:?}");
        assert!(got.iter().sum::<u64>() > 0, "{got:?}");
        assert!(Hogs::start(4, 0).cpu_ns().is_empty());
        let window = Hogs::start(1, 1).window.clone();
        assert_eq!(window[1].load(Ordering::Relaxed), 0, "dropped, they end");
    }
}
