// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin-lab figures --worlds`: predictions in many worlds, in each of which the model's costs and what
//! the papers do not print are drawn anew.

use crate::exit::{said, Usage};
use crate::worlds::{time, Inputs, ERROR};
use anyhow::Context;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use unspin_figures::{make, outlooks, unknown, Claim, Ctx, Outlooks, Row, World};
use unspin_scenario::plan::HostModel;
use unspin_worlds as stat;

#[derive(Debug, Clone, Default, clap::Args)]
pub struct WorldArgs {
    /// Also make every prediction in N worlds, and report which values they cover. Each world draws new
    /// values for the costs of the model and for what the papers do not print. A larger N extends the
    /// same list of worlds.
    #[arg(long, value_name = "N", conflicts_with = "shard", value_parser = clap::value_parser!(u32).range(2..=i64::from(stat::SAMPLES_MAX)))]
    pub worlds: Option<u32>,
    /// Seed of the worlds.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "worlds", value_parser = clap::value_parser!(u64).range(..1 << 32))]
    pub seed: u64,
}

/// What is drawn: the model's own inputs, then what files do not know.
struct Drawn {
    own: Arc<Inputs>,
    files: Vec<PathBuf>,
    names: Vec<String>,
}

impl Drawn {
    fn new(root: &Path) -> anyhow::Result<Drawn> {
        let own = Inputs::of_model(HostModel::Server);
        let unknown = unknown(root).map_err(|e| Usage(e.to_string()))?;
        let of_file = |(file, u): &(PathBuf, unspin_scenario::Unknown)| {
            let file = file.file_stem().map(|name| name.to_string_lossy().into_owned());
            format!("{}/{}", file.unwrap_or_default(), u.path)
        };
        let names: Vec<String> =
            own.names().into_iter().chain(unknown.iter().map(of_file)).collect();
        if names.len() > stat::DIMENSIONS_MAX {
            let (n, most) = (names.len(), stat::DIMENSIONS_MAX);
            return Err(Usage(format!(
                "papers/: {n} ranges, of the model's costs and of files; at most {most} can be drawn"
            ))
            .into());
        }
        let files = unknown.into_iter().map(|(file, _)| file).collect();
        Ok(Drawn { own: Arc::new(own), files, names })
    }

    fn world(&self, at: &[f64], seed: u64) -> World {
        let (own, of_files) = at.split_at(self.own.all.len());
        let mut places: BTreeMap<PathBuf, Vec<f64>> = BTreeMap::new();
        for (file, at) in self.files.iter().zip(of_files) {
            places.entry(file.clone()).or_default().push(*at);
        }
        let (inputs, own) = (Arc::clone(&self.own), own.to_vec());
        let seed = inputs.seed(&own, seed);
        World { seed, costs: Box::new(move |costs| inputs.costs(&own, costs)), places }
    }

    /// A value with what the model itself is wrong by: of ratios, and of changes as ratios.
    fn erring(&self, at: &[f64], row: Row) -> Row {
        let Some((x, none)) = row.ours.as_f64().zip(row.reference) else { return row };
        // A change is against a baseline of 1.
        let (whole, of) = if none == 0.0 { (1.0 + x, 1.0) } else { (x, none) };
        if whole <= 0.0 || of <= 0.0 {
            return row;
        }
        // Papers' hosts and programs are unlike those that the model was measured beside.
        let at = self.own.error(&at[..self.own.all.len()]);
        let sd = ERROR.unfamiliar((whole / of).ln());
        let off = at.map_or(0.0, |at| sd * stat::normal_quantile(at));
        Row { ours: (x + whole * (off.exp() - 1.0)).into(), ..row }
    }
}

/// Makes the predictions in as many worlds as were asked for. `watch` is told when one is made.
///
/// # Errors
/// Ranges that are wrong, and what takes more than a day.
pub fn fresh(
    args: &WorldArgs,
    root: &Path,
    claims: &[&Claim],
    watch: &(dyn Fn() + Sync),
) -> anyhow::Result<Outlooks> {
    let (drawn, n) = (Drawn::new(root)?, args.worlds.unwrap_or(0));
    let (mut all, mut failed): (Vec<Vec<Row>>, Vec<String>) = Default::default();
    let (since, here) = (Instant::now(), format!("{}/", root.display()));
    for i in 0..n {
        let at = stat::point(i, drawn.names.len(), args.seed);
        let ctx = Ctx::in_world(root, drawn.world(&at, args.seed), |_| {});
        let made = claims.par_iter().map(|claim| {
            let made = make(&ctx, claim).with_context(|| format!("world {i}, {}", claim.id));
            watch();
            made
        });
        let mut rows = Vec::new();
        for made in made.collect::<Vec<_>>() {
            match made {
                Ok(entry) => rows.extend(entry.rows.into_iter().map(|row| drawn.erring(&at, row))),
                // Files are named by their paths in the project.
                Err(e) => failed.push(said(&e).replace(&here, "").replace('\n', "; ")),
            }
        }
        all.push(rows);
        if i == 0 {
            let rest = since.elapsed().as_secs_f64() * f64::from(n - 1);
            let what = format!("{} more worlds of {} entries", n - 1, claims.len());
            let less = "use fewer worlds, or name entries by id";
            time::say(&what, rest, rayon::current_num_threads(), less)?;
        }
    }
    for failed in &failed {
        say!("not made: {failed}");
    }
    Ok(Outlooks {
        version: env!("CARGO_PKG_VERSION").to_string(),
        worlds: n,
        seed: args.seed,
        inputs: drawn.names,
        failed,
        values: outlooks(&all),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn() -> Drawn {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        Drawn::new(&root).unwrap()
    }

    #[test]
    fn every_range_of_the_papers_has_a_place_in_its_file() {
        let drawn = drawn();
        let n = drawn.own.all.len();
        assert!(!drawn.files.is_empty() && drawn.names.len() == n + drawn.files.len());
        let at: Vec<f64> = (0..drawn.names.len()).map(|i| i as f64 / 1e3).collect();
        let world = drawn.world(&at, 1);
        assert_eq!(world.places.values().map(Vec::len).sum::<usize>(), drawn.files.len());
        for (file, at) in drawn.files.iter().zip(&at[n..]) {
            assert!(world.places[file].contains(at), "{}", file.display());
        }
    }

    #[test]
    fn the_models_error_moves_ratios_and_changes_alike() {
        let drawn = drawn();
        let n = drawn.own.all.len();
        let claim: Claim = serde_json::from_value(serde_json::json!({
            "id": "a", "section": "1", "kind": "predict", "value": { "times": 1.3, "gain": 0.3 }
        }))
        .unwrap();
        let erring = |place: f64| {
            let mut e = unspin_figures::Entry::new(&claim, 1);
            e.performance("times", 1.3);
            e.gain("gain", 0.3);
            let at = vec![place; n];
            let ours = |row: &Row| drawn.erring(&at, row.clone()).ours.as_f64().unwrap();
            [ours(&e.rows[0]) - 1.0, ours(&e.rows[1])]
        };
        for (place, above) in [(0.1, false), (0.9, true)] {
            let [times, gain] = erring(place);
            assert!((times - gain).abs() < 1e-12 && (gain > 0.3) == above, "{times} {gain}");
        }
        assert!((erring(0.5)[1] - 0.3).abs() < 1e-9);
    }

    #[test]
    fn chance_decides_the_seed_and_places_the_costs() {
        let drawn = drawn();
        let world = |x: f64| drawn.world(&vec![x; drawn.names.len()], 1);
        assert_ne!(world(0.2).seed, world(0.3).seed);
        let usual = unspin_sim::Costs::SERVER;
        let exit = |x: f64| (world(x).costs)(&usual).exit_cycles.unwrap();
        assert!(exit(0.1) < exit(0.9));
    }
}
