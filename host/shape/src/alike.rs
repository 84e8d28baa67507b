// SPDX-License-Identifier: MIT OR Apache-2.0
//! Treats vCPUs with equal needs alike (an addition of this project), because random differences are no
//! reason to treat them differently. Unequal weights make vCPUs with equal work wait for each other, and
//! short slices for all vCPUs only cause more switches.

use crate::lasting::Lasting;

/// If no vCPU's need differs from the mean by more than this factor, the vCPUs need alike. In a program whose
/// threads have equal work, lasting needs were up to 1.35 times the mean; in one whose first thread has twice
/// the work, 1.6 times.
const NEEDS_FAR: f64 = 1.4;

/// Whether the vCPUs of a VM have equal needs, so that its original weights are right.
pub fn need_alike(needs: &[Lasting]) -> bool {
    mean_of_alike(needs).is_some()
}

/// The need of each vCPU for decisions: the mean of all if they need alike.
pub fn counted(needs: &[Lasting]) -> impl Iterator<Item = Lasting> + '_ {
    let mean = mean_of_alike(needs);
    needs.iter().map(move |need| mean.unwrap_or(*need))
}

fn mean_of_alike(needs: &[Lasting]) -> Option<Lasting> {
    let mean = Lasting::mean(needs);
    let is_near =
        |need: &Lasting| need.ns() <= NEEDS_FAR * mean.ns() && need.ns() * NEEDS_FAR >= mean.ns();
    needs.iter().all(is_near).then_some(mean)
}

/// The factor, at least 1, by which to lengthen slices that follow a latency if all VMs of a host are shaped.
/// The least urgent vCPU then keeps its original slice. Slices decide which of the waiting vCPUs runs first,
/// so only their ratios matter. `longest_ns`: the longest slice that follows a latency, in ns; 0 if there is
/// none. `own_ns`: the original slice of the vCPUs.
pub fn lengthen(longest_ns: u64, own_ns: u64) -> f64 {
    match longest_ns {
        0 => 1.0,
        _ => (own_ns as f64 / longest_ns as f64).max(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn needs(ns: &[u64]) -> Vec<Lasting> {
        let of = |ns: &u64| {
            let mut need = Lasting::default();
            need.period(*ns);
            need
        };
        ns.iter().map(of).collect()
    }

    #[test]
    fn what_differs_by_chance_is_alike() {
        assert!(need_alike(&needs(&[86, 135, 93, 86])), "equal work, as it was measured");
        assert!(!need_alike(&needs(&[200, 100, 100, 100])), "twice the work");
        assert!(!need_alike(&needs(&[100, 100, 100, 0])), "one of them sleeps");
        assert!(need_alike(&needs(&[0, 0])) && need_alike(&[]));
        let counted_ns = |ns: &[u64]| counted(&needs(ns)).map(|need| need.ns()).collect::<Vec<_>>();
        assert_eq!(counted_ns(&[100, 120]), [110.0, 110.0]);
        assert_eq!(counted_ns(&[100, 300]), [100.0, 300.0]);
    }

    proptest! {
        /// The result does not depend on the scale, and vCPUs stay alike if one comes nearer to the
        /// mean.
        #[test]
        fn only_ratios_count(ns in prop::collection::vec(1..1_000_000u64, 1..16), scale in 1..1000u64) {
            let scaled: Vec<u64> = ns.iter().map(|ns| ns * scale).collect();
            prop_assert_eq!(need_alike(&needs(&ns)), need_alike(&needs(&scaled)));
            prop_assert!(need_alike(&needs(&vec![ns[0]; ns.len()])));
        }

        /// The longest slice becomes the original one or stays, and none becomes shorter.
        #[test]
        fn the_least_urgent_has_its_own_slice(longest_ns in 1..100_000_000u64, own_ns in 100_000..100_000_000u64) {
            let factor = lengthen(longest_ns, own_ns);
            prop_assert!(factor >= 1.0);
            let is_ns = longest_ns as f64 * factor;
            prop_assert!((is_ns - longest_ns.max(own_ns) as f64).abs() <= 1.0);
        }
    }
}
