// SPDX-License-Identifier: MIT OR Apache-2.0
//! Designs of this crate and their outcomes of Ishigami's function, as CSV, for bench/salib.py:
//! `cargo run --example ishigami -- sobol` or `morris`.

use unspin_worlds::{sobol_design, trajectories, Columns};

const ROWS: u32 = 512;
const TRAJECTORIES: usize = 50;
const SEED: u64 = 1;

/// Ishigami's function with its usual numbers, of coordinates from 0 to 1.
fn ishigami(x: &[f64]) -> f64 {
    let [a, b, c] = [0, 1, 2].map(|i: usize| (2.0 * x[i] - 1.0) * std::f64::consts::PI);
    a.sin() + 7.0 * b.sin().powi(2) + 0.1 * c.powi(4) * a.sin()
}

fn main() {
    let points = match std::env::args().nth(1).as_deref() {
        Some("sobol") => sobol_design(ROWS, 3, SEED),
        Some("morris") => trajectories(TRAJECTORIES, 3, SEED),
        _ => panic!("sobol or morris"),
    };
    let mut columns = Columns::default();
    for (i, name) in ["x1", "x2", "x3"].into_iter().enumerate() {
        columns.add(name, points.iter().map(|p| Some(format!("{:?}", p[i]))));
    }
    columns.add("y", points.iter().map(|p| Some(format!("{:?}", ishigami(p)))));
    print!("{}", String::from_utf8(columns.write().unwrap()).unwrap());
}
