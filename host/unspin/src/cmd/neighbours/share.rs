// SPDX-License-Identifier: MIT OR Apache-2.0
//! The share of CPU time to which each of several sibling cgroups is entitled, and the share it
//! got.

/// A cgroup that uses less, in CPUs, counts as idle.
pub const BUSY_MIN: f64 = 0.01;

/// A cgroup among its siblings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sibling {
    pub weight: Option<f64>,
    /// Its CPU time, in CPUs; `None` is unknown.
    pub cpus: Option<f64>,
}

impl Sibling {
    /// A cgroup whose CPU time is unknown has tasks, so it may be busy.
    pub fn is_busy(&self) -> bool {
        self.cpus.is_none_or(|cpus| cpus >= BUSY_MIN)
    }
}

/// Shares by weight among the busy ones; `None` for those that are idle or have no weight.
pub fn entitled(siblings: &[Sibling]) -> Vec<Option<f64>> {
    let weight = |of: &Sibling| of.weight.filter(|_| of.is_busy());
    let sum: f64 = siblings.iter().filter_map(weight).sum();
    siblings.iter().map(|of| weight(of).filter(|_| sum > 0.0).map(|weight| weight / sum)).collect()
}

/// Shares of the CPU time of all siblings and of tasks beside them (`rest`, in CPUs); `None` if it is
/// unknown, or nothing was used.
pub fn got(siblings: &[Sibling], rest: f64) -> Vec<Option<f64>> {
    let sum: f64 = siblings.iter().filter_map(|of| of.cpus).sum::<f64>() + rest;
    let is_known = sum > 0.0 && siblings.iter().all(|of| of.cpus.is_some());
    siblings.iter().map(|of| of.cpus.filter(|_| is_known).map(|cpus| cpus / sum)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sibling() -> impl Strategy<Value = Sibling> {
        let weight = prop::option::weighted(0.9, 0.25..10_000.0f64);
        let cpus = prop::option::weighted(0.9, prop_oneof![Just(0.0), 0.0..64.0f64]);
        (weight, cpus).prop_map(|(weight, cpus)| Sibling { weight, cpus })
    }

    proptest! {
        #[test]
        fn shares_of_siblings_sum_to_one(
            siblings in prop::collection::vec(sibling(), 0..20),
            rest in 0.0..4.0f64,
        ) {
            let entitled = entitled(&siblings);
            let all: Vec<f64> = entitled.iter().flatten().copied().collect();
            prop_assert!(all.is_empty() || (all.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            for (of, share) in siblings.iter().zip(&entitled) {
                prop_assert_eq!(share.is_some(), of.weight.is_some() && of.is_busy());
            }
            let got: Vec<f64> = got(&siblings, rest).into_iter().flatten().collect();
            let used: f64 = siblings.iter().filter_map(|of| of.cpus).sum();
            let sum = got.iter().sum::<f64>();
            let expected = used / (used + rest);
            prop_assert!(got.is_empty() || (sum - expected).abs() < 1e-9, "{} {}", sum, expected);
        }
    }
}
