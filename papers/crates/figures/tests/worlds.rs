// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever is drawn of what the papers do not print, their files can be read and run.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unspin_figures::{unknown, Ctx, World};
use unspin_model::{setup, App};
use unspin_scenario::plan::HostCosts;
use unspin_scenario::Unknown;
use unspin_sim::simulate_setup;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The world in which every value lies at the next of these places.
fn world(unknown: &[(PathBuf, Unknown)], at: &[f64]) -> World {
    let mut places: BTreeMap<PathBuf, Vec<f64>> = BTreeMap::new();
    for ((file, _), at) in unknown.iter().zip(at.iter().cycle()) {
        places.entry(file.clone()).or_default().push(*at);
    }
    World { seed: 1, costs: Box::new(|_| HostCosts::default()), places }
}

/// Reads one file as its kind has it, and says what is wrong.
fn read(ctx: &Ctx, file: &Path) -> Result<(), String> {
    let name = file.file_stem().unwrap().to_str().unwrap();
    let kind = file.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let done = match kind {
        "profiles" => ctx.profile(name).map(drop).map_err(|e| e.to_string()),
        "scenarios" => ctx.plan(file.to_str().unwrap()).map(drop).map_err(|e| e.to_string()),
        _ => ctx.read(file).map_err(|e| e.to_string()).and_then(|text| {
            let app = App::parse(&text).map_err(|e| e.to_string())?;
            let made = simulate_setup(&setup(&app, app.units, false, 1, 1));
            made.map(drop).map_err(|e| e.to_string())
        }),
    };
    done.map_err(|e| format!("{}: {e}", file.display()))
}

fn all(at: &[f64]) -> Vec<String> {
    let unknown = unknown(&root()).unwrap();
    assert!(unknown.len() > 30, "{}", unknown.len());
    let ctx = Ctx::in_world(&root(), world(&unknown, at), |_| {});
    let mut files: Vec<&PathBuf> = unknown.iter().map(|(file, _)| file).collect();
    files.dedup();
    files.into_iter().filter_map(|file| read(&ctx, file).err()).collect()
}

#[test]
fn the_ends_of_all_ranges_can_be_read() {
    for end in [0.0, 1.0] {
        assert_eq!(all(&[end]), Vec::<String>::new());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn every_world_can_be_read(at in proptest::collection::vec(0.0..=1.0f64, 1..120)) {
        prop_assert_eq!(all(&at), Vec::<String>::new());
    }
}
