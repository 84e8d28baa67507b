// SPDX-License-Identifier: MIT OR Apache-2.0
//! What holds of any sample, and of functions whose shares are known.

use proptest::prelude::*;
use unspin_worlds::*;

/// Worlds and the outcomes of a sum: input i decides as the square of its weight.
fn sum(worlds: u32, weights: &[f64], seed: u64) -> (Vec<Vec<f64>>, Vec<f64>) {
    let points: Vec<Vec<f64>> = (0..worlds).map(|i| point(i, weights.len(), seed)).collect();
    let outcomes = points.iter().map(|p| p.iter().zip(weights).map(|(x, w)| x * w).sum());
    let outcomes = outcomes.collect();
    (points, outcomes)
}

fn known(weights: &[f64]) -> Vec<f64> {
    let all: f64 = weights.iter().map(|w| w * w).sum();
    weights.iter().map(|w| w * w / all).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_first_worlds_of_more_are_the_same(index in 0u32..4096, dimensions in 1usize..20, more in 0usize..20, seed: u64) {
        let (few, many) = (point(index, dimensions, seed), point(index, dimensions + more, seed));
        prop_assert_eq!(&few[..], &many[..dimensions]);
        prop_assert!(few.iter().all(|x| (0.0..1.0).contains(x)));
    }

    /// Each half, quarter … of a coordinate has as many of a power of two of worlds.
    #[test]
    fn worlds_fill_the_cube_evenly(power in 2u32..8, dimension in 0usize..12, seed: u64) {
        let n = 1usize << power;
        let mut seen = vec![0; n];
        for i in 0..n as u32 {
            seen[(point(i, dimension + 1, seed)[dimension] * n as f64) as usize] += 1;
        }
        prop_assert!(seen.iter().all(|count| *count == 1), "{:?}", seen);
    }

    #[test]
    fn a_band_is_in_order_and_within_the_outcomes(outcomes in prop::collection::vec(-2.0..2.0f64, 1..200)) {
        let b = Band::of(&outcomes).unwrap();
        let least = outcomes.iter().copied().fold(f64::MAX, f64::min).exp();
        let most = outcomes.iter().copied().fold(f64::MIN, f64::max).exp();
        let order = [least, b.p05, b.p25, b.p50, b.p75, b.p95, most];
        prop_assert!(order.windows(2).all(|w| w[0] <= w[1] * (1.0 + 1e-12)), "{:?}", order);
        prop_assert!((0.0..=1.0).contains(&b.p_gain));
        // The ratio upside down has the band upside down.
        let other = Band::of(&outcomes.iter().map(|x| -x).collect::<Vec<_>>()).unwrap();
        prop_assert!((other.p_gain - (1.0 - b.p_gain)).abs() < 1e-9);
        prop_assert!((other.p05.ln() + b.p95.ln()).abs() < 1e-9);
        let (low, high) = b.shrunk(0.5);
        prop_assert!(b.p05 <= low * (1.0 + 1e-12) && high <= b.p95 * (1.0 + 1e-12));
    }

    #[test]
    fn a_sample_tells_the_shares_of_a_sum(a in 0.2..1.0f64, b in 0.2..1.0f64, c in 0.0..0.2f64, seed: u64) {
        let weights = [a, b, c];
        let (points, outcomes) = sum(512, &weights, seed);
        for (share, known) in shares(&points, &outcomes, seed).iter().zip(known(&weights)) {
            prop_assert!((share.share - known).abs() < 0.15, "{:?} {}", share, known);
            prop_assert!(share.low <= share.share && share.share <= share.high);
        }
    }

    /// The order is one of all arms, as probable as it is frequent, and turns with the outcomes.
    #[test]
    fn an_order_has_every_arm_once(worlds in prop::collection::vec(prop::collection::vec(-1.0..1.0f64, 4), 1..40)) {
        let o = order(&worlds).unwrap();
        let mut arms = o.best_first.clone();
        arms.sort_unstable();
        prop_assert_eq!(arms, vec![0, 1, 2, 3]);
        let same = worlds.iter().filter(|w| o.best_first.windows(2).all(|p| w[p[0]] >= w[p[1]])).count();
        prop_assert!((o.probability - same as f64 / worlds.len() as f64).abs() < 1e-9);
        prop_assert!(o.pairs.len() == 6 && o.pairs.iter().all(|p| p.probability >= 0.5));
    }

    /// Wider bands cost, and so does every bit that is missed.
    #[test]
    fn scores_prefer_the_narrow_and_the_true(low in 0.2..1.0f64, width in 0.0..1.0f64, measured in 0.1..3.0f64) {
        let high = low + width;
        let score = interval_score(low, high, measured);
        prop_assert!(score >= (high / low).ln() - 1e-12);
        prop_assert_eq!(covers(low, high, measured), (score - (high / low).ln()).abs() < 1e-12);
        prop_assert!((no_change_score(measured) - 20.0 * measured.ln().abs()).abs() < 1e-9);
        if covers(low, high, measured) {
            prop_assert!(interval_score(low / 1.1, high * 1.1, measured) > score);
        }
    }

    #[test]
    fn intervals_of_shares_hold_the_share_and_shrink(hits in 0usize..50, more in 0usize..50) {
        let of = hits + more;
        let Some([low, high]) = share_interval(hits, of) else {
            prop_assert_eq!(of, 0);
            return Ok(());
        };
        let share = hits as f64 / of as f64;
        prop_assert!(0.0 <= low && low <= share + 1e-12 && share <= high + 1e-12 && high <= 1.0);
        let [other_low, other_high] = share_interval(10 * hits, 10 * of).unwrap();
        prop_assert!(other_high - other_low < high - low);
        // Hits and misses change places.
        let [mirror_low, mirror_high] = share_interval(more, of).unwrap();
        prop_assert!((low + mirror_high - 1.0).abs() < 1e-9 && (high + mirror_low - 1.0).abs() < 1e-9);
    }

    /// Written values are read again, whatever the order of the columns.
    #[test]
    fn designs_come_back(points in prop::collection::vec(prop::collection::vec(0.0..1.0f64, 3), 1..20)) {
        let inputs: Vec<String> = ["host.exit_cycles", "a, \"b\"", "chance"].map(String::from).to_vec();
        let mut columns = Columns::default();
        for i in [2, 0, 1] {
            columns.add(&inputs[i], points.iter().map(|p| Some(format!("{:?}", p[i]))));
        }
        let text = String::from_utf8(columns.write().unwrap()).unwrap();
        prop_assert_eq!(Design::read(&text, &inputs).unwrap().points, points);
    }
}

#[test]
fn outcomes_that_are_all_the_same_are_decided_by_nothing() {
    let (points, _) = sum(64, &[1.0, 1.0], 1);
    assert!(shares(&points, &[0.5; 64], 1).iter().all(|s| s.share == 0.0 && !s.is_told()));
    assert_eq!(Band::of(&[0.0; 4]).unwrap().p_gain, 0.5);
    assert_eq!(Band::of(&[]), None);
}

/// Known quantiles of the normal distribution.
#[test]
fn the_normal_distribution_has_its_quantiles() {
    for (p, z) in [(0.5, 0.0), (0.95, 1.644853627), (0.975, 1.959963985), (0.001, -3.090232306)] {
        assert!((normal_quantile(p) - z).abs() < 1e-7, "{p}");
        assert!((normal_quantile(1.0 - p) + z).abs() < 1e-7, "{p}");
    }
}

#[test]
fn a_design_with_other_columns_is_refused() {
    let inputs = ["a".to_string(), "b".to_string()];
    let said = |text: &str| Design::read(text, &inputs).unwrap_err().to_string();
    assert!(said("a,c\n0,1\n").contains("without b and with c; the inputs are a, b"));
    assert!(said("a,b,b\n0,1,1\n").contains("with b"));
    assert!(said("a,b\n0.5,1.5\n").contains("line 2, column b: \"1.5\""));
    assert!(said("a,b\n0.5\n").contains("not CSV"));
    assert!(said("a,b\n").contains("no worlds"));
}

/// Wilson's interval of 3 of 10 at 90 %, by hand: (0.3 + 0.1353) / 1.2706 -+ 1.645 / 1.2706 * 0.1666.
#[test]
fn an_interval_of_a_share_is_wilsons() {
    let [low, high] = share_interval(3, 10).unwrap();
    assert!((low - 0.1269).abs() < 1e-3 && (high - 0.5583).abs() < 1e-3, "{low} {high}");
}
