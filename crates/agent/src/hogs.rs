// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks of the host that compute all the time beside the VMs, and the CPU time that they get.

use std::thread::JoinHandle;

use unspin_vmm::process::now_ns;
use unspin_vmm::{cpu_ns, pin};

/// Of the calling thread.
const CPU_TIME: libc::clockid_t = libc::CLOCK_THREAD_CPUTIME_ID;

/// Fair tasks that compute from now on. They end by themselves.
pub(crate) struct Hogs(Vec<JoinHandle<u64>>);

impl Hogs {
    /// So many, each on the next pCPU, until `end_ns`. What they get is counted from `begin_ns` on. Call
    /// it as a fair task: they are what the caller is.
    pub(crate) fn start(pcpus: u32, hogs: u32, [begin_ns, end_ns]: [u64; 2]) -> Hogs {
        let hog = |number: u32| {
            std::thread::spawn(move || {
                // Where it may not, it runs where it is put.
                let _ = pin(0, number % pcpus.max(1));
                compute_until(begin_ns);
                let before_ns = cpu_ns(CPU_TIME);
                compute_until(end_ns);
                cpu_ns(CPU_TIME) - before_ns
            })
        };
        Hogs((0..hogs).map(hog).collect())
    }

    /// Waits for their end: the CPU time of each, in ns.
    pub(crate) fn cpu_ns(self) -> Vec<u64> {
        // One that panicked has no figures; the others' would be of another host.
        let each: Result<Vec<u64>, _> = self.0.into_iter().map(JoinHandle::join).collect();
        each.unwrap_or_default()
    }
}

fn compute_until(at_ns: u64) {
    while now_ns() < at_ns {
        std::hint::black_box(at_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hog_tells_what_it_got_of_the_window() {
        let begin_ns = now_ns() + 5_000_000;
        let got = Hogs::start(1, 2, [begin_ns, begin_ns + 50_000_000]).cpu_ns();
        assert_eq!(got.len(), 2);
        assert!(got.iter().all(|ns| *ns <= 60_000_000), "{got:?}");
        assert!(got.iter().sum::<u64>() > 0, "{got:?}");
        assert!(Hogs::start(4, 0, [0, 0]).cpu_ns().is_empty());
    }
}
