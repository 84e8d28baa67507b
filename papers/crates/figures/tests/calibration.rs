// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles are the ones that were calibrated, were fitted to nothing that is to be predicted, and
//! spin, or do not, as they say.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use unspin_figures::{Claims, Ctx, Kind, Runs};
use unspin_model::App;
use unspin_scenario::{parse_profile, Calibration, Profile, Selection};
use unspin_sim::Kernel;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// TOML files of a directory by their names.
fn files(dir: &Path) -> BTreeMap<String, String> {
    let all = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let toml =
        all.map(|f| f.unwrap().path()).filter(|p| p.extension().is_some_and(|x| x == "toml"));
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    toml.map(read).collect()
}

fn profiles(dir: &Path) -> Vec<Profile> {
    let read = |(name, text): (String, String)| {
        parse_profile(&name, &name, &text).unwrap_or_else(|e| panic!("{e}"))
    };
    files(dir).into_iter().map(read).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Swept {
    sha256: String,
    #[serde(rename = "inefficiency_at_512_permille")]
    _measured: u32,
}

#[test]
fn the_labs_profiles_are_those_that_were_swept() {
    let text = std::fs::read_to_string(root().join("results/calibration.json")).unwrap();
    let swept: BTreeMap<String, Swept> = serde_json::from_str(&text).unwrap();
    assert_eq!(swept.len(), 7, "the seven programs of APPLES, section 4.3");
    let profiles = profiles(&root().join("profiles"));
    let mut wrong = Vec::new();
    for (name, of) in swept {
        let hash = profiles.iter().find(|p| p.name == name).map(Profile::fingerprint);
        if hash.as_ref() != Some(&of.sha256) {
            wrong.push(format!("{name}: {hash:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "other programs than those swept: {wrong:?}; sweep them again (scenarios/calibration.toml), \
         and record it in results/calibration.json"
    );
}

/// Everything that is recorded: name, record, and the hash of what there is.
fn records() -> Vec<(String, Option<Calibration>, String)> {
    let papers = std::fs::read_dir(root().join("papers")).unwrap();
    let papers = papers.map(|paper| paper.unwrap().path().join("profiles"));
    let programs = papers.filter(|dir| dir.is_dir()).flat_map(|dir| profiles(&dir));
    let of_program = |p: Profile| (p.name.clone(), p.calibration.clone(), p.fingerprint());
    let of_model = |(name, text): (String, String)| {
        let app = App::parse(&name, &text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(app.name, name, "a model has its file's name");
        (name, app.calibration.clone(), app.fingerprint())
    };
    let models = files(&root().join("models")).into_iter().map(of_model);
    programs.map(of_program).chain(models).collect()
}

/// A profile of a paper is what its record says, and was fitted, if at all, to claims that may be
/// fitted to.
#[test]
fn profiles_of_the_papers_have_their_records() {
    let claims = Claims::read(&root()).unwrap();
    let records = records();
    assert!(records.len() >= 62, "{}", records.len());
    let mut wrong = Vec::new();
    for (name, record, hash) in records {
        let Some(record) = record else {
            wrong.push(format!("{name} has no [calibration]; its sha256 is {hash}"));
            continue;
        };
        if record.sha256 != hash {
            wrong.push(format!("{name} changed and its record did not: sha256 = \"{hash}\""));
        }
        for id in record.entries {
            if claims.all.iter().find(|c| c.id == id).map(|c| c.kind) != Some(Kind::Calibrate) {
                wrong.push(format!("{name} was fitted to {id}, which is not to be fitted to"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// EXIM, LKC and METIS (APSys 2015, 5) are three programs.
#[test]
fn no_program_of_apsys_stands_for_another() {
    let all = profiles(&root().join("papers/oticket/profiles"));
    let programs: BTreeSet<String> = all.iter().map(Profile::fingerprint).collect();
    assert_eq!((all.len(), programs.len()), (3, 3));
}

/// A name is one file's: of a program or of an analytic model, of the lab or of a paper.
#[test]
fn no_two_profiles_have_one_name() {
    let lab = files(&root().join("profiles")).into_keys();
    let all: Vec<String> = records().into_iter().map(|(name, ..)| name).chain(lab).collect();
    let mut seen = BTreeSet::new();
    for name in all {
        assert!(seen.insert(name.clone()), "two profiles are called {name}");
    }
}

/// APPLES (TPDS 2017) 4.2: spin-intensive is who wastes over 5 % at a fixed window of 512 cycles.
fn follow_the_rule(scenario: &str, kernel: Kernel, like: &str) {
    let ctx = Ctx::new(&root(), Some(1), |_| {});
    let select = Selection { arms: vec!["fixed-512".into()], vms: vec![2], ..Selection::default() };
    let setups = ctx.setups(scenario, kernel, &select).unwrap();
    let at_512: Vec<_> = setups.into_iter().filter(|s| s.run.arm.name == "fixed-512").collect();
    let names: BTreeSet<String> = at_512.iter().map(|s| s.run.profile.clone()).collect();
    let runs = Runs { all: ctx.simulate(&at_512).unwrap() };
    let names: Vec<&String> = names.iter().filter(|name| name.starts_with(like)).collect();
    let mut wrong = Vec::new();
    for name in &names {
        let inefficiency = runs.inefficiency(name, 2, "fixed-512");
        if (inefficiency > 0.05) != ctx.profile(name).unwrap().spin_intensive {
            wrong.push(format!("{name}: {:.1} %", 100.0 * inefficiency));
        }
    }
    assert!(names.len() >= 8 && wrong.is_empty(), "of {}: {wrong:?}", names.len());
}

#[test]
fn the_labs_profiles_spin_as_they_say() {
    follow_the_rule("scenarios/calibration.toml", Kernel::V6_1, "");
}

#[test]
fn apples_profiles_spin_as_they_say() {
    follow_the_rule("papers/apples/scenarios/apples.toml", Kernel::V3_19, "apples-");
}
