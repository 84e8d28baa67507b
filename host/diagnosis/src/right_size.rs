// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many vCPUs would be enough for a VM, from how many wanted a CPU at the same time.

use crate::cause::Sure;
use crate::judge::Did;
use serde::Serialize;

/// Fewer vCPUs are enough if at most this share of the time in which they wanted a CPU would be a
/// wait.
const WAIT_MAX: f64 = 0.01;

/// Shorter measurements are not used.
const WINDOW_MIN_NS: u64 = 9_500_000_000;

/// A VM that wanted less of a CPU than this, on average, was idle; that does not show which size it
/// needs.
const BUSY_MIN: f64 = 0.05;

/// A smaller number of vCPUs that would have been enough.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RightSize {
    pub vcpus: usize,
    /// Its present number.
    pub has: usize,
    /// Share of the time in which more vCPUs than that wanted a CPU.
    pub more_share: f64,
    /// Share of the time in which its vCPUs wanted a CPU and would have had to wait longer.
    pub wait_share: f64,
    /// Number of CPUs that it wanted on average.
    pub mean: f64,
    pub watched_s: f64,
    pub sure: Sure,
}

/// The least number of vCPUs with which it would have waited for less than 1 % more. `None` if it needs all
/// its vCPUs, was measured for less than 10 s, was idle, or the number that wanted a CPU is unknown.
///
/// A waiting vCPU wants a CPU for longer than it would if it had one. So for a VM that waits much, the result
/// is too large rather than too small.
pub fn right_size(did: &Did) -> Option<RightSize> {
    let watched: u64 = did.wanting_ns.iter().sum();
    if did.vcpus < 2
        || did.unseen > 0
        || did.window_ns < WINDOW_MIN_NS
        || watched < did.window_ns / 10 * 9
    {
        return None;
    }
    // The last entry may mean all of them.
    let last = did.wanting_ns.len() - 1;
    let number = |entry: usize| if entry == last { entry.max(did.vcpus) } else { entry };
    let times = || did.wanting_ns.iter().enumerate().map(|(entry, ns)| (number(entry), *ns as f64));
    let wanted: f64 = times().map(|(many, ns)| many as f64 * ns).sum();
    let mean = wanted / watched as f64;
    if mean < BUSY_MIN {
        return None;
    }
    let waits = |vcpus: usize| {
        let more = times().filter(|(many, _)| *many > vcpus);
        more.map(|(many, ns)| (many - vcpus) as f64 * ns).sum::<f64>() / wanted
    };
    // How many more than the last entry's number is unknown.
    let vcpus = (1..did.vcpus.min(last)).find(|vcpus| waits(*vcpus) < WAIT_MAX)?;
    let more = times().filter(|(many, _)| *many > vcpus).map(|(_, ns)| ns);
    Some(RightSize {
        vcpus,
        has: did.vcpus,
        more_share: more.sum::<f64>() / watched as f64,
        wait_share: waits(vcpus),
        mean,
        watched_s: did.window_ns as f64 / 1e9,
        sure: Sure::Estimated,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    fn did(vcpus: usize, wanting_s: &[u64]) -> Did {
        let mut wanting_ns: Vec<u64> = wanting_s.iter().map(|s| s * S).collect();
        wanting_ns.resize(wanting_ns.len().max(65), 0);
        Did { vcpus, window_ns: wanting_ns.iter().sum(), wanting_ns, ..Did::default() }
    }

    fn enough(vcpus: usize, wanting_s: &[u64]) -> Option<usize> {
        right_size(&did(vcpus, wanting_s)).map(|size| size.vcpus)
    }

    #[test]
    fn it_is_as_many_as_wanted_a_cpu_at_a_time() {
        assert_eq!(enough(8, &[500, 300, 150, 50]), Some(3));
        assert_eq!(enough(8, &[500, 300, 150, 49, 1]), Some(3), "a second of a thousand");
        assert_eq!(enough(8, &[500, 300, 150, 40, 10]), Some(4));
        assert_eq!(enough(4, &[0, 0, 0, 0, 100]), None, "it needs all");
        assert_eq!(enough(1, &[0, 100]), None);
        assert_eq!(enough(4, &[4, 5]), None, "for 9 s only");
        assert_eq!(enough(4, &[999, 1]), None, "idle");
        assert_eq!(right_size(&Did { vcpus: 4, window_ns: 99 * S, ..Did::default() }), None);
        let size = right_size(&did(8, &[500, 300, 150, 49, 1])).unwrap();
        assert!((size.more_share - 0.001).abs() < 1e-9 && size.wait_share < 0.01, "{size:?}");
    }

    #[test]
    fn the_last_number_may_be_all() {
        let mut wanting = vec![0; 65];
        (wanting[1], wanting[64]) = (50, 50);
        assert_eq!(enough(128, &wanting), None);
        assert_eq!(enough(65, &wanting), None);
    }

    proptest! {
        #[test]
        fn fewer_would_have_waited_more(
            vcpus in 2..80usize,
            wanting in prop::collection::vec(0..100u64, 2..66),
        ) {
            let did = did(vcpus, &wanting);
            if let Some(size) = right_size(&did) {
                prop_assert!(size.vcpus < vcpus && size.vcpus >= 1);
                prop_assert!((0.0..WAIT_MAX).contains(&size.wait_share));
                prop_assert!(size.mean <= size.vcpus as f64 + WAIT_MAX * vcpus as f64 + 1.0);
                prop_assert!((0.0..=1.0).contains(&size.more_share));
            }
        }
    }
}
