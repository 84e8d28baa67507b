// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many vCPUs a VM would do with, of how many it wanted a CPU for at a time.

use crate::cause::Sure;
use crate::judge::Did;
use serde::Serialize;

/// Fewer vCPUs are enough if this share of the time that they wanted a CPU would have had to wait.
const WAIT_MAX: f64 = 0.01;

/// Shorter looks say nothing.
const WINDOW_MIN_NS: u64 = 9_500_000_000;

/// A VM that wanted less of a CPU than this, on average, was idle: that says nothing of its size.
const BUSY_MIN: f64 = 0.05;

/// Fewer vCPUs that would have been enough.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RightSize {
    pub vcpus: usize,
    /// How many it has.
    pub has: usize,
    /// Share of the time that more of them wanted a CPU than that.
    pub more_share: f64,
    /// Of the time that its vCPUs wanted a CPU, the share that would have had to wait longer.
    pub wait_share: f64,
    /// CPUs that it wanted on average.
    pub mean: f64,
    pub watched_s: f64,
    pub sure: Sure,
}

/// The least number of vCPUs with which it would have waited for less than 1 % more. `None`: it needs those
/// that it has, or was not watched for long enough (10 s), or was idle all the time, or how many wanted a CPU
/// is not known.
///
/// A vCPU that waits wants a CPU for longer than it would with one of its own. So of a VM that waits much
/// this is too large rather than too small.
pub fn right_size(did: &Did) -> Option<RightSize> {
    let watched: u64 = did.wanting_ns.iter().sum();
    if did.vcpus < 2
        || did.unseen > 0
        || did.window_ns < WINDOW_MIN_NS
        || watched < did.window_ns / 10 * 9
    {
        return None;
    }
    // Those of the last entry may be all.
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
    // How many more than the last entry's is not known.
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
