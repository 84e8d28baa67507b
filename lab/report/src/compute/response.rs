// SPDX-License-Identifier: MIT OR Apache-2.0
//! Response times: from the time when a pass of the program was due by its timer to its end.

use crate::compute::measures::{vms, Over};
use crate::one_vm::Response;
use crate::stat::round;
use unspin_scenario::result::{Begin, Responses, RunResult};

/// A percentile needs at least this many samples beyond it.
const BEYOND_MIN: f64 = 10.0;
/// Percentiles need at least this many samples.
const SAMPLES_MIN: u64 = 1000;

/// All repeats together, on a machine with the clock of `begin`; `None` if the program's passes do not
/// begin with a timer.
pub(crate) fn response(of: &[&RunResult], begin: &Begin, over: Over) -> Option<Response> {
    let (mut all, mut any) = (Responses::none(), false);
    for responses in of.iter().flat_map(|r| vms(r, over)).filter_map(|vm| vm.responses.as_ref()) {
        all.count += responses.count;
        all.cycles += responses.cycles;
        any = true;
        all.hist.iter_mut().zip(&responses.hist).for_each(|(sum, count)| *sum += count);
    }
    let cycles_per_us = begin.tsc_khz.filter(|khz| *khz > 0)? as f64 / 1e3;
    if !any {
        return None;
    }
    let us = |cycles: f64| round(cycles / cycles_per_us);
    let mean = (all.count > 0).then(|| us(all.cycles as f64 / all.count as f64));
    let at =
        |part: f64| percentile(&all.hist, part).filter(|_| are_enough(all.count, part)).map(us);
    let [p50_us, p99_us, p999_us] = [0.5, 0.99, 0.999].map(at);
    Some(Response { mean_us: mean, p50_us, p99_us, p999_us, samples: all.count })
}

/// Whether this many samples are enough for the percentile at `part`.
fn are_enough(samples: u64, part: f64) -> bool {
    // Rounded: a thousandth of 10,000 is 10.
    let beyond = (samples as f64 * (1.0 - part)).round();
    samples >= SAMPLES_MIN && beyond >= BEYOND_MIN
}

/// The length that a share `part` of the passes does not exceed, in cycles, assuming an even
/// distribution within a bucket.
fn percentile(hist: &[u64], part: f64) -> Option<f64> {
    let mut left = part * hist.iter().sum::<u64>() as f64;
    for (bucket, count) in hist.iter().enumerate().filter(|(_, count)| **count > 0) {
        let count = *count as f64;
        if left <= count {
            let (from, to) = Responses::bounds(bucket);
            return Some(from as f64 + (to - from) as f64 * left / count);
        }
        left -= count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unspin_scenario::result::RESPONSE_BUCKETS;

    proptest! {
        #[test]
        fn a_percentile_is_within_an_eighth(
            mut lengths in prop::collection::vec(0..1u64 << 40, 1..200),
            part in 0.01..=1.0f64,
        ) {
            let mut hist = vec![0; RESPONSE_BUCKETS];
            lengths.iter().for_each(|length| hist[Responses::bucket(*length)] += 1);
            lengths.sort_unstable();
            let rank = (part * lengths.len() as f64).ceil() as usize;
            let exact = lengths[rank.max(1) - 1] as f64;
            let found = percentile(&hist, part).unwrap();
            prop_assert!((found - exact).abs() <= exact / 8.0 + 1.0, "{found} for {exact}");
        }
    }

    #[test]
    fn a_percentile_takes_ten_samples_beyond_it() {
        let least = |part: f64| (1..20_000).find(|samples| are_enough(*samples, part)).unwrap();
        assert_eq!([0.5, 0.99].map(least), [1000, 1000]);
        assert!((9_500..=10_000).contains(&least(0.999)), "{}", least(0.999));
    }

    #[test]
    fn nothing_has_no_percentile() {
        assert_eq!(percentile(&[0, 0], 0.5), None);
    }
}
