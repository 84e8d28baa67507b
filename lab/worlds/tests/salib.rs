// SPDX-License-Identifier: MIT OR Apache-2.0
//! SALib says the same of the same designs. tests/salib.json is what bench/salib.py printed; `make
//! salib` asks it again.

use unspin_worlds::{effects, sobol_design, sobol_shares, trajectories};

fn ishigami(x: &[f64]) -> f64 {
    let [a, b, c] = [0, 1, 2].map(|i: usize| (2.0 * x[i] - 1.0) * std::f64::consts::PI);
    a.sin() + 7.0 * b.sin().powi(2) + 0.1 * c.powi(4) * a.sin()
}

fn said(what: &str) -> Vec<f64> {
    let said: serde_json::Value = serde_json::from_str(include_str!("salib.json")).unwrap();
    said[what].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

#[track_caller]
fn near(ours: &[f64], theirs: &[f64]) {
    assert_eq!(ours.len(), theirs.len());
    for (a, b) in ours.iter().zip(theirs) {
        assert!((a - b).abs() < 1e-9, "{ours:?} {theirs:?}");
    }
}

#[test]
fn shares_are_salibs() {
    let points = sobol_design(512, 3, 1);
    let outcomes: Vec<Option<f64>> = points.iter().map(|p| Some(ishigami(p))).collect();
    let shares = sobol_shares(3, &outcomes, 1);
    let alone: Vec<f64> = shares.iter().map(|s| s.alone.share).collect();
    let total: Vec<f64> = shares.iter().map(|s| s.total.share).collect();
    // A share is not below 0, which an estimate may be.
    near(&alone, &said("S1").iter().map(|x| x.max(0.0)).collect::<Vec<_>>());
    near(&total, &said("ST"));
    // Ishigami and Homma (1990): 0.314, 0.442 and 0.
    for (share, known) in shares.iter().zip([0.314, 0.442, 0.0]) {
        assert!((share.alone.share - known).abs() < 0.03, "{share:?} {known}");
        assert!(share.alone.low <= known + 0.03 && known - 0.03 <= share.alone.high, "{share:?}");
    }
}

#[test]
fn effects_are_salibs() {
    let points = trajectories(50, 3, 1);
    let outcomes: Vec<Option<f64>> = points.iter().map(|p| Some(ishigami(p))).collect();
    let effects = effects(&points, &outcomes, 1);
    near(&effects.iter().map(|e| e.mu_star).collect::<Vec<_>>(), &said("mu_star"));
    near(&effects.iter().map(|e| e.sigma).collect::<Vec<_>>(), &said("sigma"));
}
